//! What the service shares with its handlers. May import: `request`, `task_error`.

use std::ops::Deref;

use super::FromTask;
use crate::worker::{request::TaskRequest, task_error::TaskError};

/// Makes a part of the state `S`; every type that can be cloned makes itself.
pub trait FromRef<S> {
    /// The part of `state`.
    fn from_ref(state: &S) -> Self;
}

impl<S: Clone> FromRef<S> for S {
    fn from_ref(state: &S) -> Self {
        state.clone()
    }
}

/// The state given to [`WorkerBuilder::state`](crate::worker::WorkerBuilder::state), or a part of it by [`FromRef`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State<T>(pub T);

impl<T> Deref for State<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<S, T: FromRef<S>> FromTask<S> for State<T> {
    fn from_task(_: &TaskRequest, state: &S) -> Result<Self, TaskError> {
        Ok(Self(T::from_ref(state)))
    }
}
