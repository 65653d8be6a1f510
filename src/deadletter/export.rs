//! A day of the archive as NDJSON: one dead letter a line, with all that is known of it and its exact bytes.
//!
//! May import: `store`, serde_json, base64, flate2. Memory is that of one fetch, however much a day holds. An export that ends
//! without an error is complete; one that does not has written part of it, which is why whoever wants a file writes it under
//! another name first.

use std::io::{self, Write};

use base64::{Engine, engine::general_purpose::STANDARD};
use chrono::{DateTime, NaiveDate, SecondsFormat, Utc};
use flate2::{Compression, write::GzEncoder};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::store::{Store, StoreError, dead_letters::one::Letter};

/// Why an export is not complete.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// Nothing was archived on that day, or it is no longer kept.
    #[error("nothing is kept of what was archived on {0}")]
    NoSuchDay(NaiveDate),
    /// The archive can't be read to the end.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What it is written to doesn't take it.
    #[error("it can't be written: {0}")]
    Io(#[from] io::Error),
}

/// A line.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Line<'l> {
    id: String,
    day: String,
    archived_at: String,
    died_at: String,
    first_failed_at: Option<String>,
    task_id: Option<&'l str>,
    task_type: Option<&'l str>,
    queue: &'l str,
    routing_key: Option<&'l str>,
    reason: &'l str,
    error_kind: &'l str,
    error: &'l str,
    attempts: i32,
    fingerprint: String,
    deaths: i32,
    state: &'l str,
    replay_id: Option<String>,
    replayed_at: Option<String>,
    sent_task_id: Option<&'l str>,
    discarded_in: Option<i64>,
    parent_id: Option<String>,
    sent_by: Option<String>,
    /// The body, where it is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<&'l str>,
    /// The body in base64 where it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    body_base64: Option<String>,
    /// As they are stored.
    properties: Box<RawValue>,
}

/// Writes what was archived on `day` (UTC), oldest first, to `to`, as gzip if asked for; returns how many lines.
pub async fn export<W: Write>(store: &Store, day: NaiveDate, gzip: bool, to: W) -> Result<u64, ExportError> {
    let mut export = store
        .dead_letters()
        .export(day)
        .await?
        .ok_or(ExportError::NoSuchDay(day))?;
    let mut to = Sink::new(to, gzip);
    let (mut lines, mut text) = (0, Vec::new());
    loop {
        let letters = export.next().await?;
        if letters.is_empty() {
            to.finish()?;
            return Ok(lines);
        }
        for letter in &letters {
            text.clear();
            write_line(letter, &mut text)?;
            to.write_all(&text)?;
            lines += 1;
        }
    }
}

/// One dead letter as a line of JSON.
pub fn write_line(letter: &Letter, to: &mut Vec<u8>) -> io::Result<()> {
    serde_json::to_writer(&mut *to, &line(letter)?)?;
    to.push(b'\n');
    Ok(())
}

fn line(letter: &Letter) -> io::Result<Line<'_>> {
    let listed = &letter.listed;
    let text = std::str::from_utf8(&letter.body).ok();
    // A text that is no JSON of one line was not written by us; as a string it is still complete.
    let properties = match RawValue::from_string(letter.properties.clone()) {
        Ok(json) if !json.get().contains('\n') => json,
        _ => serde_json::value::to_raw_value(&letter.properties)?,
    };
    Ok(Line {
        id: listed.id.to_string(),
        day: listed.day.to_string(),
        archived_at: shown(listed.archived_at),
        died_at: shown(listed.died_at),
        first_failed_at: letter.first_failed_at.map(shown),
        task_id: listed.task_id.as_deref(),
        task_type: listed.task_type.as_deref(),
        queue: &listed.queue,
        routing_key: letter.routing_key.as_deref(),
        reason: &listed.reason,
        error_kind: &listed.error_kind,
        error: &listed.error,
        attempts: listed.attempts,
        fingerprint: listed.fingerprint.to_string(),
        deaths: listed.deaths,
        state: listed.state.as_str(),
        replay_id: listed.replay_id.map(|id| id.to_string()),
        replayed_at: letter.replayed_at.map(shown),
        sent_task_id: letter.sent_task_id.as_deref(),
        discarded_in: letter.discarded_in,
        parent_id: letter.parent.map(|id| id.to_string()),
        sent_by: letter.sent_by.map(|id| id.to_string()),
        body: text,
        body_base64: text.is_none().then(|| STANDARD.encode(&letter.body)),
        properties,
    })
}

fn shown(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Micros, true)
}

/// Where the lines go, packed or not.
enum Sink<W: Write> {
    Plain(W),
    Packed(GzEncoder<W>),
}

impl<W: Write> Sink<W> {
    fn new(to: W, gzip: bool) -> Self {
        if gzip {
            Self::Packed(GzEncoder::new(to, Compression::default()))
        } else {
            Self::Plain(to)
        }
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(to) => to.write_all(bytes),
            Self::Packed(to) => to.write_all(bytes),
        }
    }

    fn finish(self) -> io::Result<()> {
        match self {
            Self::Plain(mut to) => to.flush(),
            Self::Packed(to) => to.finish()?.flush(),
        }
    }
}
