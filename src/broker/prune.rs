//! Deletes what a plan showed as extra: bindings, then queues, exchanges and policies.
//!
//! A queue goes only if it holds no message and has no consumer, asked right before. For classic queues the broker
//! itself makes sure; for others it offers no such delete, so a message that comes by the default exchange in the
//! millisecond between is lost, and then reported. Bindings go first, so that nothing else can come.
//!
//! Dies between two deletions: what is gone is gone, and the next run finds the rest. May import: lapin, the
//! topology's values, `management`.

use lapin::{
    Connection,
    options::{ExchangeDeleteOptions, QueueDeclareOptions, QueueDeleteOptions},
    types::FieldTable,
};
use serde_json::Value as Json;
use tidegate_core::ladder::Destination;

use super::{
    declare::DeclareError,
    management::{Management, ManagementError, encode},
    step::{Said, Steps},
};
use crate::topology::{
    ObjectName,
    live::LiveBinding,
    plan::{Extra, Unwanted},
};

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Deleted, or found gone.
    pub deleted: Vec<ObjectName>,
    /// Not deleted.
    pub kept: Vec<Kept>,
}

/// Something that was not deleted, or not as it should.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The object.
    pub object: ObjectName,
    /// Why.
    pub why: String,
}

/// Why pruning ended early.
#[derive(Debug, thiserror::Error)]
pub enum PruneError {
    /// AMQP.
    #[error(transparent)]
    Amqp(#[from] DeclareError),
    /// The management API.
    #[error(transparent)]
    Management(#[from] ManagementError),
}

/// Deletes `extras`.
///
/// # Errors
/// If the broker goes away; what is deleted by then stays so.
pub async fn prune(
    conn: &Connection,
    management: &Management,
    extras: &[&Extra],
) -> Result<Pruned, PruneError> {
    let mut run = Run {
        steps: Steps::new(conn),
        management,
        pruned: Pruned::default(),
    };
    let rank = |extra: &&&Extra| match &extra.object {
        Unwanted::Binding(_) => 0,
        Unwanted::Queue { .. } => 1,
        Unwanted::Exchange { .. } => 2,
        Unwanted::Policy { .. } => 3,
    };
    let mut ordered: Vec<&&Extra> = extras.iter().collect();
    ordered.sort_by_key(rank);
    for extra in ordered {
        let why = match &extra.object {
            Unwanted::Binding(binding) => run.binding(binding).await?,
            Unwanted::Queue { name, kind } => run.queue(name, kind).await?,
            Unwanted::Exchange { name } => run.exchange(name).await?,
            Unwanted::Policy { name } => {
                management.delete_policy(name).await?;
                None
            }
        };
        let object = extra.object.name();
        match why {
            None => run.pruned.deleted.push(object),
            Some(why) => run.pruned.kept.push(Kept { object, why }),
        }
    }
    Ok(run.pruned)
}

struct Run<'a> {
    steps: Steps<'a>,
    management: &'a Management,
    pruned: Pruned,
}

impl Run<'_> {
    async fn binding(&mut self, binding: &LiveBinding) -> Result<Option<String>, PruneError> {
        if !binding.arguments.is_empty() {
            // AMQP wants the arguments with their exact types, which only the broker knows.
            return self.binding_with_arguments(binding).await;
        }
        let (source, pattern) = (binding.source.as_str().into(), binding.pattern.as_str().into());
        let said = match &binding.destination {
            Destination::Queue(queue) => {
                let queue = queue.as_str().into();
                let unbind = |channel: lapin::Channel| async move {
                    channel
                        .queue_unbind(queue, source, pattern, FieldTable::default())
                        .await
                };
                self.steps.step("unbinding", unbind).await?
            }
            Destination::Exchange(exchange) => {
                let exchange = exchange.as_str().into();
                let unbind = |channel: lapin::Channel| async move {
                    let options = lapin::options::ExchangeUnbindOptions::default();
                    channel
                        .exchange_unbind(exchange, source, pattern, options, FieldTable::default())
                        .await
                };
                self.steps.step("unbinding", unbind).await?
            }
        };
        Ok(refusal(said))
    }

    async fn binding_with_arguments(&self, binding: &LiveBinding) -> Result<Option<String>, PruneError> {
        let (kind, to) = match &binding.destination {
            Destination::Queue(name) => ("q", name),
            Destination::Exchange(name) => ("e", name),
        };
        let v = self.management.v();
        let path = format!("bindings/{v}/e/{}/{kind}/{}", encode(&binding.source), encode(to));
        let there: Vec<Json> = match self.management.get(&path).await {
            Ok(there) => there,
            Err(ManagementError::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        for row in there {
            let same = row["routing_key"] == binding.pattern.as_str()
                && row["arguments"]
                    .as_object()
                    .is_some_and(|found| found.iter().eq(&binding.arguments));
            if let (true, Some(key)) = (same, row["properties_key"].as_str()) {
                self.management.delete(&format!("{path}/{}", encode(key))).await?;
            }
        }
        Ok(None)
    }

    async fn queue(&mut self, name: &str, kind: &str) -> Result<Option<String>, PruneError> {
        let looked = |channel: lapin::Channel| {
            let name = name.into();
            async move {
                let options = QueueDeclareOptions {
                    passive: true,
                    ..QueueDeclareOptions::default()
                };
                channel.queue_declare(name, options, FieldTable::default()).await
            }
        };
        let (ready, consumers) = match self.steps.step("looking at a queue", looked).await? {
            Said::Done(queue) => (
                u64::from(queue.message_count()),
                u64::from(queue.consumer_count()),
            ),
            Said::Gone => return Ok(None),
            Said::Refused(why) => return Ok(Some(why)),
        };
        // Also what is unacknowledged, and what is on its way to a dead-letter exchange.
        let counted = self.management.counts(name).await?.unwrap_or_default();
        let (messages, consumers) = (counted.messages.max(ready), counted.consumers.max(consumers));
        if messages > 0 || consumers > 0 {
            return Ok(Some(format!(
                "it has {messages} messages and {consumers} consumers; let it run empty and stop what reads it, then \
                 prune again"
            )));
        }
        // Other types answer these flags with an error that closes the connection.
        let checked = kind == "classic";
        let delete = |channel: lapin::Channel| {
            let name = name.into();
            async move {
                let options = QueueDeleteOptions {
                    if_unused: checked,
                    if_empty: checked,
                    ..QueueDeleteOptions::default()
                };
                channel.queue_delete(name, options).await
            }
        };
        Ok(match self.steps.step("deleting a queue", delete).await? {
            Said::Done(0) | Said::Gone => None,
            Said::Done(lost) => Some(format!(
                "it was deleted with {lost} messages in it, which came by the default exchange after it was found \
                 empty: they are lost"
            )),
            Said::Refused(why) => Some(why),
        })
    }

    async fn exchange(&mut self, name: &str) -> Result<Option<String>, PruneError> {
        let delete = |channel: lapin::Channel| {
            let name = name.into();
            async move {
                let options = ExchangeDeleteOptions {
                    if_unused: true,
                    ..ExchangeDeleteOptions::default()
                };
                channel.exchange_delete(name, options).await
            }
        };
        Ok(refusal(self.steps.step("deleting an exchange", delete).await?))
    }
}

/// Why a step was not done; what is gone is as good as done.
fn refusal(said: Said<()>) -> Option<String> {
    match said {
        Said::Done(()) | Said::Gone => None,
        Said::Refused(why) => Some(why),
    }
}
