//! `tidegate topology`: what must exist on the broker.
//!
//! May import: `topology`, `services`.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::{
    failure::{Detail, Exit, Failure},
    output::Output,
    services,
};
use crate::{
    broker::{
        connection,
        declare::{self, Cause, DeclareError},
    },
    config::Config,
};

/// Commands of `topology`.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Topology {
    /// Declare what the topology files describe. What is there already stays; what differs is reported (exit code 5)
    Apply {
        /// Directory of the topology files [default: topology]
        #[arg(long)]
        dir: Option<PathBuf>,
    },
}

impl Topology {
    /// The settings that its own flags stand for.
    pub(super) fn settings(&self) -> Vec<(String, String)> {
        let Self::Apply { dir } = self;
        dir.iter()
            .map(|dir| ("topology.dir".to_owned(), dir.display().to_string()))
            .collect()
    }

    /// Runs the command.
    pub(super) async fn run(self, config: &Config, output: Output) -> Result<(), Failure> {
        let topology = services::topology(&config.topology.dir)?;
        let settings = services::broker(config, "tidegate topology")?;
        let connection = connection::connect(&settings, "publish")
            .await
            .map_err(|error| services::of_link(&error, config))?;
        let result = declare::apply(&connection, &topology.objects(), |_| ()).await;
        let bye = connection.close(200, "done".into());
        // What was declared stays declared whether or not the broker says good-bye.
        let _ = tokio::time::timeout(config.amqp.connect_timeout, bye).await;
        let applied = result.map_err(|error| failed(&error, config))?;
        if output.json {
            return output.json_line(&json!({
                "objects": applied.objects,
                "queues": topology.queues.len(),
                "elapsedMs": applied.elapsed.as_millis(),
            }));
        }
        output.data(&format!(
            "{} objects are as described, {} business queues among them ({:.1} s)\n",
            applied.objects,
            topology.queues.len(),
            applied.elapsed.as_secs_f64()
        ))
    }
}

fn failed(error: &DeclareError, config: &Config) -> Failure {
    let place = config
        .amqp
        .url()
        .map_or_else(|_| "broker".to_owned(), |url| format!("broker {url}"));
    let (exit, what, next, report) = match error {
        DeclareError::Conflict(report) => (
            Exit::Conflict,
            "the broker has objects that differ from the topology",
            "each line that begins with `-` (in JSON: each of `errors`) says its way out",
            report,
        ),
        DeclareError::Refused(report) => (
            Exit::Failed,
            "the broker refused parts of the topology",
            "give the user the permission, or raise the limit, then apply again",
            report,
        ),
        DeclareError::Unavailable { .. } => {
            return Failure::new(
                Exit::Unavailable,
                error,
                place,
                "apply again; what is declared already stays",
            );
        }
    };
    let refused = report.failures.iter().map(|failure| Detail {
        text: failure.to_string(),
        data: as_json(failure),
    });
    let skipped = report.skipped.iter().map(|skipped| {
        let text = format!("{} left out: {} was refused", skipped.object, skipped.missing);
        Detail {
            data: json!({"object": skipped.object.name, "leftOutFor": skipped.missing.name}),
            text,
        }
    });
    Failure::new(exit, what, place, next).with_details(refused.chain(skipped).collect())
}

fn as_json(failure: &declare::Failure) -> Value {
    match &failure.cause {
        Cause::Conflict(conflict) => json!({
            "object": failure.object.name,
            "argument": conflict.argument,
            "onBroker": conflict.current.to_string(),
            "wanted": conflict.wanted.to_string(),
            "message": failure.to_string(),
        }),
        Cause::Refused(_) => json!({"object": failure.object.name, "message": failure.to_string()}),
    }
}
