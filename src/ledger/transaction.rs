//! The transaction that a handler works in where its type has `idempotency = "database"`.
//!
//! May import: `store`, `worker` for its traits, sqlx. It begins when the handler first asks for it. Killed before the
//! commit, neither the effect nor the record exists and the key is free after its lease; killed after it, both do.

use std::{
    any::Any,
    fmt, mem,
    ops::{Deref, DerefMut},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use sqlx::{PgConnection, Postgres};
use tokio::time::timeout;

use super::of_store;
use crate::{
    store::{Store, StoreError, executions::complete_in},
    worker::{
        Context,
        ledger::{Committed, Effect, Grant},
    },
};

/// Longest wait for the record, and again for the commit.
const LIMIT: Duration = Duration::from_secs(10);

type Inner = sqlx::Transaction<'static, Postgres>;

/// Where the transaction is.
enum State {
    /// Nobody has asked for it.
    Idle,
    /// Begun, and in nobody's hands.
    Begun(Inner),
    /// The handler has it.
    Taken,
    /// The run is over.
    Over,
}

/// What the handler finds in its context.
pub(super) struct Slot {
    store: Store,
    state: Mutex<State>,
}

impl Slot {
    // A poisoned lock only means that another thread panicked while holding it; the state is still one of the four.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why a handler gets no transaction. Converts into a retry by `?`.
#[derive(Debug, thiserror::Error)]
pub enum TransactionError {
    /// Its type has no `idempotency = "database"`, or the worker another ledger.
    #[error("the task type {0} has no transaction: write idempotency = \"database\" in the topology")]
    NotOffered(String),
    /// It has been taken already and not been dropped, or the run is over.
    #[error("the transaction of this run is in use elsewhere, or the run is over")]
    InUse,
    /// The ledger gives none.
    #[error("no transaction: {0}")]
    Ledger(#[from] StoreError),
}

/// The transaction in which the success of a task is recorded, in the hands of its handler. What is done in it is
/// committed after the handler's `Ok`, together with that record, and undone after anything else. Drop it before the
/// handler ends; asked for again, the same transaction goes on.
///
/// It is a connection of sqlx: don't commit or roll back in it by SQL of your own. Savepoints are fine.
///
/// ```no_run
/// use tidegate::{ledger::Transaction, worker::{Context, TaskError}};
///
/// async fn credit(ctx: Context, points: i64) -> Result<(), TaskError> {
///     let mut transaction = Transaction::of(&ctx).await?;
///     sqlx::query("UPDATE accounts SET points = points + $1").bind(points).execute(&mut *transaction).await?;
///     Ok(())
/// }
/// ```
pub struct Transaction {
    slot: Arc<Slot>,
    /// `None` only while it begins.
    inner: Option<Inner>,
}

impl fmt::Debug for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction").finish_non_exhaustive()
    }
}

impl Transaction {
    /// The transaction of the run that `context` belongs to; begins it, if this is the first time.
    pub async fn of(context: &Context) -> Result<Self, TransactionError> {
        let Some(slot) = context.beside::<Slot>() else {
            return Err(TransactionError::NotOffered(
                context.envelope.task_type.to_string(),
            ));
        };
        let begun = {
            let mut state = slot.state();
            match mem::replace(&mut *state, State::Taken) {
                State::Idle => None,
                State::Begun(inner) => Some(inner),
                taken => {
                    *state = taken;
                    return Err(TransactionError::InUse);
                }
            }
        };
        // Given up while it begins, it is as if nobody had asked.
        let mut transaction = Self { slot, inner: begun };
        if transaction.inner.is_none() {
            transaction.inner = Some(transaction.slot.store.begin().await?);
        }
        Ok(transaction)
    }
}

impl Deref for Transaction {
    type Target = PgConnection;

    #[allow(clippy::expect_used, reason = "`of` hands it out only with a begun one")]
    fn deref(&self) -> &PgConnection {
        self.inner.as_ref().expect("begun")
    }
}

impl DerefMut for Transaction {
    #[allow(clippy::expect_used, reason = "`of` hands it out only with a begun one")]
    fn deref_mut(&mut self) -> &mut PgConnection {
        self.inner.as_mut().expect("begun")
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        let mut state = self.slot.state();
        if matches!(*state, State::Taken) {
            *state = self.inner.take().map_or(State::Idle, State::Begun);
        }
    }
}

/// One entry of a handler.
pub(super) struct InTransaction(Arc<Slot>);

impl InTransaction {
    pub(super) fn new(store: Store) -> Self {
        Self(Arc::new(Slot {
            store,
            state: Mutex::new(State::Idle),
        }))
    }

    fn end(&self) -> State {
        mem::replace(&mut *self.0.state(), State::Over)
    }
}

impl Drop for InTransaction {
    /// A transaction that is dropped is rolled back.
    fn drop(&mut self) {
        drop(self.end());
    }
}

#[async_trait]
impl Effect for InTransaction {
    fn extension(&self) -> Arc<dyn Any + Send + Sync> {
        self.0.clone()
    }

    async fn commit(&self, grant: &Grant) -> Committed {
        let mut transaction = match self.end() {
            State::Idle => return Committed::Unused,
            State::Begun(transaction) => transaction,
            State::Taken | State::Over => {
                let why = "the handler ended and kept its transaction; drop it first";
                return Committed::Failed(why.to_owned());
            }
        };
        match timeout(LIMIT, complete_in(&mut transaction, of_store(grant))).await {
            Ok(Ok(true)) => {}
            Ok(Ok(false)) => return Committed::Refused,
            Ok(Err(error)) => return failed(error),
            Err(_) => return Committed::Unknown(format!("no answer within {LIMIT:?}")),
        }
        match timeout(LIMIT, transaction.commit()).await {
            Ok(Ok(())) => Committed::Yes,
            Ok(Err(error)) => failed(error),
            Err(_) => Committed::Unknown(format!("no answer to a commit within {LIMIT:?}")),
        }
    }
}

/// What the database says about this transaction ends it; that it goes away may come after the commit.
fn failed(error: sqlx::Error) -> Committed {
    if let sqlx::Error::Database(database) = &error {
        let code = database.code().unwrap_or_default();
        if !["08", "53", "57", "58"]
            .iter()
            .any(|class| code.starts_with(class))
        {
            return Committed::Failed(database.message().to_owned());
        }
    }
    Committed::Unknown(StoreError::from(error).to_string())
}
