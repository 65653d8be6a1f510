//! Replaces an exchange that exists with other properties: deletes it, declares it anew, and binds it again.
//!
//! An exchange holds no messages. While it is away, for milliseconds, what is published to it is refused with 404,
//! and what dead-letters to it at least once waits in its queue; at most once it would be lost, and no queue of the
//! platform's does that. Dies in between: the next `apply` declares the exchange and the wanted bindings; bindings
//! of others are gone with it.
//!
//! May import: lapin, the topology's values.

use lapin::{
    Connection,
    options::{ExchangeBindOptions, ExchangeDeclareOptions, ExchangeDeleteOptions, QueueBindOptions},
};
use tidegate_core::ladder::Destination;

use super::{
    declare::DeclareError,
    step::{Said, Steps, table},
};
use crate::topology::{
    Exchange, ExchangeKind,
    live::{Arguments, LiveBinding},
};

/// What came of it.
#[derive(Clone, Debug, PartialEq)]
pub enum Replaced {
    /// The exchange is as wanted. Named with the broker's words are the bindings that it refused: those of queues that
    /// belong to another connection, which has to bind them again itself.
    Done(Vec<(LiveBinding, String)>),
    /// The broker refused to delete or to declare it.
    Refused(String),
}

/// Replaces the exchange of that name by `wanted` and binds `bindings` again.
///
/// # Errors
/// If the broker goes away.
pub async fn exchange(
    conn: &Connection,
    wanted: &Exchange,
    bindings: &[LiveBinding],
) -> Result<Replaced, DeclareError> {
    let mut steps = Steps::new(conn);
    let name = wanted.name.as_str();
    let doing = format!("replacing exchange {name}");
    let delete = |channel: lapin::Channel| async move {
        channel
            .exchange_delete(name.into(), ExchangeDeleteOptions::default())
            .await
    };
    if let Said::Refused(why) = steps.step(&doing, delete).await? {
        return Ok(Replaced::Refused(why));
    }
    let alternate = wanted.alternate.iter();
    let arguments: Arguments = alternate
        .map(|to| ("alternate-exchange".to_owned(), to.as_str().into()))
        .collect();
    let declare = |channel: lapin::Channel| async move {
        let options = ExchangeDeclareOptions {
            durable: true,
            ..ExchangeDeclareOptions::default()
        };
        let kind = match wanted.kind {
            ExchangeKind::Topic => lapin::ExchangeKind::Topic,
            ExchangeKind::Fanout => lapin::ExchangeKind::Fanout,
        };
        channel
            .exchange_declare(name.into(), kind, options, table(&arguments))
            .await
    };
    if let Said::Refused(why) = steps.step(&doing, declare).await? {
        return Ok(Replaced::Refused(why));
    }
    let mut refused = Vec::new();
    for binding in bindings {
        let (source, pattern) = (binding.source.as_str(), binding.pattern.as_str());
        let bind = |channel: lapin::Channel| async move {
            let arguments = table(&binding.arguments);
            match &binding.destination {
                Destination::Queue(queue) => {
                    let options = QueueBindOptions::default();
                    channel
                        .queue_bind(
                            queue.as_str().into(),
                            source.into(),
                            pattern.into(),
                            options,
                            arguments,
                        )
                        .await
                }
                Destination::Exchange(to) => {
                    let options = ExchangeBindOptions::default();
                    channel
                        .exchange_bind(
                            to.as_str().into(),
                            source.into(),
                            pattern.into(),
                            options,
                            arguments,
                        )
                        .await
                }
            }
        };
        // A queue that went with its consumer meanwhile needs no binding.
        if let Said::Refused(why) = steps.step(&doing, bind).await? {
            refused.push((binding.clone(), why));
        }
    }
    Ok(Replaced::Done(refused))
}
