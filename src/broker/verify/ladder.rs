//! A few real delays through the live ladder, into an exclusive queue of this connection's: the one thing that a copy can't show is
//! whether the live delay queues hand on what they hold.

use std::time::Duration;

use futures::{StreamExt, future::join_all};
use lapin::{
    Channel,
    options::{BasicAckOptions, BasicConsumeOptions, QueueBindOptions, QueueDeclareOptions},
    types::{AMQPValue, FieldTable},
};
use tidegate_core::{
    ladder::{self, LEVELS, RADIX, Target},
    names::Names,
    topic::Pattern,
};
use tokio::time::{Instant, timeout};
use uuid::Uuid;

use super::{VerifyError, sending};
use crate::{
    broker::{
        BrokerSettings,
        connection::{self, LinkError, within},
        message::{short, text},
        publisher::{Outgoing, Publisher},
    },
    topology::{
        Topology,
        live::Live,
        verify::{Probe, Report},
    },
};

/// Delay queues that hold messages for longer are left out.
const LONGEST: Duration = Duration::from_secs(3);
/// How much longer than its delay a probe may take.
const LATE: Duration = Duration::from_secs(10);
const ANSWER: Duration = Duration::from_secs(30);

/// A delay of one hop.
struct Step {
    delay: Duration,
    queue: String,
}

/// Sends a probe through each delay queue of the live ladder that holds messages for a short time, and adds what it found to
/// `report`; what is known to be broken from the copy is not tried again.
pub(super) async fn through_live(
    settings: &BrokerSettings,
    topology: &Topology,
    live: &Live,
    report: &mut Report,
) -> Result<(), VerifyError> {
    let names = &topology.names;
    let known = |queue: &str| {
        report
            .broken
            .iter()
            .any(|b| b.hop.split(" → ").any(|end| end == queue))
    };
    let mut steps = steps(names);
    steps.retain(|step| live.queue(&step.queue).is_some() && !known(&step.queue));
    if live.exchange(&names.ladder_due()).is_none() || steps.is_empty() {
        let note = "the live ladder was not tried: see what is broken in it";
        report.notes.push(note.to_owned());
        return Ok(());
    }
    let queue = format!("{}.{}", crate::topology::verify::PROBE_QUEUE, Uuid::now_v7());
    if let Some(taker) = taker(topology, live, &steps, &queue) {
        report.notes.push(format!(
            "the live ladder was not tried: {taker} would take the probes too"
        ));
        return Ok(());
    }
    let connection = connection::connect(settings, "verify").await?;
    let channel = within(ANSWER, connection.create_channel()).await?;
    if let Err(why) = own_queue(&channel, names, &queue).await {
        report.notes.push(format!(
            "the live ladder was not tried: the user may not make a queue {:?} of its own there ({why})",
            format!("{}.*", crate::topology::verify::PROBE_QUEUE)
        ));
        return Ok(());
    }
    let publisher = Publisher::start(settings).map_err(|error| VerifyError::Publisher(error.to_string()))?;
    let took = send_all(&channel, &publisher, names, &queue, &steps).await?;
    for (step, took) in steps.iter().zip(took) {
        report.tried += 1;
        let what = format!("a delay of {} ms in the live ladder", step.delay.as_millis());
        match took {
            Some(took) if took >= step.delay => report.delivered += 1,
            Some(took) => {
                let why = format!("it came out {} ms early", (step.delay - took).as_millis());
                let next = "look at `tidegate topology plan`: another time, or a policy";
                report.add(&step.queue, &why, next, what);
            }
            None => {
                let why = "it delivers in a copy and holds messages back here";
                let next = "look at its state, and at `messages_dlx` in the management API: a node that is down, a queue without a \
                            majority, dead letters that are stuck";
                report.add(&step.queue, why, next, what);
            }
        }
    }
    let _ = within(ANSWER, connection.close(200, "done".into())).await;
    Ok(())
}

fn steps(names: &Names) -> Vec<Step> {
    let mut steps = Vec::new();
    for level in 0..LEVELS {
        for digit in 1..RADIX as u8 {
            let delay = ladder::UNIT * u32::from(digit) * 16u32.pow(level.into());
            if delay <= LONGEST {
                let queue = names.ladder_queue(level, digit);
                steps.push(Step { delay, queue });
            }
        }
    }
    steps
}

/// A binding that is not the topology's and would take one of the probes.
fn taker(topology: &Topology, live: &Live, steps: &[Step], queue: &str) -> Option<String> {
    let objects = topology.objects();
    let keys: Vec<String> = steps
        .iter()
        .filter_map(|step| key(&topology.names, step, queue))
        .map(|r| r.1)
        .collect();
    let ladder = ladder::objects(&topology.names);
    let of_ladder = |source: &str| ladder.exchanges.iter().any(|e| e.name == source);
    let wanted = |b: &&crate::topology::live::LiveBinding| {
        objects
            .bindings
            .iter()
            .any(|w| w.source == b.source && w.destination == b.destination && w.pattern == b.pattern)
    };
    let other_kind = live
        .exchanges
        .iter()
        .find(|e| of_ladder(&e.name) && e.kind != "topic");
    if let Some(exchange) = other_kind {
        return Some(format!(
            "{}, which is a {} exchange,",
            exchange.name, exchange.kind
        ));
    }
    // A pattern that can't be read here is taken to match.
    let takes = |b: &&crate::topology::live::LiveBinding| {
        Pattern::parse(&b.pattern).map_or(true, |p| keys.iter().any(|key| p.matches(key)))
    };
    let extra = live
        .bindings
        .iter()
        .filter(|b| of_ladder(&b.source))
        .find(|b| takes(b) && !wanted(b));
    extra.map(|b| format!("the binding of {} with {:?}", b.source, b.pattern))
}

/// Exchange and routing key.
fn key(names: &Names, step: &Step, queue: &str) -> Option<(String, String)> {
    let route = ladder::route(names, step.delay, &Target::Queue(queue.to_owned())).ok()?;
    Some((route.exchange, route.routing_key))
}

async fn own_queue(channel: &Channel, names: &Names, queue: &str) -> Result<(), LinkError> {
    let options = QueueDeclareOptions {
        exclusive: true,
        auto_delete: true,
        ..QueueDeclareOptions::default()
    };
    let mut arguments = FieldTable::default();
    arguments.insert("x-queue-type".into(), AMQPValue::LongString("classic".into()));
    let name = short(queue).unwrap_or_default();
    within(ANSWER, channel.queue_declare(name.clone(), options, arguments)).await?;
    let source = short(&names.ladder_due()).unwrap_or_default();
    let pattern = short(&ladder::due_pattern_for_queue(queue)).unwrap_or_default();
    let bind = channel.queue_bind(
        name,
        source,
        pattern,
        QueueBindOptions::default(),
        FieldTable::default(),
    );
    within(ANSWER, bind).await
}

/// How long each probe took, from before it was sent.
async fn send_all(
    channel: &Channel,
    publisher: &Publisher,
    names: &Names,
    queue: &str,
    steps: &[Step],
) -> Result<Vec<Option<Duration>>, VerifyError> {
    let consume = channel.basic_consume(
        short(queue).unwrap_or_default(),
        "".into(),
        BasicConsumeOptions::default(),
        FieldTable::default(),
    );
    let mut deliveries = within(ANSWER, consume).await?;
    let started = Instant::now();
    let sends = steps.iter().enumerate().map(|(number, step)| async move {
        let (exchange, routing_key) = key(names, step, queue)?;
        let sent = Instant::now();
        let message = Outgoing {
            exchange,
            routing_key,
            ..sending::message(&Probe::default(), number, 0)
        };
        // One that is not taken does not come out.
        let _ = sending::outcome(publisher.publish(message).await);
        Some(sent)
    });
    let sent = join_all(sends).await;
    let mut took = vec![None; steps.len()];
    let end = started + LONGEST + LATE;
    while took.iter().any(Option::is_none) {
        let left = end.saturating_duration_since(Instant::now());
        let Ok(Some(Ok(delivery))) = timeout(left, deliveries.next()).await else {
            break;
        };
        let number = text(&delivery.properties, sending::PROBE).and_then(|n| n.parse::<usize>().ok());
        if let Some(number) = number
            && let (Some(took), Some(Some(sent))) = (took.get_mut(number), sent.get(number))
        {
            *took = Some(sent.elapsed());
        }
        let _ = delivery.acker.ack(BasicAckOptions::default()).await;
    }
    Ok(took)
}
