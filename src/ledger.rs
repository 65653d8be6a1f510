//! The ledger as worker and router ask for it: the one place where their traits meet the SQL adapter.
//!
//! May import: `store`, `worker` and `router` for their traits. Neither of those imports `store`, nor it them.
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

use std::time::Duration;

use async_trait::async_trait;
use secrecy::SecretString;

use crate::{
    router,
    store::{
        Store, StoreError, StoreSettings,
        life::{Claim, Told},
    },
    worker::ledger::{Ask, Ledger, LedgerError, Report, Verdict},
};

/// The ledger in Postgres; cheap to clone.
#[derive(Clone, Debug)]
pub struct PostgresLedger(Store);

impl PostgresLedger {
    /// The ledger at `url`. Connects on first use, with at most three connections: a worker has three kinds of
    /// statements, and one of each at a time. Fails only if `url` is no Postgres URL. Needs a tokio runtime.
    pub fn connect(url: &SecretString) -> Result<Self, StoreError> {
        let settings = StoreSettings {
            max_connections: 3,
            statement_timeout: Duration::from_secs(10),
            ..StoreSettings::default()
        };
        Ok(Self(Store::connect(url, &settings)?))
    }
}

impl From<Store> for PostgresLedger {
    fn from(store: Store) -> Self {
        Self(store)
    }
}

#[async_trait]
impl Ledger for PostgresLedger {
    async fn start(&self, asked: &[Ask]) -> Result<Vec<Option<Verdict>>, LedgerError> {
        let pairs: Vec<(&str, &str)> = asked
            .iter()
            .map(|ask| (ask.task_id.as_str(), ask.queue.as_str()))
            .collect();
        let claims = self.0.life().start(&pairs).await.map_err(told)?;
        Ok(claims.into_iter().map(verdict).collect())
    }

    async fn report(&self, reports: &[Report]) -> Result<Vec<bool>, LedgerError> {
        let results: Vec<Told> = reports.iter().map(result).collect();
        self.0.life().report(&results).await.map_err(told)
    }

    async fn cancel_requested(&self, task_ids: &[String]) -> Result<Vec<String>, LedgerError> {
        let ids: Vec<&str> = task_ids.iter().map(String::as_str).collect();
        self.0.life().cancel_requested(&ids).await.map_err(told)
    }
}

#[async_trait]
impl router::Ledger for PostgresLedger {
    async fn unroutable(&self, task_id: &str, why: &str) -> Result<bool, String> {
        let taken = self.0.tasks().unroutable(task_id, why).await;
        taken.map_err(|error| error.to_string())
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
