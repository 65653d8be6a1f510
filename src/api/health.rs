//! `/livez`: the process answers. `/readyz`: every part of it works.
//!
//! May import: `telemetry`. `/livez` asks nothing of broker or database: restarting this process would not mend
//! them.

use std::collections::BTreeMap;

use axum::{
    Json, Router,
    extract::State,
    http::{StatusCode, Uri},
    routing::get,
};
use serde::Serialize;

use crate::telemetry::health::{Health, Part};

/// What `/livez` and `/readyz` answer.
#[derive(Debug, PartialEq, Serialize)]
pub struct Report {
    /// `ok` or `unavailable`.
    pub status: &'static str,
    /// Parts that don't work, with the reason of each.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub reasons: BTreeMap<String, String>,
    /// All parts, `up` or `down`; only where asked for by `?verbose`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parts: Option<BTreeMap<String, &'static str>>,
}

/// The routes of the health listener.
pub fn router(health: Health) -> Router {
    let router = Router::new()
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .with_state(health);
    super::with_fallbacks(router)
}

async fn livez() -> Json<Report> {
    Json(Report {
        status: "ok",
        reasons: BTreeMap::new(),
        parts: None,
    })
}

async fn readyz(State(health): State<Health>, uri: Uri) -> (StatusCode, Json<Report>) {
    let parts = health.parts();
    let reasons: BTreeMap<_, _> = parts
        .iter()
        .filter_map(|(name, part)| match part {
            Part::Up => None,
            Part::Down(why) => Some((name.clone(), why.clone())),
        })
        .collect();
    let ready = reasons.is_empty();
    let report = Report {
        status: if ready { "ok" } else { "unavailable" },
        parts: is_verbose(&uri).then(|| {
            parts
                .keys()
                .map(|name| {
                    (
                        name.clone(),
                        if reasons.contains_key(name) { "down" } else { "up" },
                    )
                })
                .collect()
        }),
        reasons,
    };
    (
        if ready {
            StatusCode::OK
        } else {
            StatusCode::SERVICE_UNAVAILABLE
        },
        Json(report),
    )
}

fn is_verbose(uri: &Uri) -> bool {
    uri.query().is_some_and(|query| {
        query
            .split('&')
            .any(|pair| matches!(pair, "verbose" | "verbose=" | "verbose=1" | "verbose=true"))
    })
}
