//! The end of a run: its row, what it had claimed beyond what was sent, and who had what it wanted.
//!
//! May import: `core`, `store`, `supervisor`. If the process dies before it, the run is taken over and ended by another.

use std::time::Duration;

use tidegate_core::{dead_letter_filter::Filter, replay::plan::End};
use tokio::time::sleep;

use super::{
    Replays,
    execute::LAST_TRIES,
    limited, request,
    told::{Refusals, ReplayError, Report},
    watched::Watched,
};
use crate::{
    store::{
        StoreError,
        dead_letters::{
            outcomes::Party,
            runs::{Hold, RunState},
        },
    },
    supervisor::backoff,
};

/// How often, and how far apart, it is looked who has what is missing.
const LOOKS: usize = 5;
const BETWEEN_LOOKS: Duration = Duration::from_millis(250);

impl Replays {
    /// Ends the run and says what it came to.
    pub(super) async fn finish(
        &self,
        hold: &Hold,
        end: Option<End>,
        why: Option<String>,
        watched: &Watched<'_>,
    ) -> Result<Report, ReplayError> {
        let (state, died) = match end {
            None => (RunState::Failed, 0),
            Some(End::Done | End::DryRun { .. }) => (RunState::Done, 0),
            Some(End::CanaryFailed { died }) => (RunState::CanaryFailed, died),
            Some(End::Stopped) => (RunState::Stopped, 0),
        };
        let refusals = watched.refusals();
        let (mut waits, mut tries) = (backoff(), 0);
        loop {
            match self.try_to_finish(hold, state, why.as_deref(), &refusals).await {
                Ok(Some(report)) => {
                    return Ok(Report {
                        died,
                        refusals,
                        why,
                        ..report
                    });
                }
                Ok(None) => return Err(ReplayError::TakenOver),
                Err(error) if error.is_transient() && tries < LAST_TRIES * 10 => {
                    watched.trouble(&error.to_string());
                    tries += 1;
                    sleep(waits.next().unwrap_or_default()).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    async fn try_to_finish(
        &self,
        hold: &Hold,
        state: RunState,
        why: Option<&str>,
        refusals: &Refusals,
    ) -> Result<Option<Report>, StoreError> {
        let letters = self.store.dead_letters();
        let Some(row) = limited(letters.run(hold.run)).await? else {
            return Ok(None);
        };
        let missing = match state {
            // It has looked at everything, so what it didn't find open any more others have dealt with.
            RunState::Done => Some(row.planned.saturating_sub(row.sent + row.refused)),
            _ => None,
        };
        let rivals = match request::read_filter(&row.filter, row.began_at) {
            Ok(filter) => self.rivals(hold, &filter.in_any_state(), missing).await,
            // That it can't be said is no reason not to end.
            Err(_) => Vec::new(),
        };
        let lost = missing.unwrap_or_else(|| count(&rivals));
        let outcome = outcome(why, refusals);
        let Some(released) = limited(letters.end_run(hold, state, lost, outcome.as_deref())).await? else {
            return Ok(None);
        };
        Ok(Some(Report {
            run: hold.run,
            end: state,
            died: 0,
            planned: row.planned,
            sent: row.sent,
            refused: row.refused,
            lost,
            released,
            rivals,
            refusals: Refusals::default(),
            why: None,
        }))
    }

    /// Who has what `filter` means. What another has claimed and not committed yet can't be seen, so it is looked again for a
    /// moment while they explain less than is `missing`; the rest was discarded.
    async fn rivals(&self, hold: &Hold, filter: &Filter, missing: Option<u64>) -> Vec<Party> {
        let mut looks = 0;
        loop {
            let rivals = match limited(self.store.dead_letters().rivals(hold, filter)).await {
                Ok(rivals) => rivals,
                Err(error) => {
                    tracing::warn!(run = %hold.run, %error, "who else had what a replay wanted can't be said");
                    Vec::new()
                }
            };
            looks += 1;
            if looks == LOOKS || missing.is_none_or(|missing| count(&rivals) >= missing) {
                return rivals;
            }
            sleep(BETWEEN_LOOKS).await;
        }
    }
}

fn count(parties: &[Party]) -> u64 {
    parties.iter().map(|party| party.count.unsigned_abs()).sum()
}

/// What the run's row says of its end.
fn outcome(why: Option<&str>, refusals: &Refusals) -> Option<String> {
    let refused = refusals
        .by_count()
        .into_iter()
        .map(|(why, refused)| format!("{} refused: {why}", refused.count));
    let all: Vec<String> = why.map(ToOwned::to_owned).into_iter().chain(refused).collect();
    let text: String = all.join("; ").chars().take(4_000).collect();
    (!text.is_empty()).then(|| text.replace('\0', "\\u0000"))
}
