//! What a handler gets is what was sent; state needs no type to be named.

use std::{sync::Arc, time::Duration};

use lapin::{
    BasicProperties,
    types::{AMQPValue, FieldTable},
};
use serde::Deserialize;
use tidegate::{
    core::envelope::Envelope,
    worker::{
        BoxError, Context, TaskError,
        extract::{
            Attempt, Cancellation, Deadline, Extension, FromRef, IdempotencyKey, Payload, RawBody, State,
            Trace,
        },
    },
};
use tokio::{sync::mpsc, time::timeout};

use crate::platform::{PATIENCE, Platform, envelope};

#[derive(Clone)]
struct Service {
    name: &'static str,
    out: mpsc::UnboundedSender<String>,
}

impl FromRef<Service> for mpsc::UnboundedSender<String> {
    fn from_ref(service: &Service) -> Self {
        service.out.clone()
    }
}

#[derive(Debug, Deserialize)]
struct Numbered {
    n: u32,
}

#[derive(Debug, Deserialize)]
struct Other {
    #[serde(rename = "missing")]
    _missing: String,
}

/// All that an argument can be, but what `second` takes.
#[allow(clippy::too_many_arguments, reason = "eight is what a handler may take")]
async fn first(
    State(service): State<Service>,
    Payload(payload): Payload<Numbered>,
    Attempt(attempt): Attempt,
    Deadline(deadline): Deadline,
    IdempotencyKey(key): IdempotencyKey,
    trace: Trace,
    RawBody(body): RawBody,
    cancellation: Cancellation,
) -> Result<(), BoxedTaskError> {
    let left = deadline - tokio::time::Instant::now();
    assert!(left > Duration::from_secs(50) && left <= Duration::from_secs(60));
    assert!(!cancellation.is_cancelled());
    let trace = (
        trace.trace_id.as_deref(),
        trace.traceparent.as_deref(),
        trace.tracestate.as_deref(),
    );
    let body = String::from_utf8(body.to_vec())?;
    service.out.send(format!(
        "{} {} {attempt} {key} {trace:?} {body}",
        service.name, payload.n
    ))?;
    Ok(())
}

/// An error type of a service's own.
struct BoxedTaskError(BoxError);

impl<E: Into<BoxError>> From<E> for BoxedTaskError {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl From<BoxedTaskError> for TaskError {
    fn from(error: BoxedTaskError) -> Self {
        Self::from_boxed(error.0)
    }
}

async fn second(
    State(out): State<mpsc::UnboundedSender<String>>,
    task: Arc<Envelope>,
    context: Context,
    other: Option<Payload<Other>>,
    again: Result<Payload<Other>, TaskError>,
    extension: Option<Extension<u8>>,
    IdempotencyKey(key): IdempotencyKey,
) {
    let told = format!(
        "{} {} {} {} {extension:?} {key}",
        task.task_id,
        context.queue,
        other.is_none(),
        again.is_err()
    );
    let _ = out.send(told);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_gets_what_was_sent_and_what_the_service_shares() {
    let platform = Platform::new().await;
    let (out, mut told) = mpsc::unbounded_channel();
    let bare = out.clone();
    platform.run(
        platform
            .worker()
            .queue("order.close.queue")
            .handle("order.close.bare", move || {
                let _ = bare.send("bare".to_owned());
                async {}
            })
            .state(Service { name: "shop", out })
            .default_timeout(Duration::from_secs(60))
            .handle("order.close.timeout", first)
            .handle("order.close.late", second),
    );
    let body = envelope(
        "a",
        "order.close.timeout",
        r#","idempotencyKey":"order-7","traceId":"t-1""#,
    );
    let mut headers = FieldTable::default();
    for (name, value) in [("traceparent", "00-ab-cd-01"), ("tracestate", "v=1")] {
        headers.insert(name.into(), AMQPValue::LongString(value.into()));
    }
    let traced = BasicProperties::default().with_headers(headers);
    platform
        .publish_with("task.exchange", "order.close.x", body.as_bytes(), traced)
        .await;
    let mut next = async || timeout(PATIENCE, told.recv()).await.unwrap().unwrap();
    assert_eq!(
        next().await,
        format!(r#"shop 1 1 order-7 (Some("t-1"), Some("00-ab-cd-01"), Some("v=1")) {body}"#)
    );
    platform
        .send(&envelope("b", "order.close.late", ""), Duration::ZERO)
        .await
        .unwrap();
    assert_eq!(next().await, "b order.close.queue true true None b");
    platform
        .send(&envelope("c", "order.close.bare", ""), Duration::ZERO)
        .await
        .unwrap();
    assert_eq!(next().await, "bare");
    platform.drained("order.close.queue").await;
    platform.close().await;
}
