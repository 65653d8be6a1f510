//! Looks at an installation as configured and says what is wrong. Changes nothing anywhere.
//!
//! Facts are gathered here, a file per server; what they mean is decided in `core::doctor`, and for a plan in `plan`.
//! May import: `broker`, `store`, `topology`, core, tokio's network.
//!
//! Every question has a limit and every server too, so that the whole ends within 28 s, whatever hangs. What a server
//! could not be asked is told as not looked at; one that did not end in time is an error.

mod amqp;
mod database;
mod management;
mod network;
mod plan;
mod rows;
pub mod target;

use std::{path::PathBuf, sync::Arc, time::Duration};

use tidegate_core::doctor::{
    Cause, Finding, Part, Report, Severity,
    reach::{self, Target},
    timeouts::{self, Queue},
};
use tokio::time::timeout;

use crate::{
    broker::{BrokerSettings, management::Management},
    store::Store,
    topology::{Topology, TopologyErrors},
};

/// Longest wait for one question: a name, a connection, a hand-shake, an answer.
pub const ANSWER: Duration = Duration::from_secs(5);
/// Longest look at one server; all are looked at at once.
const SERVER: Duration = Duration::from_secs(18);
/// Longest look at exchanges and queues by AMQP, after that.
const OBJECTS: Duration = Duration::from_secs(8);
/// What is looked at; what is `None` is not configured.
#[derive(Debug)]
pub struct Installation {
    /// The broker.
    pub broker: Option<(Target, BrokerSettings)>,
    /// The broker's management API.
    pub management: Option<(Target, Management)>,
    /// The ledger; without host and port where it is a Unix socket.
    pub database: Option<(Target, Store)>,
    /// The topology files; `None` if none are named and none are at the default place.
    pub topology: Option<Result<Arc<Topology>, TopologyErrors>>,
    /// Their directory.
    pub topology_dir: PathBuf,
}

/// Looks at all of it.
pub async fn examine(installation: &Installation) -> Report {
    let mut report = Report::default();
    let topology = topology_files(installation, &mut report);
    let (mut of_broker, mut of_management, mut of_database) =
        (Report::default(), Report::default(), Report::default());
    let (connection, live, schedules) = tokio::join!(
        timeout(SERVER, amqp::look(&installation.broker, &mut of_broker)),
        timeout(
            SERVER,
            management::look(&installation.management, &mut of_management)
        ),
        timeout(SERVER, database::look(&installation.database, &mut of_database)),
    );
    // Of a look that was cut short there is what it had found until then.
    let late = [
        (connection.is_err(), Part::Broker, "the broker", &mut of_broker),
        (
            live.is_err(),
            Part::Management,
            "the management API",
            &mut of_management,
        ),
        (
            schedules.is_err(),
            Part::Database,
            "the database",
            &mut of_database,
        ),
    ];
    for (is_late, part, what, report) in late {
        if is_late {
            let place = installation.place(part);
            report.push(reach::too_slow(part, what, SERVER, place));
        }
    }
    if let (Ok(Some(_)), Some((target, _))) = (&connection, &installation.management) {
        management::not_shown(target, &mut of_management);
    }
    let (connection, live, schedules) = (
        connection.ok().flatten(),
        live.ok().flatten(),
        schedules.ok().flatten(),
    );
    for part in [of_broker, of_management, of_database] {
        report.append(part);
    }
    if let Some(topology) = topology {
        let looked = objects(topology, installation, live, connection.as_ref(), &mut report);
        if timeout(OBJECTS, looked).await.is_err() {
            let place = installation.place(Part::Broker);
            report.push(reach::too_slow(Part::Topology, "the broker", OBJECTS, place));
        }
        if let Some(schedules) = schedules {
            report.append(rows::schedules(&schedules, topology, installation));
        }
    }
    if let Some(connection) = connection {
        // What was seen was seen, whether or not the broker says good-bye.
        let _ = timeout(Duration::from_secs(1), connection.close(200, "looked".into())).await;
    }
    report
}

impl Installation {
    /// Where `part` is, without a password; its name where it is not configured.
    fn place(&self, part: Part) -> &str {
        let target = match part {
            Part::Broker => self.broker.as_ref().map(|(target, _)| target),
            Part::Management => self.management.as_ref().map(|(target, _)| target),
            Part::Database => self.database.as_ref().map(|(target, _)| target),
            Part::Topology | Part::Settings => None,
        };
        target.map_or(part.as_str(), |target| target.place.as_str())
    }
}

/// The topology, with what can be said of it without a broker.
fn topology_files<'a>(installation: &'a Installation, report: &mut Report) -> Option<&'a Topology> {
    let dir = installation.topology_dir.display().to_string();
    let topology = match &installation.topology {
        None => {
            report.unseen(
                "the topology, and what of it is on the broker",
                format!("there is no directory {dir:?}; name it by topology.dir (TIDEGATE_TOPOLOGY_DIR)"),
            );
            return None;
        }
        Some(Ok(topology)) => topology,
        Some(Err(errors)) => {
            for error in &errors.0 {
                let found = Finding::ok(Part::Topology, "files", error.message.as_str(), place(error));
                report.push(found.bad(
                    Severity::Error(Cause::Settings),
                    "correct the file, or name another directory by topology.dir (TIDEGATE_TOPOLOGY_DIR)",
                ));
            }
            report.unseen(
                "what of the topology is on the broker",
                "the topology files can't be used",
            );
            return None;
        }
    };
    for warning in &topology.warnings {
        let found = Finding::ok(
            Part::Topology,
            "files",
            warning.message.as_str(),
            warning.place.to_string(),
        );
        report.push(found.bad(
            Severity::Warning,
            "correct the file, or state there that it is meant",
        ));
    }
    let queues: Vec<Queue> = topology
        .queues
        .iter()
        .map(|queue| Queue {
            name: queue.name.clone(),
            max_timeout: queue.max_timeout,
            consumer_timeout: queue.consumer_timeout,
        })
        .collect();
    let too_long = timeouts::timeouts(&queues);
    if topology.warnings.is_empty() && too_long.is_empty() {
        let what = format!("the topology files are sound: {} business queues", queues.len());
        report.push(Finding::ok(Part::Topology, "files", what, dir));
    }
    too_long.into_iter().for_each(|finding| report.push(finding));
    Some(topology)
}

fn place(error: &crate::topology::FileError) -> String {
    match error.line {
        0 => error.file.display().to_string(),
        line => format!("{}:{line}", error.file.display()),
    }
}

/// What of the topology exists: by the management API all, by AMQP whether exchanges and queues are there.
async fn objects(
    topology: &Topology,
    installation: &Installation,
    live: Option<management::Seen>,
    connection: Option<&crate::broker::connection::Connection>,
    report: &mut Report,
) {
    let wanted = topology.objects();
    if let (Some(seen), Some((target, _))) = (live, &installation.management) {
        let scope = topology.scope(&target.inside, &seen.live);
        let plan = crate::topology::plan::plan(&wanted, &seen.live, &scope);
        report.append(plan::findings(&plan, &target.place));
        report.append(rows::unrouted(&seen.live, topology, &target.place));
        return;
    }
    let (Some(connection), Some((target, _))) = (connection, &installation.broker) else {
        report.unseen("what of the topology is on the broker", "no broker is reached");
        return;
    };
    match amqp::missing(connection, &wanted).await {
        Ok(missing) => {
            let plan = crate::topology::plan::plan_of_missing(&wanted, &missing);
            report.append(plan::findings(&plan, &target.place));
        }
        Err(why) => report.unseen("what of the topology is on the broker", why),
    }
}
