//! Which task number `n` is: its type, its key, how it ends. A function of the seed and the number, so that millions need no list.

use tidegate::{
    core::{
        envelope::{Envelope, Limits},
        headers::Origin,
    },
    publish::Task,
};

pub(super) const QUEUE: &str = "soak.queue";
/// Keeps what it did apart from the ledger.
pub(super) const CHARGE: &str = "soak.charge";
/// Does it in the ledger's transaction.
pub(super) const CREDIT: &str = "soak.credit";

/// Attempts of a task that fails until it is given up.
pub(super) const ATTEMPTS: u32 = 3;

/// The queue and its types; `lease` is how long a killed worker's keys stay taken.
pub(super) fn queues(lease: &str) -> String {
    format!(
        r#"
[[queue]]
name = "{QUEUE}"
bind = ["soak.#"]
owner = "test"
task_types = ["{CHARGE}", "{CREDIT}"]
retry = {{ max_retries = {retries}, initial = "300ms", multiplier = 2.0, max = "2s", jitter = 0.2 }}

[[task_type]]
name = "{CHARGE}"
idempotency = "key"
idempotency_lease = "{lease}"

[[task_type]]
name = "{CREDIT}"
idempotency = "database"
idempotency_lease = "{lease}"
"#,
        retries = ATTEMPTS - 1
    )
}

/// How a task ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Behaviour {
    Succeeds,
    /// Fails once before that.
    SecondTime,
    /// Fails until it is given up.
    Never,
    Rejects,
}

impl Behaviour {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Succeeds => "succeeds",
            Self::SecondTime => "second_time",
            Self::Never => "never",
            Self::Rejects => "rejects",
        }
    }

    /// Why it becomes a dead letter, if it does.
    pub(super) fn dead_reason(self) -> Option<&'static str> {
        match self {
            Self::Succeeds | Self::SecondTime => None,
            Self::Never => Some("retries_exhausted"),
            Self::Rejects => Some("rejected"),
        }
    }
}

/// One task.
#[derive(Clone, Copy, Debug)]
pub(super) struct Planned {
    pub(super) n: u32,
    /// Number of the task whose key it has: its own, or that of an earlier one.
    pub(super) key: u32,
    pub(super) task_type: &'static str,
    pub(super) behaviour: Behaviour,
    /// How long its handler takes.
    ms: u64,
    /// Published a second time under the same id.
    pub(super) is_sent_twice: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Plan(pub(super) u64);

impl Plan {
    pub(super) fn task(self, n: u32) -> Planned {
        let mut draw = Draws(self.0 ^ (u64::from(n) << 20));
        let behaviour = match draw.below(1_000) {
            0..20 => Behaviour::SecondTime,
            20..30 => Behaviour::Never,
            30..40 => Behaviour::Rejects,
            _ => Behaviour::Succeeds,
        };
        let own = Planned {
            n,
            key: n,
            task_type: if draw.below(4) == 0 { CREDIT } else { CHARGE },
            behaviour,
            ms: if draw.below(20) == 0 { draw.below(30) } else { 0 },
            is_sent_twice: draw.below(100) == 0,
        };
        if n == 0 || behaviour != Behaviour::Succeeds || draw.below(20) != 0 {
            return own;
        }
        // Half of them come while the first may still run.
        let back = if draw.below(2) == 0 { 20 } else { 5_000 };
        let first = self.task(n - 1 - draw.below(u64::from(n).min(back)) as u32);
        // The key of one that fails would be done by this one or not, as it happens.
        if first.behaviour.dead_reason().is_some() {
            return own;
        }
        Planned {
            key: first.key,
            task_type: first.task_type,
            ..own
        }
    }
}

impl Planned {
    pub(super) fn is_duplicate(&self) -> bool {
        self.key != self.n
    }

    pub(super) fn id(&self) -> String {
        format!("soak-{}", self.n)
    }

    /// About 1 KiB.
    pub(super) fn message(&self) -> Task {
        let body = format!(
            r#"{{"taskId":"{}","taskType":"{}","idempotencyKey":"{}","payload":{{"n":{},"key":{},"behaviour":"{}","ms":{},"filler":"{:x>800}"}}}}"#,
            self.id(),
            self.task_type,
            self.key,
            self.n,
            self.key,
            self.behaviour.as_str(),
            self.ms,
            ""
        );
        let envelope = Envelope::parse(body.as_bytes(), &Limits::standard(), chrono::Utc::now()).unwrap();
        Task::new(body, &envelope, Origin::Amqp)
    }
}

/// The number in an id that [`Planned::id`] gave.
pub(super) fn number(id: &str) -> Option<u32> {
    id.strip_prefix("soak-")?.parse().ok()
}

/// Splitmix64: a few random numbers per task, at millions of tasks.
struct Draws(u64);

impl Draws {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }
}
