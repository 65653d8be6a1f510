//! Reads `task.dead.queue` into the archive.
//!
//! May import: `broker`, `publish`, `store`, `supervisor`, `telemetry`. In this order: insert, commit, tell the rows of the tasks,
//! acknowledge. Dying before the commit, the messages are in the queue as before; dying after it, they come again, are found by
//! their ids, and their rows are told again. While Postgres is away
//! nothing is acknowledged: after a minute what is held goes back, and nothing is taken again until Postgres answers.
//!
//! A message that Postgres refuses is found by halving its batch. It is held unacknowledged for ten minutes, where
//! everybody can see it, and tried again then; all others go on. Any number of archivists may run.

mod batch;
mod refused;
mod rows;

use std::time::Duration;

use tidegate_core::{dead_letter::DeadLetterId, envelope::Limits, names::Names};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use self::{
    batch::{Batch, Clock, Taken},
    refused::Refused,
};
use crate::{
    broker::{
        connection::Link,
        consumer::{Incoming, Prefetch, Subscription, consume},
    },
    store::{
        Store, StoreError,
        dead_letters::archive::{ArchiveError, Archived, NewDeadLetter},
    },
    supervisor::backoff,
    telemetry::{dead_letters, health::Health},
};

/// Name of this loop in health and logs.
pub const ROLE: &str = "archivist";

/// How long a batch is tried again while Postgres is away, before it goes back to the queue.
const PATIENCE: Duration = Duration::from_secs(60);

/// How an archivist works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchivistSettings {
    /// Most dead letters of one transaction, 1 to 5,000. It holds up to three times as many.
    pub batch: u16,
    /// How long a batch waits for more.
    pub linger: Duration,
    /// Within which a body is unpacked, to see what it says of itself.
    pub limits: Limits,
}

impl Default for ArchivistSettings {
    fn default() -> Self {
        Self {
            batch: 500,
            linger: Duration::from_millis(5),
            limits: Limits::standard(),
        }
    }
}

/// Reads one platform's dead letters.
#[derive(Clone, Debug)]
pub struct Archivist {
    link: Link,
    store: Store,
    queue: String,
    settings: ArchivistSettings,
}

/// Why a batch is not archived.
enum Failed {
    /// The database refuses it, or one of it.
    Refused(String),
    /// The database is away for longer than anybody waits, or the process stops.
    Away(StoreError),
}

impl Archivist {
    /// An archivist of the platform with these names.
    pub fn new(link: Link, store: Store, names: &Names, settings: ArchivistSettings) -> Self {
        Self {
            link,
            store,
            queue: Names::queue_of(&names.dead()),
            settings,
        }
    }

    /// Archives until `cancel`; then finishes the batch at hand, and puts back what has only arrived.
    ///
    /// # Errors
    /// The database was away for a minute. What was held has gone back to the queue.
    pub async fn run(&self, health: Health, cancel: CancellationToken) -> Result<(), StoreError> {
        // Before it answers, nothing is taken off the queue.
        let letters = self.store.dead_letters();
        let clock = Clock::new(self.store.unless_lost(letters.make_days()).await?);
        health.up(ROLE);
        let stop = cancel.child_token();
        // However this ends, the consumer does too, in its own time.
        let _stopped = stop.clone().drop_guard();
        let (sender, arriving) = async_channel::bounded(self.settings.batch.into());
        let subscription = Subscription {
            queue: self.queue.clone(),
            // One batch is being written, one arrives, and as many may be held that were refused.
            prefetch: Prefetch::Fixed(self.settings.batch.clamp(1, 5_000) * 3),
            part: format!("{ROLE} {}", self.queue),
        };
        let consumer = consume(
            self.link.clone(),
            subscription,
            sender,
            health.clone(),
            stop.clone(),
        );
        let consumer = tokio::spawn(consumer);
        let mut desk = Desk {
            archivist: self,
            clock,
            refused: Refused::new(self.settings.batch.into()),
            health: &health,
            cancel: &cancel,
        };
        let ended = desk.work(&arriving).await;
        drop(desk);
        stop.cancel();
        while let Ok(incoming) = arriving.recv().await {
            put_back(incoming);
        }
        let _ = consumer.await;
        ended
    }
}

/// Stale means that the broker has it back already.
fn put_back(incoming: Incoming) {
    let _ = incoming.requeue();
}

/// What one run works with.
struct Desk<'a> {
    archivist: &'a Archivist,
    clock: Clock,
    refused: Refused,
    health: &'a Health,
    cancel: &'a CancellationToken,
}

impl Desk<'_> {
    /// Batch after batch, until it is told to stop, or the database is away for too long.
    async fn work(&mut self, arriving: &async_channel::Receiver<Incoming>) -> Result<(), StoreError> {
        let settings = &self.archivist.settings;
        loop {
            let first = tokio::select! {
                biased;
                () = self.cancel.cancelled() => return Ok(()),
                () = self.refused.next_is_due() => {
                    self.refused.put_back_due();
                    continue;
                }
                next = arriving.recv(), if !self.refused.is_full() => next,
            };
            // The consumer ends only when it is told to.
            let Ok(first) = first else { return Ok(()) };
            let batch = Batch::fill(first, arriving, settings.batch, settings.linger).await;
            self.archive(batch.read(&settings.limits, &self.clock)).await?;
        }
    }

    /// Archives all of `taken` but what the database refuses, and acknowledges it.
    async fn archive(&mut self, taken: Vec<Taken>) -> Result<(), StoreError> {
        let mut parts = vec![taken];
        while let Some(mut part) = parts.pop() {
            let letters: Vec<&NewDeadLetter> = part.iter().map(|taken| &taken.letter).collect();
            match self.write(&letters).await {
                Ok(archived) => {
                    self.clock = Clock::new(archived.now);
                    told(&part, &archived);
                    rows::tell(&self.archivist.store, &part).await;
                    for taken in part {
                        // Stale: it comes again, and is there already.
                        let _ = taken.incoming.ack();
                    }
                }
                Err(Failed::Refused(why)) => {
                    let second = part.split_off(part.len() / 2);
                    match (part.is_empty(), second) {
                        (true, second) => self.refused.hold(second, &why),
                        (false, second) => parts.extend([second, part]),
                    }
                }
                Err(Failed::Away(why)) => {
                    parts.push(part);
                    for taken in parts.into_iter().flatten() {
                        put_back(taken.incoming);
                    }
                    return if self.cancel.is_cancelled() {
                        Ok(())
                    } else {
                        Err(why)
                    };
                }
            }
        }
        Ok(())
    }

    /// Writes one batch, again and again while the database is away. Nothing was acknowledged, so all of it may be written twice.
    async fn write(&self, letters: &[&NewDeadLetter]) -> Result<Archived, Failed> {
        let began = Instant::now();
        let mut waits = backoff();
        loop {
            let tried = Instant::now();
            let store = &self.archivist.store;
            let archive = store.dead_letters();
            let done = store
                .unless_lost(async { Box::pin(archive.archive(letters)).await })
                .await;
            let error = match done {
                Ok(archived) => {
                    dead_letters::batch(tried.elapsed());
                    self.health.up(ROLE);
                    return Ok(archived);
                }
                Err(ArchiveError::Row(why)) => return Err(Failed::Refused(why)),
                Err(ArchiveError::Store(error)) => error,
            };
            dead_letters::failed("database");
            tracing::warn!(%error, letters = letters.len(), "could not archive; the dead letters stay in their queue");
            self.health.down(ROLE, &error.to_string());
            let pause = waits.next().unwrap_or_default();
            if began.elapsed() + pause > PATIENCE {
                return Err(Failed::Away(error));
            }
            tokio::select! {
                () = self.cancel.cancelled() => return Err(Failed::Away(error)),
                () = sleep(pause) => {}
            }
        }
    }
}

/// Counts and logs a batch.
fn told(part: &[Taken], archived: &Archived) {
    let mut new: std::collections::HashSet<DeadLetterId> = archived.new.clone();
    for taken in part {
        // One that was twice in the batch counts once.
        if new.remove(&taken.letter.id) {
            dead_letters::archived(taken.letter.task_type.as_deref(), taken.letter.reason.as_str());
        }
    }
    let (letters, there) = (archived.new.len(), part.len() - archived.new.len());
    tracing::info!(letters, there, "archived");
}
