//! The typed topology and the questions that publishing and consuming ask it. Imports only `core`.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    time::Duration,
};

use tidegate_core::{names::Names, policy::RetryPolicy, task::TaskType, topic::Pattern};

use super::{
    errors::{FileWarning, TopologyErrors},
    files::{self, Source},
    resolve,
    task_type::TaskTypePolicy,
};

/// The whole topology of one platform.
#[derive(Clone, Debug)]
pub struct Topology {
    /// Names under the platform's prefix, with the ladder's generation that is published to.
    pub names: Names,
    /// Business queues, in the order of the files.
    pub queues: Vec<BusinessQueue>,
    /// What teams say about task types, by name; a type may be missing.
    pub types: BTreeMap<String, TaskTypePolicy>,
    /// Fixed delays for producers with no SDK.
    pub fixed_delays: Vec<FixedDelay>,
    /// What in the files may be a mistake, in the order of files and lines.
    pub warnings: Vec<FileWarning>,
}

/// A business queue as its team describes it.
#[derive(Clone, Debug)]
pub struct BusinessQueue {
    /// Name, e.g. `order.close.queue`.
    pub name: String,
    /// Binding patterns on `task.exchange`.
    pub bind: Vec<Pattern>,
    /// Owning team.
    pub owner: String,
    /// Task types that this queue carries, by name; they may appear as metric labels.
    pub task_types: Vec<String>,
    /// Retry policy.
    pub retry: RetryPolicy,
    /// Priority at or above which a task takes the high lane, where the queue has one.
    pub high_lane: Option<u8>,
    /// `x-delivery-limit`.
    pub delivery_limit: u32,
    /// `x-max-length`, where limited; publishes beyond it are refused.
    pub max_length: Option<u64>,
    /// `x-single-active-consumer`.
    pub single_active_consumer: bool,
    /// How long a consumer may keep a delivery before the broker takes it back, where that is stated; a policy.
    pub consumer_timeout: Option<Duration>,
    /// The longest `timeoutMs` that its tasks carry, as far as its team knows.
    pub max_timeout: Option<Duration>,
    /// Whether it takes copies of other queues' tasks on purpose.
    pub fan_out: bool,
}

impl BusinessQueue {
    /// Whether tasks of this type come here: by their type as the routing key, or because the queue names the type.
    pub fn takes(&self, task_type: &str) -> bool {
        self.bind.iter().any(|pattern| pattern.matches(task_type))
            || self.task_types.iter().any(|name| name == task_type)
    }
}

/// A delay queue of one fixed TTL that ends in `task.exchange`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixedDelay {
    /// Name after `task.delay.`, e.g. `30m`.
    pub name: String,
    /// The delay, in whole milliseconds.
    pub ttl: Duration,
}

/// Which lane of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// `<queue>`, reached through `task.exchange`.
    Normal,
    /// `<queue>.high`, reached through `task.exchange.high`.
    High,
}

impl Topology {
    /// Reads `platform.toml`, which must be there, and every other `*.toml` of `dir`.
    ///
    /// # Errors
    /// Everything wrong in any of the files, each with file and line.
    pub fn load(dir: &Path) -> Result<Self, TopologyErrors> {
        resolve::topology(files::read_dir(dir)?)
    }

    /// The topology of files that are already in memory, as (file name, text). Without a `platform.toml` among
    /// them the platform has its defaults.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn parse(files: &[(&str, &str)]) -> Result<Self, TopologyErrors> {
        let source = |(path, text): &(&str, &str)| Source {
            path: path.into(),
            text: (*text).to_owned(),
        };
        resolve::topology(files.iter().map(source).collect())
    }

    /// The business queue that `name` (a queue or its high lane) belongs to.
    pub fn queue(&self, name: &str) -> Option<(&BusinessQueue, Lane)> {
        self.queues.iter().find_map(|q| {
            if q.name == name {
                Some((q, Lane::Normal))
            } else if q.high_lane.is_some() && Names::high_lane(&q.name) == name {
                Some((q, Lane::High))
            } else {
                None
            }
        })
    }

    /// The business queues that a routing key reaches.
    pub fn routes<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a BusinessQueue> {
        self.queues
            .iter()
            .filter(move |q| q.bind.iter().any(|pattern| pattern.matches(key)))
    }

    /// The lane for a task of this key and priority: high if any queue it reaches says so.
    pub fn lane(&self, key: &str, priority: u8) -> Lane {
        let high = self
            .routes(key)
            .any(|q| q.high_lane.is_some_and(|threshold| priority >= threshold));
        if high { Lane::High } else { Lane::Normal }
    }

    /// The retry policy of a task in `queue`: the queue's, with what its type changes.
    pub fn retry(&self, queue: &BusinessQueue, task_type: Option<&str>) -> RetryPolicy {
        let own = task_type.and_then(|name| self.types.get(name));
        // A change that doesn't go with the policies of the queues its type reaches was refused by `resolve`.
        own.and_then(|own| own.retry.over(&queue.retry).ok())
            .unwrap_or(queue.retry)
    }

    /// Task types named by queues, by tables of their own or by bindings without wildcards: the ones that may be
    /// metric labels.
    pub fn task_types(&self) -> BTreeSet<String> {
        let named = self.queues.iter().flat_map(|q| q.task_types.iter().cloned());
        let named = named.chain(self.types.keys().cloned());
        let bound = self.queues.iter().flat_map(|q| &q.bind).map(Pattern::as_str);
        named
            .chain(
                bound
                    .filter(|key| TaskType::parse(key).is_ok())
                    .map(str::to_owned),
            )
            .collect()
    }
}
