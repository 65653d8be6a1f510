//! `/metrics`, on a listener of its own: it names queues and task types, and it must answer while the other one is
//! closed to the outside.
//!
//! May import: `telemetry`.

use axum::{Router, extract::State, http::header, response::IntoResponse, routing::get};

use crate::telemetry::exporter::Exporter;

/// The routes of the metrics listener.
pub fn router(exporter: Exporter) -> Router {
    super::with_fallbacks(Router::new().route("/metrics", get(scrape)).with_state(exporter))
}

async fn scrape(State(exporter): State<Exporter>) -> impl IntoResponse {
    (
        [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")],
        exporter.render(),
    )
}
