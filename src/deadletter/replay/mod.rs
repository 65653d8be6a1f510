//! Dead letters replayed: one, many, or all that a filter means, unchanged or edited.
//!
//! May import: `core`, `broker`, `publish`, `store`, `supervisor`, `telemetry`, `topology`. What happens when is decided by the
//! core's `replay`; here it is done. Order of a batch: claimed (`REPLAYING`, with the run's id), published, confirmed, written
//! down (`REPLAYED`). Two runs never have the same dead letter, and a run that dies anywhere is gone on with by whoever
//! takes it over: the server's [`adopt`] loop, or somebody by hand.
//!
//! | module | what |
//! |---|---|
//! | [`request`] | what is asked for, and the same as text |
//! | [`message`] | one dead letter to the message that goes out, pure |
//! | [`preview`] | what a run would do |
//! | [`execute`] | works on a run to its end |
//! | [`adopt`] | takes over runs whose process is dead |
//! | [`told`] | what is told meanwhile, and how it ended |

pub mod adopt;
mod deliver;
pub mod execute;
mod finish;
pub mod message;
pub mod preview;
pub mod request;
mod routes;
pub mod told;
mod watched;

use std::{sync::Arc, time::Duration};

use tidegate_core::envelope;
use uuid::Uuid;

use self::{
    execute::LEASE,
    message::{Contracts, NoContracts},
    request::Request,
    routes::Routes,
    told::ReplayError,
};
use crate::{
    broker::connection::Link,
    publish::TaskPublisher,
    store::{
        Store, StoreError,
        dead_letters::runs::{Hold, NewRun, Taken},
    },
};

/// Longest wait for one statement: longer than the server lets it run.
const STATEMENT: Duration = Duration::from_secs(45);

/// A statement bounded in time: a frozen server ends none.
async fn limited<T>(statement: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    match tokio::time::timeout(STATEMENT, statement).await {
        Ok(answer) => answer,
        Err(_) => Err(StoreError::Unavailable(format!("no answer within {STATEMENT:?}"))),
    }
}

/// Replays dead letters; cheap to clone.
#[derive(Clone, Debug)]
pub struct Replays {
    store: Store,
    publisher: TaskPublisher,
    routes: Routes,
    limits: envelope::Limits,
    contracts: Arc<dyn Contracts>,
    owner: Arc<str>,
}

impl Replays {
    /// Replays by `publisher`; `link` is asked which queues exist. Edited bodies are held to `limits`. `owner` names this
    /// process to people, 1 to 255 bytes.
    pub fn new(
        store: Store,
        publisher: TaskPublisher,
        link: Link,
        limits: envelope::Limits,
        owner: impl Into<Arc<str>>,
    ) -> Self {
        Self {
            store,
            publisher,
            routes: Routes::new(link),
            limits,
            contracts: Arc::new(NoContracts),
            owner: owner.into(),
        }
    }

    /// Begins a run, which this process holds then and shall [`execute`](Self::execute); `None` if nothing that it means is
    /// open.
    ///
    /// # Errors
    /// The database; nothing was begun, or it was and is taken over once its lease is over.
    pub async fn begin(&self, request: &Request) -> Result<Option<Hold>, ReplayError> {
        let new = NewRun {
            id: Uuid::now_v7(),
            asked_by: &request.who,
            why: &request.why,
            filter: &request.filter,
            filter_text: &request::filter_text(&request.filter),
            edit: &request::edit_text(&request.edit),
            options: &request::options_text(&request.options),
            limit: request.options.limit,
            owner: &self.owner,
            lease: LEASE,
        };
        Ok(self.store.dead_letters().begin_run(&new).await?)
    }

    /// Takes over the run `id` for `who`, if nobody works on it.
    ///
    /// # Errors
    /// The database; nothing was changed.
    pub async fn resume(&self, id: Uuid, who: &str, why: &str) -> Result<Taken, ReplayError> {
        let by = Some((who, why));
        Ok(self
            .store
            .dead_letters()
            .take_run(id, &self.owner, LEASE, by)
            .await?)
    }
}
