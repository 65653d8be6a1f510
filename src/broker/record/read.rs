//! Text to properties, level by level: what a container holds is taken as raw text first, which costs no recursion, so that the
//! limit on depth is ours and not that of the JSON reader.

use std::{borrow::Cow, collections::BTreeMap};

use base64::{Engine, engine::general_purpose::STANDARD};
use lapin::{
    BasicProperties,
    types::{AMQPValue, DecimalValue, FieldTable, ShortString},
};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::{MAX_BYTES, MAX_DEPTH, RecordError};

pub(super) fn properties(text: &str) -> Result<BasicProperties, RecordError> {
    if text.len() > MAX_BYTES {
        return Err(RecordError(format!("more than {MAX_BYTES} bytes")));
    }
    let record: Record<'_> = parse(text)?;
    let headers = match record.headers {
        Some(headers) => Some(table(headers.get(), 0)?),
        None => None,
    };
    Ok(record.properties.with_headers(headers))
}

/// Serde's own words may quote what it met.
fn parse<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, RecordError> {
    serde_json::from_str(text).map_err(|error| {
        let (at, of) = (error.column(), text.len());
        RecordError(format!("something else stands at byte {at} of {of} of a part"))
    })
}

fn wrong(what: &str) -> RecordError {
    RecordError(what.to_owned())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Record<'a> {
    properties: Named,
    #[serde(borrow)]
    headers: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Named {
    content_type: Option<Short>,
    content_encoding: Option<Short>,
    delivery_mode: Option<u8>,
    priority: Option<u8>,
    correlation_id: Option<Short>,
    reply_to: Option<Short>,
    expiration: Option<Short>,
    message_id: Option<Short>,
    timestamp: Option<u64>,
    r#type: Option<Short>,
    user_id: Option<Short>,
    app_id: Option<Short>,
    cluster_id: Option<Short>,
}

impl Named {
    fn with_headers(self, headers: Option<FieldTable>) -> BasicProperties {
        let mut out = BasicProperties::default();
        macro_rules! set {
            ($($value:expr => $set:ident),*) => {
                $(if let Some(value) = $value { out = out.$set(value); })*
            };
        }
        let text = |text: Option<Short>| text.map(|Short(text)| text);
        set!(text(self.content_type) => with_content_type, text(self.content_encoding) => with_content_encoding,
            self.delivery_mode => with_delivery_mode, self.priority => with_priority,
            text(self.correlation_id) => with_correlation_id, text(self.reply_to) => with_reply_to,
            text(self.expiration) => with_expiration, text(self.message_id) => with_message_id,
            self.timestamp => with_timestamp, text(self.r#type) => with_type, text(self.user_id) => with_user_id,
            text(self.app_id) => with_app_id, text(self.cluster_id) => with_cluster_id, headers => with_headers);
        out
    }
}

/// A text that fits into a short string.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Short(ShortString);

impl<'de> Deserialize<'de> for Short {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        ShortString::try_new(text)
            .map(Self)
            .map_err(serde::de::Error::custom)
    }
}

/// A value as it stands in the text.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Field<'a> {
    t: char,
    #[serde(borrow)]
    v: Option<&'a RawValue>,
    #[serde(borrow)]
    b64: Option<Cow<'a, str>>,
    #[serde(borrow)]
    bits: Option<Cow<'a, str>>,
    scale: Option<u8>,
}

impl<'a> Field<'a> {
    fn value<T: Deserialize<'a>>(&self) -> Result<T, RecordError> {
        parse(self.v.ok_or_else(|| wrong("a value is missing"))?.get())
    }

    fn bytes(&self) -> Result<Vec<u8>, RecordError> {
        let text = self.b64.as_deref().ok_or_else(|| wrong("bytes are missing"))?;
        STANDARD
            .decode(text)
            .map_err(|_| wrong("bytes are not in base64"))
    }

    /// A finite number as text, or any other by its bits.
    fn float<T: std::str::FromStr>(
        &self,
        from_bits: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, RecordError> {
        let number = match self.bits.as_deref() {
            Some(bits) => from_bits(bits),
            None => self.value::<Cow<'_, str>>()?.parse().ok(),
        };
        number.ok_or_else(|| wrong("a float is no number"))
    }
}

/// The table in `text`, which lies `depth` containers below the headers' own.
fn table(text: &str, depth: usize) -> Result<FieldTable, RecordError> {
    let fields: BTreeMap<Short, &RawValue> = parse(text)?;
    let mut table = FieldTable::default();
    for (Short(name), raw) in fields {
        table.insert(name, value(raw.get(), depth)?);
    }
    Ok(table)
}

/// The value in `text`, in a container that lies `depth` below the headers' own.
fn value(text: &str, depth: usize) -> Result<AMQPValue, RecordError> {
    let field: Field<'_> = parse(text)?;
    let inside = || match field.v {
        Some(_) if depth >= MAX_DEPTH => Err(RecordError(format!("more than {MAX_DEPTH} levels"))),
        Some(raw) => Ok(raw.get()),
        None => Err(wrong("a value is missing")),
    };
    Ok(match field.t {
        't' => AMQPValue::Boolean(field.value()?),
        'b' => AMQPValue::ShortShortInt(field.value()?),
        'B' => AMQPValue::ShortShortUInt(field.value()?),
        's' => AMQPValue::ShortInt(field.value()?),
        'u' => AMQPValue::ShortUInt(field.value()?),
        'I' => AMQPValue::LongInt(field.value()?),
        'i' => AMQPValue::LongUInt(field.value()?),
        'l' => AMQPValue::LongLongInt(field.value()?),
        'T' => AMQPValue::Timestamp(field.value()?),
        'f' => AMQPValue::Float(field.float(|bits| u32::from_str_radix(bits, 16).ok().map(f32::from_bits))?),
        'd' => AMQPValue::Double(field.float(|bits| u64::from_str_radix(bits, 16).ok().map(f64::from_bits))?),
        'D' => AMQPValue::DecimalValue(DecimalValue {
            scale: field.scale.ok_or_else(|| wrong("a scale is missing"))?,
            value: field.value()?,
        }),
        '_' => AMQPValue::ShortString(field.value::<Short>()?.0),
        'S' if field.b64.is_some() => AMQPValue::LongString(field.bytes()?.into()),
        'S' => AMQPValue::LongString(field.value::<String>()?.into()),
        'x' => AMQPValue::ByteArray(field.bytes()?.into()),
        'A' => {
            let items: Vec<&RawValue> = parse(inside()?)?;
            let items: Result<Vec<_>, _> = items
                .into_iter()
                .map(|item| value(item.get(), depth + 1))
                .collect();
            AMQPValue::FieldArray(items?.into())
        }
        'F' => AMQPValue::FieldTable(table(inside()?, depth + 1)?),
        'V' => AMQPValue::Void,
        _ => return Err(wrong("a type is unknown")),
    })
}
