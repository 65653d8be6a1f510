//! What is archived in one transaction: as many messages as have arrived, up to a number, a size and a time.

use std::time::Duration;

use async_channel::Receiver;
use chrono::{DateTime, TimeDelta, Utc};
use tidegate_core::{dead_letter::DeadLetterId, envelope::Limits};
use tokio::time::{Instant, timeout_at};
use uuid::{NoContext, Timestamp, Uuid};

use crate::{
    broker::consumer::Incoming,
    deadletter::letter::{self, Arrived},
    store::dead_letters::archive::NewDeadLetter,
};

/// A batch takes no more once its bodies have so many bytes: one statement carries them all.
const MAX_BYTES: usize = 8 << 20;

/// The database's clock, as it was read last.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    read: DateTime<Utc>,
    at: Instant,
}

impl Clock {
    /// It says `now`, at this moment.
    pub(super) fn new(now: DateTime<Utc>) -> Self {
        Self {
            read: now,
            at: Instant::now(),
        }
    }

    fn now(&self) -> DateTime<Utc> {
        let passed = TimeDelta::from_std(self.at.elapsed()).unwrap_or_default();
        self.read.checked_add_signed(passed).unwrap_or(self.read)
    }
}

/// Messages as they came.
#[derive(Debug)]
pub(super) struct Batch(Vec<Incoming>);

/// A message with its row.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) incoming: Incoming,
    pub(super) letter: NewDeadLetter,
}

impl Batch {
    /// `first`, and what arrives within `linger`, up to `most`.
    pub(super) async fn fill(
        first: Incoming,
        arriving: &Receiver<Incoming>,
        most: u16,
        linger: Duration,
    ) -> Self {
        let until = Instant::now() + linger;
        let mut bytes = first.body.len();
        let mut batch = vec![first];
        while batch.len() < usize::from(most) && bytes < MAX_BYTES {
            let next = match arriving.try_recv() {
                Ok(next) => next,
                Err(_) => match timeout_at(until, arriving.recv()).await {
                    Ok(Ok(next)) => next,
                    Ok(Err(_)) | Err(_) => break,
                },
            };
            bytes += next.body.len();
            batch.push(next);
        }
        Self(batch)
    }

    /// Each with its row.
    pub(super) fn read(self, limits: &Limits, clock: &Clock) -> Vec<Taken> {
        let now = clock.now();
        let read = |incoming: Incoming| {
            let arrived = Arrived {
                queue: &incoming.queue,
                routing_key: &incoming.routing_key,
                properties: &incoming.properties,
                body: &incoming.body,
            };
            let letter = letter::read(&arrived, limits, fresh(now), now);
            Taken { incoming, letter }
        };
        self.0.into_iter().map(read).collect()
    }
}

/// A new id of the time `now`.
fn fresh(now: DateTime<Utc>) -> DeadLetterId {
    let seconds = u64::try_from(now.timestamp()).unwrap_or_default();
    let time = Timestamp::from_unix(NoContext, seconds, now.timestamp_subsec_nanos());
    DeadLetterId(Uuid::new_v7(time).into_bytes())
}
