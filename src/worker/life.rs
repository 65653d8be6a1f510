//! A built worker: running it and stopping it.
//!
//! May import: `broker`, `supervisor`, `telemetry`. Killed at any time, the broker delivers again what was not acknowledged.

use std::time::Duration;

use tokio::{
    task::JoinSet,
    time::{Instant, timeout_at},
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::{
    ledger::{client::Loops, keys::KeyLoops},
    queue::QueueLoop,
};
use crate::{broker::connection::Link, telemetry::health::Health};

/// How long the end may take once nothing runs any more, or the grace period is over: giving back, telling the ledger, closing.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// The worker's own part in [`Health`]: down once it stops.
pub(super) const PART: &str = "worker";

/// A worker ready to run.
pub struct Worker {
    pub(super) loops: Vec<QueueLoop>,
    pub(super) link: Link,
    pub(super) shutdown: CancellationToken,
    pub(super) hurry: CancellationToken,
    pub(super) grace: Duration,
    pub(super) health: Health,
    pub(super) following: Option<Loops>,
    pub(super) keeping: Option<KeyLoops>,
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker")
            .field("queues", &self.loops.len())
            .finish_non_exhaustive()
    }
}

impl Worker {
    /// Runs until `stop` is cancelled, then shuts down: nothing new starts, what has not started is given back,
    /// what runs may finish within the grace period and is interrupted and given back after it.
    /// Dropped, it starts nothing more, and what it holds goes back to its queue.
    pub async fn run(self, stop: CancellationToken) {
        self.health.up(PART);
        // A slot goes from one delivery to the next without looking at anything else.
        let _dropped = self.shutdown.clone().drop_guard();
        let following = self
            .following
            .map(|following| AbortOnDropHandle::new(tokio::spawn(following.run())));
        let keeping = self
            .keeping
            .map(|keeping| AbortOnDropHandle::new(tokio::spawn(keeping.run())));
        let mut loops = JoinSet::new();
        for queue in self.loops {
            loops.spawn(queue.run_on());
        }
        stop.cancelled().await;
        self.health.down(PART, "the worker stops");
        tracing::info!(grace = ?self.grace, "worker stops: finishing what runs");
        self.shutdown.cancel();
        let drained = async { while loops.join_next().await.is_some() {} };
        tokio::pin!(drained);
        let hurried = tokio::select! {
            () = &mut drained => false,
            () = self.hurry.cancelled() => true,
            () = tokio::time::sleep(self.grace) => {
                tracing::warn!("grace period over: interrupting what still runs");
                self.hurry.cancel();
                true
            }
        };
        // All that is left shares this time: against a broker or a ledger that hangs, nobody waits for each in turn.
        let last_words = Instant::now() + LAST_WORDS;
        if hurried && timeout_at(last_words, &mut drained).await.is_err() {
            // Unacknowledged: the broker has it back as soon as the connection is gone.
            tracing::warn!("not all that was interrupted could be given back; it stays unacknowledged");
        }
        // They end by themselves once every result is written.
        let told = async {
            for telling in [following, keeping].into_iter().flatten() {
                let _ = telling.await;
            }
        };
        if timeout_at(last_words, told).await.is_err() {
            tracing::warn!(
                "the ledger doesn't answer; results that it was not told go on showing as they were"
            );
        }
        // The link may be busy connecting for longer than anybody waits for us.
        let _ = timeout_at(last_words, self.link.close()).await;
    }

    /// As [`run`](Self::run), until SIGTERM or SIGINT. A second signal ends the grace period at once.
    pub async fn run_until_signal(self) {
        let (stop, hurry) = (CancellationToken::new(), self.hurry.clone());
        let signals = tokio::spawn({
            let stop = stop.clone();
            async move {
                crate::supervisor::signal().await;
                stop.cancel();
                crate::supervisor::signal().await;
                hurry.cancel();
            }
        });
        self.run(stop).await;
        signals.abort();
    }
}
