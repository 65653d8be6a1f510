//! The settings as people read them: what is in force, and the documentation's table.
//!
//! May import: `fields`, `layers`. Secrets are masked here and nowhere else needs to.

use std::fmt::Write;

use serde::Serialize;
use toml::Value;

use super::{
    fields::{FIELDS, Field},
    kind::Kind,
    layers::{Setting, Settings},
    url::{AmqpUrl, DatabaseUrl, MASK, ManagementUrl, WebhookUrl},
};

/// One setting as it is shown.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Shown {
    /// Key.
    pub key: &'static str,
    /// Value, masked where secret; `None` if it has none.
    pub value: Option<Value>,
    /// Where it is from.
    pub source: Option<String>,
    /// Environment variable.
    pub env: &'static str,
}

/// All settings, masked.
pub fn shown(settings: &Settings) -> Vec<Shown> {
    let one = |field: &'static Field| {
        let setting = settings.get(field.key);
        Shown {
            key: field.key,
            value: setting.map(|setting| masked(field, setting)),
            source: setting.map(|setting| setting.source.to_string()),
            env: field.env,
        }
    };
    FIELDS.iter().map(one).collect()
}

fn masked(field: &Field, setting: &Setting) -> Value {
    let text = setting.value.as_str().unwrap_or_default();
    match field.kind {
        Kind::AmqpUrl => AmqpUrl::parse(text)
            .map_or(MASK.to_owned(), |url| url.to_string())
            .into(),
        Kind::ManagementUrl => ManagementUrl::parse(text)
            .map_or(MASK.to_owned(), |url| url.to_string())
            .into(),
        Kind::DatabaseUrl => DatabaseUrl::parse(text)
            .map_or(MASK.to_owned(), |url| url.to_string())
            .into(),
        Kind::WebhookUrl => WebhookUrl::parse(text)
            .map_or(MASK.to_owned(), |url| url.to_string())
            .into(),
        _ => setting.value.clone(),
    }
}

/// The table of `docs/configuration.md`.
pub fn documentation() -> String {
    let mut table =
        String::from("| Key | Environment | Default | Unit | What it does |\n|---|---|---|---|---|\n");
    for field in FIELDS {
        let default = field
            .default
            .map_or("—".to_owned(), |default| format!("`{default}`"));
        // Writing to a String can't fail.
        let _ = writeln!(
            table,
            "| `{}` | `{}` | {default} | {} | {}{} |",
            field.key,
            field.env,
            field.unit,
            field.about,
            limits(field.kind)
        );
    }
    table
}

fn limits(kind: Kind) -> String {
    match kind {
        Kind::Count { min, max } => format!(" {min} to {max}."),
        Kind::Duration { min, max } => format!(" {} to {}.", span(min), span(max)),
        Kind::List(names) => format!(" Of {}.", names.join(", ")),
        _ => String::new(),
    }
}

/// `milliseconds` in the largest unit that needs no fraction.
fn span(milliseconds: u64) -> String {
    for (unit, name) in [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s")] {
        if milliseconds >= unit && milliseconds.is_multiple_of(unit) {
            return format!("{}{name}", milliseconds / unit);
        }
    }
    if milliseconds == 0 {
        "0s".to_owned()
    } else {
        format!("{milliseconds}ms")
    }
}
