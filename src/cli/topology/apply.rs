//! `tidegate topology apply`: declares what is missing.
//!
//! May import: `broker`, `topology`, `services`. Dies at any line: what is declared stays, and the next run goes on.

use serde_json::{Value, json};

use super::{
    super::{
        failure::{Detail, Exit, Failure},
        output::Output,
        services,
    },
    Files,
};
use crate::{
    broker::{
        connection,
        declare::{self, Cause, DeclareError},
    },
    config::Config,
};

/// Arguments of `topology apply`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Apply {
    #[command(flatten)]
    pub(super) files: Files,
}

impl Apply {
    /// Runs the command.
    pub(super) async fn run(self, config: &Config, output: Output) -> Result<(), Failure> {
        let topology = Files::load(config, output)?;
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
