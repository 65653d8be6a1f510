//! The broker's own record of why it dead-lettered a message, read without trust.
//!
//! May import: the topology's names, lapin. Only router and archivist read it; it is never carried on.

use lapin::{BasicProperties, types::AMQPValue};

use crate::topology::migration::is_shelter;

/// The newest entry of the broker's death record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Death {
    /// `rejected`, `expired`, `maxlen` or `delivery_limit`.
    pub reason: String,
    /// The queue that dead-lettered it.
    pub queue: Option<String>,
    /// The routing key it had in that queue.
    pub routing_key: Option<String>,
}

/// Why the broker dead-lettered the message last, if it did.
pub fn last_death(properties: &BasicProperties) -> Option<Death> {
    let AMQPValue::FieldArray(deaths) = properties.headers().as_ref()?.inner().get("x-death")? else {
        return None;
    };
    let string = |value: &AMQPValue| match value {
        AMQPValue::LongString(text) => Some(text.to_string()),
        _ => None,
    };
    // A message that waited while its queue was migrated was rejected there on purpose: no death that anybody meant.
    let newest = deaths.as_slice().iter().find_map(|death| match death {
        AMQPValue::FieldTable(death) => {
            let queue = death.inner().get("queue").and_then(string);
            (!queue.is_some_and(|queue| is_shelter(&queue))).then_some(death)
        }
        _ => None,
    })?;
    let routing_key = match newest.inner().get("routing-keys") {
        Some(AMQPValue::FieldArray(keys)) => keys.as_slice().first().and_then(string),
        _ => None,
    };
    Some(Death {
        reason: string(newest.inner().get("reason")?)?,
        queue: newest.inner().get("queue").and_then(string),
        routing_key,
    })
}

#[cfg(test)]
mod tests {
    use lapin::types::FieldTable;

    use super::*;

    fn with_header(name: &str, value: AMQPValue) -> BasicProperties {
        let mut table = FieldTable::default();
        table.insert(name.into(), value);
        BasicProperties::default().with_headers(table)
    }

    #[test]
    fn the_newest_death_is_read() {
        let mut death = FieldTable::default();
        death.insert("reason".into(), AMQPValue::LongString("rejected".into()));
        death.insert("queue".into(), AMQPValue::LongString("order.close.queue".into()));
        death.insert(
            "routing-keys".into(),
            AMQPValue::FieldArray(vec![AMQPValue::LongString("order.close".into())].into()),
        );
        let deaths = AMQPValue::FieldArray(vec![AMQPValue::FieldTable(death)].into());
        let expected = Death {
            reason: "rejected".to_owned(),
            queue: Some("order.close.queue".to_owned()),
            routing_key: Some("order.close".to_owned()),
        };
        assert_eq!(last_death(&with_header("x-death", deaths)), Some(expected));
        assert_eq!(last_death(&with_header("x-death", AMQPValue::Void)), None);
    }
}
