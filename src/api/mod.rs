//! What the process answers over HTTP: its health on one listener, its metrics on another.
//!
//! May import: `telemetry`. No SQL and no AMQP text. Every error is `application/problem+json`.

pub mod health;
pub mod metrics;
pub mod problem;

use std::{future::Future, io, net::SocketAddr};

use axum::Router;
use tokio::net::TcpListener;

/// Why a listener can't start.
#[derive(Debug, thiserror::Error)]
#[error("can't listen on {address} ({setting}): {why}")]
pub struct BindError {
    /// The address.
    pub address: SocketAddr,
    /// The setting it is from.
    pub setting: &'static str,
    /// What the system says.
    pub why: io::Error,
}

/// Takes `address`, which is from `setting`, so that a mistake shows before anything else starts.
pub async fn bind(address: SocketAddr, setting: &'static str) -> Result<TcpListener, BindError> {
    TcpListener::bind(address).await.map_err(|why| BindError {
        address,
        setting,
        why,
    })
}

/// Answers on `listener` until `stop` is ready, then finishes the requests at hand.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    axum::serve(listener, router).with_graceful_shutdown(stop).await
}

/// A router in which everything that does not exist is a problem document.
fn with_fallbacks(router: Router) -> Router {
    router
        .fallback(problem::not_found)
        .method_not_allowed_fallback(problem::method_not_allowed)
}

#[cfg(test)]
mod tests;
