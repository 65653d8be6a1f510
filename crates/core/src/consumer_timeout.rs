//! How long a handler may run before the broker takes its delivery back.
//!
//! RabbitMQ ends the channel or the consumer of a delivery that stays unacknowledged for longer than its consumer
//! timeout, and delivers the task again while it still runs. It looks once a minute and counts from its own sending, so
//! a task is never taken back before the limit, but time that it waits in the prefetch window is lost to its handler.
//!
//! Imports nothing of ours.

use std::time::Duration;

/// What RabbitMQ allows where nobody says otherwise.
pub const BROKER_DEFAULT: Duration = Duration::from_secs(30 * 60);

/// Most that is kept free: a result must still be published, confirmed and acknowledged after a timeout.
const ROOM: Duration = Duration::from_secs(60);

/// What is kept free of a limit: a minute, or a quarter of a short one.
fn room(broker: Duration) -> Duration {
    ROOM.min(broker / 4)
}

/// The longest timeout of a handler that fits into `broker`.
pub fn longest(broker: Duration) -> Duration {
    broker - room(broker)
}

/// The shortest limit of a broker that `timeout` fits into.
pub fn needed(timeout: Duration) -> Duration {
    let (added, scaled) = (timeout.saturating_add(ROOM), timeout.saturating_mul(4) / 3);
    let enough = added.min(scaled);
    // Divisions round down.
    if longest(enough) < timeout {
        enough.saturating_add(Duration::from_nanos(1))
    } else {
        enough
    }
}

/// How a delivery may be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// For as long as it asks.
    Whole(Duration),
    /// For less than it asks, because the broker would take it back.
    Cut(Duration),
    /// Not at all: it has waited here for so long that it belongs back in its queue.
    TooOld,
}

/// Decides how long a delivery that arrived `age` ago and asks for `wanted` may run under the limit `broker`.
///
/// What never fits is cut. What fits a fresh delivery and no longer this one is given back, and so is one of which more
/// than half has gone. Half of the room is tolerated as age, so that a timeout just short of the limit isn't given back
/// for ever.
pub fn hold(wanted: Duration, broker: Duration, age: Duration) -> Hold {
    let most = longest(broker);
    let left = (broker - room(broker) / 2).saturating_sub(age);
    if wanted <= most {
        return if wanted <= left {
            Hold::Whole(wanted)
        } else {
            Hold::TooOld
        };
    }
    let cut = most.min(left);
    if cut < most / 2 {
        Hold::TooOld
    } else {
        Hold::Cut(cut)
    }
}
