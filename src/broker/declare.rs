//! Performs a topology: declares what is missing, and says exactly what stands in the way.
//!
//! Every declaration is idempotent, so a death between any two leaves a broker on which the next `apply` goes on.
//! Several channels work at once because each quorum queue is a Raft group that the broker has to start. One
//! refused object costs its channel, not the run: the channel is opened anew, the rest is declared, and all
//! refusals are reported together at the end. Only a lost connection or a broker that doesn't answer ends the
//! run early.
//!
//! Imports lapin and the topology's objects.

mod amqp;
mod report;

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use futures::{StreamExt, TryStreamExt, stream};
use lapin::Connection;

use self::amqp::{Lane, Outcome};
use crate::topology::{Conflict, Object, ObjectName, Objects};

pub(super) use amqp::{exchange_declare, queue_declare};
pub use report::{Applied, Cause, DeclareError, Failure, Progress, Report, Skipped};

/// Channels that work at once.
const LANES: usize = 8;
/// Longest wait for one answer. Starting a Raft group takes milliseconds on an idle node and seconds on a busy
/// cluster.
const ANSWER: Duration = Duration::from_secs(30);

/// Declares all `objects` on the connection's virtual host and binds them.
///
/// # Errors
/// [`DeclareError::Conflict`] if something exists with another argument, [`DeclareError::Refused`] if the broker
/// refused objects for other reasons only (no permission, a limit); in both cases everything else is declared.
/// [`DeclareError::Unavailable`] if the connection went away or an answer didn't come: nothing is known of the
/// rest.
pub async fn apply(
    conn: &Connection,
    objects: &Objects,
    progress: impl FnMut(Progress),
) -> Result<Applied, DeclareError> {
    let started = Instant::now();
    let run = Mutex::new(Run {
        progress,
        report: Report::default(),
        done: 0,
        total: objects.len(),
    });
    for step in objects.steps() {
        let queue = Mutex::new(step.into_iter());
        each_lane(conn, |mut lane| async {
            while let Some(object) = take(&queue) {
                let missing = lock(&run).missing(object);
                let outcome = match missing {
                    Some(missing) => Err(missing),
                    None => Ok(lane.declare(object).await?),
                };
                lock(&run).record(object, outcome);
            }
            Ok(lane)
        })
        .await?;
    }
    let report = run.into_inner().unwrap_or_else(PoisonError::into_inner).report;
    let applied = Applied {
        objects: objects.len() - report.len(),
        elapsed: started.elapsed(),
    };
    report.into_result(applied)
}

/// The exchanges and queues that don't exist yet. Looks only, and says nothing of their arguments.
///
/// # Errors
/// [`DeclareError::Refused`] if the broker won't say, [`DeclareError::Unavailable`] if it doesn't answer.
pub async fn missing(conn: &Connection, objects: &Objects) -> Result<Vec<ObjectName>, DeclareError> {
    let exchanges = objects.exchanges.iter().map(Object::Exchange);
    let wanted: Vec<_> = exchanges
        .chain(objects.queues.iter().map(Object::Queue))
        .collect();
    let queue = Mutex::new(wanted.into_iter());
    let found = Mutex::new((BTreeSet::new(), Report::default()));
    each_lane(conn, |mut lane| async {
        while let Some(object) = take(&queue) {
            let outcome = lane.look(object).await?;
            let mut found = lock(&found);
            match outcome {
                Outcome::Declared => {}
                Outcome::Missing(_) => {
                    found.0.insert(object.name());
                }
                Outcome::Refused(text) => {
                    found.1.failures.push(Failure {
                        object: object.name(),
                        cause: Cause::Refused(text),
                    });
                }
            }
        }
        Ok(lane)
    })
    .await?;
    let (missing, report) = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    report.into_result(missing.into_iter().collect())
}

/// Runs `work` on [`LANES`] channels at once; the first loss of the connection ends all.
async fn each_lane<'c, F>(conn: &'c Connection, work: impl Fn(Lane<'c>) -> F) -> Result<(), DeclareError>
where
    F: Future<Output = Result<Lane<'c>, DeclareError>>,
{
    stream::iter((0..LANES).map(|_| work(Lane::new(conn, ANSWER))))
        .buffer_unordered(LANES)
        .try_for_each(Lane::close)
        .await
}

fn take<T>(queue: &Mutex<impl Iterator<Item = T>>) -> Option<T> {
    lock(queue).next()
}

/// No code here panics while it holds a lock, and if it did, what is in it would still be right.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Run<P> {
    progress: P,
    report: Report,
    done: usize,
    total: usize,
}

impl<P: FnMut(Progress)> Run<P> {
    /// The failed object that `object`, a binding, would need.
    fn missing(&self, object: Object<'_>) -> Option<ObjectName> {
        let Object::Binding(binding) = object else {
            return None;
        };
        let needs = [binding.source.as_str(), binding.destination_name()];
        self.report
            .failures
            .iter()
            .map(|f| &f.object)
            .find(|o| needs.contains(&o.name.as_str()))
            .cloned()
    }

    fn record(&mut self, object: Object<'_>, outcome: Result<Outcome, ObjectName>) {
        let name = object.name();
        let cause = match outcome {
            Ok(Outcome::Declared) => None,
            Ok(Outcome::Refused(text) | Outcome::Missing(text)) => {
                Some(Conflict::parse(&name, &text).map_or(Cause::Refused(text), Cause::Conflict))
            }
            Err(missing) => {
                self.report.skipped.push(Skipped {
                    object: name.clone(),
                    missing,
                });
                None
            }
        };
        self.report
            .failures
            .extend(cause.map(|cause| Failure { object: name, cause }));
        self.done += 1;
        (self.progress)(Progress {
            done: self.done,
            total: self.total,
        });
    }
}
