//! What became of every task and every key, against the plan.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::{self, Write},
};

use sqlx::PgPool;

use super::{
    marks::{self, What},
    plan::{CREDIT, Plan, Planned, number},
    staff::Life,
    worker::CONCURRENCY,
};
use crate::consumer::{Arrival, Arrivals};

/// The tables when everything is at rest, by number.
pub(super) struct Ledger {
    /// Keys that are on record: of `soak.credit`, and whether they are done.
    keys: BTreeMap<u32, (bool, bool)>,
    /// Effects of `soak.credit`, by key.
    effects: BTreeMap<u32, i64>,
}

impl Ledger {
    pub(super) async fn read(sql: &PgPool) -> Self {
        let keys: Vec<(i64, bool, bool)> = sqlx::query_as(
            "SELECT idempotency_key::bigint, task_type = $1, state = 'DONE' FROM tidegate.executions",
        )
        .bind(CREDIT)
        .fetch_all(sql)
        .await
        .unwrap();
        let effects: Vec<(i64, i64)> = sqlx::query_as("SELECT key, count(*) FROM soak_effects GROUP BY key")
            .fetch_all(sql)
            .await
            .unwrap();
        let number = |key: i64| u32::try_from(key).unwrap();
        Self {
            keys: keys
                .into_iter()
                .map(|(key, credit, done)| (number(key), (credit, done)))
                .collect(),
            effects: effects
                .into_iter()
                .map(|(key, count)| (number(key), count))
                .collect(),
        }
    }
}

pub(super) struct Books<'a> {
    pub(super) plan: Plan,
    /// All numbers below this one were confirmed.
    pub(super) published: u32,
    pub(super) ledger: &'a Ledger,
    pub(super) lives: &'a [Life],
    pub(super) dead: &'a Arrivals,
}

/// Every count; the lists of what went wrong are empty if all is well.
#[derive(Default)]
pub(super) struct Verdict {
    wrong: BTreeMap<&'static str, Vec<String>>,
    rows: Vec<(String, String)>,
}

const LOST: &str = "confirmed and neither succeeded nor dead";
const BOTH: &str = "succeeded and dead";
const BYSTANDERS: &str = "too many dead though nothing was wrong with them";
const REASON: &str = "dead for the wrong reason";
const WRONGLY: &str = "succeeded though they fail";
const FOREIGN: &str = "keys and dead letters that nobody sent";
const HELD: &str = "keys still claimed";
const WITHOUT: &str = "keys done without an effect";
const DOUBLE: &str = "effects in a transaction other than once";
const REPEATED: &str = "effects repeated though nobody was killed over them";

/// At most one of so many healthy tasks may die with its workers, or a few of those at the head of the queue, which every
/// kill and every closed connection takes from a worker again.
const BYSTANDERS_ONE_IN: usize = 1_000;
const BYSTANDERS_AT_HEAD: usize = 10;

fn is_crash(letter: &Arrival) -> bool {
    matches!(letter.reason.as_deref(), Some("worker_crash" | "delivery_limit"))
}

impl Books<'_> {
    pub(super) fn close(&self) -> Verdict {
        let mut verdict = Verdict::default();
        for kind in [
            LOST, BOTH, BYSTANDERS, REASON, WRONGLY, FOREIGN, HELD, WITHOUT, DOUBLE, REPEATED,
        ] {
            verdict.wrong.insert(kind, Vec::new());
        }
        self.ids(&mut verdict);
        self.strangers(&mut verdict);
        self.effects(&mut verdict);
        verdict
    }

    fn planned(&self) -> impl Iterator<Item = Planned> {
        (0..self.published).map(|n| self.plan.task(n))
    }

    fn is_done(&self, planned: &Planned) -> bool {
        let of_type = planned.task_type == CREDIT;
        self.ledger.keys.get(&planned.key) == Some(&(of_type, true))
    }

    /// Published = succeeded ∪ dead, and each as planned. A duplicate has succeeded when its key has.
    fn ids(&self, verdict: &mut Verdict) {
        let (mut succeeded, mut dead, mut duplicates, mut copies) = (0, 0, 0, 0);
        let (mut retried, mut reasons) = (0, BTreeMap::<&str, usize>::new());
        let mut bystanders = Vec::new();
        for planned in self.planned() {
            let id = planned.id();
            let (is_done, letter) = (self.is_done(&planned), self.dead.get(&id));
            succeeded += usize::from(is_done);
            duplicates += usize::from(planned.is_duplicate());
            retried += usize::from(planned.behaviour == super::plan::Behaviour::SecondTime);
            let expected = planned.behaviour.dead_reason();
            match (is_done, letter) {
                (false, None) => verdict.add(LOST, format!("{planned:?}")),
                // One copy of it died with its workers, such as one that a kill left between publish and acknowledgement.
                (true, Some(letter)) if expected.is_none() && is_crash(letter) => {
                    bystanders.push(format!("{planned:?}: {letter:?}"));
                }
                (true, Some(letter)) => verdict.add(BOTH, format!("{planned:?}: {letter:?}")),
                (true, None) if expected.is_some() => verdict.add(WRONGLY, format!("{planned:?}")),
                (true, None) => {}
                (false, Some(letter)) => {
                    if expected.is_none() && is_crash(letter) {
                        bystanders.push(format!("{planned:?}: {letter:?}"));
                    } else if letter.reason.as_deref() != expected {
                        verdict.add(REASON, format!("{planned:?}: {letter:?}"));
                    }
                }
            }
            if let Some(letter) = letter {
                dead += 1;
                copies += letter.copies - 1;
                *reasons
                    .entry(letter.reason.as_deref().unwrap_or("none"))
                    .or_default() += 1;
            }
        }
        verdict.row("tasks confirmed", self.published);
        verdict.row(
            "  succeeded",
            format!("{succeeded}, {retried} of them at the second attempt"),
        );
        verdict.row(
            "  dead letters",
            format!("{dead} ({reasons:?}), second copies {copies}"),
        );
        // A task may die with processes that die more often than is forgiven, but not in numbers.
        verdict.row("  of these with their workers", bystanders.len());
        if bystanders.len() > BYSTANDERS_AT_HEAD.max(self.published as usize / BYSTANDERS_ONE_IN) {
            verdict.wrong.insert(BYSTANDERS, bystanders);
        }
        verdict.row("  duplicates, another id with the key of one", duplicates);
        verdict.demand(
            "dead letters, retried tasks and duplicates",
            dead > 0 && retried > 0 && duplicates > 0,
        );
    }

    fn strangers(&self, verdict: &mut Verdict) {
        for (key, (_, is_done)) in &self.ledger.keys {
            if !is_done {
                verdict.add(HELD, key.to_string());
            }
        }
        let keys: BTreeSet<u32> = self.planned().map(|planned| planned.key).collect();
        let known = |key: &u32| keys.contains(key);
        let strange = self.ledger.keys.keys().chain(self.ledger.effects.keys());
        for key in strange.filter(|key| !known(key)) {
            verdict.add(FOREIGN, format!("key {key}"));
        }
        for id in self.dead.keys() {
            if number(id).is_none_or(|n| n >= self.published) {
                verdict.add(FOREIGN, format!("dead letter {id:?}"));
            }
        }
    }

    /// In a transaction: once per key. Elsewhere: again only where the process that had it was killed over it.
    fn effects(&self, verdict: &mut Verdict) {
        let mut had: Vec<(u32, i64, usize)> = Vec::new();
        for (life, Life { marks, .. }) in self.lives.iter().enumerate() {
            let marks = marks::read(marks).into_iter();
            let effects = marks.filter(|mark| mark.what == What::Effect);
            had.extend(effects.map(|mark| (mark.key, mark.at, life)));
        }
        had.sort_unstable();
        let (mut keys, mut repeats) = (0, BTreeMap::<usize, usize>::new());
        let mut with = BTreeSet::new();
        for of_key in had.chunk_by(|a, b| a.0 == b.0) {
            keys += 1;
            let (key, _, last) = *of_key.last().unwrap();
            with.insert(key);
            for (_, at, life) in &of_key[..of_key.len() - 1] {
                *repeats.entry(*life).or_default() += 1;
                if !self.lives[*life].was_killed || *life == last {
                    verdict.add(
                        REPEATED,
                        format!(
                            "key {key}: at {at} by {}, then by {}",
                            self.lives[*life].name(),
                            self.lives[last].name()
                        ),
                    );
                }
            }
        }
        for (life, count) in &repeats {
            if *count > CONCURRENCY {
                verdict.add(
                    REPEATED,
                    format!(
                        "{count} effects of {}, which runs {CONCURRENCY} at once",
                        self.lives[*life].name()
                    ),
                );
            }
        }
        for (key, (is_credit, is_done)) in &self.ledger.keys {
            let count = self.ledger.effects.get(key).copied().unwrap_or_default();
            if *is_credit && count != 1 {
                verdict.add(DOUBLE, format!("key {key}: {count} times"));
            } else if !is_credit && *is_done && !with.contains(key) {
                verdict.add(WITHOUT, key.to_string());
            }
        }
        let unrecorded = self
            .ledger
            .effects
            .keys()
            .filter(|key| !self.ledger.keys.contains_key(key));
        for key in unrecorded.chain(with.iter().filter(|key| !self.ledger.keys.contains_key(key))) {
            verdict.add(DOUBLE, format!("key {key}: an effect without a record"));
        }
        let kills = self.lives.iter().filter(|life| life.was_killed).count();
        let repeated: usize = repeats.values().sum();
        let (transactions, inserted) = (
            self.ledger.effects.len(),
            self.ledger.effects.values().sum::<i64>(),
        );
        verdict.row(
            "keys with effects in a transaction",
            format!("{transactions}, effects {inserted}"),
        );
        verdict.row(
            "keys with effects elsewhere",
            format!(
                "{keys}; effects repeated {repeated}, by {} of {kills} kills, at most {} by one",
                repeats.len(),
                repeats.values().max().unwrap_or(&0)
            ),
        );
    }
}

impl Verdict {
    pub(super) fn row(&mut self, what: impl Into<String>, value: impl fmt::Display) {
        self.rows.push((what.into(), value.to_string()));
    }

    pub(super) fn add(&mut self, kind: &'static str, what: String) {
        self.wrong.entry(kind).or_default().push(what);
    }

    /// Something that must be so, or the run proves nothing.
    pub(super) fn demand(&mut self, what: &'static str, is_so: bool) {
        if !is_so {
            self.add("not enough happened", what.to_owned());
        }
    }

    pub(super) fn assert_clean(&self) {
        let mut complaints = String::new();
        for (kind, what) in self.wrong.iter().filter(|(_, what)| !what.is_empty()) {
            writeln!(
                complaints,
                "{kind}, {}: {:#?}",
                what.len(),
                &what[..what.len().min(10)]
            )
            .unwrap();
        }
        assert!(complaints.is_empty(), "{complaints}{self}");
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (what, value) in &self.rows {
            writeln!(f, "  {what:<52} {value}")?;
        }
        for (kind, what) in &self.wrong {
            writeln!(f, "  {kind:<52} {}", what.len())?;
        }
        Ok(())
    }
}
