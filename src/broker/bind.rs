//! One binding, and arguments as AMQP writes them: for whatever is declared, replaced or copied. Imports lapin.

use lapin::{
    Channel,
    options::{ExchangeBindOptions, QueueBindOptions},
    types::{AMQPValue, FieldArray, FieldTable},
};
use serde_json::Value;
use tidegate_core::ladder::Destination;

use super::message::short;
use crate::topology::live::Arguments;

/// Binds `destination` to `source`. Texts that AMQP can't carry are refused before, where they come from; a broker
/// has none.
pub(super) async fn bind(
    channel: &Channel,
    source: &str,
    destination: &Destination,
    pattern: &str,
    arguments: FieldTable,
) -> lapin::Result<()> {
    let text = |text: &str| short(text).unwrap_or_default();
    let (source, pattern) = (text(source), text(pattern));
    match destination {
        Destination::Queue(queue) => {
            let options = QueueBindOptions::default();
            channel
                .queue_bind(text(queue), source, pattern, options, arguments)
                .await
        }
        Destination::Exchange(exchange) => {
            let options = ExchangeBindOptions::default();
            channel
                .exchange_bind(text(exchange), source, pattern, options, arguments)
                .await
        }
    }
}

/// Arguments that were read as JSON; what JSON can't say of their types doesn't matter to the broker.
pub(super) fn table(arguments: &Arguments) -> FieldTable {
    let mut table = FieldTable::default();
    for (key, value) in arguments {
        table.insert(short(key).unwrap_or_default(), amqp(value));
    }
    table
}

fn amqp(value: &Value) -> AMQPValue {
    match value {
        Value::Null => AMQPValue::Void,
        Value::Bool(yes) => AMQPValue::Boolean(*yes),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => AMQPValue::LongLongInt(whole),
            None => AMQPValue::Double(number.as_f64().unwrap_or_default()),
        },
        Value::String(text) => AMQPValue::LongString(text.as_str().into()),
        Value::Array(values) => {
            let mut array = FieldArray::default();
            values.iter().for_each(|value| array.push(amqp(value)));
            AMQPValue::FieldArray(array)
        }
        Value::Object(map) => {
            let map = map.clone().into_iter().collect();
            AMQPValue::FieldTable(table(&map))
        }
    }
}
