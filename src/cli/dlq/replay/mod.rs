//! `tidegate dlq replay`: dead letters sent again.
//!
//! May import: `core`, `deadletter::replay`, `publish`, `services`. [`arguments`] reads what is asked for, [`dry_run`] shows what
//! would be done, [`report`] what was. The run is the server's to go on with if this process dies; Ctrl-C ends it in order.

mod arguments;
mod dry_run;
mod report;

use std::io::{self, BufRead, IsTerminal, Write};

use tidegate_core::dead_letter_filter::{Condition, Filter};
use uuid::Uuid;

use self::arguments::Arguments;
use super::{Exit, Failure, Output, by::By, meant::Meant, now, services, usage};
use crate::{
    broker::{connection::Link, publisher::Publisher},
    config::Loaded,
    deadletter::replay::{
        Replays,
        execute::{Ending, LEASE},
        preview::preview,
        request::Request,
        told::ReplayError,
    },
    publish::TaskPublisher,
    store::{
        Store,
        dead_letters::{
            outcomes::Party,
            runs::{Hold, Taken},
        },
    },
    supervisor::cancel_on_signal,
};

pub(super) const HELP: &str = "\
Only open ones are taken, and of them what was archived before this call. Each goes to the
queue that failed, with the bytes and headers that came, as attempt 1, unless told otherwise.

Examples:
  tidegate dlq replay 0196a5e0-7f20-7f1b-ae7d-00000000000f
  tidegate dlq replay --group 5f1c07aa --canary 1% --watch 60s --reason 'bank is back'
  tidegate dlq replay type=order.# since=2h --rate 50 --reason 'fixed in 1.8.2' --dry-run
  tidegate dlq replay --group 5f1c07aa --reason 'currency was missing' \\
    --patch '[{\"op\":\"add\",\"path\":\"/payload/currency\",\"value\":\"EUR\"}]'

Conditions are those of `tidegate dlq list --help`. Ctrl-C stops it in order; killed, it is gone
on with by `tidegate serve`, or by --resume. Exit code 1: not all could be sent; 4: nothing
matches; 5: others had what was meant, or another process is at the run.";

/// Above so many, whoever calls is asked first.
const MANY: u64 = 100;

/// Which ones, how, by whom and why.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Replay {
    #[command(flatten)]
    meant: Meant,
    /// A condition, as among the words; may be given many times
    #[arg(long, value_name = "KEY=VALUE")]
    filter: Vec<String>,
    /// Those of this group: its fingerprint, 8 digits or more
    #[arg(long, value_name = "FINGERPRINT")]
    group: Option<String>,
    #[command(flatten)]
    arguments: Arguments,
    /// Why; kept in the audit log. Needed for more than one
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    #[command(flatten)]
    by: By,
    /// Only say what would be done: how many, the canary, and what becomes of the first few
    #[arg(long)]
    dry_run: bool,
    /// Don't ask, however many they are
    #[arg(long)]
    yes: bool,
    /// Go on with a run whose process is dead
    #[arg(long, value_name = "RUN", conflicts_with_all = ["words", "filter", "group", "dry_run"])]
    resume: Option<Uuid>,
}

impl Replay {
    pub(super) async fn run(self, store: &Store, loaded: &Loaded, output: Output) -> Result<(), Failure> {
        if let Some(run) = self.resume {
            return self.go_on(run, store, loaded, output).await;
        }
        let config = &loaded.config;
        let filter = self.wanted(store, loaded).await?;
        let (edit, options) = self.arguments.read()?;
        let limits = config.limits.envelope();
        let mut request = Request {
            filter,
            edit,
            options,
            who: String::new(),
            why: String::new(),
        };
        let shown = preview(store, &request, &limits, self.arguments.samples()).await;
        let shown = shown.map_err(|error| services::of_store(&error, config))?;
        if shown.would_take == 0 {
            return Err(nothing_open(store, &request.filter, loaded).await);
        }
        if self.dry_run {
            if let Some(reason) = &self.reason {
                self.by.reason(reason)?;
            }
            output
                .message("note: the broker was not asked; whether each queue is there shows when it is sent");
            return dry_run::show(&request, &shown, output);
        }
        arguments::check_for_many(&request.edit, shown.would_take)?;
        let why = match &self.reason {
            None if shown.would_take > 1 => {
                return Err(usage(
                    format!(
                        "{} dead letters would be sent, and nobody says why",
                        shown.would_take
                    ),
                    "--reason",
                    "say why by --reason TEXT; it is kept in the audit log",
                ));
            }
            reason => self.by.reason(reason.as_deref().unwrap_or("no reason given"))?,
        };
        (request.who, request.why) = (why.who().to_owned(), why.why().to_owned());
        self.confirm(shown.would_take)?;
        let replays = replays(store, loaded, &request.who, output).await?;
        match replays.begin(&request).await {
            Ok(Some(hold)) => self.execute(&replays, &hold, loaded, output).await,
            Ok(None) => Err(nothing_open(store, &request.filter, loaded).await),
            Err(error) => Err(of_replay(error, None, loaded)),
        }
    }

    async fn wanted(&self, store: &Store, loaded: &Loaded) -> Result<Filter, Failure> {
        let more = self.filter.iter().map(String::as_str);
        let group = self.group.as_deref().map(|digits| ("fingerprint", digits));
        let filter = self
            .meant
            .filter_and(more, group, now(store, &loaded.config).await?)?;
        if filter.conditions().is_empty() {
            return Err(usage(
                "nothing says which dead letters are meant",
                "dlq replay",
                "name ids or conditions; `state=open` is all that are open",
            ));
        }
        let asks_for_others = filter.conditions().iter().any(|condition| {
            matches!(condition, Condition::State(states)
                if !states.contains(&tidegate_core::dead_letter::DeadLetterState::Open))
        });
        if asks_for_others {
            return Err(usage(
                "only open dead letters are replayed",
                "state=…",
                "leave the state out; what was replayed and died again is open under an id of its own",
            ));
        }
        Ok(filter)
    }

    /// Asks whoever sits at the terminal; without one `--yes` is needed.
    fn confirm(&self, count: u64) -> Result<(), Failure> {
        if count <= MANY || self.yes {
            return Ok(());
        }
        let unasked = |what: String, next: &str| Err(usage(what, "dlq replay", next));
        if !io::stdin().is_terminal() {
            return unasked(
                format!("{count} dead letters would be sent, and nobody can be asked"),
                "look at it with --dry-run, then give --yes; nothing was sent",
            );
        }
        let mut stderr = io::stderr();
        let _ = write!(stderr, "Send {count} dead letters again? [y/N] ");
        let _ = stderr.flush();
        let mut answer = String::new();
        let _ = io::stdin().lock().read_line(&mut answer);
        match answer.trim().to_lowercase().as_str() {
            "y" | "yes" => Ok(()),
            _ => unasked("not confirmed".to_owned(), "nothing was sent"),
        }
    }

    async fn execute(
        &self,
        replays: &Replays,
        hold: &Hold,
        loaded: &Loaded,
        output: Output,
    ) -> Result<(), Failure> {
        output.message(&format!("run {}", hold.run));
        let ending = Ending::default();
        let _signals = cancel_on_signal(ending.stop.clone());
        let teller = report::Teller::new(output);
        let told = |event: &crate::deadletter::replay::told::Event<'_>| teller.tell(event);
        let ended = Box::pin(replays.execute(hold, &ending, &told)).await;
        match ended {
            Ok(ended) => report::show(&ended, output),
            Err(error) => Err(of_replay(error, Some(hold.run), loaded)),
        }
    }

    /// Takes a run over, once the lease of the process that had it is over.
    async fn go_on(&self, run: Uuid, store: &Store, loaded: &Loaded, output: Output) -> Result<(), Failure> {
        let by = self
            .by
            .reason(self.reason.as_deref().unwrap_or("no reason given"))?;
        let replays = replays(store, loaded, by.who(), output).await?;
        let mut lease = None;
        loop {
            let taken = replays.resume(run, by.who(), by.why()).await;
            match taken.map_err(|error| of_replay(error, Some(run), loaded))? {
                Taken::Held(hold) => return self.execute(&replays, &hold, loaded, output).await,
                Taken::Busy(row) => {
                    // A lease that grows while it is waited for is renewed by a process that lives.
                    let is_alive = lease.is_some_and(|end| row.now + row.lease_left > end);
                    if is_alive {
                        return Err(Failure::new(
                            Exit::Conflict,
                            format!("{} is at it", row.owner),
                            format!("run {run}"),
                            "watch it by `tidegate dlq replays show`, or end it by `tidegate dlq replays stop`",
                        ));
                    }
                    if lease.is_none() {
                        output.message(&format!(
                            "waiting up to {LEASE:?} for the lease of {} to end …",
                            row.owner
                        ));
                        lease = Some(row.now + row.lease_left + chrono::TimeDelta::seconds(1));
                    }
                    tokio::time::sleep(row.lease_left.min(LEASE / 10) + LEASE / 100).await;
                }
                Taken::Ended(row) => {
                    return Err(Failure::new(
                        Exit::Conflict,
                        format!("the run has ended: {}", row.state.as_str()),
                        format!("run {run}"),
                        "begin another for what is still open",
                    ));
                }
                Taken::Unknown => return Err(super::replays::unknown(run)),
            }
        }
    }
}

/// What replays by the broker of the settings, once it answers.
async fn replays(store: &Store, loaded: &Loaded, who: &str, output: Output) -> Result<Replays, Failure> {
    let config = &loaded.config;
    let (topology, has_files) = services::topology_if_any(loaded)?;
    if !has_files {
        output.message("note: there are no topology files here: which queues take a key is not checked");
    }
    let settings = services::broker(config, "tidegate dlq replay")?;
    let link = Link::new(settings.clone(), "replay");
    link.channel()
        .await
        .map_err(|error| services::of_link(&error, config))?;
    let publisher = Publisher::start(&settings)
        .map_err(|why| Failure::new(Exit::Failed, why, "publisher", "report this as a bug"))?;
    let owner: String = format!("dlq replay, process {}, of {who}", std::process::id())
        .chars()
        .take(60)
        .collect();
    Ok(Replays::new(
        store.clone(),
        TaskPublisher::new(publisher, topology),
        link,
        config.limits.envelope(),
        owner,
    ))
}

/// Nothing that is meant is open: it never was there, or others have dealt with it.
async fn nothing_open(store: &Store, filter: &Filter, loaded: &Loaded) -> Failure {
    let parties = match store.dead_letters().dealt_with(&filter.in_any_state()).await {
        Ok(parties) => parties,
        Err(error) => return services::of_store(&error, &loaded.config),
    };
    if parties.is_empty() {
        return Failure::new(
            Exit::NotFound,
            "no dead letter matches",
            "tidegate.dead_letters",
            "look what there is by `tidegate dlq groups` or `tidegate dlq list`",
        );
    }
    let dealt: i64 = parties.iter().map(|party: &Party| party.count).sum();
    Failure::new(
        Exit::Conflict,
        format!("nothing was sent: others have dealt with all {dealt} that match"),
        "tidegate.dead_letters",
        "look at them by `tidegate dlq show`; what died again after a replay is open under an id of its own",
    )
    .with_details(parties.iter().map(report::party).collect())
}

fn of_replay(error: ReplayError, run: Option<Uuid>, loaded: &Loaded) -> Failure {
    let place = run.map_or_else(|| "dlq replay".to_owned(), |run| format!("run {run}"));
    match error {
        ReplayError::Store(error) => {
            let mut failure = services::of_store(&error, &loaded.config);
            if run.is_some() {
                failure.place = place;
                "`tidegate serve` goes on with it, or `tidegate dlq replay --resume RUN`"
                    .clone_into(&mut failure.next);
            }
            failure
        }
        ReplayError::TakenOver | ReplayError::LetGo => Failure::new(
            Exit::Conflict,
            error,
            place,
            "watch it by `tidegate dlq replays show`",
        ),
    }
}
