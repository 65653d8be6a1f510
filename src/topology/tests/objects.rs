//! Rendering: the shipped topology as it stands on the broker, and the order in which it gets there.

use std::{collections::BTreeSet, path::Path};

use crate::topology::{Object, Objects, Topology, Value};

fn shipped() -> Objects {
    Topology::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("topology"))
        .unwrap()
        .objects()
}

#[test]
fn the_shipped_topology_renders_as_recorded() {
    insta::assert_snapshot!(shipped());
}

#[test]
fn every_queue_is_quorum_and_none_expires_or_loses_silently() {
    for queue in shipped().queues {
        let text = |key| match queue.arguments.get(key) {
            Some(Value::Text(text)) => text.as_str(),
            _ => "",
        };
        assert_eq!(text("x-queue-type"), "quorum", "{queue}");
        assert_eq!(text("x-overflow"), "reject-publish", "{queue}");
        assert!(!queue.arguments.contains_key("x-expires"), "{queue}");
        if queue.name != "task.dead.queue" {
            assert_eq!(text("x-dead-letter-strategy"), "at-least-once", "{queue}");
        }
    }
}

#[test]
fn objects_are_declared_after_what_they_lean_on() {
    let objects = shipped();
    let mut declared = BTreeSet::new();
    let mut bound = BTreeSet::new();
    let mut count = 0;
    for step in objects.steps() {
        for object in &step {
            count += 1;
            match object {
                Object::Exchange(e) => {
                    if let Some(alternate) = &e.alternate {
                        assert!(declared.contains(alternate), "{e}");
                        assert!(bound.contains(alternate), "{e}: its alternate leads nowhere yet");
                    }
                }
                Object::Queue(q) => {
                    if let Some(Value::Text(exchange)) = q.arguments.get("x-dead-letter-exchange") {
                        assert!(declared.contains(exchange), "{q}");
                    }
                }
                Object::Binding(b) => {
                    assert!(
                        declared.contains(&b.source) && declared.contains(b.destination_name()),
                        "{b}"
                    );
                }
            }
        }
        // Only now: the objects of one step may be declared in any order.
        for object in step {
            match object {
                Object::Exchange(e) => declared.insert(e.name.clone()),
                Object::Queue(q) => declared.insert(q.name.clone()),
                Object::Binding(b) => bound.insert(b.source.clone()),
            };
        }
    }
    assert_eq!(count, objects.len(), "every object is in exactly one step");
}

#[test]
fn optional_arguments_are_rendered_when_asked_for() {
    let team = "[[queue]]\nname = \"a.queue\"\nbind = [\"a\"]\nowner = \"a\"\nmax_length = 10\n\
                single_active_consumer = true\nhigh_lane = { threshold = 0 }\ndelivery_limit = 3\n";
    let objects = Topology::parse(&[("platform.toml", ""), ("a.toml", team)])
        .unwrap()
        .objects();
    for name in ["a.queue", "a.queue.high"] {
        let queue = objects.queues.iter().find(|q| q.name == name).unwrap();
        assert_eq!(queue.arguments.get("x-max-length"), Some(&Value::Int(10)));
        assert_eq!(
            queue.arguments.get("x-single-active-consumer"),
            Some(&Value::Bool(true))
        );
        assert_eq!(queue.arguments.get("x-delivery-limit"), Some(&Value::Int(3)));
        assert_eq!(
            queue.arguments.get("x-dead-letter-routing-key"),
            Some(&Value::Text(name.to_owned()))
        );
    }
}
