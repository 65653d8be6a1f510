//! Performs a migration: one step after the other, each decided by `topology::migration` from what the broker has.
//!
//! May import: `topology`, lapin. There is no state anywhere but on the broker. *Dies between two steps, or in one:* the
//! next run finds the same scene and goes on. What a death leaves half-done is named at each step that has such a half:
//! `drain` and `give_back`.

mod counts;
mod drain;
mod give_back;
mod hands;
mod identity;
mod inventory;
mod ladder;
mod mover;
mod report;

use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use self::{
    drain::Drained,
    hands::{Hands, To},
    identity::Seen,
};
use super::{BrokerSettings, management::Management};
use crate::supervisor::backoff;
use crate::topology::{
    Objects,
    migration::{Action, Intent, Known, Link, Next, Scene, Temporary, missing_beside, next, unsafe_policy},
};

pub use ladder::{LadderReport, Pending, retire};
pub use report::{Count, MigrateError, Progress, Report};

/// How often a wait looks again.
const LOOK: Duration = Duration::from_millis(250);
/// How often a wait says what it waits for.
const SAY: Duration = Duration::from_secs(2);

/// What a person may choose.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long the queue may give nothing away before everything is put back as it was.
    pub patience: Duration,
    /// How long a queue has to be counted as empty before it is believed: longer than two of the broker's
    /// `quorum_tick_interval`, which is 5 s unless configured.
    pub settle: Duration,
    /// Cancelled to stop between two steps.
    pub stop: CancellationToken,
}

impl Default for Options {
    /// 60 s of patience, 12 s to settle.
    fn default() -> Self {
        Self {
            patience: Duration::from_secs(60),
            settle: Duration::from_secs(12),
            stop: CancellationToken::new(),
        }
    }
}

/// The migration of one queue, by this process.
pub struct Migration {
    queue: String,
    settings: BrokerSettings,
    objects: Objects,
    options: Options,
    management: Management,
    hands: Hands,
    intent: Intent,
    known: Known,
    /// Why it goes back; said once everything is as it was.
    verdict: Option<MigrateError>,
    report: Report,
    moved: Seen,
    arrived: Seen,
    returned: Seen,
    started: Instant,
    /// Since when the queue is empty.
    dry_since: Option<Instant>,
    /// Since when the queue does not exist.
    missing_since: Option<Instant>,
    progress: Box<dyn FnMut(Progress) + Send>,
}

impl std::fmt::Debug for Migration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Migration")
            .field("queue", &self.queue)
            .field("intent", &self.intent)
            .finish_non_exhaustive()
    }
}

impl Migration {
    /// Connects and keeps other migrations of `queue` out. Changes nothing yet.
    ///
    /// # Errors
    /// [`MigrateError::Locked`] if another process migrates it, [`MigrateError::Link`] without a broker,
    /// [`MigrateError::Management`] if the management API can't be read.
    pub async fn open(
        settings: &BrokerSettings,
        management: Management,
        objects: Objects,
        queue: &str,
        options: Options,
        mut progress: impl FnMut(Progress) + Send + 'static,
    ) -> Result<Self, MigrateError> {
        // What can't be read can't be migrated: better said at once than after all patience.
        let live = management.read_live().await?;
        match missing_beside(queue, &objects, &live) {
            0 => {}
            others => progress(Progress::Lacks(others as u64)),
        }
        let mut hands = Hands::connect(settings, management.clone()).await?;
        hands.lock(queue).await?;
        Ok(Self {
            queue: queue.to_owned(),
            settings: settings.clone(),
            objects,
            options,
            management,
            hands,
            intent: Intent::Migrate,
            known: Known::default(),
            verdict: None,
            report: Report::default(),
            moved: Seen::default(),
            arrived: Seen::default(),
            returned: Seen::default(),
            started: Instant::now(),
            dry_since: None,
            missing_since: None,
            progress: Box::new(progress),
        })
    }

    /// Performs steps until nothing is left to do. A broker that goes away is waited for as long as patience lasts: the
    /// queue may be missing just then.
    ///
    /// # Errors
    /// As [`step`](Self::step).
    pub async fn run(&mut self) -> Result<(), MigrateError> {
        let (mut waits, mut failing_since) = (backoff(), None::<Instant>);
        loop {
            let error = match self.step().await {
                Ok(None) => return Ok(()),
                Ok(Some(_)) => {
                    (waits, failing_since) = (backoff(), None);
                    continue;
                }
                Err(error) => error,
            };
            let since = *failing_since.get_or_insert_with(Instant::now);
            if !error.may_pass() || since.elapsed() > self.options.patience {
                return Err(error);
            }
            (self.progress)(Progress::Again(error.to_string()));
            tokio::select! {
                () = self.options.stop.cancelled() => return Err(MigrateError::Stopped),
                () = tokio::time::sleep(waits.next().unwrap_or_default()) => {}
            }
            // Like a new run: meanwhile another process may have been at it.
            match self.reconnect(&error).await {
                Err(error) if !error.may_pass() => return Err(error),
                // The next step fails and says so.
                _ => {}
            }
        }
    }

    async fn reconnect(&mut self, after: &MigrateError) -> Result<(), MigrateError> {
        self.known = Known::default();
        // A management API that is away says nothing of this connection, and it holds the lock.
        if matches!(after, MigrateError::Management(_)) && self.hands.is_connected() {
            return Ok(());
        }
        // Else its own lock would keep the next connection out.
        self.hands.hang_up().await;
        let mut hands = Hands::connect(&self.settings, self.management.clone()).await?;
        hands.lock(&self.queue).await?;
        self.hands = hands;
        Ok(())
    }

    /// Looks at the broker and performs the next step; none is left once this answers `None`.
    ///
    /// # Errors
    /// [`MigrateError::Stopped`] if told to stop, [`MigrateError::Held`] and [`MigrateError::Policy`] once everything is
    /// back as it was, others where they happen. Whatever it is, a new run goes on.
    pub async fn step(&mut self) -> Result<Option<Action>, MigrateError> {
        self.stop_if_told()?;
        let live = self.management.read_live().await?;
        let objects = std::mem::take(&mut self.objects);
        let scene = Scene::of(&self.queue, &objects, &live);
        let next = next(&scene, self.intent, self.known);
        let wanted = scene.wanted.cloned();
        let classic = scene.queue.is_some_and(|queue| queue.kind == "classic");
        self.objects = objects;
        let action = match next {
            Next::Do(action) => action,
            Next::Refuse(refusal) => return Err(refusal.into()),
            Next::Done => {
                self.count();
                return self.verdict.take().map_or(Ok(None), Err);
            }
        };
        if let (Action::PullLever, Some((policy, key))) = (&action, unsafe_policy(&self.queue, &live)) {
            self.verdict = Some(MigrateError::Policy {
                queue: Temporary::Shelter.of(&self.queue),
                policy: policy.name.clone(),
                key: key.to_owned(),
            });
            self.intent = Intent::Retreat;
            return Ok(Some(action));
        }
        match (&action, wanted) {
            (Action::Declare, Some(wanted)) => {
                self.hands.declare(&wanted).await?;
                if let Some(since) = self.missing_since.take() {
                    self.report.missing = since.elapsed();
                }
            }
            (action, _) => self.perform(action, classic).await?,
        }
        self.report.steps += 1;
        self.known = self.known.after(&action);
        self.count();
        if self.intent == Intent::Migrate || action != Action::Drain {
            (self.progress)(Progress::Did(action.clone()));
        }
        Ok(Some(action))
    }

    /// What was done so far.
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// Lets other migrations of the queue in.
    pub async fn close(self) {
        self.hands.hang_up().await;
    }

    async fn perform(&mut self, action: &Action, classic: bool) -> Result<(), MigrateError> {
        let queue = self.queue.clone();
        let (shelter, in_) = (Temporary::Shelter.of(&queue), Temporary::In.of(&queue));
        let hands = &mut self.hands;
        match action {
            Action::Make(temporary) => hands.make(&temporary.object(&queue)).await?,
            Action::Catch => {
                hands
                    .bind(&plain(Temporary::Next, &queue), To::Queue(&shelter))
                    .await?
            }
            Action::SetLever => {
                hands
                    .bind(&plain(Temporary::In, &queue), To::Queue(&queue))
                    .await?;
                if let Some(since) = self.dry_since.take() {
                    self.report.pause = since.elapsed();
                }
            }
            Action::Route(link) => hands.bind(link, To::Exchange(&in_)).await?,
            Action::Cut(link) => hands.unbind(link, To::Queue(&queue)).await?,
            Action::PullLever => {
                hands
                    .unbind(&plain(Temporary::In, &queue), To::Queue(&queue))
                    .await?;
            }
            Action::Drain => match self.drain().await? {
                Drained::Empty => {}
                Drained::Held(left) => {
                    (self.progress)(Progress::GivingUp { left });
                    self.verdict = Some(MigrateError::Held { queue, left });
                    self.intent = Intent::Retreat;
                }
            },
            Action::Delete => {
                self.missing_since = Some(Instant::now());
                match hands.delete_queue(&queue, classic).await {
                    Ok(held) => self.report.lost += held,
                    // Somebody published to it by its name: it has to run empty again.
                    Err(MigrateError::Refusal { .. }) if classic => self.missing_since = None,
                    Err(error) => return Err(error),
                }
            }
            // Done by the caller, who has the arguments.
            Action::Declare => {}
            Action::Join(link) => hands.bind(link, To::Queue(&queue)).await?,
            Action::Leave(link) => hands.unbind(link, To::Exchange(&in_)).await?,
            Action::OpenReturn => {
                hands
                    .bind(&plain(Temporary::Back, &queue), To::Queue(&queue))
                    .await?
            }
            Action::Return => self.give_back().await?,
            Action::Remove(Temporary::Shelter) => {
                self.report.lost += hands.delete_queue(&shelter, false).await?;
            }
            Action::Remove(temporary) => hands.delete_exchange(&temporary.of(&queue)).await?,
        }
        Ok(())
    }

    fn stop_if_told(&self) -> Result<(), MigrateError> {
        if self.options.stop.is_cancelled() {
            return Err(MigrateError::Stopped);
        }
        Ok(())
    }

    fn count(&mut self) {
        let of = |seen: &Seen| Count {
            messages: seen.messages,
            different: seen.different.len() as u64,
        };
        self.report.moved = of(&self.moved);
        self.report.arrived = of(&self.arrived);
        self.report.returned = of(&self.returned);
        self.report.elapsed = self.started.elapsed();
    }
}

/// The one binding of a temporary exchange.
fn plain(exchange: Temporary, queue: &str) -> Link {
    Link {
        source: exchange.of(queue),
        pattern: String::new(),
        arguments: Default::default(),
    }
}
