//! Says which of the objects that a process uses are missing, until all are there.
//!
//! For a process that may not declare: on a broker whose operator applies the topology it starts, is not ready, says
//! what it waits for, and goes on by itself. It looks passively, on a connection of its own, and it looks no more once
//! all is there: who loses a queue later is told by its consumer. From 4.3 on looking needs one permission, whichever,
//! on the object: so it can be told of what the process uses, and of nothing else.
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
    topology::{ObjectName, Objects},
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
    let (mut waits, mut said) = (backoff(), String::new());
    loop {
        let looked = tokio::select! {
            () = cancel.cancelled() => return,
            looked = look(settings, objects) => looked,
        };
        match looked {
            Ok(missing) if missing.is_empty() => {
                health.up(part);
                tracing::info!(part, "all that is used is on the broker");
                return;
            }
            Ok(missing) => {
                let why = describe(&missing);
                health.down(part, &why);
                if why != said {
                    tracing::warn!(part, missing = missing.len(), "{why}");
                    said = why;
                }
            }
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
