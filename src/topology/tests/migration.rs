//! Migrations on a broker made of values: where does a message go after each step, and does every end get finished?

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;
use tidegate_core::{ladder::Destination, names::Names};

use crate::topology::{
    Topology,
    live::{Live, LiveBinding, LiveExchange, LiveQueue},
    migration::{
        Action, Intent, Known, Link, MAX_QUEUE_BYTES, Made, Next, Refusal, Scene, Temporary,
        ladder::{Step, older},
        next, under_way,
    },
    objects::Objects,
};

const QUEUE: &str = "order.close.queue";
const SHELTER: &str = "order.close.queue.migrating";

fn objects() -> Objects {
    let file = "[[queue]]\nname = \"order.close.queue\"\nbind = [\"order.close.#\"]\nowner = \"test\"\n";
    Topology::parse(&[("test.toml", file)]).unwrap().objects()
}

fn queue(name: &str, arguments: &[(&str, serde_json::Value)]) -> LiveQueue {
    let arguments: BTreeMap<_, _> = arguments
        .iter()
        .map(|(name, value)| ((*name).to_owned(), value.clone()))
        .collect();
    LiveQueue {
        name: name.to_owned(),
        kind: arguments
            .get("x-queue-type")
            .and_then(|kind| kind.as_str())
            .unwrap_or("classic")
            .to_owned(),
        durable: true,
        arguments,
        ..LiveQueue::default()
    }
}

/// The broker as the files want it, but for the queue, and with a binding of somebody else.
fn before() -> Live {
    let wanted = objects();
    let exchanges = wanted.exchanges.iter().map(|exchange| LiveExchange {
        name: exchange.name.clone(),
        kind: exchange.kind.as_str().to_owned(),
        ..LiveExchange::default()
    });
    let mut live = Live {
        exchanges: exchanges.collect(),
        ..Live::default()
    };
    live.exchanges.push(LiveExchange {
        name: "theirs".to_owned(),
        kind: "headers".to_owned(),
        ..LiveExchange::default()
    });
    live.queues = vec![queue(QUEUE, &[])];
    live.bindings = wanted
        .bindings
        .iter()
        .filter(|binding| binding.destination_name() == QUEUE)
        .map(|binding| bound(&Link::from(binding), Destination::Queue(QUEUE.to_owned())))
        .collect();
    let theirs = Link {
        source: "theirs".to_owned(),
        pattern: String::new(),
        arguments: BTreeMap::from([("x-match".to_owned(), json!("all"))]),
    };
    live.bindings
        .push(bound(&theirs, Destination::Queue(QUEUE.to_owned())));
    live
}

fn bound(link: &Link, destination: Destination) -> LiveBinding {
    LiveBinding {
        source: link.source.clone(),
        destination,
        pattern: link.pattern.clone(),
        arguments: link.arguments.clone(),
    }
}

/// Does `action` on the broker.
fn perform(live: &mut Live, action: &Action) {
    let to_queue = || Destination::Queue(QUEUE.to_owned());
    let to_in = || Destination::Exchange(Temporary::In.of(QUEUE));
    let plain = |from: Temporary| Link {
        source: from.of(QUEUE),
        pattern: String::new(),
        arguments: BTreeMap::new(),
    };
    let unbind = |live: &mut Live, link: &Link, to: Destination| {
        live.bindings.retain(|b| *b != bound(link, to.clone()))
    };
    match action {
        Action::Make(temporary) => match temporary.object(QUEUE) {
            Made::Queue(made) => {
                let arguments: Vec<_> = made
                    .arguments
                    .iter()
                    .map(|(name, value)| (*name, value.to_json()))
                    .collect();
                live.queues.push(queue(&made.name, &arguments));
            }
            Made::Exchange(made) => live.exchanges.push(LiveExchange {
                name: made.name,
                kind: made.kind.as_str().to_owned(),
                arguments: made
                    .alternate
                    .iter()
                    .map(|a| ("alternate-exchange".to_owned(), json!(a)))
                    .collect(),
                ..LiveExchange::default()
            }),
        },
        Action::Catch => live.bindings.push(bound(
            &plain(Temporary::Next),
            Destination::Queue(SHELTER.to_owned()),
        )),
        Action::SetLever => live.bindings.push(bound(&plain(Temporary::In), to_queue())),
        Action::OpenReturn => live.bindings.push(bound(&plain(Temporary::Back), to_queue())),
        Action::Route(link) => live.bindings.push(bound(link, to_in())),
        Action::Join(link) => live.bindings.push(bound(link, to_queue())),
        Action::Cut(link) => unbind(live, link, to_queue()),
        Action::Leave(link) => unbind(live, link, to_in()),
        Action::PullLever => unbind(live, &plain(Temporary::In), to_queue()),
        Action::Drain | Action::Return => {}
        Action::Delete => {
            live.queues.retain(|queue| queue.name != QUEUE);
            live.bindings.retain(|binding| binding.destination != to_queue());
        }
        Action::Declare => {
            let wanted = objects()
                .queues
                .into_iter()
                .find(|queue| queue.name == QUEUE)
                .unwrap();
            let arguments: Vec<_> = wanted
                .arguments
                .iter()
                .map(|(name, value)| (*name, value.to_json()))
                .collect();
            live.queues.push(queue(QUEUE, &arguments));
        }
        Action::Remove(temporary) => {
            let name = temporary.of(QUEUE);
            live.queues.retain(|queue| queue.name != name);
            live.exchanges.retain(|exchange| exchange.name != name);
            let ends = [
                Destination::Queue(name.clone()),
                Destination::Exchange(name.clone()),
            ];
            live.bindings
                .retain(|binding| binding.source != name && !ends.contains(&binding.destination));
        }
    }
}

/// The queues that a message published to `exchange` reaches, whatever its key.
fn reached(live: &Live, exchange: &str, queues: &mut BTreeSet<String>) {
    let mut routed = false;
    for binding in live.bindings.iter().filter(|binding| binding.source == exchange) {
        routed = true;
        match &binding.destination {
            Destination::Queue(name) => drop(queues.insert(name.clone())),
            Destination::Exchange(name) => reached(live, name, queues),
        }
    }
    let alternate = live
        .exchange(exchange)
        .and_then(|exchange| exchange.arguments.get("alternate-exchange"));
    if let (false, Some(alternate)) = (routed, alternate.and_then(|name| name.as_str())) {
        reached(live, alternate, queues);
    }
}

/// Each source reaches the queue or the shelter, never both and never neither.
fn check_routes(live: &Live, after: &Action) {
    for source in ["task.exchange", "task.delay.v1.due", "theirs"] {
        let mut queues = BTreeSet::new();
        reached(live, source, &mut queues);
        assert_eq!(queues.len(), 1, "after {after:?} {source} reaches {queues:?}");
    }
}

/// Runs until `Done`, at most `steps` steps, with a fresh memory at the start, as a new process has.
fn run(live: &mut Live, intent: Intent, steps: usize) -> Vec<Action> {
    let (objects, mut known, mut done) = (objects(), Known::default(), Vec::new());
    while done.len() < steps {
        let action = match next(&Scene::of(QUEUE, &objects, live), intent, known) {
            Next::Do(action) => action,
            Next::Done => return done,
            Next::Refuse(refusal) => panic!("{refusal}"),
        };
        assert!(done.len() < 100, "it goes round: {done:?}");
        perform(live, &action);
        check_routes(live, &action);
        known = known.after(&action);
        done.push(action);
    }
    done
}

#[test]
fn after_every_step_a_message_goes_to_one_of_two_queues_and_the_rest_is_finished() {
    let mut whole = before();
    let steps = run(&mut whole, Intent::Migrate, usize::MAX).len();
    assert!(under_way(&whole).is_empty());
    let sorted = |mut live: Live| {
        live.bindings
            .sort_by_key(|b| (b.source.clone(), b.pattern.clone()));
        live
    };
    let expected = sorted(whole);
    assert_eq!(
        expected.bindings.len(),
        before().bindings.len(),
        "all are back, those of others too"
    );
    for killed_after in 0..steps {
        let mut live = before();
        run(&mut live, Intent::Migrate, killed_after);
        run(&mut live, Intent::Migrate, usize::MAX);
        assert_eq!(sorted(live), expected, "killed after {killed_after} steps");
    }
}

#[test]
fn a_retreat_from_any_step_before_the_deletion_leaves_things_as_they_were() {
    let mut live = before();
    let deleted = run(&mut live, Intent::Migrate, usize::MAX)
        .iter()
        .position(|action| *action == Action::Delete)
        .unwrap();
    for given_up_after in 0..deleted {
        let mut live = before();
        run(&mut live, Intent::Migrate, given_up_after);
        run(&mut live, Intent::Retreat, usize::MAX);
        let left = |live: &Live| {
            let mut links: Vec<_> = live
                .bindings
                .iter()
                .map(|b| (b.source.clone(), b.pattern.clone()))
                .collect();
            links.sort();
            (links, live.queues.clone(), live.exchanges.clone())
        };
        assert_eq!(
            left(&live),
            left(&before()),
            "given up after {given_up_after} steps"
        );
    }
}

#[test]
fn what_waits_since_a_killed_retreat_goes_home_before_the_next_attempt() {
    let mut live = before();
    let pulled = run(&mut live, Intent::Migrate, usize::MAX)
        .iter()
        .position(|a| *a == Action::PullLever)
        .unwrap();
    let mut live = before();
    run(&mut live, Intent::Migrate, pulled);
    live.queues
        .iter_mut()
        .find(|queue| queue.name == SHELTER)
        .unwrap()
        .messages = Some(7);
    assert_eq!(
        run(&mut live, Intent::Migrate, 2),
        [Action::OpenReturn, Action::Return]
    );
}

#[test]
fn a_queue_with_a_migration_under_way_is_known() {
    let mut live = before();
    for steps in 1..5 {
        run(&mut live, Intent::Migrate, 1);
        assert_eq!(under_way(&live), [QUEUE], "after {steps}");
    }
}

#[test]
fn what_cant_be_migrated_is_refused() {
    let (objects, known) = (objects(), Known::default());
    let refusal =
        |live: &Live, name: &str| match next(&Scene::of(name, &objects, live), Intent::Migrate, known) {
            Next::Refuse(refusal) => refusal,
            other => panic!("{other:?}"),
        };
    let with = |change: &dyn Fn(&mut LiveQueue)| {
        let mut live = before();
        change(&mut live.queues[0]);
        live
    };
    let name = QUEUE.to_owned();
    assert_eq!(
        refusal(&before(), "other"),
        Refusal::NotWanted("other".to_owned())
    );
    assert_eq!(refusal(&Live::default(), QUEUE), Refusal::NotThere(name.clone()));
    assert_eq!(
        refusal(&with(&|queue| queue.exclusive = true), QUEUE),
        Refusal::Exclusive(name.clone())
    );
    assert_eq!(
        refusal(&with(&|queue| queue.kind = "stream".to_owned()), QUEUE),
        Refusal::Stream(name)
    );
    let delay = Names::default().ladder_queue(2, 3);
    assert_eq!(refusal(&before(), &delay), Refusal::Delay(delay.clone()));
    let mut live = before();
    live.queues.push(queue(SHELTER, &[]));
    assert_eq!(refusal(&live, QUEUE), Refusal::Foreign(SHELTER.to_owned()));
    let longest = [
        Temporary::In,
        Temporary::Next,
        Temporary::Back,
        Temporary::Shelter,
    ]
    .map(|temporary| temporary.of(&"q".repeat(MAX_QUEUE_BYTES)).len());
    assert_eq!(longest.into_iter().max(), Some(255));
    assert_eq!(Temporary::lock(&"q".repeat(MAX_QUEUE_BYTES)).len(), 255);
}

#[test]
fn an_older_ladder_goes_from_the_top_once_all_of_it_is_empty() {
    let names = Names::default().for_ladder(2);
    let mut live = Live::default();
    for version in [1, 2] {
        let names = names.for_ladder(version);
        let exchanges = [
            names.ladder_exchange(1),
            names.ladder_exchange(0),
            names.ladder_due(),
        ];
        live.exchanges.extend(exchanges.map(|name| LiveExchange {
            name,
            ..LiveExchange::default()
        }));
        let queues = [names.ladder_queue(0, 15), names.ladder_queue(1, 3)];
        live.queues.extend(queues.map(|name| queue(&name, &[])));
    }
    live.exchanges.push(LiveExchange {
        name: "task.delay.30m".to_owned(),
        ..LiveExchange::default()
    });
    let found = older(&live, &names);
    assert_eq!(found.len(), 1);
    let old = &found[0];
    assert_eq!(
        (old.version, old.queues()),
        (
            1,
            vec!["task.delay.v1.1.3".to_owned(), "task.delay.v1.0.f".to_owned()]
        )
    );
    let all = old.queues();
    assert_eq!(old.next(&all[..1], false), Step::Wait(all.clone()));
    assert_eq!(
        old.next(&all, false),
        Step::DeleteExchange("task.delay.v1.1".to_owned())
    );
    let mut old = old.clone();
    old.levels[0].exchange = None;
    // What was published just before its exchange went is waited for again.
    assert_eq!(old.next(&[], true), Step::Wait(vec![all[0].clone()]));
    assert_eq!(old.next(&all[..1], true), Step::DeleteQueue(all[0].clone()));
    old.levels.clear();
    assert_eq!(
        old.next(&[], true),
        Step::DeleteExchange("task.delay.v1.due".to_owned())
    );
    old.due = None;
    assert_eq!(old.next(&[], true), Step::Gone);
    assert!(
        older(&live, &names.for_ladder(1)).is_empty(),
        "a newer one is nobody's to take down"
    );
}
