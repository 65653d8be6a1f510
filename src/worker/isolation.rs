//! One suspect at a time runs with nothing else of this process running or held, so that its death costs no other task
//! anything.
//!
//! May import: nothing of ours. Everything a queue's loop holds, it holds under a [`Pass`]. A suspect gives its own up
//! and asks to be [`alone`](Pass::alone): that closes all passes, upon which each loop cancels its consumers and gives
//! back what has not started, and it waits until they are gone. A loop gets its next pass when the suspect has ended.
//! Killed before that, the broker has back what was held; a suspect that was held counts one death more than it caused.

use std::{
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};
use tokio_util::sync::CancellationToken;

/// How long what runs may go on before a suspect runs beside it.
const DRAIN: Duration = Duration::from_secs(60);

/// What the loops of one process share.
#[derive(Clone)]
pub(super) struct Isolation(Arc<Shared>);

struct Shared {
    lock: Arc<RwLock<()>>,
    /// Cancelled when the passes that are out are to be given up.
    closing: Mutex<CancellationToken>,
    taken: AtomicBool,
    shutdown: CancellationToken,
}

/// Leave to hold deliveries and to run them.
#[derive(Clone)]
pub(super) struct Pass {
    isolation: Isolation,
    closed: CancellationToken,
    /// Of all clones; the suspect waits for the last.
    _held: Arc<OwnedRwLockReadGuard<()>>,
}

type Turn = Pin<Box<dyn Future<Output = OwnedRwLockWriteGuard<()>> + Send + Sync>>;

/// While it lives, its owner is alone. New passes wait for its end.
pub(super) struct Alone {
    isolation: Isolation,
    /// Held, or not yet had because something runs on: then it still keeps newcomers out by standing in line.
    _lock: Result<OwnedRwLockWriteGuard<()>, Turn>,
}

impl Isolation {
    pub(super) fn new(shutdown: CancellationToken) -> Self {
        Self(Arc::new(Shared {
            lock: Arc::default(),
            closing: Mutex::new(shutdown.child_token()),
            taken: AtomicBool::new(false),
            shutdown,
        }))
    }

    /// Waits while a suspect is alone.
    pub(super) async fn pass(&self) -> Pass {
        let held = Arc::new(self.0.lock.clone().read_owned().await);
        Pass {
            isolation: self.clone(),
            closed: self.closing().clone(),
            _held: held,
        }
    }

    fn closing(&self) -> std::sync::MutexGuard<'_, CancellationToken> {
        self.0.closing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pass {
    /// Cancelled when nothing may start any more under this pass: a suspect wants to be alone, or the worker stops.
    pub(super) fn closed(&self) -> &CancellationToken {
        &self.closed
    }

    /// Waits until nothing else is held or runs, at most for [`DRAIN`].
    ///
    /// # Errors
    /// Another suspect has asked before: this pass, under which to give the delivery back. Or the worker stops.
    pub(super) async fn alone(self) -> Result<Alone, Option<Self>> {
        let shared = self.isolation.0.clone();
        if shared.shutdown.is_cancelled() || shared.taken.swap(true, Ordering::AcqRel) {
            return Err(Some(self));
        }
        let Self {
            isolation,
            closed,
            _held,
        } = self;
        // From here on `taken` is given back by its drop, whatever happens.
        let mut alone = Alone {
            isolation: isolation.clone(),
            _lock: Err(Box::pin(shared.lock.clone().write_owned())),
        };
        closed.cancel();
        drop(_held);
        let got = match &mut alone._lock {
            Err(waiting) => tokio::select! {
                biased;
                () = shared.shutdown.cancelled() => return Err(None),
                lock = waiting => Some(lock),
                () = tokio::time::sleep(DRAIN) => None,
            },
            Ok(_) => None,
        };
        match got {
            Some(lock) => alone._lock = Ok(lock),
            None => tracing::warn!(waited = ?DRAIN, "a suspected task starts beside others that don't end"),
        }
        *isolation.closing() = shared.shutdown.child_token();
        Ok(alone)
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        // Passes that come next are under a new token, also where the wait was given up.
        let mut closing = self.isolation.closing();
        if closing.is_cancelled() {
            *closing = self.isolation.0.shutdown.child_token();
        }
        drop(closing);
        self.isolation.0.taken.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_suspect_waits_for_all_that_is_held_and_keeps_newcomers_out() {
        let isolation = Isolation::new(CancellationToken::new());
        let (suspect, running) = (isolation.pass().await, isolation.pass().await);
        let beside = running.clone();
        let alone = tokio::spawn(suspect.alone());
        running.closed().cancelled().await;
        drop(running);
        tokio::task::yield_now().await;
        assert!(!alone.is_finished(), "a clone of the pass is still out");
        drop(beside);
        let alone = alone.await.unwrap().ok().unwrap();
        let next = tokio::spawn({
            let isolation = isolation.clone();
            async move { isolation.pass().await }
        });
        tokio::time::sleep(DRAIN * 10).await;
        assert!(!next.is_finished(), "nothing starts beside a suspect");
        drop(alone);
        assert!(!next.await.unwrap().closed().is_cancelled());
    }

    #[tokio::test(start_paused = true)]
    async fn what_never_ends_delays_a_suspect_and_lets_nothing_new_in() {
        let isolation = Isolation::new(CancellationToken::new());
        let (suspect, stuck) = (isolation.pass().await, isolation.pass().await);
        let alone = suspect.alone().await.ok().unwrap();
        let next = tokio::spawn({
            let isolation = isolation.clone();
            async move { isolation.pass().await }
        });
        tokio::time::sleep(DRAIN).await;
        assert!(!next.is_finished());
        drop(alone);
        let next = next.await.unwrap();
        assert!(stuck.closed().is_cancelled() && !next.closed().is_cancelled());
        // It can be asked for again, though the stuck one is still there.
        drop(stuck);
        assert!(next.alone().await.is_ok());
    }

    #[tokio::test]
    async fn one_at_a_time_and_none_at_shutdown() {
        let shutdown = CancellationToken::new();
        let isolation = Isolation::new(shutdown.clone());
        let (first, second, held) = (
            isolation.pass().await,
            isolation.pass().await,
            isolation.pass().await,
        );
        let first = tokio::spawn(first.alone());
        held.closed().cancelled().await;
        assert!(
            matches!(second.alone().await, Err(Some(_))),
            "another one has asked before"
        );
        shutdown.cancel();
        assert!(matches!(first.await.unwrap(), Err(None)));
        assert!(matches!(held.alone().await, Err(Some(_))));
    }
}
