//! The step that asks the ledger about a delivery which came from it: was it cancelled, has its queue had it already?
//!
//! May import: `broker`, `telemetry`. A delivery that gets no answer in time goes to the ladder as the same attempt.

use std::time::Duration;

use tidegate_core::headers::{self, Origin};

use super::{
    delivery::Station,
    ledger::{Ask, Verdict, client::Client},
};
use crate::{
    broker::{consumer::Incoming, message},
    publish::resend::Known,
};

/// Longest wait for the ledger's word on a delivery. Then it goes to the ladder, so that deliveries which need no
/// word find a free slot.
pub(super) const CLAIM_PATIENCE: Duration = Duration::from_secs(5);

/// How long it stays there: from this, to three times as long.
pub(super) const CLAIM_PAUSE: Duration = Duration::from_secs(5);

/// What comes of asking for the ledger's word.
pub(super) enum Claimed {
    Told(Verdict),
    /// The worker stops.
    Stopping,
    /// The ledger is away, or somebody keeps the row locked.
    Unanswered,
}

/// What the ledger has to do with a delivery.
pub(super) enum Followed<'a> {
    /// Nothing: there is no ledger, the task did not come from it, or it follows another delivery.
    No,
    /// Its end is reported; `run` numbers the start, if there was one.
    Yes {
        client: &'a Client,
        ask: Ask,
        run: Option<i32>,
    },
}

impl Station {
    pub(super) fn followed(&self, incoming: &Incoming, known: &Known) -> Followed<'_> {
        let origin = message::text(&incoming.properties, headers::ORIGIN).and_then(Origin::parse);
        match (&self.ledger, &known.task_id) {
            (Some(client), Some(task_id)) if origin.is_some_and(Origin::has_row) => Followed::Yes {
                client,
                ask: Ask {
                    task_id: task_id.clone(),
                    queue: self.business.to_string(),
                },
                run: None,
            },
            _ => Followed::No,
        }
    }

    /// Asks whether the delivery may start; one that the ledger has nothing to do with may.
    pub(super) async fn claim(&self, followed: &mut Followed<'_>) -> Claimed {
        let Followed::Yes { client, ask, run } = followed else {
            return Claimed::Told(Verdict::Start { run: None });
        };
        let verdict = tokio::select! {
            biased;
            () = self.shutdown.cancelled() => return Claimed::Stopping,
            verdict = client.start(ask) => verdict,
            () = tokio::time::sleep(CLAIM_PATIENCE) => return Claimed::Unanswered,
        };
        match verdict {
            Verdict::Start { run: None } => *followed = Followed::No,
            Verdict::Start { run: number } => *run = number,
            Verdict::Canceled | Verdict::Done => {}
        }
        Claimed::Told(verdict)
    }
}
