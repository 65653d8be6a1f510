//! The names of the fields at the top level of a body, in their two spellings.

/// A field of the wire format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    TaskId,
    TaskType,
    PayloadVersion,
    Payload,
    ScheduleTime,
    TimeoutMs,
    MaxRetries,
    Priority,
    IdempotencyKey,
    Producer,
    TraceId,
    Timestamp,
    RetryCount,
}

/// Every field with its camelCase and snake_case spelling, in the order of [`Field`].
pub(super) const FIELDS: [(Field, &str, &str); 13] = [
    (Field::TaskId, "taskId", "task_id"),
    (Field::TaskType, "taskType", "task_type"),
    (Field::PayloadVersion, "payloadVersion", "payload_version"),
    (Field::Payload, "payload", "payload"),
    (Field::ScheduleTime, "scheduleTime", "schedule_time"),
    (Field::TimeoutMs, "timeoutMs", "timeout_ms"),
    (Field::MaxRetries, "maxRetries", "max_retries"),
    (Field::Priority, "priority", "priority"),
    (Field::IdempotencyKey, "idempotencyKey", "idempotency_key"),
    (Field::Producer, "producer", "producer"),
    (Field::TraceId, "traceId", "trace_id"),
    (Field::Timestamp, "timestamp", "timestamp"),
    (Field::RetryCount, "retryCount", "retry_count"),
];

/// The fields that have no default.
pub(super) const REQUIRED: [Field; 3] = [Field::TaskId, Field::TaskType, Field::Payload];

impl Field {
    /// The field that `name` spells, either way.
    pub(super) fn by_name(name: &str) -> Option<Self> {
        FIELDS
            .iter()
            .find(|(_, camel, snake)| name == *camel || name == *snake)
            .map(|(field, ..)| *field)
    }

    /// Its camelCase spelling.
    pub(super) fn camel(self) -> &'static str {
        FIELDS[self as usize].1
    }
}

/// Names the field that was probably meant: the right letters in the wrong case, or with other separators.
pub(super) fn unknown_field_advice(name: &str) -> String {
    let letters = |name: &str| -> String {
        name.chars()
            .filter(char::is_ascii_alphanumeric)
            .map(|c| c.to_ascii_lowercase())
            .take(32)
            .collect()
    };
    let meant = letters(name);
    match FIELDS.iter().find(|(_, camel, _)| letters(camel) == meant) {
        Some((_, camel, _)) => format!("no such field; {camel} is probably meant"),
        None => "no such field; put data of your own into payload".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_fields_is_in_the_order_of_the_enum() {
        for (at, (field, camel, snake)) in FIELDS.into_iter().enumerate() {
            assert_eq!(field as usize, at);
            assert_eq!(
                (Field::by_name(camel), Field::by_name(snake)),
                (Some(field), Some(field))
            );
        }
    }
}
