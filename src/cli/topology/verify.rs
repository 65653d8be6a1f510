//! `tidegate topology verify`: does each route deliver?
//!
//! May import: `broker`, `topology`, `services`.

use std::time::Instant;

use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::Files;
use crate::{
    broker::{
        management::ManagementError,
        verify::{self, VerifyError},
    },
    cli::{
        failure::{Detail, Exit, Failure},
        output::Output,
        services,
    },
    config::Config,
    supervisor,
    topology::verify::{Broken, Report},
};

/// What a user needs for it.
const NEEDS: &str = "it needs MANAGEMENT_URL (management.url) with a user that has the tag administrator, since it makes a virtual \
                     host to try the routes in: `rabbitmqctl set_user_tags USER administrator`";

/// Most probes of a broken hop that are named to people.
const NAMED: usize = 3;

/// Arguments of `topology verify`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Copies what the broker has (not what the files say) into a throw-away virtual
host, sends marked messages through every route there, and deletes it again.
In the live virtual host only the ladder is tried, into a queue of its own: no
handler ever sees a probe. Exit code 3 names each hop that does not deliver.")]
pub(in crate::cli) struct Verify {
    #[command(flatten)]
    pub(super) files: Files,
}

impl Verify {
    /// Runs the command.
    pub(super) async fn run(self, config: &Config, output: Output) -> Result<(), Failure> {
        let topology = Files::load(config, output)?;
        let settings = services::broker(config, "tidegate topology verify")?;
        let Some(management) = services::management(config, output)? else {
            return Err(Failure::new(
                Exit::Usage,
                "routes can't be tried without the broker's management API",
                "settings",
                NEEDS,
            ));
        };
        let cancel = CancellationToken::new();
        let _signals = supervisor::cancel_on_signal(cancel.clone());
        let started = Instant::now();
        let progress = |text: &str| output.message(text);
        let result = verify::run(&settings, &management, &topology, &cancel, progress).await;
        let report = result.map_err(|error| failed(&error, config))?;
        show(&report, started, config, output)
    }
}

fn show(report: &Report, started: Instant, config: &Config, output: Output) -> Result<(), Failure> {
    if output.json {
        output.json_line(&json!({
            "tried": report.tried,
            "delivered": report.delivered,
            "broken": report.broken.iter().map(as_json).collect::<Vec<_>>(),
            "notes": report.notes,
            "elapsedMs": started.elapsed().as_millis(),
        }))?;
    } else {
        for note in &report.notes {
            output.message(&format!("note: {note}"));
        }
        output.data(&format!(
            "{} of {} routes deliver ({:.1} s)\n",
            report.delivered,
            report.tried,
            started.elapsed().as_secs_f64()
        ))?;
    }
    if report.broken.is_empty() {
        return Ok(());
    }
    let details = report.broken.iter().map(|broken| Detail {
        text: text(broken),
        data: as_json(broken),
    });
    Err(Failure::new(
        Exit::Differences,
        "not every route delivers",
        place(config),
        "each line that begins with `-` (in JSON: each of `errors`) says its way out",
    )
    .with_details(details.collect()))
}

/// `task.failed → task.failed.queue: a rejected message of order.close.queue did not come out: no binding`
fn text(broken: &Broken) -> String {
    let named: Vec<&str> = broken.probes.iter().take(NAMED).map(String::as_str).collect();
    let more = match broken.probes.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!(
        "{}: {}{more} did not come out as it should: {}\n    do: {}",
        broken.hop,
        named.join(", "),
        broken.why,
        broken.next
    )
}

fn as_json(broken: &Broken) -> serde_json::Value {
    json!({
        "hop": broken.hop,
        "why": broken.why,
        "next": broken.next,
        "probes": broken.probes,
    })
}

fn failed(error: &VerifyError, config: &Config) -> Failure {
    match error {
        VerifyError::NoVhost(ManagementError::Denied { .. }) => {
            Failure::new(Exit::Unavailable, error, place(config), NEEDS)
        }
        VerifyError::NoVhost(error) | VerifyError::Management(error) => {
            services::of_management(error, config)
        }
        VerifyError::Link(error) => services::of_link(error, config),
        VerifyError::Publisher(_) => {
            Failure::new(Exit::Failed, error, place(config), "correct AMQP_URL (amqp.url)")
        }
        VerifyError::Interrupted => Failure::new(
            Exit::Failed,
            "interrupted before all routes were tried; the throw-away virtual host is deleted",
            place(config),
            "run it again",
        ),
    }
}

fn place(config: &Config) -> String {
    config
        .amqp
        .url()
        .map_or_else(|_| "broker".to_owned(), |url| format!("broker {url}"))
}
