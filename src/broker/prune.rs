//! Deletes what a plan showed as extra: bindings, then queues, exchanges and policies.
//!
//! A queue goes only if it holds no message, delivered ones included, and has no consumer. Bindings go first, so that
//! nothing else comes. Queues that are not classic count what they hold every few seconds only, so they are looked at
//! twice, a tick apart, and right before. For classic queues the broker itself makes sure; for others it offers no
//! such delete, so a message that comes by the default exchange in the last millisecond is lost, and then reported.
//!
//! Dies between two deletions: what is gone is gone, and the next run finds the rest. May import: lapin, the
//! topology's values, `management`.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

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
    ObjectName, counted,
    live::LiveBinding,
    plan::{Extra, Unwanted},
};

/// The type whose queues the broker deletes only if they are empty and unused.
const CLASSIC: &str = "classic";
/// Longer than queues of other types take to count anew, unless `quorum_tick_interval` is set higher.
const TICK: Duration = Duration::from_secs(6);

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
    let of = |rank: u8| {
        extras
            .iter()
            .filter(move |extra| self::rank(&extra.object) == rank)
    };
    for extra in of(0) {
        if let Unwanted::Binding(binding) = &extra.object {
            let why = run.binding(binding).await?;
            run.ended(extra, why);
        }
    }
    run.queues(of(1)).await?;
    for extra in of(2) {
        let why = run.exchange(&extra.object.name().name).await?;
        run.ended(extra, why);
    }
    for extra in of(3) {
        management.delete_policy(&extra.object.name().name).await?;
        run.ended(extra, None);
    }
    Ok(run.pruned)
}

/// In which order.
fn rank(object: &Unwanted) -> u8 {
    match object {
        Unwanted::Binding(_) => 0,
        Unwanted::Queue { .. } => 1,
        Unwanted::Exchange { .. } => 2,
        Unwanted::Policy { .. } => 3,
    }
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

    async fn queues<'e>(&mut self, extras: impl Iterator<Item = &'e &'e Extra>) -> Result<(), PruneError> {
        let mut empty = Vec::new();
        let mut messages = self.management.messages().await?;
        for extra in extras {
            let Unwanted::Queue { name, kind } = &extra.object else {
                continue;
            };
            match self.holds(name, &messages).await? {
                Some(why) => self.ended(extra, Some(why)),
                None => empty.push((*extra, name, kind)),
            }
        }
        let kinds: HashSet<&str> = empty.iter().map(|(_, _, kind)| kind.as_str()).collect();
        if kinds.iter().any(|kind| *kind != CLASSIC) {
            tokio::time::sleep(TICK).await;
            messages = self.management.messages().await?;
        }
        for (extra, name, kind) in empty {
            let why = match self.holds(name, &messages).await? {
                Some(why) => Some(why),
                None => self.delete(name, kind).await?,
            };
            self.ended(extra, why);
        }
        Ok(())
    }

    /// Why a queue can't go.
    async fn holds(
        &mut self,
        name: &str,
        messages: &HashMap<String, u64>,
    ) -> Result<Option<String>, PruneError> {
        let look = |channel: lapin::Channel| {
            let name = name.into();
            async move {
                let options = QueueDeclareOptions {
                    passive: true,
                    ..QueueDeclareOptions::default()
                };
                channel.queue_declare(name, options, FieldTable::default()).await
            }
        };
        let (ready, consumers) = match self.steps.step("looking at a queue", look).await? {
            Said::Done(queue) => (u64::from(queue.message_count()), queue.consumer_count()),
            Said::Gone => return Ok(None),
            Said::Refused(why) => return Ok(Some(why)),
        };
        let messages = messages.get(name).copied().unwrap_or_default().max(ready);
        let holds = messages > 0 || consumers > 0;
        Ok(holds.then(|| {
            format!(
                "it has {} and {}; let it run empty and stop what reads it, then prune again",
                counted(messages, "message"),
                counted(consumers.into(), "consumer")
            )
        }))
    }

    async fn delete(&mut self, name: &str, kind: &str) -> Result<Option<String>, PruneError> {
        // Other types answer these flags with an error that closes the connection.
        let checked = kind == CLASSIC;
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
                "it was deleted with {} in it, lost, which came by the default exchange after it was found empty",
                counted(lost.into(), "message")
            )),
            Said::Refused(why) => Some(why),
        })
    }

    fn ended(&mut self, extra: &Extra, why: Option<String>) {
        let object = extra.object.name();
        match why {
            None => self.pruned.deleted.push(object),
            Some(why) => self.pruned.kept.push(Kept { object, why }),
        }
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
