//! One supervised connection for consuming: opened when first needed, opened anew once it is lost.
//!
//! May import: `broker`, `telemetry`. Callers ask for a channel and retry with `supervisor::backoff` when they
//! get none; concurrent callers wait for the same attempt to connect.

use std::{sync::Arc, time::Duration};

use futures::StreamExt;
pub use lapin::Connection;
use lapin::{Channel, ConnectionProperties, ErrorKind, Event};
use secrecy::ExposeSecret;
use tokio::{
    sync::{Mutex, watch},
    time::timeout,
};

use super::BrokerSettings;
use crate::telemetry::metrics;

/// Why there is no connection or channel.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The broker refused us or can't be reached; the text holds no credentials.
    #[error("broker connection failed: {0}")]
    Broker(#[from] lapin::Error),
    /// A name that AMQP can't carry.
    #[error("{0:?} is longer than 255 bytes")]
    Name(String),
    /// It did not answer in time.
    #[error("the broker did not answer within {0:?}")]
    Timeout(Duration),
}

/// A connection that is opened on demand and replaced when lost; cheap to clone.
#[derive(Clone)]
pub struct Link {
    inner: Arc<Inner>,
}

struct Inner {
    settings: BrokerSettings,
    purpose: &'static str,
    current: Mutex<Option<Connection>>,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link")
            .field("purpose", &self.inner.purpose)
            .finish_non_exhaustive()
    }
}

impl Link {
    /// A link that is not yet connected. `purpose` names it in metrics and in the broker's list of connections.
    pub fn new(settings: BrokerSettings, purpose: &'static str) -> Self {
        Self {
            inner: Arc::new(Inner {
                settings,
                purpose,
                current: Mutex::new(None),
            }),
        }
    }

    /// A fresh channel on the live connection, which is opened if there is none.
    pub async fn channel(&self) -> Result<Channel, LinkError> {
        let wait = self.inner.settings.connect_timeout;
        let mut current = self.inner.current.lock().await;
        if let Some(connection) = current.as_ref().filter(|c| c.status().connected()) {
            match timeout(wait, connection.create_channel()).await {
                Ok(Ok(channel)) => return Ok(channel),
                Ok(Err(error)) if connection.status().connected() => return Err(error.into()),
                // The connection died under us or no longer answers: fall through to a new one.
                Ok(Err(_)) | Err(_) => {}
            }
        }
        *current = None;
        let connection = connect(&self.inner.settings, self.inner.purpose).await?;
        let channel = within(wait, connection.create_channel()).await?;
        *current = Some(connection);
        Ok(channel)
    }

    /// Closes the connection, waiting for the broker at most `connect_timeout`.
    pub async fn close(&self) {
        if let Some(connection) = self.inner.current.lock().await.take() {
            let _ = timeout(
                self.inner.settings.connect_timeout,
                connection.close(200, "bye".into()),
            )
            .await;
        }
    }
}

/// Opens a connection and watches what the broker says about it.
pub async fn connect(settings: &BrokerSettings, purpose: &'static str) -> Result<Connection, LinkError> {
    let properties = properties(settings, purpose);
    let connection = within(
        settings.connect_timeout,
        Connection::connect(settings.url.expose_secret(), properties),
    )
    .await?;
    let _ = watch(&connection, purpose);
    Ok(connection)
}

/// What the broker shows of a connection: `tidegate consume`.
pub fn properties(settings: &BrokerSettings, purpose: &str) -> ConnectionProperties {
    ConnectionProperties::default().with_connection_name(format!("{} {purpose}", settings.name).into())
}

/// Follows a connection's events until it ends, so that "blocked by an alarm" and "gone" are visible. What it returns
/// says whether the broker blocks the connection; it is closed when the connection is lost.
pub fn watch(connection: &Connection, purpose: &'static str) -> watch::Receiver<bool> {
    // One listener only: lapin hands each event to one of them.
    let mut events = Box::pin(connection.events_listener());
    let (blocked, receiver) = watch::channel(false);
    let mut gauges = metrics::ConnectionGauges::up(purpose);
    tokio::spawn(async move {
        while let Some(event) = events.next().await {
            match event {
                Event::ConnectionBlocked(reason) => {
                    tracing::warn!(purpose, %reason, "the broker blocks this connection");
                    gauges.blocked(true);
                    blocked.send_replace(true);
                }
                Event::ConnectionUnblocked => {
                    tracing::info!(purpose, "the broker unblocked this connection");
                    gauges.blocked(false);
                    blocked.send_replace(false);
                }
                // A channel that the broker closed, e.g. over a queue that is missing; the connection lives on.
                Event::Error(error) if error.is_amqp_soft_error() => {}
                Event::Error(error) if is_our_close(&error) => {
                    tracing::debug!(purpose, %error, "connection closed");
                    break;
                }
                Event::Error(error) => {
                    tracing::warn!(purpose, %error, "connection lost");
                    break;
                }
                _ => {}
            }
        }
    });
    receiver
}

/// Whether `error` is about a frame for a channel or connection that we have closed: what is lost comes with another error first.
fn is_our_close(error: &lapin::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::InvalidConnectionState(_)
            | ErrorKind::InvalidChannel(_)
            | ErrorKind::InvalidChannelState(..)
    )
}

/// `future` bounded in time: no await on the broker is without a limit.
pub async fn within<T>(
    limit: Duration,
    future: impl Future<Output = lapin::Result<T>>,
) -> Result<T, LinkError> {
    match timeout(limit, future).await {
        Ok(result) => Ok(result?),
        Err(_) => Err(LinkError::Timeout(limit)),
    }
}
