//! What goes out, and what is refused.

use std::{collections::BTreeSet, io::Write};

use lapin::{
    BasicProperties,
    options::{QueueDeclareOptions, QueueDeleteOptions},
    types::{AMQPValue, FieldTable},
};
use tidegate::{
    broker::record::record,
    core::{
        dispose::DeadReason,
        headers,
        replay::{
            choice::{Destination, Retries},
            plan::Options,
        },
    },
    deadletter::replay::{
        preview::preview,
        request::{BodyText, EditText, IdChoice, KeyText},
    },
    store::dead_letters::runs::RunState,
};

use super::stage::{PATCH, Stage, header, letter, patched, properties, request, states};
use crate::{broker::QUEUE, letters::Letter};

/// B82: what nobody edits is what came, number for number; what no parser understands too.
#[tokio::test]
async fn a_dead_letter_goes_out_byte_for_byte_with_its_headers() {
    let stage = Stage::create().await;
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(&letter(1).body).unwrap();
    let bodies: [Vec<u8>; 5] = [
        letter(0).body,
        gzip.finish().unwrap(),
        b"no json \0 \xff\xfe".to_vec(),
        Vec::new(),
        vec![b'x'; 64 * 1024],
    ];
    let letters: Vec<Letter> = (0..)
        .zip(&bodies)
        .map(|(n, body)| Letter {
            body: body.clone(),
            properties: match n {
                1 => record(&properties().with_content_encoding("gzip".into())),
                _ => record(&properties()),
            },
            ..letter(n)
        })
        .collect();
    stage.archive(&letters).await;
    let report = stage.replay(&request(["state=open"])).await;
    assert_eq!((report.end, report.sent, report.refused), (RunState::Done, 5, 0));
    let taken = stage.take(5).await;
    let sent: BTreeSet<Vec<u8>> = taken.iter().map(|delivery| delivery.data.clone()).collect();
    assert_eq!(sent, bodies.into_iter().collect());
    for delivery in &taken {
        let table = delivery.properties.headers().clone().unwrap();
        let before = properties().headers().clone().unwrap();
        for name in [
            "tenant",
            "traceparent",
            "weight",
            headers::TASK_TYPE,
            headers::ROUTING_KEY,
        ] {
            assert_eq!(table.inner().get(name), before.inner().get(name), "{name}");
        }
        assert_eq!(header(delivery, headers::ATTEMPT).as_deref(), Some("1"));
        assert_eq!(header(delivery, headers::ORIGIN).as_deref(), Some("replay"));
        let of = header(delivery, headers::REPLAY_OF).unwrap();
        let original = letters.iter().find(|letter| letter.id.to_string() == of).unwrap();
        assert_eq!(original.body, delivery.data, "it names what it replays");
        for name in [
            headers::ERROR,
            headers::DEAD_REASON,
            headers::CRASHES,
            headers::DEAD_LETTER_ID,
        ] {
            assert_eq!(header(delivery, name), None, "{name} tells of the last life");
        }
        let text =
            |value: &Option<lapin::types::ShortString>| value.as_ref().map(|text| text.as_str().to_owned());
        let kept = &delivery.properties;
        assert_eq!(text(kept.message_id()).as_deref(), Some("as-sent"));
        assert_eq!(text(kept.reply_to()).as_deref(), Some("answers"));
        assert_eq!(text(kept.correlation_id()).as_deref(), Some("trace-1"));
        assert_eq!(kept.timestamp(), &Some(1_743_595_200));
    }
    assert_eq!(stage.states().await, states([("REPLAYED", 5)]));
    let whole: (i64, String, String) = sqlx::query_as(
        "SELECT count(*), min(who || ': ' || why), min(subject) FROM tidegate.audit_log WHERE what = 'dead_letter.replay'",
    )
    .fetch_one(&stage.db.sql)
    .await
    .unwrap();
    assert_eq!(whole, (1, "ann: mended".to_owned(), "state=OPEN".to_owned()));
}

#[tokio::test]
async fn only_what_is_meant_goes_out_one_many_or_a_group() {
    let stage = Stage::create().await;
    let mut letters: Vec<Letter> = (0..9).map(letter).collect();
    for letter in &mut letters[3..] {
        letter.error_kind = "timeout".to_owned();
    }
    stage.archive(&letters).await;
    let ids = |taken: &[lapin::message::Delivery]| -> BTreeSet<String> {
        taken
            .iter()
            .map(|d| header(d, headers::REPLAY_OF).unwrap())
            .collect()
    };
    let named =
        |letters: &[Letter]| -> BTreeSet<String> { letters.iter().map(|l| l.id.to_string()).collect() };

    let one = format!("id={}", letters[0].id);
    assert_eq!(stage.replay(&request([one.as_str()])).await.sent, 1);
    assert_eq!(ids(&stage.take(1).await), named(&letters[..1]));

    let group = format!("fingerprint={}", letters[1].fingerprint());
    assert_eq!(stage.replay(&request([group.as_str()])).await.sent, 2);
    assert_eq!(ids(&stage.take(2).await), named(&letters[1..3]));

    let mut limited = request(["type=order.#"]);
    limited.options = Options {
        limit: Some(4),
        ..limited.options
    };
    assert_eq!(stage.replay(&limited).await.sent, 4);
    assert_eq!(
        ids(&stage.take(4).await),
        named(&letters[3..7]),
        "the oldest first"
    );

    assert!(
        stage
            .replays()
            .begin(&request([one.as_str()]))
            .await
            .unwrap()
            .is_none(),
        "what was replayed is not open"
    );
    assert_eq!(stage.states().await, states([("OPEN", 2), ("REPLAYED", 7)]));
}

/// B80: an edited replay went out without type, key, trace and reply address, as a late attempt.
#[tokio::test]
async fn an_edit_changes_what_it_says_and_keeps_what_describes_the_task() {
    let stage = Stage::create().await;
    let letters = stage.dead(3).await;
    let asked = tidegate::deadletter::replay::request::Request {
        edit: EditText {
            payload_version: Some(2),
            ..patched(PATCH)
        },
        ..request(["state=open"])
    };
    assert_eq!(stage.replay(&asked).await.sent, 3);
    for delivery in stage.take(3).await {
        let of = header(&delivery, headers::REPLAY_OF).unwrap();
        let original = letters.iter().find(|letter| letter.id.to_string() == of).unwrap();
        let before = String::from_utf8(original.body.clone()).unwrap();
        let expected = before
            .replace("\"price\":1.10}", "\"price\":1.10,\"currency\":\"EUR\"}")
            .replace("} }", "},\"payloadVersion\":2 }");
        let after = String::from_utf8(delivery.data.clone()).unwrap();
        assert_eq!(
            after.replace(", ", ",").replace(": ", ":"),
            expected.replace(", ", ",").replace(": ", ":")
        );
        assert!(
            after.contains("9007199254740991") && after.contains("1.10"),
            "{after}"
        );
        assert_eq!(header(&delivery, headers::ATTEMPT).as_deref(), Some("1"));
        assert_eq!(
            header(&delivery, headers::TASK_TYPE).as_deref(),
            Some("order.close")
        );
        assert_eq!(
            header(&delivery, headers::ROUTING_KEY).as_deref(),
            Some("order.close.timeout")
        );
        assert!(header(&delivery, "traceparent").is_some());
        let text =
            |value: &Option<lapin::types::ShortString>| value.as_ref().map(|text| text.as_str().to_owned());
        assert_eq!(text(delivery.properties.reply_to()).as_deref(), Some("answers"));
        assert_eq!(text(delivery.properties.message_id()), original.task_id);
        let (who, told_before, told_after): (String, Vec<u8>, Vec<u8>) = sqlx::query_as(
            "SELECT who, before, after FROM tidegate.audit_log WHERE what = 'dead_letter.edit' AND subject = $1",
        )
        .bind(&of)
        .fetch_one(&stage.db.sql)
        .await
        .unwrap();
        assert_eq!(
            (who.as_str(), told_before, told_after),
            ("ann", original.body.clone(), delivery.data)
        );
    }
}

#[tokio::test]
async fn what_an_edit_does_not_fit_stays_open_and_another_run_takes_it() {
    let stage = Stage::create().await;
    let mut letters: Vec<Letter> = (0..4).map(letter).collect();
    letters[1].body = b"no json".to_vec();
    letters[2].body = br#"{"taskId":"task-00002","taskType":"order.close","payload":{}}"#.to_vec();
    stage.archive(&letters).await;
    let edit = patched(r#"[{"op":"replace","path":"/payload/price","value":1.20}]"#);
    let asked = tidegate::deadletter::replay::request::Request {
        edit,
        ..request(["state=open"])
    };
    let shown = preview(
        &stage.db.store,
        &asked,
        &tidegate::core::envelope::Limits::standard(),
        10,
    )
    .await
    .unwrap();
    assert_eq!((shown.would_take, shown.tried, shown.samples.len()), (4, 4, 4));
    assert_eq!(
        shown
            .samples
            .iter()
            .filter(|sample| sample.after.is_some())
            .count(),
        2
    );
    assert_eq!(
        stage.states().await,
        states([("OPEN", 4)]),
        "a preview changes nothing"
    );

    let report = stage.replay(&asked).await;
    assert_eq!((report.end, report.sent, report.refused), (RunState::Done, 2, 2));
    assert_eq!(report.refusals.by_count().len(), 2, "{:?}", report.refusals);
    assert_eq!(stage.take(2).await.len(), 2);
    assert_eq!(stage.states().await, states([("OPEN", 2), ("REPLAYED", 2)]));

    let whole = tidegate::deadletter::replay::request::Request {
        edit: EditText {
            body: BodyText::Whole(
                r#"{"taskId":"mended","taskType":"order.close","payload":{"n":1}}"#.to_owned(),
            ),
            task_id: IdChoice::New,
            key: KeyText::New,
            ..EditText::default()
        },
        ..request([format!("id={}", letters[1].id).as_str()])
    };
    assert_eq!(stage.replay(&whole).await.sent, 1);
    let taken = stage.take(1).await;
    let body: serde_json::Value = serde_json::from_slice(&taken[0].data).unwrap();
    let sent: Option<String> =
        sqlx::query_scalar("SELECT sent_task_id FROM tidegate.dead_letters WHERE id = $1")
            .bind(letters[1].id)
            .fetch_one(&stage.db.sql)
            .await
            .unwrap();
    assert_eq!(body["taskId"].as_str(), sent.as_deref());
    assert_ne!(body["taskId"], "mended");
    assert!(body["idempotencyKey"].as_str().unwrap().starts_with("replay-"));
}

#[tokio::test]
async fn where_it_goes_is_a_choice_and_a_missing_queue_is_told() {
    let stage = Stage::create().await;
    let mut letters: Vec<Letter> = (0..4).map(letter).collect();
    letters[0].queue = "gone.queue".to_owned();
    letters[1].reason = DeadReason::Unroutable;
    letters[1].queue = "task.unrouted.queue".to_owned();
    letters[2].queue = "task.ingress.queue".to_owned();
    stage.archive(&letters).await;
    sqlx::query("UPDATE tidegate.dead_letters SET routing_key = 'order.close.late'")
        .execute(&stage.db.sql)
        .await
        .unwrap();
    let report = stage.replay(&request(["state=open"])).await;
    assert_eq!((report.sent, report.refused), (2, 2));
    let reasons = format!("{:?}", report.refusals);
    assert!(
        reasons.contains("gone.queue") && reasons.contains("--to routing-key"),
        "{reasons}"
    );
    assert_eq!(stage.take(1).await.len(), 1);
    let by_ingress = stage.take_from("task.ingress.queue", 1).await;
    assert_eq!(by_ingress[0].routing_key.as_str(), "order.close.late");
    assert!(
        stage.take_from("task.unrouted.queue", 0).await.is_empty(),
        "nothing went into nothing"
    );

    let by_key = tidegate::deadletter::replay::request::Request {
        edit: EditText {
            to: Destination::RoutingKey,
            retries: Retries::Keep,
            ..EditText::default()
        },
        ..request(["state=open"])
    };
    assert_eq!(stage.replay(&by_key).await.sent, 2);
    let taken = stage.take(2).await;
    assert!(taken.iter().all(|d| d.routing_key.as_str() == "order.close.late"));
    assert!(
        taken
            .iter()
            .all(|d| header(d, headers::ATTEMPT).as_deref() == Some("4"))
    );
    assert_eq!(stage.states().await, states([("REPLAYED", 4)]));

    // The queue that failed is deleted before the run: nothing is lost, nothing is sent into nothing.
    stage.archive(&[letter(7)]).await;
    stage
        .broker
        .channel
        .queue_delete(QUEUE.into(), QueueDeleteOptions::default())
        .await
        .unwrap();
    let report = stage.replay(&request(["state=open"])).await;
    assert_eq!((report.sent, report.refused), (0, 1));
    assert_eq!(stage.states().await, states([("OPEN", 1), ("REPLAYED", 4)]));

    // A queue of somebody's own that dead-letters into the archive: nothing of ours leads there.
    let own = Letter {
        queue: "own.queue".to_owned(),
        ..letter(8)
    };
    stage.archive(&[own]).await;
    stage
        .broker
        .channel
        .queue_declare(
            "own.queue".into(),
            QueueDeclareOptions::default(),
            FieldTable::default(),
        )
        .await
        .unwrap();
    let report = stage.replay(&request(["queue=own.queue"])).await;
    assert_eq!((report.sent, report.refused), (0, 1));
    let reasons = format!("{:?}", report.refusals);
    assert!(reasons.contains("in no topology file"), "{reasons}");
    assert_eq!(stage.states().await, states([("OPEN", 2), ("REPLAYED", 4)]));
}

/// A message with headers that nest without end, and one without any property.
#[tokio::test]
async fn odd_messages_are_replayed_too() {
    let stage = Stage::create().await;
    let mut deep = FieldTable::default();
    for _ in 0..90 {
        let mut around = FieldTable::default();
        around.insert("in".into(), AMQPValue::FieldTable(deep));
        deep = around;
    }
    let letters = [
        Letter {
            properties: record(&BasicProperties::default().with_headers(deep.clone())),
            ..letter(0)
        },
        Letter {
            properties: record(&BasicProperties::default()),
            task_id: None,
            body: Vec::new(),
            ..letter(1)
        },
        Letter {
            properties: "what nobody wrote".to_owned(),
            ..letter(2)
        },
    ];
    stage.archive(&letters).await;
    let report = stage.replay(&request(["state=open"])).await;
    assert_eq!((report.sent, report.refused), (2, 1), "{:?}", report.refusals);
    let taken = stage.take(2).await;
    assert!(taken.iter().any(|delivery| {
        let table = delivery.properties.headers().clone().unwrap();
        table.inner().get("in") == deep.inner().get("in")
    }));
}
