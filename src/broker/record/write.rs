//! Properties to text.

use base64::{Engine, engine::general_purpose::STANDARD};
use lapin::{
    BasicProperties,
    types::{AMQPValue, FieldTable},
};

use super::MAX_DEPTH;

pub(super) fn text(properties: &BasicProperties) -> String {
    let mut out = String::with_capacity(512);
    out.push_str("{\"properties\":{");
    let mut comma = Comma::default();
    macro_rules! texts {
        ($($name:literal => $get:ident),*) => {
            $(if let Some(value) = properties.$get() {
                comma.next(&mut out);
                out.push_str(concat!("\"", $name, "\":"));
                string(&mut out, value.as_str());
            })*
        };
    }
    macro_rules! numbers {
        ($($name:literal => $get:ident),*) => {
            $(if let Some(value) = properties.$get() {
                comma.next(&mut out);
                out.push_str(concat!("\"", $name, "\":"));
                out.push_str(&value.to_string());
            })*
        };
    }
    texts!("content_type" => content_type, "content_encoding" => content_encoding);
    numbers!("delivery_mode" => delivery_mode, "priority" => priority);
    texts!("correlation_id" => correlation_id, "reply_to" => reply_to, "expiration" => expiration,
        "message_id" => message_id);
    numbers!("timestamp" => timestamp);
    texts!("type" => kind, "user_id" => user_id, "app_id" => app_id, "cluster_id" => cluster_id);
    out.push('}');
    if let Some(headers) = properties.headers() {
        out.push_str(",\"headers\":");
        table(&mut out, headers, 0);
    }
    out.push('}');
    out
}

fn table(out: &mut String, fields: &FieldTable, depth: usize) {
    out.push('{');
    let mut comma = Comma::default();
    for (name, field) in fields.inner() {
        if is_too_deep(field, depth) {
            continue;
        }
        comma.next(out);
        string(out, name.as_str());
        out.push(':');
        value(out, field, depth);
    }
    out.push('}');
}

fn is_too_deep(value: &AMQPValue, depth: usize) -> bool {
    depth >= MAX_DEPTH && matches!(value, AMQPValue::FieldTable(_) | AMQPValue::FieldArray(_))
}

fn value(out: &mut String, value: &AMQPValue, depth: usize) {
    out.push_str("{\"t\":\"");
    out.push(value.get_type().get_id());
    out.push('"');
    match value {
        AMQPValue::Boolean(v) => plain(out, v),
        AMQPValue::ShortShortInt(v) => plain(out, v),
        AMQPValue::ShortShortUInt(v) => plain(out, v),
        AMQPValue::ShortInt(v) => plain(out, v),
        AMQPValue::ShortUInt(v) => plain(out, v),
        AMQPValue::LongInt(v) => plain(out, v),
        AMQPValue::LongUInt(v) => plain(out, v),
        AMQPValue::LongLongInt(v) => plain(out, v),
        AMQPValue::Timestamp(v) => plain(out, v),
        AMQPValue::Float(v) if v.is_finite() => quoted(out, "v", v),
        AMQPValue::Double(v) if v.is_finite() => quoted(out, "v", v),
        AMQPValue::Float(v) => quoted(out, "bits", format_args!("{:08x}", v.to_bits())),
        AMQPValue::Double(v) => quoted(out, "bits", format_args!("{:016x}", v.to_bits())),
        AMQPValue::DecimalValue(v) => {
            out.push_str(&format!(",\"scale\":{},\"v\":{}", v.scale, v.value));
        }
        AMQPValue::ShortString(v) => {
            out.push_str(",\"v\":");
            string(out, v.as_str());
        }
        AMQPValue::LongString(v) => match std::str::from_utf8(v.as_bytes()) {
            Ok(text) if !text.contains('\0') => {
                out.push_str(",\"v\":");
                string(out, text);
            }
            _ => quoted(out, "b64", STANDARD.encode(v.as_bytes())),
        },
        AMQPValue::ByteArray(v) => quoted(out, "b64", STANDARD.encode(v.as_slice())),
        AMQPValue::FieldArray(items) => {
            out.push_str(",\"v\":[");
            let mut comma = Comma::default();
            for item in items.as_slice() {
                if is_too_deep(item, depth + 1) {
                    continue;
                }
                comma.next(out);
                self::value(out, item, depth + 1);
            }
            out.push(']');
        }
        AMQPValue::FieldTable(fields) => {
            out.push_str(",\"v\":");
            table(out, fields, depth + 1);
        }
        AMQPValue::Void => {}
    }
    out.push('}');
}

fn plain(out: &mut String, value: impl ToString) {
    out.push_str(",\"v\":");
    out.push_str(&value.to_string());
}

/// `value` needs no escape.
fn quoted(out: &mut String, key: &str, value: impl std::fmt::Display) {
    out.push_str(&format!(",\"{key}\":\"{value}\""));
}

/// A JSON string in ASCII.
fn string(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            ' '..='~' => out.push(c),
            c => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    out.push_str(&format!("\\u{unit:04x}"));
                }
            }
        }
    }
    out.push('"');
}

/// Puts a comma before all but the first.
#[derive(Default)]
struct Comma(bool);

impl Comma {
    fn next(&mut self, out: &mut String) {
        if self.0 {
            out.push(',');
        }
        self.0 = true;
    }
}
