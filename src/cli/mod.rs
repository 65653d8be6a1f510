//! The command line: a file per noun, each turning arguments into a call of a service and its answer into text or
//! JSON.
//!
//! May import: everything but lapin and sqlx. No SQL and no AMQP text here, and no clap type anywhere else.

mod bench;
mod capacity;
mod config;
mod contract;
mod cron;
mod delay;
mod dlq;
mod doctor;
mod failure;
mod migrate;
mod output;
mod publish;
mod published;
mod serve;
mod services;
mod task;
mod topology;

use std::{ffi::OsStr, path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand, error::ErrorKind};

use self::{
    failure::{Exit, Failure},
    output::{Output, colour_on_stderr},
};
use crate::{
    config::{Loaded, LogFormat, Outside, Source},
    telemetry::logs,
};

const EXIT_CODES: &str = "\
Data goes to stdout, messages to stderr.

Exit codes:
  0  fine                 4  not found
  1  failed               5  conflict
  2  wrong usage,         7  broker or database away, or
     settings or input       closed to this user: try later
  3  differences found

Settings: flags, then environment (AMQP_URL, DATABASE_URL, TIDEGATE_...), then
tidegate.toml, then defaults. `tidegate config print` shows them.";

/// A task platform on RabbitMQ and Postgres
#[derive(Debug, Parser)]
#[command(name = "tidegate", version, after_help = EXIT_CODES, max_term_width = 110)]
struct Cli {
    /// Settings file, instead of ./tidegate.toml or /etc/tidegate/tidegate.toml
    #[arg(long, global = true, value_name = "FILE", env = "TIDEGATE_CONFIG")]
    config: Option<PathBuf>,
    /// One setting, e.g. `amqp.in_flight=500`; may be given many times
    #[arg(long, global = true, value_name = "KEY=VALUE", value_parser = setting)]
    set: Vec<(String, String)>,
    /// Data as JSON on stdout, errors as JSON on stderr
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the server's roles until SIGTERM or Ctrl-C
    Serve(serve::Serve),
    /// Bring the database's schema up to date, show its state, or undo it
    Migrate(migrate::Migrate),
    /// What must exist on the broker
    #[command(subcommand)]
    Topology(topology::Topology),
    /// Publish one task, or many
    Publish(publish::Publish),
    /// Tasks in the ledger
    #[command(subcommand)]
    Task(task::Task),
    /// Schedules
    #[command(subcommand)]
    Cron(cron::Cron),
    /// Dead letters
    #[command(subcommand)]
    Dlq(Box<dlq::Dlq>),
    /// What payloads look like
    #[command(subcommand)]
    Contract(contract::Contract),
    /// Measure publisher and worker on this broker, beside plain lapin
    Bench(bench::Bench),
    /// How many workers a type needs
    Capacity(capacity::Capacity),
    /// What is wrong with this installation, and what to do about it
    Doctor(doctor::Doctor),
    /// Settings
    #[command(subcommand)]
    Config(config::Config),
}

fn setting(text: &str) -> Result<(String, String), String> {
    let (key, value) = text
        .split_once('=')
        .ok_or("write it as KEY=VALUE, e.g. amqp.in_flight=500")?;
    Ok((key.to_owned(), value.to_owned()))
}

/// Runs the program; what it returns is its exit code.
pub fn run() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() && asks_for_json() => {
            let failure = of_arguments(&error);
            Output { json: true }.failure(&failure);
            return failure.exit.into();
        }
        // Ends the process itself: --help, --version, and wrong usage in clap's words (exit code 2).
        Err(error) => error.exit(),
    };
    let output = Output { json: cli.json };
    match cli.run(output) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output.failure(&failure);
            failure.exit.into()
        }
    }
}

/// Whether `--json` is among arguments that could not be read as a whole.
fn asks_for_json() -> bool {
    std::env::args_os()
        .skip(1)
        .take_while(|argument| argument != OsStr::new("--"))
        .any(|argument| argument == OsStr::new("--json"))
}

/// Wrong usage, in the form of every other failure.
fn of_arguments(error: &clap::Error) -> Failure {
    let what = if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        // Its text is the whole help.
        "a command is missing".to_owned()
    } else {
        let text = error.to_string();
        let message = text.split("\n\nUsage:").next().unwrap_or_default();
        let message = message
            .split("\n\nFor more information")
            .next()
            .unwrap_or_default();
        let words: Vec<&str> = message.split_whitespace().collect();
        words.join(" ").trim_start_matches("error: ").to_owned()
    };
    Failure::new(
        Exit::Usage,
        what,
        "command line",
        "correct the arguments; --help after a command names them",
    )
}

impl Cli {
    fn run(self, output: Output) -> Result<(), Failure> {
        let loaded = self.load()?;
        start_logs(&loaded, matches!(self.command, Command::Serve(_)))?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .map_err(|why| {
                Failure::new(
                    Exit::Failed,
                    why,
                    "start of the runtime",
                    "check the limits of this process",
                )
            })?;
        let config = &loaded.config;
        let result = runtime.block_on(async {
            match self.command {
                Command::Serve(serve) => serve.run(config).await,
                Command::Migrate(migrate) => migrate.run(config, output).await,
                Command::Topology(topology) => topology.run(config, output).await,
                Command::Publish(publish) => publish.run(&loaded, output).await,
                Command::Task(task) => task.run(config, output).await,
                Command::Cron(cron) => cron.run(config, output).await,
                Command::Dlq(dlq) => dlq.run(&loaded, output).await,
                Command::Contract(contract) => contract.run(output),
                Command::Bench(bench) => bench.run(config, output).await,
                Command::Capacity(capacity) => capacity.run(output).await,
                Command::Doctor(doctor) => doctor.run(&loaded, output).await,
                Command::Config(command) => command.run(&loaded, output),
            }
        });
        // What blocks here (a read of stdin, a name look-up) must not keep the process.
        runtime.shutdown_background();
        result
    }

    fn load(&self) -> Result<Loaded, Failure> {
        let lossy = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            (
                name.to_string_lossy().into_owned(),
                value.to_string_lossy().into_owned(),
            )
        };
        let mut flags = self.set.clone();
        match &self.command {
            Command::Serve(serve) => flags.extend(serve.settings()),
            Command::Topology(topology) => flags.extend(topology.settings()),
            _ => {}
        }
        let outside = Outside {
            file: self.config.clone(),
            env: std::env::vars_os().map(lossy).collect(),
            flags,
        };
        Ok(crate::config::load(&outside)?)
    }
}

/// A server logs as it is told; a command says by itself what happened and logs next to nothing, unless told.
fn start_logs(loaded: &Loaded, server: bool) -> Result<(), Failure> {
    let log = &loaded.config.log;
    let told = loaded
        .settings
        .get("log.filter")
        .is_some_and(|setting| setting.source != Source::Default);
    let filter = if server || told {
        log.filter.as_str()
    } else {
        "error"
    };
    let format = match log.format {
        LogFormat::Text => logs::Format::Text {
            colour: colour_on_stderr(),
        },
        LogFormat::Json => logs::Format::Json,
    };
    logs::init(format, filter)
        .map_err(|why| Failure::new(Exit::Usage, why, "settings", "correct log.filter (RUST_LOG)"))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_arguments_are_consistent() {
        super::Cli::command().debug_assert();
    }
}
