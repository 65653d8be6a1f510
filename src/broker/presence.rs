//! Says which objects of a topology are missing, until all are there.
//!
//! For a process that may not declare: on a broker whose operator applies the topology it starts, is not ready, says
//! what it waits for, and goes on by itself. It looks passively, which needs no permission at all, on a connection of
//! its own, and it looks no more once all is there: who loses a queue later is told by its consumer.
//!
//! May import: `broker`, `topology`, `supervisor`, `telemetry`.

use tokio_util::sync::CancellationToken;

use super::{
    BrokerSettings,
    connection::{self, LinkError},
    declare::{self, DeclareError},
};
use crate::{
    supervisor::backoff,
    telemetry::health::Health,
    topology::{ObjectKind, ObjectName, Objects},
};

/// Most missing objects that are named; the rest is counted.
const NAMED: usize = 10;

/// Why it can't be said what is missing.
#[derive(Debug, thiserror::Error)]
pub enum LookError {
    /// No connection.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The broker didn't say.
    #[error(transparent)]
    Declare(#[from] DeclareError),
}

/// Reports `part` down, naming what is missing, until all of `objects` exist or `cancel`; then up.
pub async fn watch(
    settings: &BrokerSettings,
    objects: &Objects,
    part: &str,
    health: &Health,
    cancel: &CancellationToken,
) {
    health.expect(part);
    let mut waits = backoff();
    let mut said = String::new();
    // Each missing object is a line in the broker's log, so between two looks at all only one is looked for.
    let mut waiting_for: Option<Objects> = None;
    loop {
        let looked = tokio::select! {
            () = cancel.cancelled() => return,
            looked = look(settings, waiting_for.as_ref().unwrap_or(objects)) => looked,
        };
        match looked {
            Ok(missing) => match (missing.first(), waiting_for.is_some()) {
                (None, false) => {
                    health.up(part);
                    tracing::info!(objects = objects.len(), "all of the topology is on the broker");
                    return;
                }
                (None, true) => {
                    waiting_for = None;
                    continue;
                }
                (Some(_), true) => {}
                (Some(first), false) => {
                    waiting_for = Some(only(objects, first));
                    let why = describe(&missing);
                    health.down(part, &why);
                    if why != said {
                        tracing::warn!(missing = missing.len(), "{why}");
                        said = why;
                        waits = backoff();
                    }
                }
            },
            Err(error) => health.down(part, &error.to_string()),
        }
        tokio::select! {
            () = cancel.cancelled() => return,
            () = tokio::time::sleep(waits.next().unwrap_or_default()) => {}
        }
    }
}

async fn look(settings: &BrokerSettings, objects: &Objects) -> Result<Vec<ObjectName>, LookError> {
    let connection = connection::connect(settings, "look").await?;
    let missing = declare::missing(&connection, objects).await;
    let bye = connection.close(200, "looked".into());
    // What was seen was seen, whether or not the broker says good-bye.
    let _ = tokio::time::timeout(settings.connect_timeout, bye).await;
    Ok(missing?)
}

/// The one object of `objects` that is called so.
fn only(objects: &Objects, name: &ObjectName) -> Objects {
    let of = |kind| name.kind == kind;
    Objects {
        exchanges: objects
            .exchanges
            .iter()
            .filter(|exchange| of(ObjectKind::Exchange) && exchange.name == name.name)
            .cloned()
            .collect(),
        queues: objects
            .queues
            .iter()
            .filter(|queue| of(ObjectKind::Queue) && queue.name == name.name)
            .cloned()
            .collect(),
        ..Objects::default()
    }
}

fn describe(missing: &[ObjectName]) -> String {
    let names: Vec<String> = missing.iter().take(NAMED).map(ToString::to_string).collect();
    let more = match missing.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!(
        "missing on the broker: {}{more}; run `tidegate topology apply` as a user that may declare, or import the \
         definitions",
        names.join(", ")
    )
}
