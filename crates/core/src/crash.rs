//! Whether a task may be started that killed worker processes, or only shared one with a task that did.
//!
//! When a process dies, the broker takes back all that it held and counts a return on each: on the task that killed
//! it, and on its neighbours. So returns alone condemn nobody. They make a *suspect*: it is published anew with
//! [`CRASHES`](crate::headers::CRASHES), which also starts the broker's own count again, and from then on runs with
//! nothing beside it. It dies or survives by itself there, and only such deaths count against it.
//!
//! | header | returns since | |
//! |---|---|---|
//! | none | at most one | start: a broker's restart or a lost connection returns whole windows, once |
//! | none | more | [`Suspect`](Verdict::Suspect) |
//! | below [`SUSPECT`] | none | start |
//! | below [`SUSPECT`] | some | [`Suspect`](Verdict::Suspect) |
//! | [`SUSPECT`] or more | none | [`Alone`](Verdict::Alone) |
//! | [`SUSPECT`] or more | some | one death more: [`Suspect`](Verdict::Suspect) again, or [`Dead`](Verdict::Dead) |
//!
//! A suspect is started only without a return since it was published; so, however many returns there are, it was
//! started once at most, and it is one death. A forged header makes a task run alone, and ends none that
//! was not taken back as well.
//!
//! Imports nothing.

/// Deaths from which on a task is suspected.
pub const SUSPECT: u32 = 2;

/// Deaths that are forgiven whatever `maxRetries` says: a healthy task with `maxRetries` 0 must survive its neighbours.
pub const FORGIVEN: u32 = 3;

/// How often the broker has taken a task back since it was published last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Returns {
    /// So often.
    Counted(u32),
    /// At least once; this queue (a classic one) doesn't count.
    Uncounted,
}

/// What to do with a delivery before it is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Go on.
    Start,
    /// Publish it back to its queue after a short delay with this count in its header, then acknowledge.
    Suspect {
        /// What the header says then.
        deaths: u32,
    },
    /// Run it with nothing else in this process, neither running nor held.
    Alone {
        /// Deaths so far, as its header says.
        deaths: u32,
    },
    /// It has killed more processes than it may: dead-letter it as `worker_crash`.
    Dead {
        /// How many.
        deaths: u32,
    },
}

/// Decides by the count in the header (`None`: no header, or one that is no number), the returns since the last
/// publish, and the retries that the task is allowed. It is dead after more deaths than the larger of those and [`FORGIVEN`].
pub fn judge(header: Option<i64>, returns: Returns, allowed: u32) -> Verdict {
    let known = header
        .filter(|n| *n > 0)
        .map_or(0, |n| u32::try_from(n).unwrap_or(u32::MAX));
    let returned = match returns {
        Returns::Counted(returned) => returned,
        Returns::Uncounted => 1,
    };
    match (known, returned) {
        (SUSPECT.., 0) => Verdict::Alone { deaths: known },
        (SUSPECT.., _) => {
            let deaths = known.saturating_add(1);
            if deaths > allowed.max(FORGIVEN) {
                Verdict::Dead { deaths }
            } else {
                Verdict::Suspect { deaths }
            }
        }
        (_, 0) => Verdict::Start,
        // The first return is forgiven in place where the broker will count the next.
        (0, 1) if returns != Returns::Uncounted => Verdict::Start,
        _ => Verdict::Suspect {
            // Beyond that it was taken back unseen: held, and not started.
            deaths: known.saturating_add(returned).min(SUSPECT),
        },
    }
}
