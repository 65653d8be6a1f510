//! Whether the database answers and takes writes, watched from a connection of its own.
//!
//! May import: sqlx, tokio. A database goes away in two ways. It may say so (refused, terminated, read-only after a
//! fail-over): then statements fail and their callers start again. Or it goes silent (frozen, a network that drops
//! everything, an address nobody answers at): then whoever waits for an answer waits for ever, and so would the
//! connection's place in the pool. [`Store::watch`] notices both within [`PAUSE`] + [`SILENCE`]; on silence, whatever
//! runs inside of [`Store::unless_lost`] ends, and connections opened before are never used again.

use std::{
    convert::Infallible,
    future::Future,
    io::ErrorKind,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use sqlx::{ConnectOptions, Connection, PgConnection, postgres::PgPoolOptions};
use tokio::{
    sync::Notify,
    time::{Instant, sleep, timeout},
};

use super::{Store, StoreError};

/// Time between two looks at the database.
pub const PAUSE: Duration = Duration::from_secs(2);

/// An answer that takes longer won't come.
pub const SILENCE: Duration = Duration::from_secs(5);

/// A connection that rested for longer in the pool is tried before it is used again.
const FRESH: Duration = Duration::from_secs(1);

/// Longest wait for the answer to such a trial. Not an answer: a new connection is opened instead.
const TRIAL: Duration = Duration::from_secs(2);

/// After a fail-over the old primary may live on and refuse every write.
const READ_ONLY: &str = "SELECT current_setting('transaction_read_only')::boolean";

/// What the watch has seen.
#[derive(Debug, Default)]
pub(super) struct Trouble {
    /// When the database was last in trouble: connections opened before are not used again.
    last: Mutex<Option<Instant>>,
    silent: Notify,
}

impl Trouble {
    fn note(&self, at: Instant) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(at);
    }

    /// Whether a connection of this age is from before the last trouble.
    fn is_older(&self, age: Duration) -> bool {
        let last = *self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.is_some_and(|last| last.elapsed() < age)
    }
}

impl Store {
    /// Looks at the database now and then, for ever, and reports after each look: that it can be worked with, or why
    /// not.
    pub async fn watch(&self, mut report: impl FnMut(Result<(), StoreError>) + Send) -> Infallible {
        let mut connection = None;
        loop {
            let mut seen = self.look(&mut connection).await;
            if seen.is_err() {
                // That of the watch alone may have been ended; only a new one tells.
                seen = self.look(&mut connection).await;
            }
            report(seen);
            sleep(PAUSE).await;
        }
    }

    /// Does `work`, and gives it up when the watch finds the database silent. What a statement did that was given
    /// up is not known.
    pub async fn unless_lost<T, E: From<StoreError>>(
        &self,
        work: impl Future<Output = Result<T, E>> + Send,
    ) -> Result<T, E> {
        tokio::select! {
            done = work => done,
            () = self.lost() => Err(no_answer().into()),
        }
    }

    /// Ends when the watch next finds the database silent.
    pub(super) async fn lost(&self) {
        self.trouble.silent.notified().await;
    }

    /// One look, on `connection` or a new one, which is kept if all is well.
    async fn look(&self, connection: &mut Option<PgConnection>) -> Result<(), StoreError> {
        let began = Instant::now();
        let held = connection.take();
        let was_held = held.is_some();
        let look = async {
            let mut on = match held {
                Some(held) => held,
                None => self.options.connect().await?,
            };
            let read_only: bool = sqlx::query_scalar(READ_ONLY).fetch_one(&mut on).await?;
            Ok::<_, sqlx::Error>((on, read_only))
        };
        let failure = match timeout(SILENCE, look).await {
            Ok(Ok((on, false))) => {
                // What was opened before, since the last look, may still lead to where the trouble is.
                if !was_held {
                    self.trouble.note(began);
                }
                *connection = Some(on);
                return Ok(());
            }
            Ok(Ok((_, true))) => {
                self.trouble.note(Instant::now());
                StoreError::Unavailable(
                    "it is read-only: a standby, or a primary that was replaced".to_owned(),
                )
            }
            Ok(Err(error)) => {
                // Refused anew says nothing about those that are open.
                if was_held {
                    self.trouble.note(Instant::now());
                }
                error.into()
            }
            Err(_) => {
                // A session that stands still is dead. To open one may just take long: giving up all others for that would
                // put an overloaded database under more load.
                if was_held {
                    self.trouble.note(Instant::now());
                    self.trouble.silent.notify_waiters();
                }
                no_answer()
            }
        };
        Err(failure)
    }
}

fn no_answer() -> StoreError {
    StoreError::Unavailable(format!("no answer within {} s", SILENCE.as_secs()))
}

/// Lets nothing into the hands of a caller that is known to be dead, read-only or from before the last trouble, and
/// lets nothing hang on its way back.
pub(super) fn guard(pool: PgPoolOptions, trouble: &Arc<Trouble>) -> PgPoolOptions {
    let trouble = Arc::clone(trouble);
    // Instead of a trial each time: batches follow each other within milliseconds.
    pool.test_before_acquire(false)
        .before_acquire(move |connection, met| {
            let is_older = trouble.is_older(met.age);
            Box::pin(async move {
                if is_older {
                    return Ok(false);
                }
                if met.idle_for < FRESH {
                    return Ok(true);
                }
                let trial = sqlx::query_scalar(READ_ONLY).fetch_one(&mut *connection);
                // In time, without an error, and not read-only.
                Ok(matches!(timeout(TRIAL, trial).await, Ok(Ok(false))))
            })
        })
        // A statement that was given up may leave a connection on which nothing will ever arrive. The pool waits for
        // that without end, and with it goes the connection's place. (sqlx tries it once more right after this. One that goes
        // silent between the two has its place until the kernel gives up, some fifteen minutes.)
        .after_release(|connection, _| {
            Box::pin(async move {
                let answer = timeout(TRIAL, connection.ping()).await;
                answer.unwrap_or_else(|_| Err(sqlx::Error::Io(ErrorKind::TimedOut.into())))?;
                Ok(true)
            })
        })
}
