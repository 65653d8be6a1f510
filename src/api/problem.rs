//! Errors as `application/problem+json` (RFC 9457).
//!
//! May import: axum, serde.

use axum::{
    http::{StatusCode, Uri, header},
    response::{IntoResponse, Response},
};
use serde::Serialize;

/// A problem document. Without a `type` it means what its status means.
#[derive(Debug, Serialize)]
pub struct Problem {
    /// Short name, the same for every problem of this kind.
    pub title: &'static str,
    /// HTTP status.
    pub status: u16,
    /// What is wrong this time, and what to do.
    pub detail: String,
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, axum::Json(self)).into_response();
        response.headers_mut().insert(
            header::CONTENT_TYPE,
            header::HeaderValue::from_static("application/problem+json"),
        );
        response
    }
}

/// For any path that does not exist.
pub(super) async fn not_found(uri: Uri) -> Problem {
    Problem {
        title: "Not Found",
        status: 404,
        detail: format!("nothing is at {}", uri.path()),
    }
}

/// For a path that exists with another method.
pub(super) async fn method_not_allowed(uri: Uri) -> Problem {
    Problem {
        title: "Method Not Allowed",
        status: 405,
        detail: format!("{} takes GET only", uri.path()),
    }
}
