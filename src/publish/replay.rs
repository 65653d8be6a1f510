//! A dead letter's message, out of the archive and out again.
//!
//! May import: as `publish`. Properties and headers are those that the archive keeps, but for what the core's
//! [`header_fate`] drops; the bytes are handed in. A replay to a queue takes the ladder's end, as a message that is given back
//! does, and reaches that queue only. The archive marks a dead letter as replayed only after `Ok`: a crash between sends it
//! again, under the same message id.

use std::time::Duration;

use bytes::Bytes;
use lapin::BasicProperties;
use tidegate_core::{
    envelope::Envelope,
    headers,
    ladder::{self, Target},
    names::Names,
    replay::{
        choice::Retries,
        header::{HeaderValue, header_fate},
    },
};

use super::{SendError, TaskPublisher};
use crate::broker::{
    message::{self, short},
    publisher::Outgoing,
    record::{self, RecordError},
};

/// The properties of a dead letter, as they came.
#[derive(Clone, Debug)]
pub struct Restored(BasicProperties);

/// What changes beside the body.
#[derive(Clone, Copy, Debug)]
pub struct Changes<'c> {
    /// Headers to set.
    pub headers: &'c [(&'static str, HeaderValue)],
    /// What the body says, where it was edited.
    pub envelope: Option<&'c Envelope>,
    /// From where attempts count.
    pub retries: Retries,
    /// The key it was first published with, for a message that doesn't say.
    pub routing_key: Option<&'c str>,
    /// The message id of one that has none, at most 255 bytes.
    pub message_id: &'c str,
}

/// A message that may go out again.
#[derive(Clone, Debug)]
pub struct Again {
    body: Bytes,
    properties: BasicProperties,
    /// The key it was first published with.
    routing_key: Option<String>,
}

impl Restored {
    /// The properties that the archive keeps as `text`.
    ///
    /// # Errors
    /// The text is none of ours: see [`record::restore`].
    pub fn from_text(text: &str) -> Result<Self, RecordError> {
        record::restore(text).map(Self)
    }

    /// `content_encoding`, if there is one.
    pub fn encoding(&self) -> Option<&str> {
        message::encoding(&self.0)
    }

    /// The message of `body` with these properties and `changes`.
    pub fn again(&self, body: Bytes, changes: &Changes<'_>) -> Again {
        let (mut properties, carried) = message::carried(&self.0);
        let mut headers = carried.only(|name| header_fate(name, changes.retries).is_kept());
        for (name, value) in changes.headers {
            headers = match value {
                HeaderValue::Text(text) => headers.text(name, text),
                HeaderValue::Integer(number) => headers.integer(name, *number),
            };
        }
        if let Some(key) = changes.routing_key {
            headers = headers.text_if_absent(headers::ROUTING_KEY, key);
        }
        if let Some(envelope) = changes.envelope {
            properties = described(properties, envelope);
        }
        if properties.message_id().is_none() {
            properties = properties.with_message_id(short(changes.message_id).unwrap_or_default());
        }
        Again {
            body,
            properties: properties.with_headers(headers.into_table()),
            routing_key: changes.routing_key.map(ToOwned::to_owned),
        }
    }
}

/// Properties that say what an edited body says; it is plain JSON, whatever the original was packed in.
fn described(properties: BasicProperties, envelope: &Envelope) -> BasicProperties {
    let mut described = BasicProperties::default().with_delivery_mode(2);
    macro_rules! keep {
        ($($get:ident => $set:ident),*) => {
            $(if let Some(value) = properties.$get().clone() { described = described.$set(value); })*
        };
    }
    keep!(correlation_id => with_correlation_id, reply_to => with_reply_to, timestamp => with_timestamp,
        app_id => with_app_id, priority => with_priority);
    described = described.with_content_type("application/json".into());
    if let Some(id) = short(envelope.task_id.as_str()) {
        described = described.with_message_id(id);
    }
    if let Some(task_type) = short(envelope.task_type.as_str()) {
        described = described.with_type(task_type);
    }
    if let Some(producer) = envelope.producer.as_deref().and_then(short) {
        described = described.with_app_id(producer);
    }
    if let Some(trace) = envelope.trace_id.as_deref().and_then(short) {
        described = described.with_correlation_id(trace);
    }
    described
}

impl TaskPublisher {
    /// Sends `again` to `target` at once; a task of high `priority` goes to a key by its lane. `Ok` means confirmed.
    pub async fn replay(
        &self,
        again: Again,
        target: &Target,
        priority: u8,
        task_type: Option<&str>,
    ) -> Result<(), SendError> {
        let ingress = self.topology.names.ingress();
        let (exchange, routing_key) = match target {
            // The ladder ends in business queues only. What comes in by the ingress has its own key there.
            Target::Queue(queue) if *queue == Names::queue_of(&ingress) => {
                (ingress, again.routing_key.unwrap_or_default())
            }
            Target::Key(key) => self.route(key, priority, Duration::ZERO)?,
            Target::Queue(_) | Target::HighKey(_) => {
                let route = ladder::route(&self.topology.names, Duration::ZERO, target)?;
                (route.exchange, route.routing_key)
            }
        };
        let message = Outgoing {
            exchange,
            routing_key,
            body: again.body,
            properties: again.properties,
        };
        self.publish(message, task_type).await
    }
}

#[cfg(test)]
mod tests {
    use lapin::types::{AMQPValue, FieldTable, ShortString};

    use super::*;

    fn restored() -> Restored {
        let mut table = FieldTable::default();
        for (name, value) in [
            ("tenant", AMQPValue::ByteArray(vec![0, 255].into())),
            ("traceparent", AMQPValue::LongString("00-ab".into())),
            (headers::ATTEMPT, AMQPValue::LongLongInt(4)),
            (headers::ERROR, AMQPValue::LongString("declined".into())),
            (headers::DEAD_REASON, AMQPValue::LongString("rejected".into())),
            (headers::CRASHES, AMQPValue::LongLongInt(2)),
            (headers::WAITS, AMQPValue::LongLongInt(9)),
            (headers::DEAD_LETTER_ID, AMQPValue::LongString("x".into())),
            ("x-death", AMQPValue::FieldArray(Vec::new().into())),
        ] {
            table.insert(name.into(), value);
        }
        Restored(
            BasicProperties::default()
                .with_headers(table)
                .with_content_encoding("gzip".into())
                .with_reply_to("answers".into())
                .with_correlation_id("old-trace".into())
                .with_user_id("somebody".into()),
        )
    }

    fn changes() -> Changes<'static> {
        Changes {
            headers: &[(headers::ATTEMPT, HeaderValue::Integer(1))],
            envelope: None,
            retries: Retries::Reset,
            routing_key: Some("order.close"),
            message_id: "made-up",
        }
    }

    /// B80: type, key, trace and the application's own stay; what tells of the last life goes.
    #[test]
    fn a_replay_keeps_what_describes_the_task() {
        let again = restored().again(Bytes::new(), &changes());
        let table = again.properties.headers().clone().unwrap();
        let names: Vec<String> = table.inner().keys().map(ToString::to_string).collect();
        assert_eq!(
            names,
            ["tenant", "traceparent", headers::ATTEMPT, headers::ROUTING_KEY]
        );
        assert_eq!(table.inner()["tenant"], AMQPValue::ByteArray(vec![0, 255].into()));
        assert_eq!(table.inner()[headers::ATTEMPT], AMQPValue::LongLongInt(1));
        assert_eq!(
            again.properties.message_id().as_ref().unwrap().as_str(),
            "made-up"
        );
        assert_eq!(
            again.properties.content_encoding().as_ref().unwrap().as_str(),
            "gzip"
        );
        assert!(again.properties.user_id().is_none());
    }

    #[test]
    fn an_edited_body_is_described_by_what_it_says() {
        let body = br#"{"taskId":"t-2","taskType":"order.close","payload":{},"producer":"web"}"#;
        let envelope = Envelope::parse(
            body,
            &tidegate_core::envelope::Limits::standard(),
            chrono::Utc::now(),
        )
        .unwrap();
        let changes = Changes {
            envelope: Some(&envelope),
            ..changes()
        };
        let properties = restored().again(Bytes::from_static(body), &changes).properties;
        let text = |value: &Option<ShortString>| value.as_ref().map(|text| text.as_str().to_owned());
        assert_eq!(text(properties.message_id()).as_deref(), Some("t-2"));
        assert_eq!(text(properties.kind()).as_deref(), Some("order.close"));
        assert_eq!(text(properties.app_id()).as_deref(), Some("web"));
        assert_eq!(text(properties.reply_to()).as_deref(), Some("answers"));
        assert_eq!(
            text(properties.correlation_id()).as_deref(),
            Some("old-trace"),
            "the body says none"
        );
        assert!(
            properties.content_encoding().is_none(),
            "it is not packed any more"
        );
    }
}
