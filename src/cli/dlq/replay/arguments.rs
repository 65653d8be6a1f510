//! What is changed, and how it goes: the flags of `tidegate dlq replay`.
//!
//! May import: `core`, `deadletter::replay`, `delay`. Patches, payloads and bodies are kept as the text that was given.

use std::{
    fs::File,
    io::{self, Read},
    num::NonZeroU32,
    time::Duration,
};

use clap::ValueEnum;
use tidegate_core::{
    json_patch::Patch,
    json_text::{self, Document},
    replay::{
        choice::{Destination, Retries},
        plan::{Canary, OnFailure, Options},
    },
};

use super::super::usage;
use crate::{
    cli::{delay, failure::Failure},
    deadletter::replay::request::{BodyText, EditText, IdChoice, KeyText, options},
};

/// Largest file of a patch, payload or body, in bytes.
const MAX_BYTES: u64 = 256 * 1024;

/// How a replay goes and what it changes.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Most dead letters
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// Most messages a second
    #[arg(long, value_name = "N")]
    rate: Option<NonZeroU32>,
    /// Send a share first, such as 1%, and watch what becomes of it
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    canary: Option<u8>,
    /// How long the canary is watched after its last message
    #[arg(long, value_name = "SPAN", value_parser = delay::parse, default_value = "60s", requires = "canary")]
    watch: Duration,
    /// What a canary that dies again means
    #[arg(long, value_name = "ACTION", default_value = "stop", requires = "canary")]
    on_canary_failure: CanaryFailure,
    /// Where each goes: only to the queue that failed, or to all that its routing key leads to
    #[arg(long, value_name = "WHERE", default_value = "queue")]
    to: To,
    /// Change bodies by a JSON Patch (RFC 6902): a file, `-`, or the JSON itself
    #[arg(long, value_name = "FILE|JSON", conflicts_with_all = ["payload", "body"])]
    patch: Option<String>,
    /// Replace the payload by the JSON in a file, or `-`
    #[arg(long, value_name = "FILE", conflicts_with = "body")]
    payload: Option<String>,
    /// Replace the whole body by the JSON in a file, or `-`
    #[arg(long, value_name = "FILE")]
    body: Option<String>,
    /// Raise payloadVersion to this
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    payload_version: Option<u32>,
    /// Under the task id it had, or a new one
    #[arg(long, value_name = "WHICH", default_value = "keep")]
    task_id: KeepOrNew,
    /// Under the idempotency key it had: keep, new, remove, or another key
    #[arg(long, value_name = "WHICH", default_value = "keep")]
    idempotency_key: String,
    /// Attempts count from the first again, or from where they were
    #[arg(long, value_name = "WHICH", default_value = "reset")]
    retries: ResetOrKeep,
    /// Dead letters that a dry run shows
    #[arg(long, value_name = "COUNT", default_value_t = 3, value_parser = clap::value_parser!(u8).range(0..=100))]
    samples: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum CanaryFailure {
    Stop,
    GoOn,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum To {
    Queue,
    RoutingKey,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum KeepOrNew {
    Keep,
    New,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ResetOrKeep {
    Reset,
    Keep,
}

fn percent(text: &str) -> Result<u8, String> {
    let digits = text.strip_suffix('%').unwrap_or(text).trim();
    digits
        .parse()
        .ok()
        .filter(|percent| (1..=100).contains(percent))
        .ok_or_else(|| "write a whole share from 1% to 100%".to_owned())
}

impl Arguments {
    /// What is changed and how it goes; files are read and their texts checked as far as they can be without a dead letter.
    pub(super) fn read(&self) -> Result<(EditText, Options), Failure> {
        let edit = EditText {
            body: self.body_text()?,
            task_id: match self.task_id {
                KeepOrNew::Keep => IdChoice::Keep,
                KeepOrNew::New => IdChoice::New,
            },
            key: self.key()?,
            payload_version: self.payload_version,
            retries: match self.retries {
                ResetOrKeep::Reset => Retries::Reset,
                ResetOrKeep::Keep => Retries::Keep,
            },
            to: match self.to {
                To::Queue => Destination::FailedQueue,
                To::RoutingKey => Destination::RoutingKey,
            },
        };
        let options = Options {
            limit: self.limit,
            rate: self.rate,
            canary: self.canary.map(|percent| Canary {
                percent,
                watch: self.watch,
                on_failure: match self.on_canary_failure {
                    CanaryFailure::Stop => OnFailure::Stop,
                    CanaryFailure::GoOn => OnFailure::GoOn,
                },
            }),
            ..options()
        };
        Ok((edit, options))
    }

    pub(super) fn samples(&self) -> usize {
        self.samples.into()
    }

    fn body_text(&self) -> Result<BodyText, Failure> {
        if let Some(patch) = &self.patch {
            let is_json = patch.trim_start().starts_with(['[', '{']);
            let text = if is_json {
                patch.clone()
            } else {
                text(patch, "--patch")?
            };
            let read = Patch::parse(text.as_bytes());
            read.map_err(|why| usage(why, "--patch", "correct the patch; nothing was sent"))?;
            return Ok(BodyText::Patch(text));
        }
        if let Some(file) = &self.payload {
            return json(file, "--payload").map(BodyText::Payload);
        }
        match &self.body {
            Some(file) => json(file, "--body").map(BodyText::Whole),
            None => Ok(BodyText::None),
        }
    }

    fn key(&self) -> Result<KeyText, Failure> {
        Ok(match self.idempotency_key.as_str() {
            "keep" => KeyText::Keep,
            "new" => KeyText::New,
            "remove" => KeyText::Remove,
            key if key.is_empty() || key.len() > 256 => {
                return Err(usage(
                    "a key has 1 to 256 bytes",
                    "--idempotency-key",
                    "write keep, new, remove, or another key",
                ));
            }
            key => KeyText::Named(key.to_owned()),
        })
    }
}

/// One text for all is right for one dead letter: of many with one key, one would run.
pub(super) fn check_for_many(edit: &EditText, count: u64) -> Result<(), Failure> {
    let refused = |what: String, flag: &str, next: &str| Err(usage(what, flag, next));
    match (&edit.key, &edit.body) {
        (KeyText::Named(_), _) if count > 1 => refused(
            format!("{count} dead letters under one idempotency key: one of them would run"),
            "--idempotency-key",
            "use new, which gives each its own",
        ),
        (_, BodyText::Whole(_)) if count > 1 && edit.task_id == IdChoice::Keep => refused(
            format!("{count} dead letters with one body: they would be one task {count} times"),
            "--body",
            "name one dead letter, or change them by --patch",
        ),
        _ => Ok(()),
    }
}

/// The JSON in a file.
fn json(file: &str, flag: &str) -> Result<String, Failure> {
    let text = text(file, flag)?;
    match Document::parse(text.as_bytes(), &json_text::Limits::standard()) {
        Ok(_) => Ok(text),
        Err(why) => Err(usage(why, flag, "correct the file; nothing was sent")),
    }
}

fn text(file: &str, flag: &str) -> Result<String, Failure> {
    let unreadable = |why: io::Error| {
        usage(
            format!("{file}: {why}"),
            flag,
            "name a file of UTF-8 text that can be read, or - for stdin",
        )
    };
    let source: Box<dyn Read> = if file == "-" {
        Box::new(io::stdin())
    } else {
        Box::new(File::open(file).map_err(unreadable)?)
    };
    let mut text = String::new();
    source
        .take(MAX_BYTES + 1)
        .read_to_string(&mut text)
        .map_err(unreadable)?;
    if text.len() as u64 > MAX_BYTES {
        return Err(usage(
            format!("{file} is over {MAX_BYTES} bytes"),
            flag,
            "no task is that large",
        ));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_a_whole_percentage() {
        assert_eq!(percent("1%"), Ok(1));
        assert_eq!(percent("100"), Ok(100));
        for text in ["0%", "101%", "0.5%", "", "%", "-1%"] {
            assert!(percent(text).is_err(), "{text}");
        }
    }
}
