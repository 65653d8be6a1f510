//! What a handler is: an async function of extractors. May import: `extract`, `request`, `task_error`.

use std::{future::Future, marker::PhantomData, pin::Pin, sync::Arc};

use super::{extract::FromTask, request::TaskRequest, task_error::TaskError};

/// A handler that runs.
pub type Running = Pin<Box<dyn Future<Output = Result<(), TaskError>> + Send>>;

/// What a handler may answer: nothing, or a result whose error converts into a [`TaskError`].
pub trait IntoOutcome {
    /// The answer as the runtime takes it.
    fn into_outcome(self) -> Result<(), TaskError>;
}

impl IntoOutcome for () {
    fn into_outcome(self) -> Result<(), TaskError> {
        Ok(())
    }
}

impl<E: Into<TaskError>> IntoOutcome for Result<(), E> {
    fn into_outcome(self) -> Result<(), TaskError> {
        self.map_err(Into::into)
    }
}

/// An async function of up to eight arguments, each of which implements [`FromTask`], that answers `()` or
/// `Result<(), E>` with an error that converts into a [`TaskError`]. `T` is the tuple of its arguments.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no handler",
    note = "a handler is an async function of up to 8 arguments that each implement `FromTask<S>`, and answers `()` or \
            `Result<(), E>` with `E: Into<TaskError>`; its future must be `Send`"
)]
pub trait Handler<T, S>: Send + Sync + 'static {
    /// Takes the arguments from `task` and calls the function. An argument that can't be had is the outcome.
    fn start(&self, task: &TaskRequest, state: &S) -> Result<Running, TaskError>;
}

macro_rules! handler {
    ($($argument:ident),*) => {
        impl<F, Fut, S, $($argument,)*> Handler<($($argument,)*), S> for F
        where
            F: Fn($($argument),*) -> Fut + Send + Sync + 'static,
            Fut: Future + Send + 'static,
            Fut::Output: IntoOutcome,
            $($argument: FromTask<S>,)*
        {
            #[allow(non_snake_case, unused_variables, reason = "arguments are named by their types, and there may be none")]
            fn start(&self, task: &TaskRequest, state: &S) -> Result<Running, TaskError> {
                $(let $argument = $argument::from_task(task, state)?;)*
                let running = self($($argument),*);
                Ok(Box::pin(async move { running.await.into_outcome() }))
            }
        }
    };
}

handler!();
handler!(A);
handler!(A, B);
handler!(A, B, C);
handler!(A, B, C, D);
handler!(A, B, C, D, E);
handler!(A, B, C, D, E, G);
handler!(A, B, C, D, E, G, H);
handler!(A, B, C, D, E, G, H, I);

/// A handler without its types.
pub(super) trait Call: Send + Sync {
    fn call(&self, task: &TaskRequest) -> Running;
}

struct With<H, T, S> {
    handler: H,
    state: Arc<S>,
    arguments: PhantomData<fn() -> T>,
}

impl<H: Handler<T, S>, T, S: Send + Sync> Call for With<H, T, S> {
    fn call(&self, task: &TaskRequest) -> Running {
        match self.handler.start(task, &self.state) {
            Ok(running) => running,
            Err(refused) => Box::pin(std::future::ready(Err(refused))),
        }
    }
}

/// `handler` with its types erased; it goes on using `state`.
pub(super) fn erase<H, T, S>(handler: H, state: Arc<S>) -> Arc<dyn Call>
where
    H: Handler<T, S>,
    T: 'static,
    S: Send + Sync + 'static,
{
    Arc::new(With {
        handler,
        state,
        arguments: PhantomData,
    })
}
