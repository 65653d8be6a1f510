//! Properties for people.

use lapin::{
    BasicProperties,
    types::{AMQPValue, FieldTable},
};
use tidegate_core::printable;

/// Most characters of one value.
const MAX_CHARS: usize = 4_096;

pub(super) fn lines(properties: &BasicProperties) -> Vec<(String, String)> {
    let mut lines = Vec::new();
    macro_rules! texts {
        ($($name:literal => $get:ident),*) => {
            $(if let Some(value) = properties.$get() {
                lines.push(($name.to_owned(), cut(&printable::line(value.as_str()))));
            })*
        };
    }
    macro_rules! numbers {
        ($($name:literal => $get:ident),*) => {
            $(if let Some(value) = properties.$get() {
                lines.push(($name.to_owned(), value.to_string()));
            })*
        };
    }
    texts!("content_type" => content_type, "content_encoding" => content_encoding);
    numbers!("delivery_mode" => delivery_mode, "priority" => priority);
    texts!("correlation_id" => correlation_id, "reply_to" => reply_to, "expiration" => expiration,
        "message_id" => message_id);
    numbers!("timestamp" => timestamp);
    texts!("type" => kind, "user_id" => user_id, "app_id" => app_id, "cluster_id" => cluster_id);
    for (name, value) in properties.headers().iter().flat_map(|headers| headers.inner()) {
        let mut text = String::new();
        show(&mut text, value);
        lines.push((format!("headers.{}", printable::line(name.as_str())), cut(&text)));
    }
    lines
}

/// Ends early once there is more than can be shown.
fn show(out: &mut String, value: &AMQPValue) {
    if out.len() > 4 * MAX_CHARS {
        return;
    }
    match value {
        AMQPValue::Boolean(v) => out.push_str(&v.to_string()),
        AMQPValue::ShortShortInt(v) => out.push_str(&v.to_string()),
        AMQPValue::ShortShortUInt(v) => out.push_str(&v.to_string()),
        AMQPValue::ShortInt(v) => out.push_str(&v.to_string()),
        AMQPValue::ShortUInt(v) => out.push_str(&v.to_string()),
        AMQPValue::LongInt(v) => out.push_str(&v.to_string()),
        AMQPValue::LongUInt(v) => out.push_str(&v.to_string()),
        AMQPValue::LongLongInt(v) => out.push_str(&v.to_string()),
        AMQPValue::Timestamp(v) => out.push_str(&format!("@{v}")),
        AMQPValue::Float(v) => out.push_str(&v.to_string()),
        AMQPValue::Double(v) => out.push_str(&v.to_string()),
        AMQPValue::DecimalValue(v) => out.push_str(&format!("{}e-{}", v.value, v.scale)),
        AMQPValue::ShortString(v) => out.push_str(&printable::line(v.as_str())),
        AMQPValue::LongString(v) => bytes(out, v.as_bytes()),
        AMQPValue::ByteArray(v) => bytes(out, v.as_slice()),
        AMQPValue::Void => out.push_str("(void)"),
        AMQPValue::FieldArray(items) => {
            out.push('[');
            for (at, item) in items.as_slice().iter().enumerate() {
                if at > 0 {
                    out.push_str(", ");
                }
                show(out, item);
            }
            out.push(']');
        }
        AMQPValue::FieldTable(fields) => table(out, fields),
    }
}

fn table(out: &mut String, fields: &FieldTable) {
    out.push('{');
    for (at, (name, value)) in fields.inner().iter().enumerate() {
        if at > 0 {
            out.push_str(", ");
        }
        out.push_str(&printable::line(name.as_str()));
        out.push_str(": ");
        show(out, value);
    }
    out.push('}');
}

fn bytes(out: &mut String, bytes: &[u8]) {
    out.push_str(&printable::line(&printable::bytes(bytes, MAX_CHARS)));
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(MAX_CHARS) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}
