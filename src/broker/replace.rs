//! Replaces an exchange that exists with other properties: deletes it, declares it anew, and binds it again.
//!
//! An exchange holds no messages. While it is away, for milliseconds, what is published to it is refused with 404,
//! and what dead-letters to it at least once waits in its queue; at most once it would be lost, and no queue of the
//! platform's does that. Dies in between: the next `apply` declares the exchange and the wanted bindings; bindings
//! of others are gone with it.
//!
//! May import: lapin, the topology's values.

use lapin::{Connection, options::ExchangeDeleteOptions};

use super::{
    bind::{bind, table},
    declare::{DeclareError, exchange_declare},
    step::{Said, Steps},
};
use crate::topology::{Exchange, live::LiveBinding};

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
    let declare = |channel: lapin::Channel| async move { exchange_declare(&channel, wanted, false).await };
    if let Said::Refused(why) = steps.step(&doing, declare).await? {
        return Ok(Replaced::Refused(why));
    }
    let mut refused = Vec::new();
    for binding in bindings {
        let again = |channel: lapin::Channel| async move {
            let arguments = table(&binding.arguments);
            bind(
                &channel,
                &binding.source,
                &binding.destination,
                &binding.pattern,
                arguments,
            )
            .await
        };
        // A queue that went with its consumer meanwhile needs no binding.
        if let Said::Refused(why) = steps.step(&doing, again).await? {
            refused.push((binding.clone(), why));
        }
    }
    Ok(Replaced::Done(refused))
}
