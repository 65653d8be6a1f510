//! The leases of what runs in this process, renewed at a third of their length, in batches.
//!
//! May import: `batcher`, `telemetry`. The loop has a thread and a tokio runtime of its own: handlers that block every thread of
//! theirs must not cost them their keys. What was frozen beyond a lease may have lost its key; that is noted here, and
//! refused when it tells its result. A ledger that is away is asked again until it answers; if the process dies, the
//! leases end.

use std::{
    collections::HashMap,
    panic::AssertUnwindSafe,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::FutureExt;
use tokio::{
    sync::Notify,
    time::{Instant, timeout},
};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{Grant, Kept, Ledger};
use crate::{
    batcher::MOST,
    telemetry::{health::Health, metrics},
};

/// Longest wait for one statement.
const LIMIT: Duration = Duration::from_secs(5);

/// Pause before a ledger that does not answer is asked again.
const PAUSE: Duration = Duration::from_millis(500);

const PART: &str = "ledger leases";

struct Entry {
    grant: Grant,
    due: Instant,
}

#[derive(Default)]
struct Table {
    entries: HashMap<u64, Entry>,
    /// When the loop looks next by itself.
    looks_at: Option<Instant>,
}

#[derive(Default)]
struct Shared {
    table: Mutex<Table>,
    serial: AtomicU64,
    /// Something is due earlier than the loop looks.
    earlier: Notify,
}

/// All leases of a worker; cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Leases(Arc<Shared>);

/// A lease that is renewed for as long as this lives.
pub(super) struct Lease {
    pub(super) grant: Grant,
    serial: u64,
    leases: Leases,
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.leases.table().entries.remove(&self.serial);
    }
}

impl Leases {
    // A poisoned lock only means that another thread panicked while holding it; the table is still whole.
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Renews the lease of `grant` from now on.
    pub(super) fn keep(&self, grant: Grant) -> Lease {
        let serial = self.0.serial.fetch_add(1, Ordering::Relaxed);
        let entry = Entry {
            due: Instant::now() + grant.lease / 3,
            grant: grant.clone(),
        };
        let is_earlier = {
            let mut table = self.table();
            let is_earlier = table.looks_at.is_none_or(|at| entry.due < at);
            table.entries.insert(serial, entry);
            is_earlier
        };
        if is_earlier {
            self.0.earlier.notify_one();
        }
        Lease {
            grant,
            serial,
            leases: self.clone(),
        }
    }

    /// What is due, and what would be soon, so that it shares the statement; or when the next is.
    fn due(&self) -> Result<Vec<(u64, Grant)>, Option<Instant>> {
        let (mut table, now) = (self.table(), Instant::now());
        let earliest = table.entries.values().map(|entry| entry.due).min();
        table.looks_at = earliest;
        if earliest.is_none_or(|earliest| earliest > now) {
            return Err(earliest);
        }
        let soon = table
            .entries
            .iter()
            .filter(|(_, entry)| entry.due <= now + entry.grant.lease / 9);
        Ok(soon
            .map(|(serial, entry)| (*serial, entry.grant.clone()))
            .collect())
    }

    fn renewed(&self, serial: u64, at: Instant) {
        if let Some(entry) = self.table().entries.get_mut(&serial) {
            entry.due = at + entry.grant.lease / 3;
        }
    }

    fn lost(&self, serial: u64) {
        let lost = self.table().entries.remove(&serial);
        if let Some(entry) = lost {
            tracing::warn!(
                task_type = %entry.grant.task_type,
                "a running task has lost its idempotency key; its result will be refused"
            );
        }
    }

    /// Starts renewing, until what is returned is dropped.
    pub(super) fn renew_beside(&self, ledger: Arc<dyn Ledger>, health: Health) -> DropGuard {
        let stop = CancellationToken::new();
        let (leases, stopped, reported) = (self.clone(), stop.clone(), health.clone());
        let renewing = async move {
            tokio::select! {
                () = stopped.cancelled() => {}
                () = leases.renew_on(&*ledger, reported) => {}
            }
        };
        let spawned = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .and_then(|runtime| {
                std::thread::Builder::new()
                    .name("tidegate-leases".to_owned())
                    .spawn(move || runtime.block_on(renewing))
            });
        if let Err(error) = spawned {
            tracing::error!(%error, "no thread to renew leases; runs that are longer than a lease will be repeated");
            health.down(PART, &format!("no thread to renew leases: {error}"));
        }
        stop.drop_guard()
    }

    async fn renew_on(&self, ledger: &dyn Ledger, health: Health) {
        let ledger = ledger.apart();
        let mut is_down = false;
        loop {
            let due = match self.due() {
                Ok(due) => due,
                Err(next) => {
                    if std::mem::take(&mut is_down) {
                        health.up(PART);
                    }
                    self.rest(next).await;
                    continue;
                }
            };
            for due in due.chunks(MOST) {
                if let Err(why) = self.renew(&*ledger, due).await {
                    if !is_down {
                        tracing::warn!(why, "can't renew leases; trying again");
                    }
                    is_down = true;
                    health.down(PART, &format!("the ledger doesn't answer: {why}"));
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    async fn rest(&self, next: Option<Instant>) {
        let next = async {
            match next {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = next => {}
            () = self.0.earlier.notified() => {}
        }
    }

    async fn renew(&self, ledger: &dyn Ledger, due: &[(u64, Grant)]) -> Result<(), String> {
        let grants: Vec<Grant> = due.iter().map(|(_, grant)| grant.clone()).collect();
        metrics::ledger_asked("renew", grants.len());
        let asked = Instant::now();
        let answers = match AssertUnwindSafe(timeout(LIMIT, ledger.renew(&grants)))
            .catch_unwind()
            .await
        {
            Ok(Ok(Ok(answers))) => answers,
            Ok(Ok(Err(error))) => return Err(error.to_string()),
            Ok(Err(_)) => return Err(format!("no answer within {LIMIT:?}")),
            Err(_) => return Err("asking it panicked".to_owned()),
        };
        let mut busy = false;
        for ((serial, _), answer) in due.iter().zip(answers) {
            match answer {
                Some(Kept::Yes) => self.renewed(*serial, asked),
                Some(Kept::Refused) => self.lost(*serial),
                // Somebody looks at it, or its completion is being committed.
                None => busy = true,
            }
        }
        if busy {
            tokio::time::sleep(PAUSE / 10).await;
        }
        Ok(())
    }
}
