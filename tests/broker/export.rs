//! Exported definitions, imported by the broker, are the topology: nothing is left to declare, and nothing is different.

use std::{collections::BTreeSet, path::Path, time::Duration};

use serde_json::Value;
use tidegate::{
    broker::{declare, management::Management},
    core::{ladder::Destination, names::Names},
    topology::{
        Objects, Topology, export,
        live::{Live, Version},
    },
};
use tidegate_testkit::{Vhost, eventually};

use super::{
    declare::{apply, connect, shipped},
    management::management,
};

/// Brokers from here on know the policy for the consumer timeout.
const KNOWS_CONSUMER_TIMEOUT: Version = Version::new(3, 12, 0);

/// The shipped topology and a queue with everything that can be said of one.
fn topology() -> Topology {
    let everything = "[[queue]]\nname = \"every.thing:queue\"\nbind = [\"every.*.\\\"quoted\\\"\", \"任务.#\"]\nowner = \"o\"\n\
                      max_length = 1000\nsingle_active_consumer = true\ndelivery_limit = 7\nconsumer_timeout = \"45m\"\n\
                      high_lane = { threshold = 200 }\n";
    // B45: the longest names and keys that files may have.
    let longest = format!(
        "[[queue]]\nname = \"{}\"\nbind = [\"{}kk\"]\nowner = \"o\"\nconsumer_timeout = \"45m\"\nhigh_lane = {{ threshold = 1 }}\n",
        "q.".repeat(116) + "q",
        "错".repeat(78)
    );
    let order =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("topology/order.toml")).unwrap();
    let platform = "prefix = \"prefix-of-thirty-two-characters-\"\nladder_version = 2\n[[fixed_delay]]\nname = \"30m\"\n";
    Topology::parse(&[
        ("platform.toml", platform),
        ("order.toml", &order),
        ("every.toml", everything),
        ("longest.toml", &longest),
    ])
    .unwrap()
}

/// What is on the broker as one line for each object, and the same of `objects`.
fn lines(live: &Live, objects: &Objects) -> [BTreeSet<String>; 2] {
    let json = |arguments: Vec<(String, Value)>| {
        let sorted: std::collections::BTreeMap<String, Value> = arguments.into_iter().collect();
        serde_json::to_string(&sorted).unwrap()
    };
    let (mut there, mut wanted) = (BTreeSet::new(), BTreeSet::new());
    for e in &live.exchanges {
        let arguments = json(e.arguments.clone().into_iter().collect());
        let flags = (e.durable, e.auto_delete, e.internal);
        there.insert(format!("exchange {} {} {flags:?} {arguments}", e.name, e.kind));
    }
    for e in &objects.exchanges {
        let alternate = e
            .alternate
            .iter()
            .map(|a| ("alternate-exchange".to_owned(), a.as_str().into()));
        let arguments = json(alternate.collect());
        let flags = (true, false, false);
        wanted.insert(format!(
            "exchange {} {} {flags:?} {arguments}",
            e.name,
            e.kind.as_str()
        ));
    }
    for q in &live.queues {
        let arguments = json(q.arguments.clone().into_iter().collect());
        let flags = (q.durable, q.auto_delete, q.exclusive);
        there.insert(format!("queue {} {} {flags:?} {arguments}", q.name, q.kind));
    }
    for q in &objects.queues {
        let arguments = json(
            q.arguments
                .iter()
                .map(|(k, v)| ((*k).to_owned(), v.to_json()))
                .collect(),
        );
        let flags = (true, false, false);
        wanted.insert(format!("queue {} quorum {flags:?} {arguments}", q.name));
    }
    for b in &live.bindings {
        let arguments = json(b.arguments.clone().into_iter().collect());
        there.insert(format!(
            "binding {} {:?} {} {arguments}",
            b.source, b.destination, b.pattern
        ));
    }
    for b in &objects.bindings {
        let destination: &Destination = &b.destination;
        wanted.insert(format!("binding {} {destination:?} {} {{}}", b.source, b.pattern));
    }
    for p in &live.policies {
        let definition = json(p.definition.clone().into_iter().collect());
        there.insert(format!(
            "policy {} {} {} {} {definition}",
            p.name, p.pattern, p.apply_to, p.priority
        ));
    }
    for p in &objects.policies {
        let definition = json(
            p.definition
                .iter()
                .map(|(k, v)| ((*k).to_owned(), v.to_json()))
                .collect(),
        );
        wanted.insert(format!(
            "policy {} {} {} {} {definition}",
            p.name, p.pattern, p.apply_to, p.priority
        ));
    }
    [there, wanted]
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_makes_all_that_apply_would() {
    let vhost = Vhost::create().await;
    let (topology, reader) = (topology(), management(&vhost));
    let mut objects = topology.objects();
    assert_eq!(objects.policies.len(), 2);
    if reader.read_live().await.unwrap().version < KNOWS_CONSUMER_TIMEOUT {
        // That is why they can be left out.
        let other = Vhost::create().await;
        let refused = other
            .management()
            .import_definitions(&export::definitions(&objects, None))
            .await
            .unwrap_err();
        assert!(refused.contains("consumer-timeout"), "{refused}");
        other.close().await;
        objects.policies.clear();
    }
    let definitions = export::definitions(&objects, None);
    for _ in 0..2 {
        vhost.management().import_definitions(&definitions).await.unwrap();
        let live = reader.read_live().await.unwrap();
        let [there, wanted] = lines(&live, &objects);
        let (extra, missing): (Vec<_>, Vec<_>) = (
            there.difference(&wanted).collect(),
            wanted.difference(&there).collect(),
        );
        assert_eq!((extra, missing), (vec![], vec![]));
    }
    // One by one, as a repair does it, the longest name too.
    for policy in &objects.policies {
        reader.set_policy(policy).await.unwrap();
    }
    in_force(&reader, &objects).await;
    let connection = connect(vhost.amqp_url()).await;
    assert_eq!(declare::missing(&connection, &objects).await.unwrap(), []);
    assert_eq!(apply(&connection, &objects).await.unwrap().objects, objects.len());
    vhost.close().await;
}

/// Waits until the broker has put each policy in force for its queue and lane, and for nothing else.
async fn in_force(reader: &Management, objects: &Objects) {
    let mut wanted = BTreeSet::new();
    for policy in &objects.policies {
        let (_, queue) = policy.name.split_once(".consumer-timeout.").unwrap();
        for name in [queue.to_owned(), Names::high_lane(queue)] {
            wanted.insert((name, policy.name.clone()));
        }
    }
    eventually(Duration::from_secs(30), "the policies in force", async || {
        let live = reader.read_live().await.unwrap();
        let found = live
            .queues
            .into_iter()
            .filter_map(|q| Some((q.name, q.policy.filter(|p| !p.is_empty())?)));
        found.collect::<BTreeSet<_>>() == wanted
    })
    .await;
}

/// An import that spans virtual hosts names its own in each object, whatever the name.
#[tokio::test(flavor = "multi_thread")]
async fn the_file_of_the_shipped_topology_can_be_imported() {
    let vhost = Vhost::create().await;
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("topology/rendered/definitions.json");
    let definitions = std::fs::read_to_string(file).unwrap();
    vhost.management().import_definitions(&definitions).await.unwrap();
    let live = management(&vhost).read_live().await.unwrap();
    let [there, wanted] = lines(&live, &shipped().objects());
    assert_eq!(there, wanted);
    let named = export::definitions(&shipped().objects(), Some(vhost.name()));
    vhost.management().import_definitions(&named).await.unwrap();
    assert_eq!(
        management(&vhost).read_live().await.unwrap().queues.len(),
        live.queues.len()
    );
    vhost.close().await;
}
