//! Publishing with confirms: every publish ends in exactly one [`PublishOutcome`].
//!
//! May import: `broker`, `supervisor`, `telemetry`. One actor per publish connection owns one confirm channel;
//! nobody else touches that channel, because lapin may swap the confirms of two tasks that share one. The actor
//! pipelines: it writes on while up to `in_flight` confirms are outstanding.
//!
//! A confirm that is overdue, or a channel that closes, makes the outcome of everything on that channel unknown:
//! all of it is answered `TimedOut` and the channel is rebuilt. Whoever sends again uses the same message id, so
//! the worst case is a duplicate with the same id, never a loss.

mod confirm;
mod first;
mod key;
mod session;

use std::{
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use deadpool_lapin::{Config, Pool, PoolConfig, Runtime, Timeouts};
use futures::FutureExt;
use lapin::{BasicProperties, uri::AMQPUri};
use secrecy::ExposeSecret;
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::{Instant, timeout_at},
};

use super::{BrokerSettings, connection};
use crate::supervisor::backoff;

/// A message to publish. `properties` must carry a message id: it is how a returned message is recognised.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// Exchange.
    pub exchange: String,
    /// Routing key, at most 255 bytes.
    pub routing_key: String,
    /// Body.
    pub body: Bytes,
    /// Properties with `message_id` set.
    pub properties: BasicProperties,
}

/// How a publish ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PublishOutcome {
    /// On every queue it was routed to, durably.
    Confirmed,
    /// No queue took it; nothing was stored.
    Returned {
        /// AMQP reply code, 312 for "no route".
        code: u16,
        /// The broker's words.
        text: String,
    },
    /// The broker refused it (queue full, queue failing). Nothing can be said of other queues it was routed to.
    Nacked,
    /// Unknown: no confirm in time, or the channel was lost. It may or may not be stored.
    TimedOut {
        /// What was waited for.
        why: String,
    },
    /// The exchange does not exist; nothing was stored.
    NoExchange,
    /// This user may not write to the exchange, or nobody may; nothing was stored.
    Forbidden {
        /// The broker's words.
        why: String,
    },
    /// It can't be written as AMQP: a name of over 255 bytes, or no message id.
    Invalid {
        /// What is wrong with it.
        why: String,
    },
}

impl PublishOutcome {
    /// The outcome as a metrics label.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Confirmed => "confirmed",
            Self::Returned { .. } => "returned",
            Self::Nacked => "nacked",
            Self::TimedOut { .. } => "timed_out",
            Self::NoExchange => "no_exchange",
            Self::Forbidden { .. } => "forbidden",
            Self::Invalid { .. } => "invalid",
        }
    }
}

struct Request {
    message: Outgoing,
    deadline: Instant,
    reply: oneshot::Sender<PublishOutcome>,
}

/// What keeps each actor from publishing; `None` where nothing does.
type Troubles = watch::Sender<Vec<Option<String>>>;

/// A handle to the publish actors; cheap to clone. When the last handle is dropped they finish and end.
#[derive(Clone)]
pub struct Publisher {
    actors: Arc<[mpsc::Sender<Request>]>,
    troubles: Troubles,
    next: Arc<AtomicUsize>,
    confirm_timeout: Duration,
}

impl std::fmt::Debug for Publisher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Publisher")
            .field("actors", &self.actors.len())
            .finish_non_exhaustive()
    }
}

/// Shortest wait that can succeed.
const SHORTEST: Duration = Duration::from_millis(10);

/// Most messages in flight on one channel.
const MOST_IN_FLIGHT: usize = 65_535;

/// Why a publisher can't be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Waiting would not help: no broker can ever be reached by it. What it says is left out, for it holds a password.
    #[error(
        "not the URL of a broker: write it as amqp://USER:PASSWORD@HOST:5672/VHOST, or amqps://, with special characters \
         of user and password percent-encoded"
    )]
    Url,
    /// A number with which nothing would ever be published.
    #[error("{name} is {value}; use {allowed}")]
    OutOfRange {
        /// Which setting.
        name: &'static str,
        /// What was given.
        value: String,
        /// What is allowed.
        allowed: &'static str,
    },
    /// The pool of connections.
    #[error(transparent)]
    Pool(#[from] deadpool_lapin::CreatePoolError),
}

impl Publisher {
    /// Starts the actors. Nothing is connected yet when this returns: publishes wait, within their time limit,
    /// until the broker answers.
    pub fn start(settings: &BrokerSettings) -> Result<Self, StartError> {
        if settings.url.expose_secret().parse::<AMQPUri>().is_err() {
            return Err(StartError::Url);
        }
        for (name, wait) in [
            ("connect_timeout", settings.connect_timeout),
            ("confirm_timeout", settings.confirm_timeout),
        ] {
            if wait < SHORTEST {
                return Err(StartError::OutOfRange {
                    name,
                    value: format!("{wait:?}"),
                    allowed: "10ms or more",
                });
            }
        }
        if !(1..=MOST_IN_FLIGHT).contains(&settings.in_flight) {
            return Err(StartError::OutOfRange {
                name: "in_flight",
                value: settings.in_flight.to_string(),
                allowed: "1 to 65,535",
            });
        }
        let size = settings.publish_connections.max(1);
        let config = Config {
            url: Some(settings.url.expose_secret().to_owned()),
            pool: Some(PoolConfig {
                max_size: size,
                // Unset, these wait for ever.
                timeouts: Timeouts {
                    wait: Some(settings.connect_timeout),
                    create: Some(settings.connect_timeout),
                    recycle: Some(settings.connect_timeout),
                },
                ..PoolConfig::default()
            }),
        };
        let named = settings.clone();
        let pool = config.create_pool(move || connection::properties(&named, "publish"), Runtime::Tokio1)?;
        let troubles = Troubles::new(vec![Some("not connected yet".to_owned()); size]);
        let actors = (0..size)
            .map(|index| {
                let (sender, requests) = mpsc::channel(settings.in_flight);
                let state = State {
                    index,
                    troubles: troubles.clone(),
                };
                tokio::spawn(actor(pool.clone(), settings.clone(), requests, state));
                sender
            })
            .collect();
        Ok(Self {
            actors,
            troubles,
            next: Arc::default(),
            confirm_timeout: settings.confirm_timeout,
        })
    }

    /// Publishes `message`, mandatory and confirmed. Returns within the confirm timeout.
    pub async fn publish(&self, message: Outgoing) -> PublishOutcome {
        let deadline = Instant::now() + self.confirm_timeout;
        let (reply, answer) = oneshot::channel();
        let index = self.next.fetch_add(1, Ordering::Relaxed) % self.actors.len();
        let actor = &self.actors[index];
        match timeout_at(
            deadline,
            actor.send(Request {
                message,
                deadline,
                reply,
            }),
        )
        .await
        {
            Ok(Ok(())) => {}
            Ok(Err(_)) => {
                return PublishOutcome::TimedOut {
                    why: "the publisher has stopped".to_owned(),
                };
            }
            Err(_) => return self.timed_out(index, "a free place in the publish queue"),
        }
        match timeout_at(deadline, answer).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) | Err(_) => self.timed_out(index, "the broker's confirm"),
        }
    }

    /// What keeps messages from being published now: a connection that is missing or blocked.
    pub fn trouble(&self) -> Option<String> {
        self.troubles.borrow().iter().flatten().next().cloned()
    }

    /// Ready once [`trouble`](Self::trouble) may answer otherwise than when this was called.
    pub fn trouble_changed(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut troubles = self.troubles.subscribe();
        async move {
            if troubles.changed().await.is_err() {
                // The actors have ended: it never changes again.
                std::future::pending().await
            }
        }
    }

    fn timed_out(&self, index: usize, what: &str) -> PublishOutcome {
        let mut why = format!("waited {:?} for {what}", self.confirm_timeout);
        if let Some(Some(trouble)) = self.troubles.borrow().get(index) {
            why = format!("{why}: {trouble}");
        }
        PublishOutcome::TimedOut { why }
    }
}

/// Where one actor says what keeps it from publishing.
struct State {
    index: usize,
    troubles: Troubles,
}

impl State {
    fn set(&self, trouble: Option<&str>) {
        self.troubles.send_if_modified(|all| {
            let changed = all[self.index].as_deref() != trouble;
            if changed {
                all[self.index] = trouble.map(ToOwned::to_owned);
            }
            changed
        });
    }
}

/// Keeps an actor alive: one that panics (what it held is answered as unknown by being dropped) begins again.
async fn actor(pool: Pool, settings: BrokerSettings, mut requests: mpsc::Receiver<Request>, state: State) {
    let mut waits = backoff();
    while AssertUnwindSafe(keep_publishing(&pool, &settings, &mut requests, &state))
        .catch_unwind()
        .await
        .is_err()
    {
        state.set(Some("the publisher panicked"));
        tracing::error!("the publisher panicked; starting it again");
        tokio::time::sleep(waits.next().unwrap_or_default()).await;
    }
}

/// One actor: takes a connection from the pool, works on one channel until that is lost, and again. Requests wait
/// in the queue meanwhile; one whose caller has given up is dropped when its turn comes.
async fn keep_publishing(
    pool: &Pool,
    settings: &BrokerSettings,
    requests: &mut mpsc::Receiver<Request>,
    state: &State,
) {
    let mut waits = backoff();
    let mut unwritten: Vec<Request> = Vec::new();
    // Closed and empty means that no handle is left and nothing waits.
    while !(unwritten.is_empty() && requests.is_closed() && requests.is_empty()) {
        let why = match session::open(pool, settings).await {
            Ok(mut session) => {
                waits = backoff();
                state.set(None);
                let end = match session.write_all(std::mem::take(&mut unwritten)).await {
                    Ok(()) => session.run(requests, state).await,
                    Err(lost) => session::End::Lost(Box::new(lost)),
                };
                match end {
                    session::End::NoMoreRequests => return session.close().await,
                    session::End::Lost(lost) => {
                        unwritten = session.abandon(&lost.why);
                        unwritten.extend(lost.unwritten);
                        lost.why
                    }
                }
            }
            Err(error) => error.to_string(),
        };
        state.set(Some(&why));
        tracing::warn!(%why, "no publish channel; opening one");
        tokio::time::sleep(waits.next().unwrap_or_default()).await;
    }
}
