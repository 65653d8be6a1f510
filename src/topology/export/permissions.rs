//! Who may do what on the broker: the smallest permissions with which each role does its work.
//!
//! RabbitMQ's permissions are three regular expressions per user and virtual host, for the names that it may configure,
//! write to and read from. They are derived from the topology, so that a new queue can't be forgotten in them. Every
//! generation of the ladder is in them: a step from one to the next needs no new permission.

use std::collections::BTreeMap;

use tidegate_core::{
    ladder,
    names::{LADDER_VERSIONS, Names},
};

use super::super::{model::Topology, policies::escape};

/// What a user of the broker is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// Applies and migrates the topology.
    Operator,
    /// Runs `tidegate serve`.
    Serve,
    /// Publishes tasks, now or delayed.
    Service,
    /// Runs tasks from the queues of this owner.
    Worker(String),
}

/// What a role needs, as regular expressions that match whole names; `^$` matches none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permissions {
    /// Who.
    pub role: Role,
    /// Names that it may declare and delete.
    pub configure: String,
    /// Names that it may publish to, and bind.
    pub write: String,
    /// Names that it may consume, and bind from.
    pub read: String,
}

impl Role {
    /// The role as a word; of a worker also its owner.
    pub fn name(&self) -> String {
        match self {
            Self::Operator => "operator".to_owned(),
            Self::Serve => "serve".to_owned(),
            Self::Service => "service".to_owned(),
            Self::Worker(owner) => format!("worker of {owner}"),
        }
    }

    /// A user's name that fits.
    fn user(&self) -> String {
        match self {
            Self::Operator => "tidegate-operator".to_owned(),
            Self::Serve => "tidegate-serve".to_owned(),
            Self::Service => "SERVICE".to_owned(),
            Self::Worker(owner) => owner.clone(),
        }
    }
}

/// The permissions of each role, workers by owner.
pub fn permissions(topology: &Topology) -> Vec<Permissions> {
    let names = &topology.names;
    let exchanges = [names.exchange(), names.exchange_high()];
    let inside = [names.failed(), names.ingress(), names.unrouted()].map(|e| Names::queue_of(&e));
    let fixed = topology
        .fixed_delays
        .iter()
        .map(|delay| names.fixed_delay(&delay.name));
    let ladder = ladder_exchanges(names);
    let mut found = vec![
        operator(topology),
        Permissions {
            role: Role::Serve,
            configure: none(),
            write: any(
                exchanges.iter().chain([&names.dead()]).map(|name| escape(name)),
                &[&ladder],
            ),
            read: any(inside.iter().map(|name| escape(name)), &[]),
        },
        Permissions {
            role: Role::Service,
            configure: none(),
            write: any(
                exchanges
                    .into_iter()
                    .chain([names.ingress()])
                    .chain(fixed)
                    .map(|name| escape(&name)),
                &[&ladder],
            ),
            read: none(),
        },
    ];
    let mut owners: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for queue in &topology.queues {
        let read = owners.entry(&queue.owner).or_default();
        read.push(escape(&queue.name));
        if queue.high_lane.is_some() {
            read.push(escape(&Names::high_lane(&queue.name)));
        }
    }
    found.extend(owners.into_iter().map(|(owner, queues)| Permissions {
        role: Role::Worker(owner.to_owned()),
        configure: none(),
        write: any([escape(&names.dead())], &[&ladder]),
        read: any(queues, &[]),
    }));
    found
}

/// All of the platform's names and all that begin with a business queue's, such as those of a migration under way.
/// Queues that the broker names are the ones that `publish` and `verify` look with.
fn operator(topology: &Topology) -> Permissions {
    let platform = format!(r"{}\..+", escape(topology.names.prefix()));
    let queues = topology
        .queues
        .iter()
        .map(|queue| format!(r"{}(\..+)?", escape(&queue.name)));
    let all = any(queues, &[&platform, r"amq\.gen-.+"]);
    Permissions {
        role: Role::Operator,
        configure: all.clone(),
        write: all.clone(),
        read: all,
    }
}

/// The ladder's exchanges, of every generation; not its queues.
fn ladder_exchanges(names: &Names) -> String {
    let (first, last) = LADDER_VERSIONS.into_inner();
    let levels = ladder::LEVELS - 1;
    // Spelt out, and held to `Names` by a test: a name can't be taken apart, as the prefix may hold any of its words.
    format!(
        r"{}\.delay\.v[{first}-{last}]\.([0-{levels}]|due)",
        escape(names.prefix())
    )
}

fn any(names: impl IntoIterator<Item = String>, more: &[&str]) -> String {
    let mut names: Vec<String> = names.into_iter().collect();
    names.extend(more.iter().map(|&more| more.to_owned()));
    format!("^({})$", names.join("|"))
}

fn none() -> String {
    "^$".to_owned()
}

/// The permissions as calls of `rabbitmqctl`, for a shell. Users must exist; their names are proposals.
pub fn set_permissions(topology: &Topology, vhost: Option<&str>) -> String {
    let vhost = vhost.unwrap_or("/");
    let mut text = String::new();
    for granted in permissions(topology) {
        text.push_str(&format!("# {}\n", granted.role.name()));
        let words = [
            vhost,
            &granted.role.user(),
            &granted.configure,
            &granted.write,
            &granted.read,
        ]
        .map(quoted);
        text.push_str(&format!("rabbitmqctl set_permissions -p {}\n", words.join(" ")));
    }
    text
}

/// `text` as one word of a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}
