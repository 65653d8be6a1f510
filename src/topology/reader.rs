//! One table of a file → one piece of the model, with every rule for names, patterns and numbers.
//!
//! A value that breaks a rule is reported and read as something harmless, so that reading goes on; the caller
//! refuses the whole topology if there was any error. Imports `core`, the files and the model; pure.

use std::time::Duration;

use tidegate_core::{ladder, names::Names, policy::RetryPolicy, task::TaskType, topic::Pattern};
use toml::Spanned;

use super::{
    errors::FileError,
    files::{FixedDelayEntry, QueueEntry, RetryEntry, Source},
    model::{BusinessQueue, FixedDelay},
};

/// Highest `x-delivery-limit` of a business queue.
pub(super) const MAX_DELIVERY_LIMIT: u32 = 1_000_000;
/// Most patterns of one queue.
const MAX_BINDINGS: usize = 100;
/// Longest name of a fixed delay, in bytes.
const MAX_DELAY_NAME_BYTES: usize = 32;
/// Highest `x-max-length`; no quorum queue should come near it.
const MAX_LENGTH: u64 = 1_000_000_000;
/// Longest `x-message-ttl` that the broker takes: ten years.
const MAX_TTL: Duration = Duration::from_secs(315_360_000);

/// Shortest consumer timeout: the broker looks once a minute.
const MIN_CONSUMER_TIMEOUT: Duration = Duration::from_secs(60);
/// Longest consumer timeout: twice the longest `timeoutMs`.
const MAX_CONSUMER_TIMEOUT: Duration = Duration::from_secs(2 * 86_400);
/// Longest `timeoutMs` of an envelope.
pub(super) const MAX_TIMEOUT: Duration = Duration::from_secs(86_400);
/// Longest name of an owner, in bytes.
const MAX_OWNER_BYTES: usize = 128;

/// What a queue gets that doesn't say otherwise.
pub(super) struct QueueDefaults {
    pub(super) retry: RetryPolicy,
    pub(super) delivery_limit: u32,
    pub(super) consumer_timeout: Option<Duration>,
}

/// Reads the tables of one file.
pub(super) struct Reader<'a> {
    pub(super) source: &'a Source,
    pub(super) names: &'a Names,
    pub(super) errors: &'a mut Vec<FileError>,
}

impl Reader<'_> {
    pub(super) fn error<T>(&mut self, at: &Spanned<T>, message: impl Into<String>) {
        self.errors.push(self.source.error(at.span().start, message));
    }

    pub(super) fn queue(&mut self, entry: &QueueEntry, defaults: &QueueDefaults) -> BusinessQueue {
        self.queue_name(entry);
        self.owner(&entry.owner);
        for task_type in &entry.task_types {
            if let Err(e) = TaskType::parse(task_type.get_ref()) {
                self.error(task_type, format!("{:?}: {e}", task_type.get_ref()));
            }
        }
        let threshold = entry.high_lane.as_ref().map(|lane| &lane.threshold);
        let high_lane = self.whole("threshold", threshold, 0, u8::MAX.into());
        let own_limit = self.whole(
            "delivery_limit",
            entry.delivery_limit.as_ref(),
            1,
            MAX_DELIVERY_LIMIT.into(),
        );
        let (consumer_timeout, max_timeout) = self.timeouts(entry, defaults);
        BusinessQueue {
            name: entry.name.get_ref().clone(),
            bind: self.patterns(&entry.bind),
            owner: entry.owner.get_ref().clone(),
            task_types: entry.task_types.iter().map(|t| t.get_ref().clone()).collect(),
            retry: self.retry(entry.retry.as_ref(), &defaults.retry),
            high_lane: high_lane.and_then(|n| u8::try_from(n).ok()),
            delivery_limit: own_limit
                .and_then(|n| u32::try_from(n).ok())
                .unwrap_or(defaults.delivery_limit),
            max_length: self.whole("max_length", entry.max_length.as_ref(), 1, MAX_LENGTH),
            single_active_consumer: entry.single_active_consumer,
            consumer_timeout,
            max_timeout,
            fan_out: entry.fan_out,
        }
    }

    /// The consumer timeout and the longest `timeoutMs` of a queue, where they go together.
    fn timeouts(
        &mut self,
        entry: &QueueEntry,
        defaults: &QueueDefaults,
    ) -> (Option<Duration>, Option<Duration>) {
        let least = Duration::from_millis(1);
        let longest = self.span("max_timeout", entry.max_timeout.as_ref(), least, MAX_TIMEOUT);
        let own = self.consumer_timeout(entry.consumer_timeout.as_ref());
        let limit = own.or(defaults.consumer_timeout);
        if let (Some(limit), Some(longest)) = (limit, longest)
            && limit < longest
            && let Some(at) = entry.consumer_timeout.as_ref().or(entry.max_timeout.as_ref())
        {
            let (limit, longest) = (
                humantime::format_duration(limit),
                humantime::format_duration(longest),
            );
            let message = format!(
                "consumer_timeout is {limit}, but tasks may run {longest} (max_timeout): the broker would take them \
                 back while they run, so that they run twice at once; make consumer_timeout longer than {longest}"
            );
            self.error(at, message);
        }
        (limit, longest)
    }

    pub(super) fn consumer_timeout(&mut self, text: Option<&Spanned<String>>) -> Option<Duration> {
        self.span(
            "consumer_timeout",
            text,
            MIN_CONSUMER_TIMEOUT,
            MAX_CONSUMER_TIMEOUT,
        )
    }

    fn owner(&mut self, owner: &Spanned<String>) {
        let text = owner.get_ref();
        if text.trim().is_empty() {
            self.error(owner, "owner is empty: name the team that answers for this queue");
        } else if text.len() > MAX_OWNER_BYTES || text.chars().any(char::is_control) {
            let message = format!(
                "owner has {} bytes or a control character: write one line of at most {MAX_OWNER_BYTES} bytes",
                text.len()
            );
            self.error(owner, message);
        }
    }

    fn queue_name(&mut self, entry: &QueueEntry) {
        let name = entry.name.get_ref();
        // The ladder carries `to.<queue>` in a routing key of 255 bytes, and the high lane needs room too.
        let lane = if entry.high_lane.is_some() {
            Names::high_lane("").len()
        } else {
            0
        };
        let longest = ladder::max_queue_bytes() - lane;
        let word = |w: &str| {
            !w.is_empty()
                && w.bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b"_-:".contains(&b))
        };
        let prefix = self.names.prefix();
        let message = if name.len() > longest {
            format!(
                "queue name has {} bytes, at most {longest}: shorten it",
                name.len()
            )
        } else if !name.split('.').all(word) {
            // `*` and `#` would be wildcards in the binding that returns a retry to this queue.
            format!("queue name {name:?}: use words of A-Z a-z 0-9 _ - : joined by single dots")
        } else if name.split('.').next() == Some(prefix) {
            format!(
                "queue name {name:?}: names that begin with `{prefix}.` are the platform's own, use another"
            )
        } else if name.starts_with("amq.") {
            format!("queue name {name:?}: names that begin with `amq.` are the broker's own, use another")
        } else {
            return;
        };
        self.error(&entry.name, message);
    }

    fn patterns(&mut self, bind: &Spanned<Vec<Spanned<String>>>) -> Vec<Pattern> {
        let listed = bind.get_ref();
        if listed.is_empty() || listed.len() > MAX_BINDINGS {
            let example = r##"["order.close.#"]"##;
            let message = format!(
                "bind has {} patterns: give 1 to {MAX_BINDINGS}, e.g. {example}",
                listed.len()
            );
            self.error(bind, message);
        }
        let mut patterns: Vec<Pattern> = Vec::new();
        for text in listed {
            match pattern(text.get_ref()) {
                Ok(p) if patterns.contains(&p) => {
                    self.error(
                        text,
                        format!("pattern {:?} is listed twice: drop one", text.get_ref()),
                    );
                }
                Ok(p) => patterns.push(p),
                Err(message) => self.error(text, format!("pattern {:?} {message}", text.get_ref())),
            }
        }
        patterns
    }

    pub(super) fn retry(
        &mut self,
        entry: Option<&Spanned<RetryEntry>>,
        otherwise: &RetryPolicy,
    ) -> RetryPolicy {
        let Some(spanned) = entry else { return *otherwise };
        let entry = spanned.get_ref();
        let before = self.errors.len();
        let max_retries = entry.max_retries.unwrap_or(otherwise.max_retries);
        let policy = RetryPolicy {
            max_retries,
            // A cap that nobody wrote must not make the written `max_retries` an error.
            max_retries_cap: entry
                .max_retries_cap
                .unwrap_or(otherwise.max_retries_cap.max(max_retries)),
            initial: self.duration(entry.initial.as_ref()).unwrap_or(otherwise.initial),
            multiplier: entry.multiplier.unwrap_or(otherwise.multiplier),
            max: self.duration(entry.max.as_ref()).unwrap_or(otherwise.max),
            jitter: entry.jitter.unwrap_or(otherwise.jitter),
        };
        if self.errors.len() == before
            && let Err(e) = policy.validate()
        {
            self.error(spanned, format!("retry: {e}"));
        }
        policy
    }

    pub(super) fn fixed_delay(&mut self, entry: &FixedDelayEntry) -> Option<FixedDelay> {
        let name = entry.name.get_ref();
        let letters = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        if name.is_empty() || name.len() > MAX_DELAY_NAME_BYTES || !name.bytes().all(letters) {
            let message =
                format!("fixed delay {name:?}: use 1 to {MAX_DELAY_NAME_BYTES} of a-z 0-9 -, e.g. \"30m\"");
            self.error(&entry.name, message);
            return None;
        }
        if name
            .strip_prefix('v')
            .is_some_and(|v| v.starts_with(|c: char| c.is_ascii_digit()))
        {
            let message = format!("fixed delay {name:?}: `v1`, `v2` and so on name the ladder, use another");
            self.error(&entry.name, message);
            return None;
        }
        let ttl = match &entry.ttl {
            Some(_) => self.duration(entry.ttl.as_ref())?,
            None => match humantime::parse_duration(name) {
                Ok(ttl) => ttl,
                Err(_) => {
                    let message = format!("fixed delay {name:?} names no duration: add e.g. ttl = \"30m\"");
                    self.error(&entry.name, message);
                    return None;
                }
            },
        };
        if ttl < Duration::from_millis(1) || ttl > MAX_TTL || !ttl.subsec_nanos().is_multiple_of(1_000_000) {
            let message = format!("fixed delay {name:?}: use whole milliseconds from 1ms to ten years");
            self.error(&entry.name, message);
            return None;
        }
        Some(FixedDelay {
            name: name.clone(),
            ttl,
        })
    }

    pub(super) fn duration(&mut self, text: Option<&Spanned<String>>) -> Option<Duration> {
        let text = text?;
        match humantime::parse_duration(text.get_ref()) {
            Ok(duration) => Some(duration),
            Err(e) => {
                let message = format!(
                    "duration {:?}: {e}; write e.g. \"500ms\", \"1s\" or \"10m\"",
                    text.get_ref()
                );
                self.error(text, message);
                None
            }
        }
    }

    /// A duration of whole milliseconds within limits.
    pub(super) fn span(
        &mut self,
        key: &str,
        text: Option<&Spanned<String>>,
        least: Duration,
        most: Duration,
    ) -> Option<Duration> {
        let text = text?;
        let duration = self.duration(Some(text))?;
        if duration < least || duration > most || !duration.subsec_nanos().is_multiple_of(1_000_000) {
            let (least, most) = (
                humantime::format_duration(least),
                humantime::format_duration(most),
            );
            let message = format!(
                "{key} = {:?}: use whole milliseconds from {least} to {most}",
                text.get_ref()
            );
            self.error(text, message);
            return None;
        }
        Some(duration)
    }

    pub(super) fn whole(
        &mut self,
        key: &str,
        value: Option<&Spanned<i64>>,
        least: u64,
        most: u64,
    ) -> Option<u64> {
        let value = value?;
        let number = u64::try_from(*value.get_ref())
            .ok()
            .filter(|n| (least..=most).contains(n));
        if number.is_none() {
            self.error(
                value,
                format!("{key} = {}: use {least} to {most}", value.get_ref()),
            );
        }
        number
    }
}

/// `text` as a pattern that can be bound on `task.exchange`, on `task.exchange.high` and behind the ladder.
fn pattern(text: &str) -> Result<Pattern, String> {
    let longest = ladder::max_high_key_bytes();
    if text.len() > longest {
        return Err(format!("has {} bytes, at most {longest}: shorten it", text.len()));
    }
    if text.split('.').any(str::is_empty) {
        return Err("has an empty word: write words joined by single dots".to_owned());
    }
    if text.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err("has a blank or control character: remove it".to_owned());
    }
    if text.split('.').any(|w| w.len() > 1 && w.contains(['*', '#'])) {
        return Err(
            "uses `*` or `#` inside a word: they are wildcards only as whole words, e.g. \"order.*\""
                .to_owned(),
        );
    }
    Pattern::parse(text).map_err(|e| e.to_string())
}
