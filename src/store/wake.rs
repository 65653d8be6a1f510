//! `NOTIFY` as a wake-up that can be waited for.
//!
//! May import: sqlx, tokio. A notification is a hint and may be lost (while the connection is down, or with the
//! process): whoever waits also scans now and then. After a reconnect the waiter is woken, as it may have missed one.
//! The connection is none of the pool's: one that goes silent takes no place there, however long it takes to die.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use chrono::{DateTime, Utc};
use sqlx::postgres::{PgListener, PgPoolOptions};
use tokio::{
    sync::Notify,
    time::{Instant, timeout},
};
use tokio_util::task::AbortOnDropHandle;

use super::{Store, StoreError, vigil::SILENCE};

/// After so long without a notification the connection is tried: one that is half open looks like a quiet one.
const QUIET: Duration = Duration::from_secs(15);

/// Wait before listening again after the connection was refused.
const RECONNECT: Duration = Duration::from_secs(1);

/// What can be listened to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    /// A cron row must be looked at.
    Cron,
    /// Tasks were inserted that are due soon.
    Tasks,
}

impl Channel {
    fn name(self) -> &'static str {
        match self {
            Self::Cron => "tidegate_cron",
            Self::Tasks => "tidegate_tasks",
        }
    }
}

/// Wake-ups from one channel; listens as long as it lives.
#[derive(Debug)]
pub struct Wakes {
    shared: Arc<Shared>,
    _listener: AbortOnDropHandle<()>,
}

#[derive(Debug, Default)]
struct Shared {
    arrived: Notify,
    /// The earliest instant, in µs since 1970, that something arrived for; `None`: nothing did.
    earliest: Mutex<Option<i64>>,
}

impl Shared {
    fn post(&self, micros: i64) {
        let mut earliest = self.earliest.lock().unwrap_or_else(PoisonError::into_inner);
        *earliest = Some(earliest.map_or(micros, |e| e.min(micros)));
        self.arrived.notify_one();
    }

    fn take(&self) -> Option<i64> {
        self.earliest
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }
}

impl Store {
    /// Starts to listen to `channel`, on a connection of its own out of the pool.
    pub fn listen(&self, channel: Channel) -> Wakes {
        let shared = Arc::new(Shared::default());
        let (store, posts) = (self.clone(), Arc::clone(&shared));
        let listener = tokio::spawn(async move {
            while !store.pool.is_closed() {
                if let Err(error) = listen(&store, channel, &posts).await {
                    tracing::warn!(channel = channel.name(), %error, "not listening; relying on the regular scan");
                }
                tokio::time::sleep(RECONNECT).await;
            }
        });
        Wakes {
            shared,
            _listener: AbortOnDropHandle::new(listener),
        }
    }
}

/// Listens on a new connection until that is lost.
async fn listen(store: &Store, channel: Channel, posts: &Shared) -> Result<(), StoreError> {
    let pool = PgPoolOptions::new()
        .max_connections(1)
        .acquire_timeout(store.acquire_timeout)
        .max_lifetime(None)
        .idle_timeout(None)
        .connect_lazy_with(store.options.clone());
    let mut listener = PgListener::connect_with(&pool).await?;
    listener.eager_reconnect(false);
    answered(listener.listen(channel.name())).await?;
    posts.post(i64::MIN);
    let receive = async {
        loop {
            match timeout(QUIET, listener.try_recv()).await {
                // An empty or foreign text means: look now.
                Ok(Ok(Some(notification))) => posts.post(notification.payload().parse().unwrap_or(i64::MIN)),
                Ok(Ok(None)) => return Err(StoreError::Unavailable("the connection was closed".to_owned())),
                Ok(Err(error)) => return Err(error.into()),
                Err(_) => {
                    answered(sqlx::query("SELECT 1").execute(&mut listener)).await?;
                }
            }
        }
    };
    store.unless_lost(receive).await
}

async fn answered<T>(question: impl Future<Output = Result<T, sqlx::Error>>) -> Result<T, StoreError> {
    match timeout(SILENCE, question).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(StoreError::Unavailable("no answer".to_owned())),
    }
}

impl Wakes {
    /// Forgets what arrived so far. Call it before looking at the tables: what arrives later is not lost.
    pub fn clear(&self) {
        self.shared.take();
    }

    /// Waits until `deadline`, or until something arrives that concerns an instant before `planned`.
    pub async fn wait_until(&self, deadline: Instant, planned: Option<DateTime<Utc>>) {
        let planned = planned.map_or(i64::MAX, |at| at.timestamp_micros());
        let earlier = async {
            loop {
                if self.shared.take().is_some_and(|earliest| earliest < planned) {
                    return;
                }
                self.shared.arrived.notified().await;
            }
        };
        // A time-out is the normal end of the wait.
        let _ = tokio::time::timeout_at(deadline, earlier).await;
    }
}
