//! Waiting for something to become true, with a deadline.

use std::time::Duration;

use tokio::time::Instant;

/// What a poll answers: not yet, or a value.
pub trait Poll {
    /// The value once it is there.
    type Value;
    /// The value, if it is there.
    fn value(self) -> Option<Self::Value>;
}

impl Poll for bool {
    type Value = ();
    fn value(self) -> Option<()> {
        self.then_some(())
    }
}

impl<T> Poll for Option<T> {
    type Value = T;
    fn value(self) -> Option<T> {
        self
    }
}

/// Asks `poll` until it answers, at most for `patience`.
///
/// # Panics
/// If it does not answer in time, naming `what` was waited for.
pub async fn eventually<P: Poll>(
    patience: Duration,
    what: &str,
    mut poll: impl AsyncFnMut() -> P,
) -> P::Value {
    let deadline = Instant::now() + patience;
    let mut pause = Duration::from_millis(5);
    loop {
        if let Some(value) = poll().await.value() {
            return value;
        }
        assert!(
            Instant::now() < deadline,
            "waited {patience:?} in vain for {what}"
        );
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(200));
    }
}
