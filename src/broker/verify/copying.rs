//! Makes in the throw-away virtual host what was read from the live one.
//!
//! What the broker refuses to make again costs its channel and a note, not the run. May import: lapin, the topology's values.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use futures::future::try_join_all;
use lapin::{
    Channel, Connection, ExchangeKind,
    options::{ExchangeDeclareOptions, QueueDeclareOptions, QueueDeleteOptions},
};
use serde_json::json;

use crate::{
    broker::{
        bind::{bind, table},
        connection::{LinkError, within},
        management::{Management, ManagementError, encode},
        message::short,
    },
    topology::{
        live::{LiveBinding, LiveExchange, LivePolicy},
        verify::CopiedQueue,
    },
};

/// Channels that work at once: more only make the broker start more Raft groups at the same moment.
const LANES: usize = 4;
/// Longest wait for one answer.
const ANSWER: Duration = Duration::from_secs(30);

/// Sets the policies; notes those that can't be.
pub(super) async fn policies(
    management: &Management,
    policies: &[LivePolicy],
    notes: &mut Vec<String>,
) -> Result<(), ManagementError> {
    for policy in policies {
        let (list, kind) = if policy.operator {
            ("operator-policies", "operator policy")
        } else {
            ("policies", "policy")
        };
        let body = json!({
            "pattern": policy.pattern,
            "apply-to": policy.apply_to,
            "priority": policy.priority,
            "definition": policy.definition,
        });
        let path = format!("{list}/{}/{}", management.v(), encode(&policy.name));
        match management.put(&path, &body).await {
            Ok(()) => {}
            Err(error @ ManagementError::Unavailable { .. }) => return Err(error),
            Err(error) => notes.push(format!("{kind} {:?} is not part of it: {error}", policy.name)),
        }
    }
    Ok(())
}

/// Declares exchanges as they are.
pub(super) async fn exchanges(
    conn: &Connection,
    exchanges: &[LiveExchange],
    notes: &mut Vec<String>,
) -> Result<(), LinkError> {
    let name = |exchange: &LiveExchange| format!("exchange {}", exchange.name);
    each(conn, exchanges, name, notes, async |channel, exchange| {
        let kind = match exchange.kind.as_str() {
            "topic" => ExchangeKind::Topic,
            "fanout" => ExchangeKind::Fanout,
            "direct" => ExchangeKind::Direct,
            "headers" => ExchangeKind::Headers,
            other => ExchangeKind::Custom(other.to_owned()),
        };
        let options = ExchangeDeclareOptions {
            durable: true,
            internal: exchange.internal,
            ..ExchangeDeclareOptions::default()
        };
        let name = short(&exchange.name).unwrap_or_default();
        channel
            .exchange_declare(name, kind, options, table(&exchange.arguments))
            .await
    })
    .await
    .map(drop)
}

/// Declares queues; returns the names of those that were refused.
pub(super) async fn queues(
    conn: &Connection,
    queues: &[&CopiedQueue],
    notes: &mut Vec<String>,
) -> Result<Vec<String>, LinkError> {
    let name = |queue: &&CopiedQueue| format!("queue {}", queue.name);
    let refused = each(conn, queues, name, notes, async |channel, queue| {
        let options = QueueDeclareOptions {
            durable: true,
            ..QueueDeclareOptions::default()
        };
        let name = short(&queue.name).unwrap_or_default();
        channel
            .queue_declare(name, options, table(&queue.arguments))
            .await
            .map(drop)
    })
    .await?;
    Ok(refused.into_iter().map(|at| queues[at].name.clone()).collect())
}

/// Deletes queues with what is in them.
pub(super) async fn delete(conn: &Connection, queues: &[String]) -> Result<(), LinkError> {
    each(
        conn,
        queues,
        String::clone,
        &mut Vec::new(),
        async |channel, queue| {
            let name = short(queue).unwrap_or_default();
            channel
                .queue_delete(name, QueueDeleteOptions::default())
                .await
                .map(drop)
        },
    )
    .await
    .map(drop)
}

/// Binds.
pub(super) async fn bindings(
    conn: &Connection,
    bindings: &[&LiveBinding],
    notes: &mut Vec<String>,
) -> Result<(), LinkError> {
    let name = |b: &&LiveBinding| format!("a binding of {} ({})", b.source, b.pattern);
    each(conn, bindings, name, notes, async |channel, binding| {
        let arguments = table(&binding.arguments);
        bind(
            channel,
            &binding.source,
            &binding.destination,
            &binding.pattern,
            arguments,
        )
        .await
    })
    .await
    .map(drop)
}

/// Does `work` with each of `items`, on a few channels at once; notes what was refused, and returns its positions.
async fn each<T: Sync>(
    conn: &Connection,
    items: &[T],
    name: impl Fn(&T) -> String,
    notes: &mut Vec<String>,
    work: impl AsyncFn(&Channel, &T) -> lapin::Result<()>,
) -> Result<Vec<usize>, LinkError> {
    let (left, refused) = (Mutex::new(items.iter().enumerate()), Mutex::new(Vec::new()));
    let lanes = (0..LANES.min(items.len())).map(|_| async {
        let mut channel = within(ANSWER, conn.create_channel()).await?;
        // The lock is given back before the await.
        while let Some((at, item)) = { left.lock().unwrap_or_else(PoisonError::into_inner).next() } {
            match within(ANSWER, work(&channel, item)).await {
                Ok(()) => {}
                Err(LinkError::Broker(error)) if error.is_amqp_soft_error() => {
                    let note = format!("{} is not part of it: {error}", name(item));
                    refused
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .push((at, note));
                    channel = within(ANSWER, conn.create_channel()).await?;
                }
                Err(error) => return Err(error),
            }
        }
        let _ = within(ANSWER, channel.close(200, "done".into())).await;
        Ok(())
    });
    try_join_all(lanes).await?;
    let refused = refused.into_inner().unwrap_or_else(PoisonError::into_inner);
    let (positions, texts): (Vec<usize>, Vec<String>) = refused.into_iter().unzip();
    notes.extend(texts);
    Ok(positions)
}
