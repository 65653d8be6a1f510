//! Plans in files.

use serde_json::{Value as Json, json};

use super::{VERSIONS, declared, foreign, marks, planned, queue, topology};
use crate::topology::{
    live::{Live, Version},
    plan::{Stored, StoredError},
};

const NEW: Version = VERSIONS[3];

fn stored(live: &Live) -> Stored {
    let topology = topology();
    Stored::new(
        &planned(live),
        &topology.objects(),
        &topology.scope("v", live),
        &live.cluster,
    )
}

#[test]
fn a_file_holds_the_whole_plan() {
    let mut live = declared(&topology().objects(), NEW);
    live.queues.truncate(10);
    live.policies.clear();
    let stored = stored(&live);
    let text = stored.to_text();
    let read = Stored::parse(&text).unwrap();
    assert_eq!(read, stored);
    assert_eq!(
        read.wanted,
        topology().objects(),
        "every argument is known to the reader"
    );
    assert_eq!(marks(&read.plan(&live)), marks(&planned(&live)));
    assert_eq!(read.moved_on(&read.plan(&live)).len(), 0);
}

#[test]
fn what_others_did_meanwhile_is_fine_and_what_is_new_is_not() {
    let mut live = declared(&topology().objects(), NEW);
    live.queues
        .retain(|q| q.name != "member.queue" && q.name != "task.delay.30m");
    live.queues.push(foreign("task.old", json!({})));
    let before = live.clone();
    let stored = stored(&live);

    live.queues = declared(&topology().objects(), NEW).queues;
    assert_eq!(
        stored.moved_on(&stored.plan(&live)).len(),
        0,
        "somebody else applied and pruned"
    );

    live = before.clone();
    live.queues
        .iter_mut()
        .find(|q| q.name == "task.old")
        .unwrap()
        .messages = Some(9);
    assert_eq!(
        stored.moved_on(&stored.plan(&live)).len(),
        0,
        "a count is no change"
    );

    live = before.clone();
    queue(&mut live, "order.close.queue")
        .arguments
        .insert("x-max-length".into(), json!(1));
    live.queues.push(foreign("task.older", json!({})));
    live.exchanges.retain(|e| e.name != "task.ingress");
    let now = stored.plan(&live);
    let moved: Vec<String> = stored
        .moved_on(&now)
        .iter()
        .map(|change| change.object().to_string())
        .collect();
    assert_eq!(
        moved,
        [
            "exchange task.ingress",
            "queue order.close.queue",
            "queue task.older"
        ]
    );

    // What was to be added is there with another argument.
    live = before;
    let mut other = declared(&topology().objects(), NEW)
        .queue("member.queue")
        .unwrap()
        .clone();
    other.arguments.remove("x-single-active-consumer");
    live.queues.push(other);
    assert_eq!(stored.moved_on(&stored.plan(&live)).len(), 1);
}

#[test]
fn what_is_no_plan_is_refused_with_the_reason() {
    let text = stored(&declared(&topology().objects(), NEW)).to_text();
    let edited = text.replacen("\"order.close.#\"", "\"order.#\"", 1);
    assert_ne!(edited, text);
    assert_eq!(Stored::parse(&edited), Err(StoredError::Edited));
    let newer = text.replacen("\"format\": 1", "\"format\": 2", 1);
    assert_eq!(Stored::parse(&newer), Err(StoredError::Format { found: 2 }));
    for garbage in ["", "{}", "[]", "plan", "{\"format\":1}", &text[..text.len() / 2]] {
        assert!(Stored::parse(garbage).is_err(), "{garbage:.20}");
    }
    // The order of keys and the white space are nobody's edit.
    let compact = serde_json::from_str::<Json>(&text).unwrap().to_string();
    assert!(Stored::parse(&compact).is_ok());
}
