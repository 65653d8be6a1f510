//! A replay of many dead letters: canary, watch, the rest, at a rate.
//!
//! What a run knows is what its row in the database says ([`Counts`]), so a run that is killed anywhere and
//! [taken over](Run::resume) does what it would have done. No time passes here: `now` is handed in.

use chrono::{DateTime, TimeDelta, Utc};

use super::plan::{Batch, Counts, End, OnFailure, Options, Outcomes, Step};

/// A run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    options: Options,
    /// How many it will take at most, fixed when it began.
    planned: u64,
    counts: Counts,
    phase: Phase,
    /// When the rate allows the next message.
    next_at: DateTime<Utc>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// So many of the canary are still to be sent.
    Canary {
        left: u64,
    },
    Watching {
        until: DateTime<Utc>,
    },
    /// So many of all are still to be taken.
    Rest {
        left: u64,
    },
    Ended(End),
}

impl Run {
    /// A run that begins now; so many dead letters match.
    pub fn begin(options: Options, matching: u64, now: DateTime<Utc>) -> Self {
        let planned = matching.min(options.limit.unwrap_or(u64::MAX));
        Self::resume(options, planned, Counts::default(), now)
    }

    /// A run that somebody began, who may be dead; `planned` is what [`Run::planned`] said then.
    pub fn resume(options: Options, planned: u64, counts: Counts, now: DateTime<Utc>) -> Self {
        let mut run = Self {
            options,
            planned,
            counts,
            phase: Phase::Ended(End::Done),
            next_at: now,
        };
        run.phase = if options.dry_run {
            Phase::Ended(End::DryRun {
                would_take: planned,
                canary: run.canary(),
            })
        } else {
            run.after_batch(now)
        };
        run
    }

    /// How many it will take at most; to be kept with the run.
    pub fn planned(&self) -> u64 {
        self.planned
    }

    /// What it has done, as far as it knows.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Whether the canary is being sent: what it has come to is worth a look between its batches.
    pub fn is_in_canary(&self) -> bool {
        matches!(self.phase, Phase::Canary { .. })
    }

    /// What to do now.
    pub fn step(&self, now: DateTime<Utc>) -> Step {
        let count = match self.phase {
            Phase::Ended(end) => return Step::End(end),
            Phase::Watching { until } => return Step::Watch { until },
            _ if now < self.next_at => return Step::Wait { until: self.next_at },
            Phase::Canary { left } | Phase::Rest { left } => left.min(self.batch()),
        };
        match self.counts.unsettled {
            0 => Step::Take { count },
            unsettled => Step::Again {
                count: unsettled.min(self.batch()),
            },
        }
    }

    /// What became of [`Step::Take`]. Fewer found than asked for: nothing is left that belongs to the run.
    pub fn took(&mut self, asked: u64, batch: Batch, now: DateTime<Utc>) {
        self.counts.unsettled = self.counts.unsettled.saturating_add(batch.found);
        self.settled(batch, now);
        if batch.found < asked {
            let taken = self.counts.sent.saturating_add(self.counts.refused);
            self.planned = self.planned.min(taken.saturating_add(self.counts.unsettled));
        }
        self.go_on(now);
    }

    /// What became of [`Step::Again`]. None found: others have settled them, by taking the run over.
    pub fn took_again(&mut self, batch: Batch, now: DateTime<Utc>) {
        if batch.found == 0 {
            self.counts.unsettled = 0;
        }
        self.settled(batch, now);
        self.go_on(now);
    }

    /// What is known about the messages sent so far, while the canary counts. Does nothing afterwards.
    pub fn watched(&mut self, outcomes: Outcomes, now: DateTime<Utc>) {
        let (Phase::Canary { .. } | Phase::Watching { .. }, Some(canary)) = (self.phase, self.options.canary)
        else {
            return;
        };
        if outcomes.died > 0 && canary.on_failure == OnFailure::Stop {
            self.phase = Phase::Ended(End::CanaryFailed { died: outcomes.died });
        } else if let Phase::Watching { until } = self.phase {
            let is_known = outcomes.succeeded.saturating_add(outcomes.died) >= self.counts.sent;
            if is_known || now >= until {
                self.phase = self.rest();
            }
        }
    }

    /// Somebody wants it to end. What is claimed and not confirmed should be published first, or given back as open.
    pub fn stop(&mut self) {
        if !matches!(self.phase, Phase::Ended(_)) {
            self.phase = Phase::Ended(End::Stopped);
        }
    }

    fn settled(&mut self, batch: Batch, now: DateTime<Utc>) {
        let counts = &mut self.counts;
        counts.sent = counts.sent.saturating_add(batch.sent);
        counts.refused = counts.refused.saturating_add(batch.refused);
        counts.unsettled = counts
            .unsettled
            .saturating_sub(batch.sent.saturating_add(batch.refused));
        if batch.sent > 0 {
            counts.last_sent_at = Some(now);
        }
        if let Some(rate) = self.options.rate {
            // What was not confirmed may be out as well, and counts.
            let micros = batch
                .found
                .saturating_mul(1_000_000)
                .div_ceil(u64::from(rate.get()));
            let pause = TimeDelta::microseconds(i64::try_from(micros).unwrap_or(i64::MAX));
            // From now on, not from when it was due: time that was lost is not made up by a burst.
            self.next_at = self
                .next_at
                .max(now)
                .checked_add_signed(pause)
                .unwrap_or(DateTime::<Utc>::MAX_UTC);
        }
    }

    fn go_on(&mut self, now: DateTime<Utc>) {
        if let Phase::Canary { .. } | Phase::Rest { .. } = self.phase {
            self.phase = self.after_batch(now);
        }
    }

    /// The phase that the counts say: the same for a run that goes on and for one that is taken over.
    fn after_batch(&self, now: DateTime<Utc>) -> Phase {
        let sent = self.counts.sent;
        match self.options.canary {
            Some(_) if self.left() == 0 => Phase::Ended(End::Done),
            Some(_) if sent < self.canary() => Phase::Canary {
                left: self.left().min(self.canary() - sent),
            },
            // Exactly the canary is out: whether it was watched to the end isn't written down, so it is watched again, for
            // what is left of its time.
            Some(canary) if sent == self.canary() => {
                let watch = TimeDelta::from_std(canary.watch).unwrap_or(TimeDelta::MAX);
                let since = self.counts.last_sent_at.unwrap_or(now);
                let until = since
                    .checked_add_signed(watch)
                    .unwrap_or(DateTime::<Utc>::MAX_UTC);
                Phase::Watching { until }
            }
            _ => self.rest(),
        }
    }

    fn rest(&self) -> Phase {
        match self.left() {
            0 => Phase::Ended(End::Done),
            left => Phase::Rest { left },
        }
    }

    /// How many are neither sent nor refused.
    fn left(&self) -> u64 {
        let taken = self.counts.sent.saturating_add(self.counts.refused);
        self.planned.saturating_sub(taken)
    }

    fn canary(&self) -> u64 {
        let percent = self
            .options
            .canary
            .map_or(0, |canary| u64::from(canary.percent.clamp(1, 100)));
        // In 128 bits, since a hundred times the largest count doesn't fit; the share of a count always does.
        let share = (u128::from(self.planned) * u128::from(percent)).div_ceil(100);
        u64::try_from(share).unwrap_or(u64::MAX)
    }

    /// Most at once: a quarter of a second's worth, so that a rate is one and no saw.
    fn batch(&self) -> u64 {
        let batch = u64::from(self.options.batch.get());
        match self.options.rate {
            Some(rate) => batch.min(u64::from(rate.get()).div_ceil(4)),
            None => batch,
        }
    }
}
