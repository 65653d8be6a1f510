//! The ledger as worker and router ask for it: the one place where their traits meet the SQL adapter.
//!
//! May import: `store`, `worker` and `router` for their traits, sqlx for what a handler gets. Neither `worker` nor `router`
//! imports `store`, nor it them.
//!
//! ```no_run
//! # use std::sync::Arc;
//! # use tidegate::{broker::BrokerSettings, topology::Topology, worker::Worker};
//! use tidegate::ledger::PostgresLedger;
//!
//! # fn example() -> Result<(), Box<dyn std::error::Error>> {
//! # let settings = BrokerSettings::new("amqp://localhost".into());
//! # let topology = Arc::new(Topology::load("topology".as_ref())?);
//! let ledger = PostgresLedger::connect(&"postgres://worker@localhost/app".into())?;
//! let worker = Worker::builder(settings, topology).ledger(ledger);
//! # Ok(()) }
//! ```

mod transaction;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use secrecy::SecretString;
pub use transaction::{Transaction, TransactionError};

#[cfg(feature = "server")]
use crate::router;
use crate::{
    store::{
        Store, StoreError, StoreSettings, executions,
        life::{Claim, Told},
    },
    worker::ledger::{Ask, Effect, Grant, Kept, KeyVerdict, Ledger, LedgerError, Report, Verdict, Wanted},
};

/// Transactions of handlers that are open at once, unless somebody says otherwise: a worker's concurrency.
const TRANSACTIONS: u32 = 10;

/// Longest wait for the connection by which leases are renewed.
const RENEWAL_PATIENCE: Duration = Duration::from_secs(3);

/// The ledger in Postgres; cheap to clone.
#[derive(Clone, Debug)]
pub struct PostgresLedger {
    store: Store,
    /// For handlers whose type has `idempotency = "database"`.
    handlers: Store,
}

impl PostgresLedger {
    /// The ledger at `url`. Connects on first use, with at most six connections: a worker has six kinds of
    /// statements, and one of each at a time. Two kinds of connections come on top where types have idempotency: one
    /// that renews leases, and those of [`transactions`](Self::transactions). Fails only if `url` is no Postgres URL.
    /// Needs a tokio runtime.
    pub fn connect(url: &SecretString) -> Result<Self, StoreError> {
        let settings = StoreSettings {
            max_connections: 6,
            statement_timeout: Duration::from_secs(10),
            ..StoreSettings::default()
        };
        Ok(Store::connect(url, &settings)?.into())
    }

    /// Most transactions of handlers at once; default 10. Give it the concurrency of those types: a handler that finds
    /// none free for 30 s fails. What is not from 1 to 10,000 is taken as the nearer of the two. Needs a tokio runtime.
    #[must_use]
    pub fn transactions(mut self, most: u32) -> Self {
        self.handlers = self.store.for_handlers(most.clamp(1, 10_000));
        self
    }

    /// Forgets all idempotency keys of `task_type`: each would be processed again. How many there were.
    pub async fn forget_keys(&self, task_type: &str) -> Result<u64, StoreError> {
        self.store.executions().forget(task_type).await
    }
}

impl From<Store> for PostgresLedger {
    fn from(store: Store) -> Self {
        Self {
            handlers: store.for_handlers(TRANSACTIONS),
            store,
        }
    }
}

#[async_trait]
impl Ledger for PostgresLedger {
    async fn start(&self, asked: &[Ask]) -> Result<Vec<Option<Verdict>>, LedgerError> {
        let pairs: Vec<(&str, &str)> = asked
            .iter()
            .map(|ask| (ask.task_id.as_str(), ask.queue.as_str()))
            .collect();
        let claims = self.store.life().start(&pairs).await.map_err(told)?;
        Ok(claims.into_iter().map(verdict).collect())
    }

    async fn report(&self, reports: &[Report]) -> Result<Vec<bool>, LedgerError> {
        let results: Vec<Told> = reports.iter().map(result).collect();
        self.store.life().report(&results).await.map_err(told)
    }

    async fn cancel_requested(&self, task_ids: &[String]) -> Result<Vec<String>, LedgerError> {
        let ids: Vec<&str> = task_ids.iter().map(String::as_str).collect();
        self.store.life().cancel_requested(&ids).await.map_err(told)
    }

    async fn claim(&self, wanted: &[Wanted]) -> Result<Vec<Option<KeyVerdict>>, LedgerError> {
        let wanted: Vec<executions::Wanted<'_>> = wanted.iter().map(to_claim).collect();
        let claims = self.store.executions().claim(&wanted).await.map_err(told)?;
        Ok(claims.into_iter().map(key_verdict).collect())
    }

    async fn complete(&self, grants: &[Grant]) -> Result<Vec<Option<Kept>>, LedgerError> {
        let written = self.store.executions().complete(&granted(grants)).await;
        Ok(written.map_err(told)?.into_iter().map(kept).collect())
    }

    async fn release(&self, grants: &[Grant]) -> Result<Vec<Option<Kept>>, LedgerError> {
        let written = self.store.executions().release(&granted(grants)).await;
        Ok(written.map_err(told)?.into_iter().map(kept).collect())
    }

    async fn renew(&self, grants: &[Grant]) -> Result<Vec<Option<Kept>>, LedgerError> {
        let written = self.store.executions().renew(&granted(grants)).await;
        Ok(written.map_err(told)?.into_iter().map(kept).collect())
    }

    fn apart(&self) -> Arc<dyn Ledger> {
        Arc::new(Self {
            store: self.store.beside(1, RENEWAL_PATIENCE),
            handlers: self.handlers.clone(),
        })
    }

    fn effect(&self) -> Option<Box<dyn Effect>> {
        Some(Box::new(transaction::InTransaction::new(self.handlers.clone())))
    }
}

#[cfg(feature = "server")]
#[async_trait]
impl router::Ledger for PostgresLedger {
    async fn unroutable(&self, task_id: &str, why: &str) -> Result<bool, String> {
        let taken = self.store.tasks().unroutable(task_id, why).await;
        taken.map_err(|error| error.to_string())
    }

    async fn ended(&self, ended: &[router::Ended]) -> Result<Vec<bool>, LedgerError> {
        let told: Vec<Told> = ended
            .iter()
            .map(|ended| Told {
                task_id: ended.task_id.clone(),
                queue: ended.queue.clone(),
                run: None,
                end: ended.end,
                error: ended.error.clone(),
            })
            .collect();
        self.store.life().report(&told).await.map_err(self::told)
    }
}

fn verdict(claim: Claim) -> Option<Verdict> {
    Some(match claim {
        Claim::Start(run) => Verdict::Start { run: Some(run) },
        Claim::Shared | Claim::Unknown => Verdict::Start { run: None },
        Claim::Canceled => Verdict::Canceled,
        Claim::Done => Verdict::Done,
        Claim::Busy => return None,
    })
}

fn to_claim(wanted: &Wanted) -> executions::Wanted<'_> {
    executions::Wanted {
        task_type: &wanted.task_type,
        key: &wanted.key,
        task_id: &wanted.task_id,
        owner: &wanted.owner,
        lease: wanted.lease,
    }
}

fn key_verdict(claim: executions::Claim) -> Option<KeyVerdict> {
    Some(match claim {
        executions::Claim::Granted(fence) => KeyVerdict::Granted { fence },
        executions::Claim::Done => KeyVerdict::Done,
        executions::Claim::Held(left) => KeyVerdict::Held(left),
        executions::Claim::Busy => return None,
    })
}

fn granted(grants: &[Grant]) -> Vec<executions::Grant<'_>> {
    grants.iter().map(of_store).collect()
}

fn of_store(grant: &Grant) -> executions::Grant<'_> {
    executions::Grant {
        task_type: &grant.task_type,
        key: &grant.key,
        fence: grant.fence,
        lease: grant.lease,
    }
}

fn kept(written: executions::Written) -> Option<Kept> {
    match written {
        executions::Written::Yes => Some(Kept::Yes),
        executions::Written::Refused => Some(Kept::Refused),
        executions::Written::Busy => None,
    }
}

fn result(report: &Report) -> Told {
    Told {
        task_id: report.task_id.clone(),
        queue: report.queue.clone(),
        run: report.run,
        end: report.end,
        error: report.error.clone(),
    }
}

/// Only what Postgres says about a value is about this call; the rest (no rights yet, no tables yet) can be mended
/// while the worker waits.
fn told(error: StoreError) -> LedgerError {
    match error {
        StoreError::Bad(why) => LedgerError::Refused(why),
        other => LedgerError::Away(other.to_string()),
    }
}
