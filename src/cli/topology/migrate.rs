//! `tidegate topology migrate`: a queue to other arguments, or older ladders away, while everything runs.
//!
//! May import: `topology`, `services`, `broker::migrate`, `supervisor` for the signal.

use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::Files;
use crate::{
    broker::{
        connection::LinkError,
        management::Management,
        migrate::{self, Count, LadderReport, MigrateError, Migration, Options, Report},
    },
    cli::{
        failure::{Exit, Failure},
        output::Output,
        services,
    },
    config::Config,
    supervisor,
    topology::{self, counted, migration::Refusal},
};

/// What is migrated if it isn't a queue.
const LADDER: &str = "ladder";

/// Arguments of `topology migrate`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Migrate {
    /// A queue, or `ladder` for the older generations of the delay ladder
    #[arg(value_name = "QUEUE|ladder")]
    what: String,
    #[command(flatten)]
    pub(super) files: Files,
    /// How long the queue may give nothing away before everything is put back as it was
    #[arg(long, default_value = "60s", value_parser = duration)]
    patience: Duration,
    /// How long a queue must be counted as empty to be believed: more than two of the broker's quorum_tick_interval
    #[arg(long, default_value = "12s", value_parser = duration)]
    settle: Duration,
    /// With `ladder`: delete what is empty. All publishers must run with the new platform.toml by then
    #[arg(long)]
    retire: bool,
    /// With `ladder`: don't wait for what is pending
    #[arg(long)]
    no_wait: bool,
}

fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|why| format!("{why}; write it as 60s or 5m"))
}

impl Migrate {
    /// Runs the command.
    pub(super) async fn run(self, config: &Config, output: Output) -> Result<(), Failure> {
        let ladder = self.what == LADDER;
        if !ladder && (self.retire || self.no_wait) {
            return Err(Failure::new(
                Exit::Usage,
                "--retire and --no-wait are for the ladder only",
                "command line",
                "leave them out, or migrate `ladder`",
            ));
        }
        let topology = Files::load(config, output)?;
        let management = services::management(config, output)?.ok_or_else(|| {
            Failure::new(
                Exit::Usage,
                "a migration has to read what is on the broker",
                "settings",
                "set management.url (MANAGEMENT_URL)",
            )
        })?;
        let stop = CancellationToken::new();
        let options = Options {
            // Counts may lie for as long as they take to settle.
            patience: self.patience.max(self.settle),
            settle: self.settle,
            stop: stop.clone(),
        };
        let _signals = supervisor::cancel_on_signal(stop);
        if ladder {
            self.ladder(config, output, &topology, &management, &options)
                .await
        } else {
            self.queue(config, output, &topology, management, options).await
        }
    }

    async fn queue(
        &self,
        config: &Config,
        output: Output,
        topology: &topology::Topology,
        management: Management,
        options: Options,
    ) -> Result<(), Failure> {
        let settings = services::broker(config, "tidegate topology")?;
        let failed = |error: &MigrateError| failure(error, &self.what, config);
        let say = move |progress| output.message(&format!("{progress}"));
        let mut migration = Migration::open(
            &settings,
            management,
            topology.objects(),
            &self.what,
            options,
            say,
        )
        .await
        .map_err(|error| failed(&error))?;
        let result = migration.run().await;
        let report = migration.report().clone();
        migration.close().await;
        result.map_err(|error| failed(&error))?;
        if report.lost > 0 {
            return Err(Failure::new(
                Exit::Failed,
                format!(
                    "{:?} was deleted with {} in it",
                    self.what,
                    counted(report.lost, "message")
                ),
                format!("queue {}", self.what),
                "find who published to the queue by its name, past every exchange, and send that again",
            ));
        }
        if output.json {
            output.json_line(&as_json(&self.what, &report))
        } else {
            output.data(&as_text(&self.what, &report))
        }
    }

    async fn ladder(
        &self,
        config: &Config,
        output: Output,
        topology: &topology::Topology,
        management: &Management,
        options: &Options,
    ) -> Result<(), Failure> {
        let settings = services::broker(config, "tidegate topology")?;
        let how = (self.retire, !self.no_wait);
        let say = |progress| output.message(&format!("{progress}"));
        let report = migrate::retire(&settings, management, &topology.names, how, options, say)
            .await
            .map_err(|error| failure(&error, LADDER, config))?;
        let version = topology.names.ladder_version();
        if output.json {
            let one = |it: &migrate::Pending| json!({"version": it.version, "messages": it.messages, "gone": it.gone});
            let generations: Value = report.generations.iter().map(one).collect();
            return output
                .json_line(&json!({"inUse": version, "older": generations, "deleted": report.deleted}));
        }
        output.data(&ladder_text(version, &report, self.retire))
    }
}

fn as_json(queue: &str, report: &Report) -> Value {
    let count = |count: Count| json!({"messages": count.messages, "ids": count.different});
    json!({
        "queue": queue,
        "changed": report.steps > 0,
        "steps": report.steps,
        "drainedByConsumers": report.drained,
        "moved": count(report.moved),
        "movedByAnEarlierRun": report.already_moved,
        "in": count(report.arrived),
        "out": count(report.returned),
        "lost": report.lost,
        "elapsedMs": report.elapsed.as_millis(),
        "pauseMs": report.pause.as_millis(),
        "missingMs": report.missing.as_millis(),
    })
}

fn as_text(queue: &str, report: &Report) -> String {
    if report.steps == 0 {
        return format!("{queue} is as described; nothing to do\n");
    }
    format!(
        "{queue} is as described now ({:.1} s)\n\
         drained by its consumers {}, moved {}, moved by an earlier run {}\n\
         waited meanwhile: in {} ({}), out {} ({})\n\
         consumers had nothing for {:.1} s; the queue did not exist for {} ms\n",
        report.elapsed.as_secs_f64(),
        report.drained,
        report.moved.messages,
        report.already_moved,
        report.arrived.messages,
        counted(report.arrived.different, "id"),
        report.returned.messages,
        counted(report.returned.different, "id"),
        report.pause.as_secs_f64(),
        report.missing.as_millis(),
    )
}

fn ladder_text(version: u8, report: &LadderReport, retire: bool) -> String {
    let mut text = format!("ladder v{version} is in use\n");
    if report.generations.is_empty() {
        text.push_str("no older one is on the broker; nothing to do\n");
    }
    for older in &report.generations {
        text.push_str(&if older.gone {
            format!("ladder v{} is gone\n", older.version)
        } else {
            let messages = counted(older.messages, "message");
            format!("ladder v{}: {messages} pending\n", older.version)
        });
    }
    if !retire && !report.generations.is_empty() {
        text.push_str(
            "nothing was deleted: once every publisher and worker runs with this platform.toml, call it with --retire\n",
        );
    }
    text
}

fn failure(error: &MigrateError, what: &str, config: &Config) -> Failure {
    let again = "run the same command again: it goes on from here; until then tasks for this queue may wait";
    let (exit, next) = match error {
        MigrateError::Link(error @ LinkError::Broker(_)) => return services::of_link(error, config),
        MigrateError::Management(error) => return services::of_management(error, config),
        MigrateError::Impossible(Refusal::NotWanted(_)) => {
            (Exit::NotFound, "name a queue of the topology files")
        }
        MigrateError::Impossible(Refusal::NotThere(_)) => {
            (Exit::NotFound, "run `tidegate topology apply`, which declares it")
        }
        MigrateError::Impossible(Refusal::Delay(_)) => (
            Exit::Conflict,
            "raise ladder_version in platform.toml; of a fixed delay, use another name",
        ),
        MigrateError::Impossible(_) => (Exit::Conflict, "nothing was changed; decide by hand"),
        MigrateError::Locked(_) => (
            Exit::Conflict,
            "wait for it to end, or stop it; this can be run again at any time",
        ),
        MigrateError::Policy { .. } => (
            Exit::Conflict,
            "change the policy's pattern so that it leaves out the name of the temporary queue, then run this again",
        ),
        MigrateError::Held { .. } => (
            Exit::Conflict,
            "everything is as it was; stop or restart the workers that hold them, then run this again",
        ),
        MigrateError::NotTaken { .. } => (
            Exit::Conflict,
            "look why (its max length, its state), then run this again: what waits stays in the temporary queue",
        ),
        MigrateError::Stopped => (Exit::Failed, again),
        MigrateError::Refusal { .. } => (Exit::Failed, again),
        MigrateError::Link(_) | MigrateError::Unavailable { .. } => (Exit::Unavailable, again),
    };
    let place = match what {
        LADDER => LADDER.to_owned(),
        queue => format!("queue {queue}"),
    };
    Failure::new(exit, error, place, next)
}
