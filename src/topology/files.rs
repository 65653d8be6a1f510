//! The TOML of a topology directory: what may be written in it, and at which line it stands.
//!
//! One wrong `[[queue]]` must not hide what is wrong with the next, so each table is read on its own. Knows the
//! shape of the files, not their meaning (that is `resolve`). Imports only the errors.

use std::{
    fs,
    io::Read,
    path::{Path, PathBuf},
};

use serde::Deserialize;
use toml::{
    Spanned,
    de::{DeTable, DeValue, ValueDeserializer},
};

use super::errors::{FileError, Place, TopologyErrors};

/// The file with the platform's own settings; every other one is a team's.
pub(super) const PLATFORM_FILE: &str = "platform.toml";
/// Longest file in bytes.
const MAX_FILE_BYTES: u64 = 1024 * 1024;
/// Most files in a directory.
const MAX_FILES: usize = 1000;

/// A file as read.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) path: PathBuf,
    pub(super) text: String,
}

/// `platform.toml`.
#[derive(Debug, Default)]
pub(super) struct PlatformFile {
    pub(super) prefix: Option<Spanned<String>>,
    pub(super) ladder_version: Option<Spanned<i64>>,
    pub(super) defaults: Defaults,
    pub(super) fixed_delays: Vec<FixedDelayEntry>,
}

/// `[defaults]`: what a queue gets that doesn't say otherwise.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Defaults {
    pub(super) retry: Option<Spanned<RetryEntry>>,
    pub(super) delivery_limit: Option<Spanned<i64>>,
    pub(super) consumer_timeout: Option<Spanned<String>>,
}

/// `[[fixed_delay]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FixedDelayEntry {
    pub(super) name: Spanned<String>,
    pub(super) ttl: Option<Spanned<String>>,
}

/// `[[queue]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct QueueEntry {
    pub(super) name: Spanned<String>,
    pub(super) bind: Spanned<Vec<Spanned<String>>>,
    pub(super) owner: Spanned<String>,
    #[serde(default)]
    pub(super) task_types: Vec<Spanned<String>>,
    pub(super) retry: Option<Spanned<RetryEntry>>,
    pub(super) high_lane: Option<HighLaneEntry>,
    pub(super) delivery_limit: Option<Spanned<i64>>,
    pub(super) max_length: Option<Spanned<i64>>,
    #[serde(default)]
    pub(super) single_active_consumer: bool,
    pub(super) consumer_timeout: Option<Spanned<String>>,
    pub(super) max_timeout: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) fan_out: bool,
}

/// `[[task_type]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TaskTypeEntry {
    pub(super) name: Spanned<String>,
    pub(super) retry: Option<Spanned<RetryEntry>>,
    pub(super) timeout: Option<Spanned<String>>,
    pub(super) quick_retries: Option<Spanned<i64>>,
    pub(super) quick_pause: Option<Spanned<String>>,
    pub(super) concurrency: Option<Spanned<i64>>,
    pub(super) retry_concurrency: Option<Spanned<i64>>,
    pub(super) rate: Option<Spanned<String>>,
    pub(super) idempotency: Option<Spanned<String>>,
    pub(super) idempotency_field: Option<Spanned<String>>,
    pub(super) idempotency_lease: Option<Spanned<String>>,
}

/// A team's file.
#[derive(Debug, Default)]
pub(super) struct TeamFile {
    pub(super) queues: Vec<QueueEntry>,
    pub(super) task_types: Vec<TaskTypeEntry>,
}

/// `retry = { … }`; durations are texts such as `"1s"` or `"10m"`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RetryEntry {
    pub(super) max_retries: Option<u32>,
    pub(super) max_retries_cap: Option<u32>,
    pub(super) initial: Option<Spanned<String>>,
    pub(super) multiplier: Option<f64>,
    pub(super) max: Option<Spanned<String>>,
    pub(super) jitter: Option<f64>,
}

/// `high_lane = { threshold = 200 }`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HighLaneEntry {
    pub(super) threshold: Spanned<i64>,
}

impl Source {
    /// An error at a byte offset of this file.
    pub(super) fn error(&self, offset: usize, message: impl Into<String>) -> FileError {
        FileError {
            file: self.path.clone(),
            line: self.line(offset),
            message: message.into(),
        }
    }

    /// The place of a byte offset of this file.
    pub(super) fn place(&self, offset: usize) -> Place {
        Place {
            file: self.path.clone(),
            line: self.line(offset),
        }
    }

    /// The line, from 1, of a byte offset.
    pub(super) fn line(&self, offset: usize) -> usize {
        1 + self.text.bytes().take(offset).filter(|b| *b == b'\n').count()
    }

    pub(super) fn is_platform(&self) -> bool {
        self.path.file_name().is_some_and(|name| name == PLATFORM_FILE)
    }

    /// This file as `platform.toml`.
    pub(super) fn platform(&self, errors: &mut Vec<FileError>) -> PlatformFile {
        let mut file = PlatformFile::default();
        self.tables(errors, |source, key, value, errors| match key {
            "prefix" => file.prefix = source.read(value, errors),
            "ladder_version" => file.ladder_version = source.read(value, errors),
            "defaults" => file.defaults = source.read(value, errors).unwrap_or_default(),
            "fixed_delay" => file.fixed_delays = source.list("fixed_delay", value, errors),
            "queue" | "task_type" => errors.push(source.error(
                value.span().start,
                format!("queues and task types belong into a team's file: move this [[{key}]] to e.g. order.toml"),
            )),
            _ => errors.push(source.error(
                value.span().start,
                format!("unknown key `{key}`: {PLATFORM_FILE} takes prefix, ladder_version, [defaults] and [[fixed_delay]]"),
            )),
        });
        file
    }

    /// This file as a team's.
    pub(super) fn team(&self, errors: &mut Vec<FileError>) -> TeamFile {
        let mut file = TeamFile::default();
        self.tables(errors, |source, key, value, errors| match key {
            "queue" => file.queues = source.list("queue", value, errors),
            "task_type" => file.task_types = source.list("task_type", value, errors),
            "prefix" | "ladder_version" | "defaults" | "fixed_delay" => errors.push(source.error(
                value.span().start,
                format!("`{key}` is for the whole platform: move it to {PLATFORM_FILE}"),
            )),
            _ => errors.push(source.error(
                value.span().start,
                format!("unknown key `{key}`: a team's file holds [[queue]] and [[task_type]] tables only"),
            )),
        });
        file
    }

    fn tables<'a>(
        &'a self,
        errors: &mut Vec<FileError>,
        mut each: impl FnMut(&'a Self, &str, Spanned<DeValue<'a>>, &mut Vec<FileError>),
    ) {
        let (table, syntax) = DeTable::parse_recoverable(&self.text);
        if !syntax.is_empty() {
            // What follows a syntax error is guesswork: report the syntax only.
            errors.extend(syntax.iter().map(|e| self.toml_error(e, 0)));
            return;
        }
        for (key, value) in table.into_inner() {
            each(self, key.get_ref(), value, errors);
        }
    }

    fn list<'a, T: Deserialize<'a>>(
        &'a self,
        key: &str,
        value: Spanned<DeValue<'a>>,
        errors: &mut Vec<FileError>,
    ) -> Vec<T> {
        let start = value.span().start;
        let DeValue::Array(items) = value.into_inner() else {
            errors.push(self.error(
                start,
                format!("write [[{key}]] with double brackets: there may be several"),
            ));
            return Vec::new();
        };
        items
            .into_iter()
            .filter_map(|item| self.read(item, errors))
            .collect()
    }

    fn read<'a, T: Deserialize<'a>>(
        &'a self,
        value: Spanned<DeValue<'a>>,
        errors: &mut Vec<FileError>,
    ) -> Option<T> {
        let start = value.span().start;
        T::deserialize(ValueDeserializer::from(value))
            .map_err(|e| errors.push(self.toml_error(&e, start)))
            .ok()
    }

    fn toml_error(&self, error: &toml::de::Error, otherwise: usize) -> FileError {
        let offset = error.span().map_or(otherwise, |span| span.start);
        self.error(offset, error.message().replace('\n', ", "))
    }
}

/// Reads all `*.toml` of `dir`, by name, `platform.toml` first. Hidden files are left out.
pub(super) fn read_dir(dir: &Path) -> Result<Vec<Source>, TopologyErrors> {
    let whole = |message: String| {
        TopologyErrors(vec![FileError {
            file: dir.to_owned(),
            line: 0,
            message,
        }])
    };
    let entries = fs::read_dir(dir).map_err(|e| {
        whole(format!(
            "can't read this directory ({e}): give the one that holds {PLATFORM_FILE}"
        ))
    })?;
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry
            .map_err(|e| whole(format!("can't list this directory: {e}")))?
            .path();
        let hidden = path
            .file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with('.'));
        if !hidden && path.extension().is_some_and(|ext| ext == "toml") {
            paths.push(path);
        }
        if paths.len() > MAX_FILES {
            return Err(whole(format!("more than {MAX_FILES} topology files: merge some")));
        }
    }
    paths.sort_by_key(|path| (!path.ends_with(PLATFORM_FILE), path.clone()));
    if paths.is_empty() {
        return Err(whole(format!(
            "no *.toml here: it takes {PLATFORM_FILE} and one file per team"
        )));
    }
    let mut errors = Vec::new();
    let mut sources = Vec::new();
    if !paths[0].ends_with(PLATFORM_FILE) {
        // A misspelt file name would otherwise fall back to the default prefix and build a second platform.
        let message = "missing: create it, at least with `prefix = \"task\"`".to_owned();
        errors.push(FileError {
            file: dir.join(PLATFORM_FILE),
            line: 0,
            message,
        });
    }
    for path in paths {
        match read_file(&path) {
            Ok(text) => sources.push(Source { path, text }),
            Err(message) => errors.push(FileError {
                file: path,
                line: 0,
                message,
            }),
        }
    }
    if errors.is_empty() {
        Ok(sources)
    } else {
        Err(TopologyErrors(errors))
    }
}

fn read_file(path: &Path) -> Result<String, String> {
    let file = fs::File::open(path).map_err(|e| format!("can't open: {e}"))?;
    let mut bytes = Vec::new();
    // One byte more than allowed tells "too long" from "just fits" without trusting the file's metadata.
    file.take(MAX_FILE_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|e| format!("can't read: {e}"))?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(format!("longer than {MAX_FILE_BYTES} bytes: split it"));
    }
    String::from_utf8(bytes).map_err(|e| {
        format!(
            "not UTF-8 (byte {}): save it as UTF-8",
            e.utf8_error().valid_up_to()
        )
    })
}
