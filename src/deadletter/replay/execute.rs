//! Works on a run until it ends: the core's [`Run`] says what is next, this does it.
//!
//! May import: `core`, `publish`, `store`, `supervisor`. What a run knows is in its row, so every trouble is answered alike: read
//! the row again and go on. Up to four batches overlap, so that neither database nor broker waits for the other. Beside the
//! work the lease is renewed; a process that has lost it writes nothing more, and stops. If it dies at any line, the lease
//! ends, and the next one does what is left.

use std::time::Duration;

use chrono::TimeDelta;
use futures::{
    FutureExt, StreamExt,
    future::{BoxFuture, Fuse, FusedFuture},
    stream::FuturesUnordered,
};
use tidegate_core::{
    dead_letter_filter::Filter,
    replay::{
        plan::{Counts, End, Outcomes, Step},
        run::Run,
    },
};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::{
    Replays,
    deliver::Delivered,
    limited,
    message::Editor,
    request::{self, BATCH},
    told::{ReplayError, Report, Tell},
    watched::{Fault, Watched},
};
use crate::{
    store::{
        StoreError,
        dead_letters::{
            replay::Walk,
            runs::{Hold, RunRow, RunState},
        },
    },
    supervisor::backoff,
};

/// How long a process may be silent before another takes its run over.
pub const LEASE: Duration = Duration::from_secs(15);

/// How often the lease is renewed, and looked whether the run shall stop.
const RENEWAL: Duration = Duration::from_secs(3);

/// Most batches in work at once: while one waits for its confirms, the next is claimed and the one before written down.
const AT_ONCE: usize = 4;

/// How often a canary is looked at.
const LOOK: Duration = Duration::from_millis(500);

/// How long to go on trying to end a run that shall stop.
pub(super) const LAST_TRIES: usize = 6;

/// How to end the work on a run early.
#[derive(Clone, Debug, Default)]
pub struct Ending {
    /// The run ends.
    pub stop: CancellationToken,
    /// This process lets go of it.
    pub let_go: CancellationToken,
}

impl Replays {
    /// Works on a run until it ends, or until one of `ending` says. In both cases what is in flight is confirmed first. A run
    /// that is stopped gives back as open what it has claimed beyond that; one that is let go is gone on with by others.
    ///
    /// # Errors
    /// The run goes on without this process: somebody has taken it over, or will.
    pub async fn execute(&self, hold: &Hold, ending: &Ending, tell: Tell<'_>) -> Result<Report, ReplayError> {
        let stop = ending.stop.child_token();
        let watched = Watched::new(&stop, &ending.let_go, tell);
        tracing::info!(run = %hold.run, fence = hold.fence, owner = %self.owner, "a replay is worked on");
        let ended = tokio::select! {
            biased;
            ended = self.work(hold, &watched) => ended,
            () = self.keep(hold, &stop) => Err(ReplayError::TakenOver),
        };
        match &ended {
            Ok(report) if report.end == RunState::Failed => {
                tracing::error!(run = %hold.run, why = report.why.as_deref(),
                sent = report.sent, refused = report.refused, "a replay can't go on; what was not sent is open as before")
            }
            Ok(report) => tracing::info!(run = %hold.run, end = report.end.as_str(), sent = report.sent,
                refused = report.refused, lost = report.lost, "a replay has ended"),
            Err(error) => tracing::warn!(run = %hold.run, %error, "a replay is left to others"),
        }
        ended
    }

    /// Renews the lease; returns once it is lost. Whoever asks the run to stop is heard here.
    async fn keep(&self, hold: &Hold, stop: &CancellationToken) {
        loop {
            sleep(RENEWAL).await;
            match limited(self.store.dead_letters().renew_run(hold, LEASE)).await {
                Ok(Some(true)) => stop.cancel(),
                Ok(Some(false)) => {}
                Ok(None) => return,
                // The work hears of it as well, and the lease may still be ours once the database is back.
                Err(error) => {
                    tracing::warn!(run = %hold.run, %error, "the lease of a replay can't be renewed");
                }
            }
        }
    }

    async fn work(&self, hold: &Hold, watched: &Watched<'_>) -> Result<Report, ReplayError> {
        let mut waits = backoff();
        let mut failures = 0;
        let (end, why) = loop {
            let before = watched.progress();
            match self.attempt(hold, watched).await {
                Ok(end) => break (end, None),
                Err(Fault::TakenOver) => return Err(ReplayError::TakenOver),
                Err(Fault::LetGo) => {
                    // If it can't be said, its lease ends by itself.
                    let _ = limited(self.store.dead_letters().let_go(hold)).await;
                    return Err(ReplayError::LetGo);
                }
                Err(Fault::Impossible(why)) => break (None, Some(why)),
                Err(Fault::Store(error)) if error.is_transient() => {
                    watched.trouble(&error.to_string());
                    if watched.progress() != before {
                        (waits, failures) = (backoff(), 0);
                    }
                    failures += 1;
                    if watched.is_over() && failures > LAST_TRIES {
                        return Err(error.into());
                    }
                    sleep(waits.next().unwrap_or_default()).await;
                }
                Err(Fault::Store(error)) => return Err(error.into()),
            }
        };
        self.finish(hold, end, why, watched).await
    }

    /// Works on the run as its row says.
    async fn attempt(&self, hold: &Hold, watched: &Watched<'_>) -> Result<Option<End>, Fault> {
        let row = self.row(hold).await?;
        watched.begin(&row);
        let impossible = |why: request::Unreadable| Fault::Impossible(why.to_string());
        let filter = request::read_filter(&row.filter, row.began_at).map_err(impossible)?;
        let edit = request::read_edit(&row.edit).map_err(impossible)?;
        let options = request::read_options(&row.options).map_err(impossible)?;
        let editor = Editor::new(row.id, &edit, &self.limits, &*self.contracts)
            .map_err(|why| Fault::Impossible(why.to_string()))?;
        let counts = Counts {
            sent: row.sent,
            refused: row.refused,
            unsettled: row.unsettled,
            last_sent_at: row.last_sent_at,
        };
        if row.stop_asked {
            watched.stop.cancel();
        }
        let run = Run::resume(options, row.planned, counts, watched.now());
        let end = self
            .drive(hold, run, Walk::from(row.at), &filter, &editor, watched)
            .await?;
        Ok(Some(end))
    }

    async fn row(&self, hold: &Hold) -> Result<RunRow, Fault> {
        let row = limited(self.store.dead_letters().run(hold.run)).await?;
        row.filter(|row| row.fence == hold.fence && row.state == RunState::Running)
            .ok_or(Fault::TakenOver)
    }

    async fn drive(
        &self,
        hold: &Hold,
        mut run: Run,
        mut walk: Walk,
        filter: &Filter,
        editor: &Editor<'_>,
        watched: &Watched<'_>,
    ) -> Result<End, Fault> {
        let mut waits = backoff();
        loop {
            if let Some(why) = watched.what_is_broken() {
                return Err(Fault::Impossible(why));
            }
            if watched.let_go.is_cancelled() {
                return Err(Fault::LetGo);
            }
            if watched.stop.is_cancelled() {
                run.stop();
            }
            let trouble = match run.step(watched.now()) {
                Step::End(end) => return Ok(end),
                Step::Wait { until } => {
                    self.pause(until - watched.now(), watched).await;
                    None
                }
                Step::Watch { until } => {
                    let outcomes = limited(self.store.dead_letters().outcomes(hold)).await?;
                    watched.watching(until, outcomes);
                    run.watched(outcomes, watched.now());
                    if matches!(run.step(watched.now()), Step::Watch { .. }) {
                        let left = (until - watched.now()).max(TimeDelta::zero());
                        self.pause(left.min(TimeDelta::from_std(LOOK).unwrap_or_default()), watched)
                            .await;
                    }
                    None
                }
                Step::Take { count } => {
                    let (asked, taken) = self.take(hold, count, &mut walk, filter, editor, watched).await?;
                    if watched.stop.is_cancelled() {
                        run.stop();
                    }
                    run.took(asked, taken.batch, watched.now());
                    self.look_at_canary(hold, &mut run, watched).await?;
                    taken.trouble
                }
                Step::Again { count } => {
                    let count = count.min(u64::from(BATCH));
                    let letters = limited(self.store.dead_letters().claimed(hold, count)).await?;
                    let letters = letters.ok_or(Fault::TakenOver)?;
                    let taken = self.deliver(hold, editor, letters, watched).await?;
                    run.took_again(taken.batch, watched.now());
                    taken.trouble
                }
            };
            match trouble {
                Some(why) => {
                    watched.trouble(&why);
                    let pause = TimeDelta::from_std(waits.next().unwrap_or_default()).unwrap_or_default();
                    self.pause(pause, watched).await;
                }
                None => waits = backoff(),
            }
        }
    }

    /// Of a canary that is sent in several parts the first may have died by now.
    async fn look_at_canary(&self, hold: &Hold, run: &mut Run, watched: &Watched<'_>) -> Result<(), Fault> {
        if run.is_in_canary() {
            let outcomes: Outcomes = limited(self.store.dead_letters().outcomes(hold)).await?;
            run.watched(outcomes, watched.now());
        }
        Ok(())
    }

    async fn pause(&self, pause: TimeDelta, watched: &Watched<'_>) {
        let pause = pause.to_std().unwrap_or_default();
        tokio::select! {
            () = watched.over() => {}
            () = sleep(pause) => {}
        }
    }

    /// Claims and sends at most `count`, in batches that overlap. Returns how many it has asked for, and what became of them.
    async fn take(
        &self,
        hold: &Hold,
        count: u64,
        walk: &mut Walk,
        filter: &Filter,
        editor: &Editor<'_>,
        watched: &Watched<'_>,
    ) -> Result<(u64, Delivered), Fault> {
        if walk.has_ended() {
            // Nothing is left: what is asked for is not found.
            return Ok((count, Delivered::default()));
        }
        type Claiming<'c> =
            Fuse<BoxFuture<'c, Result<Option<crate::store::dead_letters::replay::Batch>, StoreError>>>;
        let (mut asked, mut total, mut fault) = (0, Delivered::default(), None);
        let mut claiming: Claiming<'_> = Fuse::terminated();
        let mut wanted = 0;
        let mut delivering = FuturesUnordered::new();
        loop {
            let goes_on = fault.is_none()
                && total.trouble.is_none()
                && asked < count
                && !walk.has_ended()
                && !watched.is_over()
                && !watched.is_broken();
            if goes_on && claiming.is_terminated() && delivering.len() < AT_ONCE {
                wanted = (count - asked).min(u64::from(BATCH));
                let (from, wanted) = (*walk, wanted);
                claiming =
                    async move { limited(self.store.dead_letters().claim(hold, filter, from, wanted)).await }
                        .boxed()
                        .fuse();
            }
            if claiming.is_terminated() && delivering.is_empty() {
                break;
            }
            tokio::select! {
                Some(delivered) = delivering.next(), if !delivering.is_empty() => match delivered {
                    Ok(Delivered { batch, trouble }) => {
                        total.batch.sent += batch.sent;
                        total.batch.refused += batch.refused;
                        total.trouble = total.trouble.or(trouble);
                    }
                    // The others are heard out: what they have sent is written down, if it can be.
                    Err(why) => { fault.get_or_insert(why); }
                },
                claimed = &mut claiming, if !claiming.is_terminated() => match claimed {
                    Ok(Some(batch)) => {
                        *walk = batch.walk;
                        let found = batch.letters.len() as u64;
                        // Nothing is told of what a day had too few of, until the walk is over.
                        asked += if walk.has_ended() { wanted } else { found };
                        total.batch.found += found;
                        if found > 0 {
                            delivering.push(self.deliver(hold, editor, batch.letters, watched));
                        }
                    }
                    Ok(None) => { fault.get_or_insert(Fault::TakenOver); }
                    Err(error) => { fault.get_or_insert(error.into()); }
                },
            }
        }
        match fault {
            Some(fault) => Err(fault),
            None => Ok((asked, total)),
        }
    }
}
