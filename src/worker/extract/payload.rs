//! The payload as a type of the handler's. May import: `request`, `task_error`, serde.

use std::ops::Deref;

use serde::de::DeserializeOwned;

use super::FromTask;
use crate::worker::{request::TaskRequest, task_error::TaskError};

/// The payload, read from its own text as a `T`. One that `T` does not fit is dead-lettered as `contract_violation`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payload<T>(pub T);

impl<T> Deref for Payload<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<S, T: DeserializeOwned> FromTask<S> for Payload<T> {
    fn from_task(task: &TaskRequest, _: &S) -> Result<Self, TaskError> {
        serde_json::from_str(task.envelope().payload.as_str())
            .map(Self)
            .map_err(TaskError::mismatch)
    }
}
