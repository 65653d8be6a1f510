//! Older generations of the delay ladder on the broker, and how one is taken down once nothing waits in it. Pure.
//!
//! A delay is never moved to another generation: it would begin anew. So a generation stays until its queues are empty,
//! and then goes from the top: without the exchange of a level nothing new enters its queues, and once these are empty
//! nothing comes down to the level below.

use std::collections::BTreeMap;

use tidegate_core::names::Names;

use crate::topology::live::Live;

/// A generation that is no longer published to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generation {
    /// Its number.
    pub version: u8,
    /// What is left of its levels, highest first.
    pub levels: Vec<Level>,
    /// The exchange at its end, where it is left.
    pub due: Option<String>,
}

/// What is left of a level.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Level {
    /// Its number; 0 is the last.
    pub level: u8,
    /// Its exchange.
    pub exchange: Option<String>,
    /// Its delay queues.
    pub queues: Vec<String>,
}

/// What comes next for a generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Wait until all these queues are empty.
    Wait(Vec<String>),
    /// Delete this exchange.
    DeleteExchange(String),
    /// Delete this queue, which is empty.
    DeleteQueue(String),
    /// Nothing is left of it.
    Gone,
}

/// The generations before that of `names`, oldest first.
pub fn older(live: &Live, names: &Names) -> Vec<Generation> {
    let mut found: BTreeMap<u8, (BTreeMap<u8, Level>, Option<String>)> = BTreeMap::new();
    for exchange in &live.exchanges {
        let Some((version, rest)) = part(&exchange.name, names) else {
            continue;
        };
        if rest == "due" {
            found.entry(version).or_default().1 = Some(exchange.name.clone());
        } else if let Ok(level) = rest.parse() {
            let levels = &mut found.entry(version).or_default().0;
            levels.entry(level).or_default().exchange = Some(exchange.name.clone());
        }
    }
    for queue in &live.queues {
        let level = part(&queue.name, names).and_then(|(version, rest)| {
            let (level, _digit) = rest.split_once('.')?;
            Some((version, level.parse().ok()?))
        });
        if let Some((version, level)) = level {
            let levels = &mut found.entry(version).or_default().0;
            levels.entry(level).or_default().queues.push(queue.name.clone());
        }
    }
    found
        .into_iter()
        .map(|(version, (levels, due))| Generation {
            version,
            levels: levels
                .into_iter()
                .rev()
                .map(|(level, left)| Level { level, ..left })
                .collect(),
            due,
        })
        .collect()
}

/// Generation and rest of the name of a ladder object of an older generation.
fn part<'a>(name: &'a str, names: &Names) -> Option<(u8, &'a str)> {
    let ladder = name.strip_prefix(names.prefix())?.strip_prefix(".delay.v")?;
    let (version, rest) = ladder.split_once('.')?;
    let version = version.parse().ok()?;
    (version < names.ladder_version()).then_some((version, rest))
}

impl Generation {
    /// All its queues, highest level first.
    pub fn queues(&self) -> Vec<String> {
        self.levels
            .iter()
            .flat_map(|level| level.queues.clone())
            .collect()
    }

    /// What to do now, if the queues of `empty` were seen to be empty since the last deletion. Before anything is
    /// deleted all queues have to be empty at once: one that isn't may mean that somebody still publishes here.
    pub fn next(&self, empty: &[String], begun: bool) -> Step {
        let all = self.queues();
        if !begun && !all.iter().all(|queue| empty.contains(queue)) {
            return Step::Wait(all);
        }
        for level in &self.levels {
            if let Some(exchange) = &level.exchange {
                return Step::DeleteExchange(exchange.clone());
            }
            if let Some(queue) = level.queues.first() {
                return if level.queues.iter().all(|queue| empty.contains(queue)) {
                    Step::DeleteQueue(queue.clone())
                } else {
                    Step::Wait(level.queues.clone())
                };
            }
        }
        self.due.clone().map_or(Step::Gone, Step::DeleteExchange)
    }
}
