//! What a team says about one task type beyond its queue: how it is retried, how long and how often it runs, and
//! whether one key runs once. May import: `core`; pure.
//!
//! Worker and router ask the same model, so a type has one policy whichever client consumes it. What only a worker of
//! ours can do (quick retries, limits on what runs, idempotency) other clients don't get.

use std::{num::NonZeroU32, time::Duration};

use tidegate_core::policy::{PolicyError, RetryPolicy};

/// Most quick retries within one attempt.
pub const MOST_QUICK_RETRIES: u32 = 2;

/// What a team says about one task type.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskTypePolicy {
    /// Its name.
    pub name: String,
    /// What differs from the queue's retry policy.
    pub retry: RetryChange,
    /// How long a handler may run where the envelope has no `timeoutMs`; `None`: the worker's own default.
    pub timeout: Option<Duration>,
    /// Tries within one attempt after a failed one, 0 to [`MOST_QUICK_RETRIES`]: for what heals in an instant.
    pub quick_retries: u32,
    /// Pause before each of them.
    pub quick_pause: Duration,
    /// Most handlers of this type that run at once in one worker process; `None`: as many as the queue's.
    pub concurrency: Option<usize>,
    /// Of those, most that are retries. What exceeds it waits in the ladder, and spends no attempt by that.
    pub retry_concurrency: usize,
    /// Most starts in a time, for each worker process.
    pub rate: Option<Rate>,
    /// Whether one key runs to success once.
    pub idempotency: Idempotency,
}

impl TaskTypePolicy {
    /// Retries of a type that run at once where nobody says otherwise.
    pub const RETRY_CONCURRENCY: usize = 5;

    /// Pause before a quick retry where nobody says otherwise.
    pub const QUICK_PAUSE: Duration = Duration::from_millis(50);

    /// The policy of a type that no file mentions.
    pub fn standard(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            retry: RetryChange::default(),
            timeout: None,
            quick_retries: 0,
            quick_pause: Self::QUICK_PAUSE,
            concurrency: None,
            retry_concurrency: Self::RETRY_CONCURRENCY,
            rate: None,
            idempotency: Idempotency::Off,
        }
    }
}

/// What a type changes of its queue's retry policy.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RetryChange {
    /// See [`RetryPolicy::max_retries`].
    pub max_retries: Option<u32>,
    /// See [`RetryPolicy::max_retries_cap`].
    pub max_retries_cap: Option<u32>,
    /// See [`RetryPolicy::initial`].
    pub initial: Option<Duration>,
    /// See [`RetryPolicy::multiplier`].
    pub multiplier: Option<f64>,
    /// See [`RetryPolicy::max`].
    pub max: Option<Duration>,
    /// See [`RetryPolicy::jitter`].
    pub jitter: Option<f64>,
}

impl RetryChange {
    /// `policy` with these changes.
    ///
    /// # Errors
    /// Where the two don't go together, e.g. an `initial` above the queue's `max`.
    pub fn over(&self, policy: &RetryPolicy) -> Result<RetryPolicy, PolicyError> {
        let max_retries = self.max_retries.unwrap_or(policy.max_retries);
        let changed = RetryPolicy {
            max_retries,
            // A cap that nobody wrote must not make the written `max_retries` an error.
            max_retries_cap: self
                .max_retries_cap
                .unwrap_or(policy.max_retries_cap.max(max_retries)),
            initial: self.initial.unwrap_or(policy.initial),
            multiplier: self.multiplier.unwrap_or(policy.multiplier),
            max: self.max.unwrap_or(policy.max),
            jitter: self.jitter.unwrap_or(policy.jitter),
        };
        changed.validate().map(|()| changed)
    }
}

/// So many starts in so long, written `"100/s"`, `"30/m"` or `"500/h"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// How many.
    pub count: NonZeroU32,
    /// In how long.
    pub per: Duration,
}

impl Rate {
    /// Highest count.
    const MOST: u32 = 1_000_000;

    /// The rate that `text` names.
    pub fn parse(text: &str) -> Option<Self> {
        let (count, unit) = text.split_once('/')?;
        let count = count
            .parse::<NonZeroU32>()
            .ok()
            .filter(|n| n.get() <= Self::MOST)?;
        let seconds = match unit {
            "s" => 1,
            "m" => 60,
            "h" => 3_600,
            _ => return None,
        };
        Some(Self {
            count,
            per: Duration::from_secs(seconds),
        })
    }
}

/// Whether one idempotency key of a type is processed to success once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Idempotency {
    /// Every delivery runs.
    #[default]
    Off,
    /// A worker claims the key before the handler starts and records success after it.
    ByKey(KeyRule),
    /// As `ByKey`, and the handler gets the transaction in which success is recorded.
    Database(KeyRule),
}

/// Where the key comes from and how long a claim holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRule {
    /// JSON pointer into the payload, used where the envelope has no `idempotencyKey`. Without either the `taskId` is
    /// the key.
    pub field: Option<String>,
    /// How long a claim holds that is not renewed: after it, a killed worker's key is free.
    pub lease: Duration,
}

impl KeyRule {
    /// How long a claim holds where nobody says otherwise.
    pub const LEASE: Duration = Duration::from_secs(30);
}
