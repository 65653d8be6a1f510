//! What a layer hands to handlers. May import: `request`, `task_error`.

use super::FromTask;
use crate::worker::{request::TaskRequest, task_error::TaskError};

/// A value that a layer put into [`TaskRequest::extensions_mut`]. Without one the attempt fails and is retried: the
/// layer is missing in this worker, and another may have it. `Option<Extension<T>>` says so to the handler instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extension<T>(pub T);

impl<S, T: Clone + Send + Sync + 'static> FromTask<S> for Extension<T> {
    fn from_task(task: &TaskRequest, _: &S) -> Result<Self, TaskError> {
        let value = task.extensions().get::<T>().cloned();
        value.map(Self).ok_or_else(|| {
            let name = std::any::type_name::<T>();
            TaskError::retry(
                "no_extension",
                format_args!("no layer of this worker has put a {name} there"),
            )
        })
    }
}
