//! Takes older generations of the ladder down, each once nothing waits in it.
//!
//! *Dies here:* what is deleted is gone, and the next run finds what is left.

use std::time::Instant;

use super::{LOOK, MigrateError, Options, Progress, SAY, counts, hands::Hands};
use crate::{
    broker::{BrokerSettings, management::Management},
    topology::migration::{
        Settle,
        ladder::{Generation, Step, older},
    },
};
use tidegate_core::names::Names;

/// An older generation and what waits in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pending {
    /// Its number.
    pub version: u8,
    /// Messages in its queues.
    pub messages: u64,
    /// Whether nothing is left of it.
    pub gone: bool,
}

/// What became of the older generations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LadderReport {
    /// Each of them, oldest first.
    pub generations: Vec<Pending>,
    /// Objects deleted.
    pub deleted: u64,
}

/// Looks at the generations before that of `names`; with `delete` takes each down once it is empty, waiting for that
/// if `wait`.
///
/// # Errors
/// [`MigrateError::Stopped`] if told to stop, others where they happen. A new run goes on.
pub async fn retire(
    settings: &BrokerSettings,
    management: &Management,
    names: &Names,
    (delete, wait): (bool, bool),
    options: &Options,
    mut progress: impl FnMut(Progress),
) -> Result<LadderReport, MigrateError> {
    let live = management.read_live().await?;
    let mut report = LadderReport::default();
    let mut hands = Hands::connect(settings, management.clone()).await?;
    for mut generation in older(&live, names) {
        let version = generation.version;
        let prefix = format!("{}.delay.v{version}.", names.prefix());
        let down = TakeDown {
            prefix,
            hands: &mut hands,
            management,
            options,
        };
        let mut begun = false;
        let mut pending = down.pending(&generation.queues()).await?;
        let mut empty = Vec::new();
        let gone = loop {
            match generation.next(&empty, begun) {
                Step::Gone => break true,
                Step::Wait(_) if !delete || !wait && pending > 0 => break false,
                Step::Wait(queues) => {
                    down.wait(version, &queues, &mut progress).await?;
                    pending = 0;
                    empty = queues;
                }
                _ if !delete => break false,
                Step::DeleteExchange(name) => {
                    down.hands.delete_exchange(&name).await?;
                    forget(&mut generation, &name);
                    empty.clear();
                    begun = true;
                    report.deleted += 1;
                    progress(Progress::Deleted(name));
                }
                Step::DeleteQueue(name) => {
                    down.hands.delete_queue(&name, false).await?;
                    forget(&mut generation, &name);
                    report.deleted += 1;
                    progress(Progress::Deleted(name));
                }
            }
        };
        report.generations.push(Pending {
            version,
            messages: pending,
            gone,
        });
    }
    hands.hang_up().await;
    Ok(report)
}

fn forget(generation: &mut Generation, name: &str) {
    for level in &mut generation.levels {
        level.queues.retain(|queue| queue != name);
        level.exchange = level.exchange.take().filter(|exchange| exchange != name);
    }
    generation.due = generation.due.take().filter(|due| due != name);
}

struct TakeDown<'a> {
    prefix: String,
    hands: &'a mut Hands,
    management: &'a Management,
    options: &'a Options,
}

impl TakeDown<'_> {
    /// Messages in `queues`, those on their way to the next level among them.
    async fn pending(&self, queues: &[String]) -> Result<u64, MigrateError> {
        let counted = counts::messages(self.management, &self.prefix, false).await?;
        // Not counted yet is not empty.
        Ok(queues
            .iter()
            .map(|queue| counted.get(queue).copied().unwrap_or(1))
            .sum())
    }

    /// Waits until all of `queues` are empty. It has no limit in time: a delay may take months.
    async fn wait(
        &self,
        version: u8,
        queues: &[String],
        progress: &mut impl FnMut(Progress),
    ) -> Result<(), MigrateError> {
        let mut settle = Settle::new(self.options.settle);
        let mut said = None::<Instant>;
        loop {
            let messages = self.pending(queues).await?;
            if settle.read(messages, Instant::now()) {
                return Ok(());
            }
            if messages > 0 && said.is_none_or(|at| at.elapsed() >= SAY) {
                said = Some(Instant::now());
                progress(Progress::Pending { version, messages });
            }
            tokio::select! {
                () = self.options.stop.cancelled() => return Err(MigrateError::Stopped),
                () = tokio::time::sleep(LOOK) => {}
            }
        }
    }
}
