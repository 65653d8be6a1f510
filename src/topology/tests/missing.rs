//! What a migration says of the vhost that it runs on.

use crate::topology::{
    Objects, Topology,
    live::{Live, LiveExchange, LiveQueue},
    migration::missing_beside,
};

const QUEUE: &str = "order.close.queue";

fn objects() -> Objects {
    let file = "[[queue]]\nname = \"order.close.queue\"\nbind = [\"order.close.#\"]\nowner = \"test\"\n";
    Topology::parse(&[("test.toml", file)]).unwrap().objects()
}

fn queue(name: &str) -> LiveQueue {
    LiveQueue {
        name: name.to_owned(),
        ..LiveQueue::default()
    }
}

#[test]
fn what_is_missing_beside_the_queue_is_counted() {
    let wanted = objects();
    let exchanges = wanted.exchanges.iter().map(|exchange| LiveExchange {
        name: exchange.name.clone(),
        ..LiveExchange::default()
    });
    let mut live = Live {
        exchanges: exchanges.collect(),
        queues: wanted.queues.iter().map(|wanted| queue(&wanted.name)).collect(),
        ..Live::default()
    };
    assert_eq!(missing_beside(QUEUE, &wanted, &live), 0);
    live.queues.retain(|queue| queue.name == QUEUE);
    let others = wanted.queues.len() - 1;
    assert_eq!(missing_beside(QUEUE, &wanted, &live), others);
    live.exchanges.retain(|exchange| exchange.name != "task.failed");
    assert_eq!(missing_beside(QUEUE, &wanted, &live), others + 1);
    // One that a migration has just deleted is not missing, whoever asks.
    live.queues = vec![queue("order.close.queue.migrating")];
    assert_eq!(missing_beside(QUEUE, &wanted, &live), others + 1);
    assert_eq!(missing_beside("task.dead.queue", &wanted, &live), others);
    live.queues.clear();
    assert_eq!(missing_beside("task.dead.queue", &wanted, &live), others + 1);
}
