//! `tidegate topology plan`: what would have to change on the broker. Reads only.
//!
//! May import: `broker`, `topology`, `services`.

use std::{
    fs::{self, File},
    io::{ErrorKind, IsTerminal},
    path::{Path, PathBuf},
};

use super::{
    super::{
        failure::{Exit, Failure},
        output::Output,
        services,
    },
    Files,
    apply::{amqp, declare_failed, good_bye},
};
use crate::{
    broker::{declare, management::Management},
    config::Config,
    topology::{
        Objects,
        live::Live,
        plan::{self, Mark, Plan, Scope, Stored, Unwanted},
    },
};

/// Of how many extra queues the consumers are counted for the plan; `apply --prune` counts again anyway.
const MOST_COUNTED: usize = 50;

/// Arguments of `topology plan`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Show {
    #[command(flatten)]
    pub(super) files: Files,
    /// Write the plan to FILE, for `topology apply FILE`
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    ignored: Ignored,
}

/// What is no extra.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Ignored {
    /// Queues, exchanges and policies, and bindings to them, that are never extra; `*` is any text. May be given many times
    #[arg(long, value_name = "NAME")]
    pub(super) ignore: Vec<String>,
}

/// What a plan was made from.
pub(super) struct Planned {
    pub(super) wanted: Objects,
    pub(super) scope: Scope,
    pub(super) live: Live,
    pub(super) plan: Plan,
}

impl Show {
    /// Runs the command.
    pub(super) async fn run(self, config: &Config, output: Output) -> Result<(), Failure> {
        let topology = Files::load(config, output)?;
        let plan = match services::management(config, output)? {
            Some(management) => {
                if let Some(path) = &self.out {
                    writable(path)?;
                }
                let planned = planned(&management, &topology, self.ignored.ignore, config).await?;
                if let Some(path) = &self.out {
                    let stored = Stored::new(
                        &planned.plan,
                        &planned.wanted,
                        &planned.scope,
                        &planned.live.cluster,
                    );
                    write(path, &stored.to_text())?;
                }
                planned.plan
            }
            None if self.out.is_some() => return Err(needs_management("--out")),
            None => of_amqp(&topology.objects(), config).await?,
        };
        show(&plan, output)?;
        if plan.has_differences() {
            Err(differences(&plan))
        } else {
            Ok(())
        }
    }
}

/// The plan for `topology` on the broker as it is.
pub(super) async fn planned(
    management: &Management,
    topology: &crate::topology::Topology,
    ignore: Vec<String>,
    config: &Config,
) -> Result<Planned, Failure> {
    let live = read(management, config).await?;
    let wanted = topology.objects();
    let scope = Scope {
        ignore,
        ..topology.scope(management.vhost(), &live)
    };
    let mut plan = plan::plan(&wanted, &live, &scope);
    count_consumers(&mut plan, management, config).await?;
    Ok(Planned {
        wanted,
        scope,
        live,
        plan,
    })
}

pub(super) async fn read(management: &Management, config: &Config) -> Result<Live, Failure> {
    management
        .read_live()
        .await
        .map_err(|error| services::of_management(&error, config))
}

/// The list of queues doesn't say how many consumers they have.
async fn count_consumers(plan: &mut Plan, management: &Management, config: &Config) -> Result<(), Failure> {
    let extras = plan.changes.iter_mut().filter_map(|change| match change {
        plan::Change::Extra(extra) => Some(extra),
        _ => None,
    });
    let queues =
        extras.filter(|extra| matches!(extra.object, Unwanted::Queue { .. }) && extra.consumers.is_none());
    for extra in queues.take(MOST_COUNTED) {
        let counts = management.counts(&extra.object.name().name).await;
        let counts = counts.map_err(|error| services::of_management(&error, config))?;
        extra.consumers = counts.map(|counts| counts.consumers);
    }
    Ok(())
}

/// What AMQP alone can say.
async fn of_amqp(wanted: &Objects, config: &Config) -> Result<Plan, Failure> {
    let connection = amqp(config).await?;
    let missing = declare::missing(&connection, wanted).await;
    good_bye(&connection, config).await;
    let missing = missing.map_err(|error| declare_failed(&error, config))?;
    Ok(plan::plan_of_missing(wanted, &missing))
}

/// Shows a plan on stdout, with colours on a terminal.
pub(super) fn show(plan: &Plan, output: Output) -> Result<(), Failure> {
    if output.json {
        return output.json_line(&plan.to_json());
    }
    let colour =
        std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let mut text = String::new();
    for line in plan.lines() {
        let code = match line.mark {
            Mark::Add => "32",
            Mark::Change | Mark::Warning => "33",
            Mark::Conflict | Mark::Extra => "31",
            Mark::Plain => "",
        };
        if colour && !code.is_empty() {
            text.push_str(&format!("\u{1b}[{code}m{}\u{1b}[0m\n", line.text));
        } else {
            text.push_str(&line.text);
            text.push('\n');
        }
    }
    output.data(&text)
}

/// Whether a plan can go there, asked before the broker is. Leaves everything as it is.
fn writable(path: &Path) -> Result<(), Failure> {
    let tried = match path.metadata() {
        // To open a pipe could end it for its reader; a device says when it is written to.
        Ok(there) if !there.is_file() && !there.is_dir() => Ok(()),
        Ok(_) => File::options().write(true).open(path).map(drop),
        Err(_) => match File::options().write(true).create_new(true).open(path) {
            Ok(_) => fs::remove_file(path),
            // A link that leads to nothing yet, or a file that came just now.
            Err(why) if why.kind() == ErrorKind::AlreadyExists => Ok(()),
            Err(why) => Err(why),
        },
    };
    tried.map_err(|why| {
        Failure::new(
            Exit::Usage,
            format!("the plan can't be written there: {why}"),
            path.display(),
            "give --out a file in a directory that exists and may be written to; the broker was not asked yet",
        )
    })
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    fs::write(path, text).map_err(|why| {
        Failure::new(
            Exit::Failed,
            format!("the plan was not written whole: {why}"),
            path.display(),
            "make room there, or name another file, and plan again",
        )
    })
}

pub(super) fn needs_management(what: &str) -> Failure {
    Failure::new(
        Exit::Usage,
        format!("{what} needs the broker's management API"),
        "settings",
        "set MANAGEMENT_URL (management.url), e.g. http://USER:PASSWORD@HOST:15672",
    )
}

fn differences(plan: &Plan) -> Failure {
    let counts = plan.counts();
    let next = if counts.conflict + counts.migrating > 0 {
        "`tidegate topology apply` makes what is marked + and ~; each `fix:` says what ends its conflict"
    } else if counts.add + counts.change > 0 {
        "`tidegate topology apply` makes what is marked + and ~; with --prune it also deletes what is marked -"
    } else {
        "`tidegate topology apply --prune` deletes what is marked -; --ignore NAME keeps it from being counted"
    };
    Failure::new(
        Exit::Differences,
        "the broker differs from the topology",
        "broker",
        next,
    )
}
