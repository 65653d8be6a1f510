//! A handler as a tower service, so that layers go around it. May import: `handler`, `request`, `task_error`, tower.

use std::{
    fmt,
    sync::Arc,
    task::{Context as Polling, Poll},
};

use tower::{Layer, Service, ServiceExt, util::BoxCloneSyncService};

use super::{
    handler::{Call, Running},
    request::TaskRequest,
    task_error::{BoxError, TaskError},
};

/// A handler, with the layers that were put around it so far; cheap to clone.
#[derive(Clone)]
pub struct TaskService(Inner);

#[derive(Clone)]
enum Inner {
    /// No layer: no cost but the handler's boxed future.
    Handler(Arc<dyn Call>),
    Layered(BoxCloneSyncService<TaskRequest, (), TaskError>),
}

impl TaskService {
    pub(super) fn new(handler: Arc<dyn Call>) -> Self {
        Self(Inner::Handler(handler))
    }

    /// Runs `task`, once the layers are ready for it.
    pub(super) fn start(&self, task: TaskRequest) -> Running {
        match &self.0 {
            Inner::Handler(handler) => handler.call(&task),
            Inner::Layered(service) => Box::pin(service.clone().oneshot(task)),
        }
    }
}

impl Service<TaskRequest> for TaskService {
    type Response = ();
    type Error = TaskError;
    type Future = Running;

    fn poll_ready(&mut self, polling: &mut Polling<'_>) -> Poll<Result<(), TaskError>> {
        match &mut self.0 {
            Inner::Handler(_) => Poll::Ready(Ok(())),
            Inner::Layered(service) => service.poll_ready(polling),
        }
    }

    fn call(&mut self, task: TaskRequest) -> Running {
        match &mut self.0 {
            Inner::Handler(handler) => handler.call(&task),
            Inner::Layered(service) => service.call(task),
        }
    }
}

impl fmt::Debug for TaskService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TaskService")
    }
}

/// A layer without its type.
pub(super) type AnyLayer = Box<dyn Fn(TaskService) -> TaskService + Send + Sync>;

pub(super) fn erase<L>(layer: L) -> AnyLayer
where
    L: Layer<TaskService> + Send + Sync + 'static,
    L::Service: Service<TaskRequest, Response = ()> + Clone + Send + Sync + 'static,
    <L::Service as Service<TaskRequest>>::Error: Into<BoxError>,
    <L::Service as Service<TaskRequest>>::Future: Send + 'static,
{
    Box::new(move |inner| {
        let layered = layer
            .layer(inner)
            .map_err(|error| TaskError::from_boxed(error.into()));
        TaskService(Inner::Layered(BoxCloneSyncService::new(layered)))
    })
}
