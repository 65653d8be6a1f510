//! `tidegate topology apply`: makes the broker as the topology describes it, as far as that needs no decision.
//!
//! With the management API it does what a plan shows: adds, writes its own policies, and on demand replaces exchanges
//! and prunes. Without, it declares everything. Dies at any line: what is done stays, and the next run goes on.
//!
//! May import: `broker`, `topology`, `services`.

use std::{
    io::Read,
    path::PathBuf,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{
    super::{
        failure::{Detail, Exit, Failure},
        output::Output,
        services,
    },
    Files,
    perform::{Done, Wish, perform},
    plan::{Ignored, Planned, needs_management, planned, read},
};
use crate::{
    broker::{
        connection::{self, Connection},
        declare::{self, Cause, DeclareError, Progress},
        management::Management,
    },
    config::Config,
    topology::{
        Topology, counted,
        migration::migrating_queue,
        plan::{Scope, Stored},
    },
};

/// A run that takes longer says how far it is, this often.
const EVERY: Duration = Duration::from_secs(1);
/// Largest file that is read as a plan.
const MAX_PLAN_BYTES: u64 = 64 * 1024 * 1024;

/// Arguments of `topology apply`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Apply {
    #[command(flatten)]
    pub(super) files: Files,
    /// A plan that `topology plan --out` wrote: exactly that, or nothing if the broker has moved on
    #[arg(value_name = "FILE", conflicts_with_all = ["dir", "ignore"])]
    file: Option<PathBuf>,
    /// Also delete what the plan shows as extra, but no queue with messages or consumers
    #[arg(long)]
    prune: bool,
    /// Also replace exchanges that exist with other properties; what is published meanwhile is refused
    #[arg(long)]
    replace_exchanges: bool,
    #[command(flatten)]
    ignored: Ignored,
}

impl Apply {
    /// Runs the command.
    pub(super) async fn run(self, config: &Config, output: Output) -> Result<(), Failure> {
        let management = services::management(config, output)?;
        let wish = Wish {
            prune: self.prune,
            replace_exchanges: self.replace_exchanges,
        };
        match (self.file, management) {
            (Some(file), Some(management)) => {
                let planned = stored(&file, &management, config).await?;
                managed(planned, &management, wish, config, output).await
            }
            (Some(_), None) => Err(needs_management("a plan in a file")),
            (None, Some(management)) => {
                let topology = Files::load(config, output)?;
                let planned = planned(&management, &topology, self.ignored.ignore, config).await?;
                managed(planned, &management, wish, config, output).await
            }
            (None, None) if wish.prune => Err(needs_management("--prune")),
            (None, None) if wish.replace_exchanges => Err(needs_management("--replace-exchanges")),
            (None, None) => declared(config, output).await,
        }
    }
}

/// Declares everything: what is there already is left as it is by the broker, or refused.
async fn declared(config: &Config, output: Output) -> Result<(), Failure> {
    let topology = Files::load(config, output)?;
    let objects = topology.objects();
    let connection = amqp(config).await?;
    let result = match migrating(&connection, &topology, config).await {
        Ok(()) => declare::apply(&connection, &objects, progress(output))
            .await
            .map_err(|error| declare_failed(&error, config)),
        Err(failure) => Err(failure),
    };
    good_bye(&connection, config).await;
    let applied = result?;
    if !objects.policies.is_empty() {
        output.message(
            "warning: consumer timeouts are policies, which AMQP can't write: set MANAGEMENT_URL (management.url)",
        );
    }
    let done = Done {
        objects: applied.objects,
        ..Done::default()
    };
    report(&done, topology.queues.len(), applied.elapsed, output)
}

/// Refuses while a queue is migrated: its bindings are moved on purpose, and a binding declared anew would double
/// every task.
async fn migrating(connection: &Connection, topology: &Topology, config: &Config) -> Result<(), Failure> {
    let gates = topology.migration_gates();
    let missing = declare::missing(connection, &gates).await;
    let missing = missing.map_err(|error| declare_failed(&error, config))?;
    let found: Vec<&str> = gates
        .exchanges
        .iter()
        .map(|gate| gate.name.as_str())
        .filter(|gate| !missing.iter().any(|m| m.name == *gate))
        .filter_map(migrating_queue)
        .collect();
    let Some(first) = found.first() else {
        return Ok(());
    };
    Err(Failure::new(
        Exit::Conflict,
        format!(
            "a migration is under way: {}; nothing was changed",
            found.join(", ")
        ),
        place(config),
        format!("finish it: `tidegate topology migrate {first}`, then apply again"),
    ))
}

/// Does what a plan shows.
async fn managed(
    planned: Planned,
    management: &Management,
    wish: Wish,
    config: &Config,
    output: Output,
) -> Result<(), Failure> {
    let started = Instant::now();
    let (planned, done) = perform(planned, management, wish, config, output).await?;
    let is_business = |name: &&str| !name.starts_with(&format!("{}.", planned.scope.names.prefix()));
    let business = planned
        .wanted
        .queues
        .iter()
        .map(|q| q.name.as_str())
        .filter(is_business)
        .count();
    if done.open.is_empty() {
        return report(&done, business, started.elapsed(), output);
    }
    if output.json {
        output.json_line(&done.to_json())?;
    }
    let next = if done
        .open
        .iter()
        .any(|detail| detail.data.get("argument").is_some())
    {
        "each line that begins with `-` (in JSON: each of `errors`) says its way out; `tidegate topology plan` shows \
         it again"
    } else {
        "each line that begins with `-` (in JSON: each of `errors`) says why; apply again when that is settled"
    };
    let what = format!("{}; the rest is in the way or was kept", done.sentence());
    Err(Failure::new(Exit::Conflict, what, place(config), next).with_details(done.open))
}

/// The plan in `file`, made anew on the broker as it is, if that needs nothing that the file doesn't have.
async fn stored(file: &PathBuf, management: &Management, config: &Config) -> Result<Planned, Failure> {
    let wrong = |why: String| {
        Failure::new(
            Exit::Usage,
            why,
            file.display(),
            "make it anew: `tidegate topology plan --out FILE`",
        )
    };
    let mut text = String::new();
    // What a file says of its length may be wrong, and a device says nothing.
    let taken = std::fs::File::open(file).and_then(|f| f.take(MAX_PLAN_BYTES + 1).read_to_string(&mut text));
    let size = taken.map_err(|why| wrong(why.to_string()))? as u64;
    if size > MAX_PLAN_BYTES {
        return Err(wrong(format!("more than {MAX_PLAN_BYTES} bytes are no plan")));
    }
    let stored = Stored::parse(&text).map_err(|why| wrong(why.to_string()))?;
    let live = read(management, config).await?;
    let elsewhere = |what: &str, planned: &str, here: &str| {
        let why = format!("the plan is for {what} {planned:?}, and this is {here:?}");
        Failure::new(
            Exit::Conflict,
            why,
            file.display(),
            "use it where it was made, or make one here",
        )
    };
    if stored.vhost != management.vhost() {
        return Err(elsewhere("the virtual host", &stored.vhost, management.vhost()));
    }
    if stored.cluster != live.cluster {
        return Err(elsewhere("the broker cluster", &stored.cluster, &live.cluster));
    }
    let plan = stored.plan(&live);
    let moved = stored.moved_on(&plan);
    if !moved.is_empty() {
        let details = moved.into_iter().map(|change| Detail {
            text: format!("{}: not in the plan", change.object()),
            data: change.to_json(),
        });
        return Err(Failure::new(
            Exit::Conflict,
            "the broker has moved on since the plan was made; nothing was changed",
            file.display(),
            "make the plan anew and read it again",
        )
        .with_details(details.collect()));
    }
    Ok(Planned {
        wanted: stored.wanted.clone(),
        scope: Scope::clone(stored.scope()),
        live,
        plan,
    })
}

/// Says how far a long run is.
pub(super) fn progress(output: Output) -> impl FnMut(Progress) {
    let mut said = Instant::now();
    move |progress| {
        if said.elapsed() >= EVERY {
            said = Instant::now();
            output.message(&format!("declared {} of {} …", progress.done, progress.total));
        }
    }
}

fn report(done: &Done, queues: usize, elapsed: Duration, output: Output) -> Result<(), Failure> {
    if output.json {
        let mut json = done.to_json();
        json["queues"] = queues.into();
        json["elapsedMs"] = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX).into();
        return output.json_line(&json);
    }
    output.data(&format!(
        "{} are as described, {} among them ({}; {:.1} s)\n",
        counted(done.objects as u64, "object"),
        counted(queues as u64, "business queue"),
        done.sentence(),
        elapsed.as_secs_f64()
    ))
}

/// A connection to declare on.
pub(super) async fn amqp(config: &Config) -> Result<Connection, Failure> {
    let settings = services::broker(config, "tidegate topology")?;
    connection::connect(&settings, "publish")
        .await
        .map_err(|error| services::of_link(&error, config))
}

/// Closes it. What was declared stays declared whether or not the broker says good-bye.
pub(super) async fn good_bye(connection: &Connection, config: &Config) {
    let bye = connection.close(200, "done".into());
    let _ = tokio::time::timeout(config.amqp.connect_timeout, bye).await;
}

/// The broker, for messages.
pub(super) fn place(config: &Config) -> String {
    let url = config.amqp.url();
    url.map_or_else(|_| "broker".to_owned(), |url| format!("broker {url}"))
}

/// A run that declared, and was refused something.
pub(super) fn declare_failed(error: &DeclareError, config: &Config) -> Failure {
    let place = place(config);
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
