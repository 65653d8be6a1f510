//! One batch of claimed dead letters: made into messages, sent all at once, written down.
//!
//! May import: `core`, `publish`, `store`, `telemetry`. If the process dies
//! - before a publish: they are claimed, and sent by whoever takes the run over;
//! - after it: the same, so they are sent again, under the same ids;
//! - after they were written down: they are `REPLAYED`, or open and refused.
//!
//! What has no confirm stays claimed, and is sent again later. What could never be delivered is refused: it is open as before,
//! and this run leaves it alone.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use futures::{StreamExt, stream::FuturesUnordered};
use tidegate_core::{dead_letter::DeadLetterId, ladder::Target, replay::plan::Batch};
use tokio::time::{Instant, sleep};

use super::{
    Replays,
    execute::LEASE,
    limited,
    message::{Editor, Outbound},
    watched::{Fault, Watched},
};
use crate::{
    publish::SendError,
    store::dead_letters::{replay::Claimed, runs::Hold, settle::Settled},
    supervisor::backoff,
    telemetry::dead_letters,
};

/// How long to go on trying to write down what was confirmed once the run shall stop.
const LAST_TRIES: Duration = Duration::from_secs(10);

/// What became of a batch, and what is in its way.
#[derive(Debug, Default)]
pub(super) struct Delivered {
    pub(super) batch: Batch,
    /// Why some have no confirm.
    pub(super) trouble: Option<String>,
}

impl Replays {
    /// Sends `letters`, all of one day.
    pub(super) async fn deliver(
        &self,
        hold: &Hold,
        editor: &Editor<'_>,
        letters: Vec<Claimed>,
        watched: &Watched<'_>,
    ) -> Result<Delivered, Fault> {
        let mut delivered = Delivered::default();
        let Some(day) = letters.first().map(|letter| letter.day) else {
            return Ok(delivered);
        };
        delivered.batch.found = letters.len() as u64;
        let mut settled = Vec::with_capacity(letters.len());
        let mut messages = Vec::with_capacity(letters.len());
        let mut renamed = Vec::new();
        let now = watched.now();
        for letter in letters {
            let (id, written) = (letter.id, letter.sent_task_id.clone());
            match editor.outbound(letter, now) {
                Ok(message) => {
                    if message.task_id != written {
                        renamed.push((id, message.task_id.clone()));
                    }
                    messages.push(message);
                }
                Err(why) => settled.push(refused(id, &why, watched)),
            }
        }
        let dead_ends = match self.dead_ends(&messages).await {
            Ok(dead_ends) => dead_ends,
            Err(why) => {
                delivered.trouble = Some(why);
                messages.clear();
                HashMap::new()
            }
        };
        if !renamed.is_empty() && !messages.is_empty() {
            limited(self.store.dead_letters().announce(hold, day, &renamed)).await?;
        }
        let mut shut = None;
        let mut sends = FuturesUnordered::new();
        for message in messages {
            if let Some(why) = dead_ends.get(&place(&message.target)) {
                settled.push(refused(message.id, why, watched));
                continue;
            }
            sends.push(self.send(message));
        }
        while let Some((id, task_id, edited, task_type, sent)) = sends.next().await {
            match sent {
                Ok(()) => {
                    dead_letters::replayed(task_type.as_deref());
                    settled.push(Settled {
                        id,
                        sent: true,
                        sent_task_id: task_id,
                        edited,
                    });
                }
                Err(
                    error @ (SendError::Unroutable { .. } | SendError::Refused(_) | SendError::Invalid(_)),
                ) => {
                    settled.push(refused(id, &error.to_string(), watched));
                }
                Err(error @ (SendError::NoExchange(_) | SendError::Forbidden { .. })) => {
                    settled.push(refused(id, &error.to_string(), watched));
                    shut = Some(error.to_string());
                }
                Err(error @ (SendError::Nacked | SendError::Unknown(_))) => {
                    delivered.trouble = Some(error.to_string());
                }
            }
        }
        delivered.batch.sent = settled.iter().filter(|one| one.sent).count() as u64;
        delivered.batch.refused = settled.len() as u64 - delivered.batch.sent;
        if let Some(why) = shut.filter(|_| delivered.batch.sent == 0) {
            // Of all others the same would have to be said.
            watched.broken(&why);
        }
        if !settled.is_empty() {
            self.write_down(hold, day, &settled, watched).await?;
        }
        watched.advance(&delivered.batch);
        Ok(delivered)
    }

    async fn send(
        &self,
        message: Outbound,
    ) -> (
        DeadLetterId,
        Option<String>,
        Option<Vec<u8>>,
        Option<String>,
        Result<(), SendError>,
    ) {
        let Outbound {
            id,
            again,
            target,
            priority,
            task_type,
            task_id,
            edited,
        } = message;
        let sent = self
            .publisher
            .replay(again, &target, priority, task_type.as_deref())
            .await;
        (id, task_id, edited, task_type, sent)
    }

    /// The targets of `messages` that lead nowhere, and why; an error if the broker didn't say.
    async fn dead_ends(&self, messages: &[Outbound]) -> Result<HashMap<(bool, String), String>, String> {
        let mut looked = HashSet::new();
        let mut dead_ends = HashMap::new();
        for message in messages {
            let place = place(&message.target);
            if !looked.insert(place.clone()) {
                continue;
            }
            let dead_end = self
                .routes
                .dead_end(&message.target, self.publisher.topology())
                .await;
            if let Some(why) = dead_end.map_err(|error| error.to_string())? {
                dead_ends.insert(place, why);
            }
        }
        Ok(dead_ends)
    }

    /// Writes down what became of `settled`, as often as it takes: what was confirmed and isn't written down would be sent
    /// again.
    async fn write_down(
        &self,
        hold: &Hold,
        day: chrono::NaiveDate,
        settled: &[Settled],
        watched: &Watched<'_>,
    ) -> Result<(), Fault> {
        let (mut waits, mut stopping) = (backoff(), None);
        loop {
            match limited(self.store.dead_letters().settle(hold, day, settled, LEASE)).await {
                Ok(true) => return Ok(()),
                Ok(false) => return Err(Fault::TakenOver),
                Err(error) if !error.is_transient() => return Err(error.into()),
                Err(error) => {
                    watched.trouble(&error.to_string());
                    if watched.is_over() {
                        let since = *stopping.get_or_insert_with(Instant::now);
                        if since.elapsed() > LAST_TRIES {
                            return Err(error.into());
                        }
                    }
                }
            }
            sleep(waits.next().unwrap_or_default()).await;
        }
    }
}

fn refused(id: DeadLetterId, why: &str, watched: &Watched<'_>) -> Settled {
    watched.refused(id, why);
    Settled {
        id,
        sent: false,
        sent_task_id: None,
        edited: None,
    }
}

/// A target as a key: whether it is a queue, and its name.
fn place(target: &Target) -> (bool, String) {
    match target {
        Target::Queue(name) => (true, name.clone()),
        Target::Key(name) | Target::HighKey(name) => (false, name.clone()),
    }
}
