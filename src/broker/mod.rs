//! The broker's adapter: connections, publisher, consumer, declarations by AMQP; the management API by HTTP.
//!
//! May import: `core`, `topology`, `telemetry`, `supervisor`, lapin, reqwest. Never `store`.
//!
//! Publishing and consuming use separate connections, because a broker that blocks publishers (memory or disk
//! alarm) stops everything on their connection, acknowledgements included. lapin's own recovery is off: each
//! part here is supervised and rebuilt whole.

#[cfg(feature = "server")]
mod bind;
pub mod connection;
#[cfg(feature = "worker")]
pub mod consumer;
#[cfg(feature = "server")]
pub mod death;
#[cfg(feature = "server")]
pub mod declare;
#[cfg(feature = "server")]
pub mod exists;
#[cfg(feature = "server")]
pub mod management;
pub mod message;
#[cfg(feature = "server")]
pub mod migrate;
#[cfg(feature = "server")]
pub mod plain;
#[cfg(feature = "server")]
pub mod presence;
#[cfg(feature = "server")]
pub mod prune;
pub mod publisher;
#[cfg(feature = "server")]
pub mod record;
#[cfg(feature = "server")]
pub mod refusal;
#[cfg(feature = "server")]
pub mod replace;
#[cfg(feature = "server")]
mod step;
#[cfg(feature = "server")]
pub(crate) mod throwaway;
#[cfg(feature = "server")]
pub mod unrouted;
#[cfg(feature = "server")]
pub mod verify;

use std::time::Duration;

use secrecy::SecretString;

/// How to reach the broker and how long to wait for it.
#[derive(Clone, Debug)]
pub struct BrokerSettings {
    /// AMQP URI with credentials.
    pub url: SecretString,
    /// Name of the process in the broker's list of connections.
    pub name: String,
    /// Connections (and confirm channels) to publish on.
    pub publish_connections: usize,
    /// Longest wait for TCP, TLS and the AMQP handshake, and for each method on a channel.
    pub connect_timeout: Duration,
    /// Longest wait for a publish: queueing here, writing, and the broker's confirm.
    pub confirm_timeout: Duration,
    /// Most unconfirmed publishes on one channel.
    pub in_flight: usize,
}

impl BrokerSettings {
    /// The defaults of the configuration for `url`: 2 publish connections, 10 s to connect, 30 s to confirm, 1,000
    /// in flight.
    pub fn new(url: SecretString) -> Self {
        Self {
            url,
            name: "tidegate".to_owned(),
            publish_connections: 2,
            connect_timeout: Duration::from_secs(10),
            confirm_timeout: Duration::from_secs(30),
            in_flight: 1_000,
        }
    }
}
