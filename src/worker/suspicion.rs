//! The step that looks at what worker processes died with: whether a delivery may start, alone or not.
//!
//! May import: `broker`, `telemetry`. Killed before the suspicion is published, the broker counts one return more and the
//! next worker comes to the same; killed between that and the acknowledgement, there is a duplicate.

use std::time::Duration;

use tidegate_core::{
    crash::{Verdict, judge},
    headers,
};

use super::{delivery::Station, place::Place};
use crate::{
    broker::{consumer::Incoming, message},
    publish::resend::Known,
    telemetry::metrics,
};

/// How long a new suspect stays away, from this to three times as long: its process may just be starting again.
const NEW_PAUSE: Duration = Duration::from_millis(300);

/// The same for one that finds another suspect running.
const BUSY_PAUSE: Duration = Duration::from_secs(1);

/// What comes of looking.
pub(super) enum Cleared {
    /// It may start; if it is a suspect, it is alone by now.
    Go,
    /// It goes to the ladder for so long, as suspect as `known` says.
    Later(Duration),
    /// The worker stops.
    Stopping,
    /// It has killed so many processes, which is more than it may.
    Dead(u32),
}

impl Station {
    /// Looks at the history of `incoming`, waits to be alone where it is a suspect.
    pub(super) async fn clear(
        &self,
        incoming: &Incoming,
        known: &mut Known,
        allowed: u32,
        place: &mut Place,
    ) -> Cleared {
        let header = message::integer(&incoming.properties, headers::CRASHES);
        let returns = message::returns(&incoming.properties, incoming.redelivered);
        let verdict = judge(header, returns, allowed);
        let (step, deaths) = match verdict {
            Verdict::Start => return Cleared::Go,
            Verdict::Suspect { deaths } => ("suspected", deaths),
            Verdict::Alone { deaths } => ("alone", deaths),
            Verdict::Dead { deaths } => ("dead", deaths),
        };
        // Told once it is alone: one that finds another suspect running waits and is looked at again.
        if matches!(verdict, Verdict::Alone { .. }) && !place.be_alone().await {
            if self.shutdown.is_cancelled() {
                return Cleared::Stopping;
            }
            return Cleared::Later(jittered(BUSY_PAUSE));
        }
        metrics::crash_suspect(known.task_type.as_deref(), step);
        tracing::warn!(
            task_id = known.task_id.as_deref(), task_type = known.task_type.as_deref(), queue = %self.queue,
            deaths, step, "worker processes died with this task"
        );
        match verdict {
            Verdict::Start | Verdict::Alone { .. } => Cleared::Go,
            Verdict::Suspect { deaths } => {
                known.deaths = Some(deaths);
                Cleared::Later(jittered(NEW_PAUSE))
            }
            Verdict::Dead { deaths } => {
                known.deaths = Some(deaths);
                Cleared::Dead(deaths)
            }
        }
    }
}

/// From `shortest` to three times as long.
pub(super) fn jittered(shortest: Duration) -> Duration {
    shortest.mul_f64(1.0 + 2.0 * rand::random::<f64>())
}
