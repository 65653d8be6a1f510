//! Files → model: what the texts mean, and every reason why they can't be meant.
//!
//! Errors are collected, not returned one by one, so that a team fixes its file in one go. A queue with an error
//! takes part in the check for duplicates all the same. Imports `core`, the files and the model; pure.

use std::collections::{BTreeMap, HashMap};

use tidegate_core::{
    names::{LADDER_VERSIONS, Names},
    policy::RetryPolicy,
};

use super::{
    errors::{FileError, FileWarning, TopologyErrors},
    files::{Defaults, PlatformFile, QueueEntry, Source, TaskTypeEntry, TeamFile},
    model::{BusinessQueue, FixedDelay, Topology},
    overlap::{self, Bound},
    reader::{MAX_DELIVERY_LIMIT, QueueDefaults, Reader},
    task_type::TaskTypePolicy,
};

/// Most business queues, high lanes included: each is a Raft group, and brokers suffer from many thousands.
const MAX_QUEUES: usize = 5_000;
/// `x-delivery-limit` where nobody says otherwise.
const DELIVERY_LIMIT: u32 = 20;

/// The topology that the files describe.
pub(super) fn topology(sources: Vec<Source>) -> Result<Topology, TopologyErrors> {
    let mut errors = Vec::new();
    let platform = platform(&sources, &mut errors);
    let mut seen = Seen::default();
    let mut queues = Vec::new();
    let mut bound = Vec::new();
    let mut typed = Vec::new();
    for source in sources.iter().filter(|s| !s.is_platform()) {
        let TeamFile {
            queues: tables,
            task_types,
        } = source.team(&mut errors);
        typed.extend(task_types.into_iter().map(|entry| (source, entry)));
        for entry in tables {
            seen.queue(source, &entry, &mut errors);
            queues.push(
                Reader {
                    source,
                    names: &platform.names,
                    errors: &mut errors,
                }
                .queue(&entry, &platform.queues),
            );
            bound.push(Bound { source, entry });
        }
    }
    let total = queues.len() + queues.iter().filter(|q| q.high_lane.is_some()).count();
    if total > MAX_QUEUES {
        let file = sources
            .first()
            .and_then(|s| s.path.parent())
            .map(Into::into)
            .unwrap_or_default();
        let message = format!(
            "{total} queues with their high lanes, at most {MAX_QUEUES}: merge queues of one owner and policy"
        );
        errors.push(FileError {
            file,
            line: 0,
            message,
        });
    }
    let types = types(&typed, &platform.names, &queues, &mut errors);
    if errors.is_empty() {
        let mut warnings = overlap::warnings(&queues, &bound);
        warnings.extend(strays(&typed, &queues));
        warnings.sort();
        Ok(Topology {
            names: platform.names,
            queues,
            types,
            fixed_delays: platform.fixed_delays,
            warnings,
        })
    } else {
        errors.sort();
        Err(TopologyErrors(errors))
    }
}

/// Types that no queue takes: with a slip in its name, a policy holds for nothing.
fn strays(typed: &[(&Source, TaskTypeEntry)], queues: &[BusinessQueue]) -> Vec<FileWarning> {
    let stray = |(source, entry): &(&Source, TaskTypeEntry)| {
        let name = entry.name.get_ref();
        let message = format!(
            "no queue takes tasks of type {name:?}: correct the name, or, if they come by another routing key, name the type \
             in task_types of their queue"
        );
        (!queues.iter().any(|queue| queue.takes(name))).then(|| FileWarning {
            place: source.place(entry.name.span().start),
            message,
            other: None,
        })
    };
    typed.iter().filter_map(stray).collect()
}

/// The types' own policies. A type may be described once only: two teams would each believe in theirs.
fn types(
    typed: &[(&Source, TaskTypeEntry)],
    names: &Names,
    queues: &[BusinessQueue],
    errors: &mut Vec<FileError>,
) -> BTreeMap<String, TaskTypePolicy> {
    let mut types = BTreeMap::new();
    let mut seen: HashMap<&str, (&Source, usize)> = HashMap::new();
    for (source, entry) in typed {
        let mut reader = Reader {
            source,
            names,
            errors,
        };
        let policy = reader.task_type(entry, queues);
        let at = entry.name.span().start;
        if let Some((first, offset)) = seen.insert(entry.name.get_ref(), (source, at)) {
            let place = format!("{}:{}", first.path.display(), first.line(offset));
            let message = format!(
                "task type {:?} is already described at {place}: merge the two",
                policy.name
            );
            reader.error(&entry.name, message);
        }
        types.insert(policy.name.clone(), policy);
    }
    types
}

/// What holds for all teams.
struct Platform {
    names: Names,
    queues: QueueDefaults,
    fixed_delays: Vec<FixedDelay>,
}

fn platform(sources: &[Source], errors: &mut Vec<FileError>) -> Platform {
    let mut found = Platform {
        names: Names::default(),
        queues: QueueDefaults {
            retry: RetryPolicy::standard(),
            delivery_limit: DELIVERY_LIMIT,
            consumer_timeout: None,
        },
        fixed_delays: Vec::new(),
    };
    let Some(source) = sources.iter().find(|s| s.is_platform()) else {
        return found;
    };
    let PlatformFile {
        prefix,
        ladder_version,
        defaults,
        fixed_delays,
    } = source.platform(errors);
    let Defaults {
        retry,
        delivery_limit,
        consumer_timeout,
    } = defaults;
    if let Some(prefix) = prefix {
        match Names::new(prefix.get_ref()) {
            Ok(names) => found.names = names,
            Err(e) => errors.push(source.error(prefix.span().start, e.to_string())),
        }
    }
    let names = found.names.clone();
    let mut reader = Reader {
        source,
        names: &names,
        errors,
    };
    let (first, last) = (*LADDER_VERSIONS.start(), *LADDER_VERSIONS.end());
    let version = reader.whole(
        "ladder_version",
        ladder_version.as_ref(),
        first.into(),
        last.into(),
    );
    found.names = names.for_ladder(version.and_then(|n| u8::try_from(n).ok()).unwrap_or(first));
    found.queues.consumer_timeout = reader.consumer_timeout(consumer_timeout.as_ref());
    found.queues.retry = reader.retry(retry.as_ref(), &RetryPolicy::standard());
    let limit = reader.whole(
        "delivery_limit",
        delivery_limit.as_ref(),
        1,
        MAX_DELIVERY_LIMIT.into(),
    );
    found.queues.delivery_limit = limit
        .and_then(|n| u32::try_from(n).ok())
        .unwrap_or(DELIVERY_LIMIT);
    let mut lines = HashMap::new();
    for entry in &fixed_delays {
        let name = entry.name.get_ref();
        let line = source.line(entry.name.span().start);
        if let Some(first) = lines.insert(name.clone(), line) {
            reader.error(
                &entry.name,
                format!("fixed delay {name:?} is already at line {first}: drop one"),
            );
        }
        found.fixed_delays.extend(reader.fixed_delay(entry));
    }
    found
}

/// Where each queue name, high lanes included, was seen first.
#[derive(Default)]
struct Seen<'a>(HashMap<String, (&'a Source, usize)>);

impl<'a> Seen<'a> {
    fn queue(&mut self, source: &'a Source, entry: &QueueEntry, errors: &mut Vec<FileError>) {
        let name = entry.name.get_ref();
        let at = entry.name.span().start;
        let lane = entry.high_lane.is_some().then(|| Names::high_lane(name));
        for taken in std::iter::once(name.clone()).chain(lane) {
            let Some((first, offset)) = self.0.get(&taken) else {
                self.0.insert(taken, (source, at));
                continue;
            };
            let what = if taken == *name { "queue" } else { "high lane" };
            let place = format!("{}:{}", first.path.display(), first.line(*offset));
            let message = format!("{what} {taken:?} is already declared at {place}: rename or drop one");
            errors.push(source.error(at, message));
        }
    }
}
