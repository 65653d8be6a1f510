//! The books: what was accepted against what became of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    sync::atomic::Ordering,
};

use sqlx::PgPool;
use tidegate::{broker::record, core::envelope};

use crate::{journal::Journal, load::Behaviour, producers::Log, schedules::Fire};

/// Dead letters by message id, with the reason of each copy.
#[derive(Debug, Default)]
pub(crate) struct DeadLetters(pub(crate) BTreeMap<String, Vec<String>>);

impl DeadLetters {
    /// What is in the archive now. A message id that is not the id in the body fails the test.
    pub(crate) async fn archived(sql: &PgPool) -> sqlx::Result<Self> {
        let rows: Vec<(Vec<u8>, String, String)> =
            sqlx::query_as("SELECT body, properties, reason FROM tidegate.dead_letters JOIN tidegate.dead_letter_messages USING (day, id)")
                .fetch_all(sql)
                .await?;
        let mut all = Self::default();
        for (body, properties, reason) in rows {
            let properties = record::restore(&properties).unwrap();
            let id = properties.message_id().as_ref().map(ToString::to_string);
            let id = id.unwrap_or_default();
            if let Some(in_body) = envelope::peek(&body).task_id {
                assert_eq!(in_body.to_string(), id, "message id and taskId of a dead letter");
            }
            all.0.entry(id).or_default().push(reason);
        }
        Ok(all)
    }
}

/// Everything that is counted.
pub(crate) struct Accounts<'a> {
    pub(crate) log: &'a Log,
    pub(crate) fires: &'a [Fire],
    pub(crate) journal: &'a Journal,
    pub(crate) dead: &'a DeadLetters,
}

impl Accounts<'_> {
    /// Ids that were accepted and of which nothing more is known.
    pub(crate) fn open(&self) -> Vec<String> {
        let accepted = self.log.accepted.lock().unwrap();
        let cron = self.fires.iter().filter_map(|fire| fire.task_id.as_ref());
        let ended = |id: &String| self.journal.effects(id) > 0 || self.dead.0.contains_key(id);
        accepted
            .keys()
            .chain(cron)
            .filter(|id| !ended(id))
            .cloned()
            .collect()
    }

    /// Asserts every count and returns the report.
    pub(crate) fn close(&self) -> String {
        let open = self.open();
        let accepted = self.log.accepted.lock().unwrap();
        let cron: BTreeMap<&String, _> = self
            .fires
            .iter()
            .filter_map(|fire| Some((fire.task_id.as_ref()?, fire.at)))
            .collect();
        assert!(
            open.is_empty(),
            "lost: {} of {}: {open:?}",
            open.len(),
            accepted.len() + cron.len()
        );

        let known: BTreeSet<&String> = accepted.keys().chain(cron.keys().copied()).collect();
        let strangers: Vec<_> = self
            .journal
            .0
            .keys()
            .chain(self.dead.0.keys())
            .filter(|id| !known.contains(id))
            .collect();
        assert!(strangers.is_empty(), "ids that nobody sent: {strangers:?}");

        let mut early = Vec::new();
        for (id, entry) in &self.journal.0 {
            let due = accepted.get(id).map_or_else(|| cron[id], |task| task.due);
            early.extend(
                entry
                    .starts
                    .iter()
                    .filter(|(_, at)| *at < due)
                    .map(|(_, at)| (id, due - *at)),
            );
        }
        assert!(early.is_empty(), "started before they were due: {early:?}");

        let (mut crashed, mut wrong) = (Vec::new(), Vec::new());
        let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
        for (id, copies) in &self.dead.0 {
            let behaviour = accepted
                .get(id)
                .map_or(Behaviour::Succeeds, |task| task.behaviour);
            for reason in copies {
                *reasons.entry(reason).or_default() += 1;
                if matches!(reason.as_str(), "worker_crash" | "delivery_limit") {
                    crashed.push(id);
                } else if Some(reason.as_str()) != behaviour.dead_reason() {
                    wrong.push((id, behaviour, reason));
                }
            }
        }
        assert!(wrong.is_empty(), "dead letters for the wrong reason: {wrong:?}");
        let unkilled: Vec<_> = accepted
            .iter()
            .filter(|(id, task)| !task.behaviour.is_healthy() && !self.dead.0.contains_key(*id))
            .map(|(id, _)| id)
            .collect();
        assert!(
            unkilled.is_empty(),
            "should be dead letters and are none: {unkilled:?}"
        );
        let effects_of_failing: Vec<_> = accepted
            .iter()
            .filter(|(id, task)| !task.behaviour.is_healthy() && self.journal.effects(id) > 0)
            .map(|(id, _)| id)
            .collect();
        assert!(
            effects_of_failing.is_empty(),
            "have an effect and should have none: {effects_of_failing:?}"
        );
        let healthy_dead: Vec<_> = self
            .dead
            .0
            .keys()
            .filter(|id| accepted.get(*id).is_none_or(|task| task.behaviour.is_healthy()))
            .filter(|id| self.journal.effects(id) == 0)
            .collect();
        // A bystander may die with processes that die more often than is forgiven, but not in numbers.
        assert!(
            healthy_dead.len() * 200 <= known.len(),
            "healthy tasks that died with their workers: {healthy_dead:?}"
        );

        let mut report = String::new();
        let mut line = |text: String| writeln!(report, "  {text}").unwrap();
        let mut entrances: BTreeMap<String, usize> = BTreeMap::new();
        for task in accepted.values() {
            *entrances.entry(format!("{:?}", task.entrance)).or_default() += 1;
        }
        let done = known.iter().filter(|id| self.journal.effects(id) > 0).count();
        let effects: usize = self.journal.0.values().map(|entry| entry.effects).sum();
        let starts: usize = self.journal.0.values().map(|entry| entry.starts.len()).sum();
        let copies: usize = self.dead.0.values().map(Vec::len).sum();
        line(format!(
            "accepted {} by {entrances:?}, and {} by cron",
            accepted.len(),
            cron.len()
        ));
        line(format!(
            "ended {}: done {done}, dead letters {}, lost 0, started early 0",
            known.len(),
            self.dead.0.len()
        ));
        line(format!(
            "duplicates, all under their own taskId: {} effects, {} dead letters",
            effects - done,
            copies - self.dead.0.len()
        ));
        line(format!(
            "starts {starts}; sends of unknown outcome, sent again: {}",
            self.log.unknown.load(Ordering::Relaxed)
        ));
        line(format!("dead letters by reason: {reasons:?}"));
        line(format!(
            "bystanders dead by crashes: {} ({} copies)",
            healthy_dead.len(),
            crashed.len()
        ));
        let outcomes = self
            .fires
            .iter()
            .fold(BTreeMap::<&str, usize>::new(), |mut all, fire| {
                *all.entry(&fire.outcome).or_default() += 1;
                all
            });
        line(format!(
            "cron occurrences: {}, each recorded once: {outcomes:?}",
            self.fires.len()
        ));
        report
    }
}
