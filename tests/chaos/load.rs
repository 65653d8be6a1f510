//! What the producers send: which task, by which entrance, when, how long delayed, and how it behaves.

use std::time::Duration;

use rand::{Rng, rngs::StdRng};

use crate::installation::WORK;

/// How a task gets in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Entrance {
    /// A plain AMQP client to `task.exchange`.
    Plain,
    /// A plain AMQP client to `task.ingress` with `x-delay`.
    Ingress,
    /// The project's publisher, at once.
    Publisher,
    /// The project's publisher through the ladder.
    Ladder,
    /// A row in `tidegate.tasks`, some of them due later.
    Outbox,
}

/// What becomes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Behaviour {
    Succeeds,
    FailsTwice,
    FailsAlways,
    Rejects,
    /// Bytes that are no envelope.
    Poison,
    /// A type that the worker doesn't know.
    NobodysType,
}

impl Behaviour {
    /// Whether nothing but the death of processes can make it a dead letter.
    pub(crate) fn is_healthy(self) -> bool {
        matches!(self, Self::Succeeds | Self::FailsTwice)
    }

    /// Why it becomes a dead letter where it must.
    pub(crate) fn dead_reason(self) -> Option<&'static str> {
        match self {
            Self::Succeeds | Self::FailsTwice => None,
            Self::FailsAlways => Some("retries_exhausted"),
            Self::Rejects => Some("rejected"),
            Self::Poison => Some("invalid_envelope"),
            Self::NobodysType => Some("unknown_task_type"),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Planned {
    pub(crate) id: String,
    pub(crate) entrance: Entrance,
    pub(crate) behaviour: Behaviour,
    /// When it is sent, from the start of the chaos.
    pub(crate) after: Duration,
    pub(crate) delay: Duration,
    pub(crate) body: String,
}

pub(crate) const ENTRANCES: [(Entrance, usize); 5] = [
    (Entrance::Plain, 500),
    (Entrance::Ingress, 350),
    (Entrance::Publisher, 250),
    (Entrance::Ladder, 450),
    (Entrance::Outbox, 350),
];

/// Longest delay of a task.
const LONGEST_DELAY_MS: u64 = 20_000;

/// All tasks, spread over `span`.
pub(crate) fn plan(random: &mut StdRng, span: Duration) -> Vec<Planned> {
    let mut all = Vec::new();
    for (entrance, count) in ENTRANCES {
        for n in 0..count {
            let id = format!("{entrance:?}-{n}").to_lowercase();
            let behaviour = match random.random_range(0..100) {
                0..82 => Behaviour::Succeeds,
                82..88 => Behaviour::FailsTwice,
                88..92 => Behaviour::FailsAlways,
                92..95 => Behaviour::Rejects,
                // Only plain clients send bytes that nobody has looked at.
                95..98 if entrance == Entrance::Plain => Behaviour::Poison,
                95..97 => Behaviour::NobodysType,
                _ => Behaviour::Succeeds,
            };
            let delay = match entrance {
                Entrance::Plain | Entrance::Publisher => 0,
                Entrance::Outbox if n % 2 == 0 => 0,
                Entrance::Ingress | Entrance::Ladder | Entrance::Outbox => {
                    random.random_range(100..LONGEST_DELAY_MS)
                }
            };
            let ms = if n % 20 == 0 {
                1_500
            } else {
                random.random_range(0..60)
            };
            let priority = if n % 10 == 0 { 220 } else { 100 };
            let after = span.mul_f64(random.random_range(0.0..1.0));
            let body = body(&id, behaviour, ms, priority);
            all.push(Planned {
                id,
                entrance,
                behaviour,
                after,
                delay: Duration::from_millis(delay),
                body,
            });
        }
    }
    all.sort_by_key(|planned| planned.after);
    all
}

fn body(id: &str, behaviour: Behaviour, ms: u64, priority: u8) -> String {
    let order = match behaviour {
        Behaviour::Succeeds | Behaviour::Poison | Behaviour::NobodysType => "succeeds",
        Behaviour::FailsTwice => "fails_twice",
        Behaviour::FailsAlways => "fails_always",
        Behaviour::Rejects => "rejects",
    };
    let task_type = if behaviour == Behaviour::NobodysType {
        "chaos.nobody"
    } else {
        WORK
    };
    let body = format!(
        r#"{{"taskId":"{id}","taskType":"{task_type}","priority":{priority},"payload":{{"behaviour":"{order}","ms":{ms}}}}}"#
    );
    // Cut short: no JSON any more.
    if behaviour == Behaviour::Poison {
        body[..body.len() - 3].to_owned()
    } else {
        body
    }
}
