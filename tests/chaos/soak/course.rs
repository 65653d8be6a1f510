//! How the run went over time: when nothing was consumed, how soon it went on after a restart, and what memory did.

use std::{ops::Range, time::Duration};

use tokio::time::Instant;

use super::{
    Growth,
    books::Verdict,
    deeds::Done,
    marks,
    memory::level,
    staff::{Life, STEADY},
};

/// Longest time from the broker's return to consumption: back-off ends at 5 s, and a busy machine takes its time.
const RESUMES_WITHIN: Duration = Duration::from_secs(20);
/// Most files that a process may have gained: connections of a pool come and go.
const MORE_FILES: u64 = 24;

pub(super) struct Course<'a> {
    pub(super) lives: &'a [Life],
    pub(super) done: &'a [Done],
    /// The load, by both clocks.
    pub(super) span: Range<Instant>,
    pub(super) from_micros: i64,
    pub(super) growth: Growth,
}

impl Course<'_> {
    pub(super) fn judge(&self, verdict: &mut Verdict) {
        self.consumption(verdict);
        self.memory(verdict);
    }

    fn consumption(&self, verdict: &mut Verdict) {
        let length = self.span.end - self.span.start;
        let marks = self.lives.iter().flat_map(|life| marks::read(&life.marks));
        let since = |at: i64| {
            u64::try_from(at - self.from_micros)
                .ok()
                .map(Duration::from_micros)
        };
        let mut at: Vec<Duration> = marks
            .filter_map(|mark| since(mark.at))
            .filter(|at| *at < length)
            .collect();
        at.extend([Duration::ZERO, length]);
        at.sort_unstable();
        let mut gaps: Vec<(Duration, Duration)> =
            at.windows(2).map(|two| (two[1] - two[0], two[0])).collect();
        gaps.sort_unstable_by(|a, b| b.cmp(a));
        for (n, (gap, from)) in gaps.iter().take(3).enumerate() {
            let to = *from + *gap;
            let before = || self.done.iter().filter(|done| done.from < to);
            let restart = before().find(|done| done.is_restart() && done.to > *from);
            let during = restart.or_else(|| before().next_back());
            let during = during.map_or("before any deed".to_owned(), ToString::to_string);
            let what = ["longest without consumption", "  second", "  third"][n];
            verdict.row(what, format!("{gap:.2?} at {from:.1?}, {during}"));
        }
        for done in self.done {
            if !done.is_restart() {
                continue;
            }
            let next = at.partition_point(|at| *at < done.to);
            let resumed = at.get(next).map_or(length, |at| *at - done.to);
            let down = done.to - done.from;
            verdict.row(
                done.to_string(),
                format!(
                    "at {:.1?}, down {down:.1?}, consumed {resumed:.2?} after its return",
                    done.from
                ),
            );
            if resumed > RESUMES_WITHIN {
                verdict.add("consumption did not resume in time", format!("{resumed:?}"));
            }
        }
        let restarts = self.done.iter().filter(|done| done.is_restart()).count();
        let mut closed: Vec<String> = self
            .done
            .iter()
            .filter(|done| !done.is_restart())
            .map(ToString::to_string)
            .collect();
        closed.sort();
        let count = closed.len();
        closed.dedup();
        verdict.row(
            "connections closed",
            format!("{count}, of {} clients", closed.len()),
        );
        verdict.demand("two restarts, and connections closed", restarts == 2 && count > 2);
    }

    fn window(&self, (from, to): (f64, f64)) -> Range<Instant> {
        let length = self.span.end - self.span.start;
        self.span.start + length.mul_f64(from)..self.span.start + length.mul_f64(to)
    }

    fn memory(&self, verdict: &mut Verdict) {
        let mib = |kib: u64| kib as f64 / 1024.0;
        for life in self.lives.iter().filter(|life| life.slot == STEADY) {
            let (early, late) = (self.window(self.growth.early), self.window(self.growth.late));
            let (Some(early), Some(late)) = (level(&life.samples, &early), level(&life.samples, &late))
            else {
                verdict.demand("a look at memory", false);
                continue;
            };
            verdict.row(
                "memory of the steady worker, early and late",
                format!(
                    "{:.1} and {:.1} MiB; files {} and {}",
                    mib(early.rss_kib),
                    mib(late.rss_kib),
                    early.files,
                    late.files
                ),
            );
            let tenths = (0..10).filter_map(|n| {
                let tenth = self.window((f64::from(n) / 10.0, f64::from(n + 1) / 10.0));
                Some(format!("{:.0}", mib(level(&life.samples, &tenth)?.rss_kib)))
            });
            verdict.row(
                "  by tenths of the load, MiB",
                tenths.collect::<Vec<_>>().join(" "),
            );
            let most = early.rss_kib as f64 * (1.0 + self.growth.part) + self.growth.mib as f64 * 1024.0;
            if late.rss_kib as f64 > most || late.files > early.files + MORE_FILES {
                verdict.add("memory or files grew", format!("{early:?} to {late:?}"));
            }
        }
        let mut last: Vec<u64> = self
            .lives
            .iter()
            .filter(|life| life.was_killed)
            .filter_map(|life| life.samples.last().map(|sample| sample.rss_kib))
            .collect();
        last.sort_unstable();
        let (median, most) = (last.get(last.len() / 2), last.last());
        verdict.row(
            "memory of killed workers at their end",
            format!(
                "median {:.1}, most {:.1} MiB, of {}",
                mib(*median.unwrap_or(&0)),
                mib(*most.unwrap_or(&0)),
                last.len()
            ),
        );
    }
}
