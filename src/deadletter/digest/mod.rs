//! A digest of what is new in the archive, posted to a webhook at the end of each interval in which something died.
//!
//! May import: `store`, `telemetry`. Any number of processes may have this role: a row of the ledger says whose turn it is.
//! Dying between the post and the row's update means that the digest is sent again when the lease has run out: nothing can tell
//! whether the webhook had it. What a webhook does not take is tried again with a growing wait, by whichever process; what
//! it never takes is in the next digest.
//!
//! | module | what |
//! |---|---|
//! | [`mod@render`] | numbers as a message; pure |
//! | [`post`] | the message to the webhook |

pub mod post;
pub mod render;

use std::time::Duration;

use secrecy::SecretString;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use self::{
    post::{PostError, Webhook},
    render::{Digest, Format, MAX_LINES, render},
};
use crate::{
    store::{
        Store, StoreError,
        digests::{DigestPlan, Due, Ending, Turn},
    },
    telemetry::{dead_letters as metrics, health::Health},
};

/// Name of this loop in health and logs.
pub const ROLE: &str = "monitor";

/// Where digests go, in the ledger: the one webhook of a deployment.
const TARGET: &str = "webhook";

/// Shortest and longest time between two looks.
const LOOK: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(60));

/// Tries before a digest is given up.
const MAX_TRIES: i32 = 8;

/// Waits between tries: the first, doubled each time, and the longest.
const WAITS: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(300));

/// How digests are sent.
#[derive(Clone, Debug)]
pub struct DigestSettings {
    /// Where to.
    pub webhook: SecretString,
    /// In which shape.
    pub format: Format,
    /// How often. Whole seconds, at least one.
    pub interval: Duration,
    /// How long after the end of an interval.
    pub lag: Duration,
    /// How long one process has for the numbers and the post before another takes over.
    pub lease: Duration,
    /// Longest wait for the webhook's answer.
    pub timeout: Duration,
}

impl DigestSettings {
    /// With the usual times: every hour, ten seconds after it.
    pub fn new(webhook: SecretString, format: Format) -> Self {
        Self {
            webhook,
            format,
            interval: Duration::from_secs(3_600),
            lag: Duration::from_secs(10),
            lease: Duration::from_secs(120),
            timeout: Duration::from_secs(10),
        }
    }
}

/// Why the loop ended.
#[derive(Debug, thiserror::Error)]
pub enum DigestError {
    /// The ledger's.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// No client for the webhook can be made: certificates of the system that can't be read.
    #[error("no HTTP client: {0}")]
    Client(String),
}

/// Sends digests until `cancel`. Nothing is lost by starting it again.
pub async fn run(
    store: Store,
    settings: DigestSettings,
    health: Health,
    cancel: CancellationToken,
) -> Result<(), DigestError> {
    let webhook =
        Webhook::new(&settings.webhook, settings.format, settings.timeout).map_err(DigestError::Client)?;
    let plan = DigestPlan {
        target: TARGET.to_owned(),
        interval: settings.interval,
        lag: settings.lag,
        owner: uuid::Uuid::now_v7().to_string(),
        lease: settings.lease,
    };
    let sending = async {
        loop {
            let turn = store.digests().turn(&plan).await?;
            health.up(ROLE);
            match turn {
                Turn::Send(due) => send(&store, &plan, &webhook, &due).await?,
                Turn::Wait(wait) => sleep(wait.clamp(LOOK.0, LOOK.1)).await,
            }
        }
    };
    tokio::select! {
        () = cancel.cancelled() => Ok(()),
        ended = sending => ended,
    }
}

async fn send(store: &Store, plan: &DigestPlan, webhook: &Webhook, due: &Due) -> Result<(), DigestError> {
    let numbers = store.digests().numbers(due, MAX_LINES, MAX_LINES).await?;
    let ending = if numbers.new == 0 {
        Ending::Quiet
    } else {
        let digest = Digest {
            since: due.since,
            until: due.until,
            numbers,
        };
        match webhook.post(&render(webhook.format(), &digest)).await {
            Ok(()) => Ending::Sent,
            Err(PostError::Again(why)) if due.tries < MAX_TRIES => Ending::Again(wait_after(due.tries), why),
            Err(PostError::Again(why) | PostError::Never(why)) => Ending::Failed(why),
        }
    };
    let target = webhook.format().as_str();
    match &ending {
        Ending::Sent => {
            metrics::digest(target, "sent");
            tracing::info!(since = %due.since, until = %due.until, "sent a digest of dead letters");
        }
        Ending::Quiet => metrics::digest(target, "quiet"),
        Ending::Again(wait, why) => {
            metrics::digest(target, "retry");
            tracing::warn!(why, tries = due.tries, again_in = ?wait, "the webhook did not take a digest of dead letters");
        }
        Ending::Failed(why) => {
            metrics::digest(target, "failed");
            tracing::error!(
                why,
                tries = due.tries,
                "a digest of dead letters is given up; the next one tells of its time too"
            );
        }
    }
    if !store.digests().settle(plan, due, &ending).await? {
        tracing::warn!(until = %due.until, "another process took a digest over while this one was at it; it may be sent twice");
    }
    Ok(())
}

/// How long to wait after the try of that number, from 1.
fn wait_after(tries: i32) -> Duration {
    let doublings = u32::try_from(tries.saturating_sub(1)).unwrap_or_default().min(16);
    WAITS
        .0
        .saturating_mul(2_u32.saturating_pow(doublings))
        .min(WAITS.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_up_to_their_limit() {
        let seconds: Vec<u64> = [0, 1, 2, 3, 7, i32::MAX]
            .map(|tries| wait_after(tries).as_secs())
            .into();
        assert_eq!(seconds, [5, 5, 10, 20, 300, 300]);
    }
}
