//! The headers that carry what changes between attempts, and those that belong to the broker.
//!
//! The body of a task is never rewritten, so attempts, origins and errors travel here.

/// Attempt number: 1 for the first.
pub const ATTEMPT: &str = "x-task-attempt";
/// Routing key as first published.
pub const ROUTING_KEY: &str = "x-task-routing-key";
/// Planned time, RFC 3339.
pub const SCHEDULE_TIME: &str = "x-task-schedule-time";
/// How the task came in; see [`Origin`].
pub const ORIGIN: &str = "x-task-origin";
/// When the first attempt failed, RFC 3339.
pub const FIRST_FAILED_AT: &str = "x-task-first-failed-at";
/// The business queue whose attempt failed last; on a dead letter that failed in none, the queue where that showed.
pub const FAILED_QUEUE: &str = "x-task-failed-queue";
/// Low-cardinality kind of the last error.
pub const ERROR_KIND: &str = "x-task-error-kind";
/// Text of the last error, cut by [`cut_error`].
pub const ERROR: &str = "x-task-error";
/// Why a task is dead; one of the closed set in [`crate::dispose::DeadReason`].
pub const DEAD_REASON: &str = "x-task-dead-reason";
/// Names one death, as a UUID of version 7 whose time is that of the death: made once by whoever dead-letters, so that a
/// publish repeated after a lost confirm is no second death. Only a message on its way to the archive has it.
pub const DEAD_LETTER_ID: &str = "x-task-dead-letter-id";
/// The dead letter that this task replays.
pub const REPLAY_OF: &str = "x-task-replay-of";
/// Task type, for whoever reads only headers.
pub const TASK_TYPE: &str = "taskType";
/// A delay in milliseconds asked for by header, as with the retired delayed-message plugin.
pub const DELAY: &str = "x-delay";
/// Number of returns as the broker counts them.
pub const DELIVERY_COUNT: &str = "x-delivery-count";
/// Number of deliveries that ended without an acknowledgement, as 4.x counts them.
pub const ACQUIRED_COUNT: &str = "x-acquired-count";

/// How many worker processes died with this task, as far as we have counted ([`crate::crash`]). It is there only while
/// the task is suspected and on a dead letter; a task that ends in any other way loses it, and a replay starts without.
pub const CRASHES: &str = "x-task-crashes";
/// How often the limits of its type have put this attempt off; it waits the longer in a worker. Not carried on to the
/// next attempt.
pub const WAITS: &str = "x-task-waits";

/// Longest error text that travels in a header, in bytes.
pub const MAX_ERROR_BYTES: usize = 4 * 1024;

/// When this message was meant to arrive where it is, RFC 3339: the base of the measured lateness.
pub const DUE_AT: &str = "x-task-due-at";
/// How a task came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Published to the broker by any client.
    Amqp,
    /// `POST /tasks`.
    Http,
    /// `tidegate.enqueue(...)` or a row in `tasks`.
    Sql,
    /// A cron row.
    Cron,
    /// A replayed dead letter.
    Replay,
}

impl Origin {
    /// The text in the header and in the `tasks` table.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Amqp => "amqp",
            Self::Http => "http",
            Self::Sql => "sql",
            Self::Cron => "cron",
            Self::Replay => "replay",
        }
    }

    /// Whether the ledger has, or had, a row of such a task.
    pub fn has_row(self) -> bool {
        self != Self::Amqp
    }

    /// The origin that `text` names, if it is one of ours.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Amqp, Self::Http, Self::Sql, Self::Cron, Self::Replay]
            .into_iter()
            .find(|o| o.as_str() == text)
    }
}

/// Whether a header must not be republished.
///
/// A republished `x-death` makes RabbitMQ below 4.0 drop the message at the next delay hop; a republished `CC`
/// would send copies of a retry to whoever the first publish was copied to; an `x-delay` has been served; and whoever
/// dead-letters a message names its death himself.
pub fn is_never_republished(name: &str) -> bool {
    name == "x-death"
        || name == "CC"
        || name == "BCC"
        || name == DELAY
        || name == DEAD_LETTER_ID
        || name == DELIVERY_COUNT
        || name == ACQUIRED_COUNT
        || name.starts_with("x-first-death-")
        || name.starts_with("x-last-death-")
}

/// Longest kind of an error that travels in a header, in characters.
const MAX_KIND_CHARACTERS: usize = 64;

/// `kind` as it travels in a header: at most 64 characters, none of them a control character.
pub fn cut_kind(kind: &str) -> String {
    kind.chars()
        .take(MAX_KIND_CHARACTERS)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

/// `text` cut to at most [`MAX_ERROR_BYTES`] on a character boundary, with NUL shown as `\u{0}` text so that
/// Postgres can store it later.
pub fn cut_error(text: &str) -> String {
    let clean = text.replace('\0', "\\u0000");
    let mut end = clean.len().min(MAX_ERROR_BYTES);
    while !clean.is_char_boundary(end) {
        end -= 1;
    }
    clean[..end].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_that_would_harm_a_republish_are_known() {
        for name in [
            "x-death",
            "x-first-death-queue",
            "x-first-death-exchange",
            "x-first-death-reason",
            "x-last-death-queue",
            "x-delivery-count",
            "x-acquired-count",
            "CC",
            "BCC",
            "x-delay",
            DEAD_LETTER_ID,
        ] {
            assert!(is_never_republished(name), "{name}");
        }
        for name in [ATTEMPT, TASK_TYPE, "traceparent", "x-deathly"] {
            assert!(!is_never_republished(name), "{name}");
        }
    }

    #[test]
    fn kinds_are_short_and_of_one_line() {
        assert_eq!(cut_kind("payment_declined"), "payment_declined");
        assert_eq!(cut_kind("a\0b\nc"), "a b c");
        assert_eq!(cut_kind(&"类".repeat(1_000)), "类".repeat(64));
    }

    #[test]
    fn errors_are_cut_on_a_character_boundary() {
        assert_eq!(cut_error("short"), "short");
        let long = "错".repeat(100_000);
        let cut = cut_error(&long);
        assert!(cut.len() <= MAX_ERROR_BYTES && cut.len() > MAX_ERROR_BYTES - 4);
        assert!(long.starts_with(&cut));
        assert_eq!(cut_error("a\0b"), "a\\u0000b");
    }

    #[test]
    fn origins_round_trip() {
        for origin in [
            Origin::Amqp,
            Origin::Http,
            Origin::Sql,
            Origin::Cron,
            Origin::Replay,
        ] {
            assert_eq!(Origin::parse(origin.as_str()), Some(origin));
        }
        assert_eq!(Origin::parse("kafka"), None);
    }
}
