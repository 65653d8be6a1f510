//! tower layers around handlers: tower's own, and one of the user's.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    task::{Context as Polling, Poll},
    time::Duration,
};

use tidegate::worker::{TaskError, TaskRequest, extract::Extension};
use tower::{Layer, Service, ServiceBuilder, timeout::TimeoutLayer};

use crate::platform::{Platform, Seen, envelope, noting};

/// Counts tries, notes their order, and hands its name on.
#[derive(Clone)]
struct Named {
    name: &'static str,
    tries: Arc<AtomicU32>,
    order: Arc<Mutex<Vec<&'static str>>>,
}

#[derive(Clone)]
struct NamedService<S>(Named, S);

#[derive(Clone, Debug, PartialEq)]
struct Tenant(&'static str);

impl<S> Layer<S> for Named {
    type Service = NamedService<S>;

    fn layer(&self, inner: S) -> NamedService<S> {
        NamedService(self.clone(), inner)
    }
}

impl<S: Service<TaskRequest>> Service<TaskRequest> for NamedService<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, polling: &mut Polling<'_>) -> Poll<Result<(), S::Error>> {
        self.1.poll_ready(polling)
    }

    fn call(&mut self, mut task: TaskRequest) -> S::Future {
        self.0.tries.fetch_add(1, Ordering::SeqCst);
        self.0.order.lock().unwrap().push(self.0.name);
        task.extensions_mut().insert(Tenant(self.0.name));
        self.1.call(task)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn layers_go_around_every_handler_the_last_one_outermost() {
    let platform = Platform::new().await;
    let order = Arc::<Mutex<Vec<_>>>::default();
    let named = |name| Named {
        name,
        tries: Arc::default(),
        order: order.clone(),
    };
    let (inner, outer) = (named("inner"), named("outer"));
    let (seen, tenants) = (Seen::default(), Arc::<Mutex<Vec<_>>>::default());
    let noted = tenants.clone();
    platform.run(
        platform
            .worker()
            .queue("order.close.queue")
            .handle("order.close.timeout", noting(&seen))
            .layer(inner.clone())
            .layer(ServiceBuilder::new().layer(outer.clone()).into_inner())
            .handle("order.close.late", move |Extension(tenant): Extension<Tenant>| {
                noted.lock().unwrap().push(tenant);
                async {}
            }),
    );
    for (id, task_type) in [("a", "order.close.timeout"), ("b", "order.close.late")] {
        platform
            .send(&envelope(id, task_type, ""), Duration::ZERO)
            .await
            .unwrap();
    }
    seen.wait(1).await;
    platform.drained("order.close.queue").await;
    assert_eq!(inner.tries.load(Ordering::SeqCst), 2);
    assert_eq!(outer.tries.load(Ordering::SeqCst), 2);
    let order = order.lock().unwrap().clone();
    assert_eq!(order[..2], ["outer", "inner"]);
    assert_eq!(
        *tenants.lock().unwrap(),
        [Tenant("inner")],
        "the inner one had the last word"
    );
    platform.close().await;
}

/// `tower::timeout` knows boxed errors only: its own is a retry, a handler's passes through it unchanged.
#[tokio::test(flavor = "multi_thread")]
async fn a_layer_of_towers_own_ends_what_hangs_and_passes_on_what_fails() {
    let platform = Platform::new().await;
    let seen = Seen::default();
    let noted = seen.clone();
    platform.run(
        platform
            .worker()
            .queue("order.close.queue")
            .handle(
                "order.close.timeout",
                move |context: tidegate::worker::Context| {
                    noted.note(&context);
                    async move {
                        match context.envelope.task_id.as_str() {
                            "hangs" => std::future::pending().await,
                            _ => Err::<(), _>(TaskError::reject("no_such_order", "order 7")),
                        }
                    }
                },
            )
            .layer(TimeoutLayer::new(Duration::from_millis(100))),
    );
    for id in ["hangs", "fails"] {
        platform
            .send(
                &envelope(id, "order.close.timeout", r#","maxRetries":1"#),
                Duration::ZERO,
            )
            .await
            .unwrap();
    }
    let mut dead: Vec<_> = platform
        .dead_letters(2)
        .await
        .iter()
        .map(|letter| {
            format!(
                "{} {} {}",
                letter.reason(),
                letter.header("x-task-error-kind"),
                letter.header("x-task-error")
            )
        })
        .collect();
    dead.sort();
    assert_eq!(
        dead,
        [
            "rejected no_such_order order 7",
            "retries_exhausted error request timed out"
        ]
    );
    assert_eq!(seen.ids().iter().filter(|id| *id == "hangs").count(), 2);
    platform.close().await;
}
