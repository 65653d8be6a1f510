//! Single steps on a broker's objects, one after another, on a channel that is opened again after a refusal.
//!
//! For what deletes; declaring many at once is `declare`'s. Imports lapin.

use std::time::Duration;

use lapin::{
    Channel, Connection, ErrorKind,
    protocol::{AMQPErrorKind, AMQPSoftError},
};

use super::declare::DeclareError;

/// Longest wait for one answer.
const ANSWER: Duration = Duration::from_secs(30);

/// What the broker said to a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Said<T> {
    /// Done.
    Done(T),
    /// What it is about isn't there.
    Gone,
    /// No, in the broker's words.
    Refused(String),
}

/// A channel for one step after another.
pub(super) struct Steps<'c> {
    conn: &'c Connection,
    channel: Option<Channel>,
}

impl<'c> Steps<'c> {
    pub(super) fn new(conn: &'c Connection) -> Self {
        Self { conn, channel: None }
    }

    /// Does one step; `doing` is what an error says was being done.
    pub(super) async fn step<T, F>(
        &mut self,
        doing: &str,
        step: impl FnOnce(Channel) -> F,
    ) -> Result<Said<T>, DeclareError>
    where
        F: Future<Output = lapin::Result<T>>,
    {
        let unavailable = |reason: String| DeclareError::Unavailable {
            doing: doing.to_owned(),
            reason,
        };
        let silent = || unavailable(format!("no answer within {ANSWER:?}"));
        let channel = match self.channel.take() {
            Some(channel) => channel,
            None => tokio::time::timeout(ANSWER, self.conn.create_channel())
                .await
                .map_err(|_| silent())?
                .map_err(|why| unavailable(why.to_string()))?,
        };
        let answer = tokio::time::timeout(ANSWER, step(channel.clone()))
            .await
            .map_err(|_| silent())?;
        let error = match answer {
            Ok(done) => {
                self.channel = Some(channel);
                return Ok(Said::Done(done));
            }
            Err(error) => error,
        };
        match error.kind() {
            ErrorKind::ProtocolError(e) => match e.kind() {
                AMQPErrorKind::Soft(AMQPSoftError::NOTFOUND) => Ok(Said::Gone),
                AMQPErrorKind::Soft(_) => Ok(Said::Refused(e.get_message().to_string())),
                // A hard error has closed the connection.
                AMQPErrorKind::Hard(_) => Err(unavailable(e.get_message().to_string())),
            },
            _ => Err(unavailable(error.to_string())),
        }
    }
}
