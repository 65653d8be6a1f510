//! One `[[task_type]]` table → its policy, with every rule for its values. Imports `core`, the reader and the model;
//! pure.

use std::time::Duration;

use tidegate_core::task::TaskType;
use toml::Spanned;

use super::{
    files::{RetryEntry, TaskTypeEntry},
    model::BusinessQueue,
    reader::{MAX_TIMEOUT, Reader},
    task_type::{Idempotency, KeyRule, MOST_QUICK_RETRIES, Rate, RetryChange, TaskTypePolicy},
};

/// Longest pause before a quick retry: the handler's slot waits meanwhile.
const MAX_QUICK_PAUSE: Duration = Duration::from_secs(1);
/// Highest limit on what runs at once.
const MAX_CONCURRENCY: u64 = 10_000;
/// Shortest lease: it is renewed three times within its length.
const MIN_LEASE: Duration = Duration::from_secs(3);
/// Longest lease: nobody takes over a dead worker's key before it ends.
const MAX_LEASE: Duration = Duration::from_secs(86_400);
/// Longest JSON pointer.
const MAX_FIELD_BYTES: usize = 256;

impl Reader<'_> {
    /// The policy of `entry`, checked against the `queues` that its type reaches by its name.
    pub(super) fn task_type(&mut self, entry: &TaskTypeEntry, queues: &[BusinessQueue]) -> TaskTypePolicy {
        let name = entry.name.get_ref();
        if let Err(e) = TaskType::parse(name) {
            self.error(&entry.name, format!("{name:?}: {e}"));
        }
        let least = Duration::from_millis(1);
        let standard = TaskTypePolicy::standard(name);
        let quick = self.whole(
            "quick_retries",
            entry.quick_retries.as_ref(),
            0,
            MOST_QUICK_RETRIES.into(),
        );
        let size = |n: u64| usize::try_from(n).ok();
        let concurrency = self.whole("concurrency", entry.concurrency.as_ref(), 1, MAX_CONCURRENCY);
        let retrying = self.whole(
            "retry_concurrency",
            entry.retry_concurrency.as_ref(),
            1,
            MAX_CONCURRENCY,
        );
        TaskTypePolicy {
            retry: self.retry_change(entry.retry.as_ref(), name, queues),
            timeout: self.span("timeout", entry.timeout.as_ref(), least, MAX_TIMEOUT),
            quick_retries: quick.and_then(|n| u32::try_from(n).ok()).unwrap_or_default(),
            quick_pause: self
                .span("quick_pause", entry.quick_pause.as_ref(), least, MAX_QUICK_PAUSE)
                .unwrap_or(standard.quick_pause),
            concurrency: concurrency.and_then(size),
            retry_concurrency: retrying.and_then(size).unwrap_or(standard.retry_concurrency),
            rate: self.rate(entry.rate.as_ref()),
            idempotency: self.idempotency(entry),
            ..standard
        }
    }

    fn retry_change(
        &mut self,
        entry: Option<&Spanned<RetryEntry>>,
        name: &str,
        queues: &[BusinessQueue],
    ) -> RetryChange {
        let Some(spanned) = entry else {
            return RetryChange::default();
        };
        let entry = spanned.get_ref();
        let change = RetryChange {
            max_retries: entry.max_retries,
            max_retries_cap: entry.max_retries_cap,
            initial: self.duration(entry.initial.as_ref()),
            multiplier: entry.multiplier,
            max: self.duration(entry.max.as_ref()),
            jitter: entry.jitter,
        };
        let reached = queues.iter().filter(|queue| {
            queue.task_types.iter().any(|t| t == name) || queue.bind.iter().any(|p| p.matches(name))
        });
        for queue in reached {
            if let Err(e) = change.over(&queue.retry) {
                self.error(
                    spanned,
                    format!("retry, together with that of {:?}: {e}", queue.name),
                );
            }
        }
        change
    }

    fn rate(&mut self, text: Option<&Spanned<String>>) -> Option<Rate> {
        let text = text?;
        let rate = Rate::parse(text.get_ref());
        if rate.is_none() {
            let message = format!(
                "rate = {:?}: write how many in a second, minute or hour, e.g. \"100/s\", \"30/m\" or \"500/h\"",
                text.get_ref()
            );
            self.error(text, message);
        }
        rate
    }

    fn idempotency(&mut self, entry: &TaskTypeEntry) -> Idempotency {
        let lease = self.span(
            "idempotency_lease",
            entry.idempotency_lease.as_ref(),
            MIN_LEASE,
            MAX_LEASE,
        );
        let rule = KeyRule {
            field: entry
                .idempotency_field
                .as_ref()
                .and_then(|field| self.field(field)),
            lease: lease.unwrap_or(KeyRule::LEASE),
        };
        let mode = entry.idempotency.as_ref();
        match mode.map(|mode| mode.get_ref().as_str()) {
            Some("key") => return Idempotency::ByKey(rule),
            Some("database") => return Idempotency::Database(rule),
            Some("off") | None => {}
            Some(other) => {
                let message = format!("idempotency = {other:?}: use \"off\", \"key\" or \"database\"");
                mode.into_iter()
                    .for_each(|mode| self.error(mode, message.clone()));
                return Idempotency::Off;
            }
        }
        for (key, place) in [
            ("idempotency_field", &entry.idempotency_field),
            ("idempotency_lease", &entry.idempotency_lease),
        ] {
            if let Some(place) = place {
                self.error(
                    place,
                    format!("{key} without idempotency: add idempotency = \"key\", or drop it"),
                );
            }
        }
        Idempotency::Off
    }

    /// A JSON pointer to a member of the payload.
    fn field(&mut self, field: &Spanned<String>) -> Option<String> {
        let text = field.get_ref();
        let escapes = text.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']));
        if text.len() < 2 || text.len() > MAX_FIELD_BYTES || !text.starts_with('/') || !escapes {
            let message = format!(
                "idempotency_field = {text:?}: write a JSON pointer into the payload, e.g. \"/orderId\", of at most {MAX_FIELD_BYTES} bytes"
            );
            self.error(field, message);
            return None;
        }
        Some(text.clone())
    }
}
