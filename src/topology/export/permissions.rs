//! Who may do what on the broker: the smallest permissions with which each role does its work.
//!
//! RabbitMQ's permissions are three regular expressions per user and virtual host, for the names that it may configure,
//! write to and read from. They are derived from the topology, so that a new queue can't be forgotten in them. Every
//! generation of the ladder is in them: a step from one to the next needs no new permission.
//!
//! From 4.3 on such an expression has at most 1,024 bytes. Where the names don't fit one by one, a role gets every name
//! below a prefix that is its own alone.

use std::collections::BTreeSet;

use tidegate_core::{
    ladder,
    names::{LADDER_VERSIONS, Names},
};

use super::super::{model::Topology, objects::Objects, policies::escape, verify::PROBE_QUEUE};

/// Longest expression that every supported broker takes, in bytes.
pub const MAX_PATTERN_BYTES: usize = 1024;

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

impl Permissions {
    /// Whether every supported broker takes all three. If not, the owner has too many queues under too many names for one
    /// user: several users, or names with a common first word, would do.
    pub fn fit(&self) -> bool {
        [&self.configure, &self.write, &self.read]
            .iter()
            .all(|pattern| pattern.len() <= MAX_PATTERN_BYTES)
    }
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
                exchanges
                    .iter()
                    .chain([&names.dead(), &names.ingress()])
                    .map(|name| escape(name)),
                &[&ladder],
            ),
            read: any(read_by_serve(names).iter().map(|name| escape(name)), &[]),
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
    let owners: BTreeSet<&str> = topology.queues.iter().map(|queue| queue.owner.as_str()).collect();
    found.extend(owners.into_iter().map(|owner| Permissions {
        role: Role::Worker(owner.to_owned()),
        configure: none(),
        write: any([escape(&names.dead())], &[&ladder]),
        read: queues_of(topology, owner),
    }));
    found
}

/// The platform queues that router and archivist read.
fn read_by_serve(names: &Names) -> [String; 4] {
    [names.failed(), names.ingress(), names.unrouted(), names.dead()]
        .map(|exchange| Names::queue_of(&exchange))
}

/// The objects that `serve` publishes to or reads: what it may look for, and what it can't work without.
pub fn used_by_serve(topology: &Topology) -> Objects {
    let names = &topology.names;
    let queues = read_by_serve(names);
    let mut exchanges = vec![
        names.exchange(),
        names.exchange_high(),
        names.dead(),
        names.ladder_due(),
    ];
    exchanges.extend((0..ladder::LEVELS).map(|level| names.ladder_exchange(level)));
    let mut objects = topology.objects();
    objects
        .exchanges
        .retain(|exchange| exchanges.contains(&exchange.name));
    objects.queues.retain(|queue| queues.contains(&queue.name));
    objects.bindings.clear();
    objects.policies.clear();
    objects
}

/// The queues of an owner: one by one where they fit, else by prefixes that no other owner's queue has.
fn queues_of(topology: &Topology, owner: &str) -> String {
    let (own, others): (Vec<_>, Vec<_>) = topology.queues.iter().partition(|queue| queue.owner == owner);
    let lanes = own.iter().flat_map(|queue| {
        let lane = queue.high_lane.map(|_| Names::high_lane(&queue.name));
        std::iter::once(queue.name.clone()).chain(lane)
    });
    let exact = any(lanes.map(|name| escape(&name)), &[]);
    if exact.len() <= MAX_PATTERN_BYTES {
        return exact;
    }
    let taken: BTreeSet<&str> = others.iter().flat_map(|queue| prefixes(&queue.name)).collect();
    let free: BTreeSet<&str> = own
        .iter()
        .map(|queue| {
            prefixes(&queue.name)
                .find(|prefix| !taken.contains(prefix))
                .unwrap_or(&queue.name)
        })
        .collect();
    any(free.into_iter().map(below), &[])
}

/// The first word of `name`, the first two, and so on up to the whole.
fn prefixes(name: &str) -> impl Iterator<Item = &str> {
    let ends = name.match_indices('.').map(|(at, _)| at).chain([name.len()]);
    ends.map(|end| &name[..end])
}

/// `name` and all that begins with it and a dot.
fn below(name: &str) -> String {
    format!(r"{}(\..+)?", escape(name))
}

/// All of the platform's names and all that begin with a business queue's, such as those of a migration under way. Queues
/// that the broker names are the ones that `publish` looks with, and `verify` has its own.
fn operator(topology: &Topology) -> Permissions {
    let platform = format!(r"{}\..+", escape(topology.names.prefix()));
    let queues = topology.queues.iter().map(|queue| below(&queue.name));
    let temporary = r"amq\.gen-.+";
    let mut all = any(
        queues,
        &[&platform, temporary, &format!(r"{}\..+", escape(PROBE_QUEUE))],
    );
    if all.len() > MAX_PATTERN_BYTES {
        // Everything but the broker's own.
        all = format!(r"^((?!amq\.).+|{temporary})$");
    }
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
        if !granted.fit() {
            text.push_str(&format!(
                "# too many queues under too many names for one user: an expression has at most {MAX_PATTERN_BYTES} \
                 bytes; give the team several users, or its queues a common first word\n"
            ));
            continue;
        }
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
