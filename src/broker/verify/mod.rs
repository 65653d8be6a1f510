//! Whether each route delivers: real messages through a copy of the virtual host, and through the live ladder.
//!
//! No probe can reach a handler: the copy is a virtual host of its own, and in the live one a probe is only sent to the ladder with
//! a key that ends in an exclusive queue of this connection's. If the process dies, the copy is left behind with the probes in it;
//! the next verification deletes it an hour later.
//!
//! May import: `broker`, the topology's values.

mod copying;
mod ladder;
mod sending;

use std::time::Duration;

use lapin::Connection;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use self::sending::{Arrivals, Tap};
use super::{
    BrokerSettings,
    connection::{self, LinkError},
    management::{Management, ManagementError},
    publisher::Publisher,
    throwaway::{self, Throwaway},
};
use crate::topology::{
    Topology, counted,
    live::LiveBinding,
    verify::{Batch, CopiedQueue, Plan, Report, Sent, judge},
};

/// A word in the throw-away virtual host's name.
const PURPOSE: &str = "verify";

/// How long a probe waits in a queue without a consumer, to be taken by what takes waiting messages.
const WAIT: Duration = Duration::from_millis(800);

/// Why a verification came to no result.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// A virtual host can't be made or deleted by this user: it needs the tag `administrator`.
    #[error("a throw-away virtual host can't be made or deleted: {0}")]
    NoVhost(#[source] ManagementError),
    /// The management API doesn't answer, or refuses.
    #[error(transparent)]
    Management(#[from] ManagementError),
    /// The broker doesn't answer, or refuses.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// It can't be published at all.
    #[error("no publisher: {0}")]
    Publisher(String),
    /// Told to stop.
    #[error("interrupted")]
    Interrupted,
}

/// Verifies that each route of `topology` delivers on the broker as it is. The copy is deleted at the end however it ends, also by
/// `cancel`.
///
/// # Errors
/// If nothing can be said of the routes. What does not deliver is in the [`Report`].
pub async fn run(
    settings: &BrokerSettings,
    management: &Management,
    topology: &Topology,
    cancel: &CancellationToken,
    progress: impl Fn(&str),
) -> Result<Report, VerifyError> {
    let live = management.read_live().await?;
    knock(settings).await?;
    let swept = throwaway::sweep(management, PURPOSE)
        .await
        .map_err(VerifyError::NoVhost)?;
    if swept > 0 {
        progress(&format!(
            "deleted {} that earlier runs left behind",
            counted(swept, "virtual host")
        ));
    }
    let plan = Plan::new(topology, &live);
    let copy = Throwaway::create(management, settings, PURPOSE)
        .await
        .map_err(VerifyError::NoVhost)?;
    progress(&format!(
        "{} routes to try in the throw-away virtual host {}",
        plan.probes(),
        copy.name()
    ));
    let tried = tokio::select! {
        report = through_copy(&copy, &plan, &progress) => report,
        () = cancel.cancelled() => Err(VerifyError::Interrupted),
    };
    progress("deleting the throw-away virtual host");
    let deleted = copy.delete().await;
    let mut report = tried?;
    if let Err(error) = deleted {
        report.notes.push(format!(
            "the throw-away virtual host {} is still there ({error}): a run in an hour deletes it, or `rabbitmqctl delete_vhost`",
            copy.name()
        ));
    }
    report.add_times(&topology.objects(), &live);
    tokio::select! {
        result = ladder::through_live(settings, topology, &live, &mut report) => result?,
        () = cancel.cancelled() => return Err(VerifyError::Interrupted),
    }
    Ok(report)
}

/// Says at once, with nothing made yet, if AMQP doesn't let us in.
async fn knock(settings: &BrokerSettings) -> Result<(), LinkError> {
    let connection = connection::connect(settings, "verify").await?;
    let bye = connection.close(200, "done".into());
    let _ = connection::within(settings.connect_timeout, bye).await;
    Ok(())
}

async fn through_copy(
    copy: &Throwaway,
    plan: &Plan,
    progress: &impl Fn(&str),
) -> Result<Report, VerifyError> {
    let connection = copy.connect("verify").await?;
    let publisher =
        Publisher::start(&copy.settings).map_err(|error| VerifyError::Publisher(error.to_string()))?;
    let mut run = Run {
        plan,
        connection: &connection,
        publisher: &publisher,
        arrivals: Arrivals::default(),
        ends: None,
        refused: Vec::new(),
        report: Report {
            notes: plan.notes.clone(),
            ..Report::default()
        },
    };
    run.copy(copy).await?;
    for (number, batch) in plan.batches.iter().enumerate() {
        if plan.batches.len() > 1 {
            progress(&format!(
                "business queues: batch {} of {}",
                number + 1,
                plan.batches.len()
            ));
        }
        run.batch(batch).await?;
    }
    let report = run.report;
    let _ = connection::within(
        copy.settings.connect_timeout,
        connection.close(200, "done".into()),
    )
    .await;
    Ok(report)
}

struct Run<'a> {
    plan: &'a Plan,
    connection: &'a Connection,
    publisher: &'a Publisher,
    arrivals: Arrivals,
    /// Consumers of what is there for the whole time.
    ends: Option<Tap>,
    /// Queues that the broker did not make again: nothing comes out of them.
    refused: Vec<String>,
    report: Report,
}

impl Run<'_> {
    /// Makes what is there for the whole time. Policies first: what is declared after them is under them from the start.
    async fn copy(&mut self, throwaway: &Throwaway) -> Result<(), VerifyError> {
        let (copy, notes) = (&self.plan.copy, &mut self.report.notes);
        copying::policies(&throwaway.management, &copy.policies, notes).await?;
        copying::exchanges(self.connection, &copy.exchanges, notes).await?;
        let queues: Vec<&CopiedQueue> = copy.ends.iter().chain(&copy.delays).collect();
        self.refused = copying::queues(self.connection, &queues, notes).await?;
        let bindings: Vec<&LiveBinding> = copy.bindings.iter().collect();
        copying::bindings(self.connection, &bindings, notes).await?;
        Ok(())
    }

    /// First what waits, then what flows, and what is sent many times after all the rest.
    async fn batch(&mut self, batch: &Batch) -> Result<(), VerifyError> {
        let (plan, notes) = (self.plan, &mut self.report.notes);
        let queues: Vec<&CopiedQueue> = batch
            .queues
            .iter()
            .filter_map(|name| plan.copy.business.get(name))
            .collect();
        let bindings: Vec<&LiveBinding> = batch
            .queues
            .iter()
            .filter_map(|name| plan.copy.business_bindings.get(name))
            .flatten()
            .collect();
        let refused = copying::queues(self.connection, &queues, notes).await?;
        self.refused.extend(refused);
        copying::bindings(self.connection, &bindings, notes).await?;

        self.arrivals.begin(batch);
        let mut sent = vec![Sent::default(); batch.probes.len()];
        let live = plan.live();
        sending::publish(self.publisher, batch, live, &mut sent, |probe| probe.waits).await;
        sleep(WAIT).await;
        if self.ends.is_none() {
            let ends = self.made(plan.copy.ends.iter());
            self.ends = Some(Tap::open(self.connection, &ends, &self.arrivals).await?);
        }
        let names = self.made(queues.into_iter());
        let tap = Tap::open(self.connection, &names, &self.arrivals).await?;
        sending::publish(self.publisher, batch, live, &mut sent, |p| {
            !p.waits && p.copies == 1
        })
        .await;
        sending::settle(batch, &sent, &self.arrivals).await;
        if batch.probes.iter().any(|probe| !probe.waits && probe.copies > 1) {
            sending::publish(self.publisher, batch, live, &mut sent, |p| {
                !p.waits && p.copies > 1
            })
            .await;
            sending::settle(batch, &sent, &self.arrivals).await;
        }
        judge(&mut self.report, batch, live, &sent, &self.arrivals.taken());

        tap.close().await;
        let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
        copying::delete(self.connection, &names).await?;
        Ok(())
    }

    /// The names of those that the broker did make.
    fn made<'q>(&self, queues: impl Iterator<Item = &'q CopiedQueue>) -> Vec<&'q str> {
        let made = queues.filter(|queue| !self.refused.contains(&queue.name));
        made.map(|queue| queue.name.as_str()).collect()
    }
}
