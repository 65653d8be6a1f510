//! What is asked of a replay, and the same as text: a run that is taken over later means what it meant.
//!
//! May import: `core`, serde_json. Patches, payloads and bodies are kept as the text that was given, in a JSON string: no
//! number of theirs is read.

use std::{num::NonZeroU32, time::Duration};

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use tidegate_core::{
    dead_letter_filter::Filter,
    replay::{
        choice::{Destination, Retries},
        plan::{Canary, OnFailure, Options},
    },
};

/// Most dead letters of one claim.
pub const BATCH: u32 = 500;

/// Most that are claimed and sent between two looks at the plan of a run; batches of these overlap.
const STRIDE: NonZeroU32 = NonZeroU32::MIN.saturating_add(9_999);

/// What is done to the body; text as it was given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum BodyText {
    /// Nothing.
    #[default]
    None,
    /// A JSON Patch.
    Patch(String),
    /// Another payload.
    Payload(String),
    /// Another body.
    Whole(String),
}

/// Under which task id a replay goes out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum IdChoice {
    /// The one it had.
    #[default]
    Keep,
    /// One that follows from the run and the dead letter.
    New,
}

/// Under which idempotency key it goes out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum KeyText {
    /// What the body says, or says not.
    #[default]
    Keep,
    /// One that follows from the run and the dead letter.
    New,
    /// None.
    Remove,
    /// This one.
    Named(String),
}

/// What is changed, and where it goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EditText {
    /// The body.
    pub body: BodyText,
    /// The task id.
    pub task_id: IdChoice,
    /// The idempotency key.
    pub key: KeyText,
    /// A higher `payloadVersion`.
    pub payload_version: Option<u32>,
    /// The attempts.
    pub retries: Retries,
    /// Where it goes.
    pub to: Destination,
}

/// A replay as somebody asks for it.
#[derive(Clone, Debug)]
pub struct Request {
    /// Which dead letters; of these it takes the open ones.
    pub filter: Filter,
    /// What is changed.
    pub edit: EditText,
    /// How it goes.
    pub options: Options,
    /// Who asks, 1 to 255 bytes.
    pub who: String,
    /// Why, up to 4,096 bytes.
    pub why: String,
}

/// What stands in a run's row and can't be read; a newer program wrote it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the run's {what} can't be read by this version: {why}")]
pub struct Unreadable {
    what: &'static str,
    why: String,
}

impl Default for EditText {
    fn default() -> Self {
        Self {
            body: BodyText::None,
            task_id: IdChoice::Keep,
            key: KeyText::Keep,
            payload_version: None,
            retries: Retries::Reset,
            to: Destination::FailedQueue,
        }
    }
}

impl EditText {
    /// Whether bodies go out as they are.
    pub fn keeps_body(&self) -> bool {
        let same = (&self.body, self.task_id, &self.key) == (&BodyText::None, IdChoice::Keep, &KeyText::Keep);
        same && self.payload_version.is_none()
    }
}

/// Options without anything special.
pub fn options() -> Options {
    Options {
        limit: None,
        rate: None,
        canary: None,
        dry_run: false,
        batch: STRIDE,
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct EditJson {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    patch: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    payload: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    body: Option<String>,
    task_id: IdChoice,
    idempotency_key: KeyText,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    payload_version: Option<u32>,
    reset_retries: bool,
    to_failed_queue: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct OptionsJson {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    limit: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rate: Option<NonZeroU32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    canary: Option<CanaryJson>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct CanaryJson {
    percent: u8,
    watch_ms: u64,
    stop_on_failure: bool,
}

/// `value` as text. Maps of text keys and plain values can always be written.
fn text(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// The filter's pairs as text.
pub(super) fn filter_text(filter: &Filter) -> String {
    text(&filter.pairs())
}

/// The edit as text.
pub(super) fn edit_text(edit: &EditText) -> String {
    let (mut patch, mut payload, mut body) = (None, None, None);
    match edit.body.clone() {
        BodyText::None => {}
        BodyText::Patch(text) => patch = Some(text),
        BodyText::Payload(text) => payload = Some(text),
        BodyText::Whole(text) => body = Some(text),
    }
    text(&EditJson {
        patch,
        payload,
        body,
        task_id: edit.task_id,
        idempotency_key: edit.key.clone(),
        payload_version: edit.payload_version,
        reset_retries: edit.retries == Retries::Reset,
        to_failed_queue: edit.to == Destination::FailedQueue,
    })
}

/// The options as text.
pub(super) fn options_text(options: &Options) -> String {
    text(&OptionsJson {
        limit: options.limit,
        rate: options.rate,
        canary: options.canary.map(|canary| CanaryJson {
            percent: canary.percent,
            watch_ms: u64::try_from(canary.watch.as_millis()).unwrap_or(u64::MAX),
            stop_on_failure: canary.on_failure == OnFailure::Stop,
        }),
    })
}

/// The filter that [`filter_text`] made `text` of.
pub(super) fn read_filter(text: &str, now: DateTime<Utc>) -> Result<Filter, Unreadable> {
    let what = "filter";
    let pairs: Vec<(String, String)> = serde_json::from_str(text).map_err(|why| Unreadable {
        what,
        why: why.to_string(),
    })?;
    let pairs = pairs.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    Filter::parse(pairs, now).map_err(|why| Unreadable {
        what,
        why: why.to_string(),
    })
}

/// The edit that [`edit_text`] made `text` of.
pub(super) fn read_edit(text: &str) -> Result<EditText, Unreadable> {
    let unreadable = |why: String| Unreadable { what: "edit", why };
    let read: EditJson = serde_json::from_str(text).map_err(|why| unreadable(why.to_string()))?;
    let body = match (read.patch, read.payload, read.body) {
        (None, None, None) => BodyText::None,
        (Some(text), None, None) => BodyText::Patch(text),
        (None, Some(text), None) => BodyText::Payload(text),
        (None, None, Some(text)) => BodyText::Whole(text),
        _ => return Err(unreadable("it changes the body in two ways".to_owned())),
    };
    Ok(EditText {
        body,
        task_id: read.task_id,
        key: read.idempotency_key,
        payload_version: read.payload_version,
        retries: if read.reset_retries {
            Retries::Reset
        } else {
            Retries::Keep
        },
        to: if read.to_failed_queue {
            Destination::FailedQueue
        } else {
            Destination::RoutingKey
        },
    })
}

/// The options that [`options_text`] made `text` of.
pub(super) fn read_options(text: &str) -> Result<Options, Unreadable> {
    let read: OptionsJson = serde_json::from_str(text).map_err(|why| Unreadable {
        what: "options",
        why: why.to_string(),
    })?;
    Ok(Options {
        limit: read.limit,
        rate: read.rate,
        canary: read.canary.map(|canary| Canary {
            percent: canary.percent,
            watch: Duration::from_millis(canary.watch_ms),
            on_failure: if canary.stop_on_failure {
                OnFailure::Stop
            } else {
                OnFailure::GoOn
            },
        }),
        ..options()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// B82: no number of an edit may come out otherwise than it was given.
    #[test]
    fn what_is_asked_is_read_back_to_the_byte() {
        let patch = r#"[{"op":"add","path":"/payload/n","value":9007199254740993.10}]"#;
        for body in [
            BodyText::None,
            BodyText::Patch(patch.to_owned()),
            BodyText::Payload("{\"a\": 1.10, \"b\":\"\\u00e9\"}\n".to_owned()),
            BodyText::Whole("{}".to_owned()),
        ] {
            for key in [
                KeyText::Keep,
                KeyText::New,
                KeyText::Remove,
                KeyText::Named("k\"\0".to_owned()),
            ] {
                let edit = EditText {
                    body: body.clone(),
                    key,
                    task_id: IdChoice::New,
                    payload_version: Some(2),
                    retries: Retries::Keep,
                    to: Destination::RoutingKey,
                };
                assert_eq!(read_edit(&edit_text(&edit)), Ok(edit));
            }
        }
        assert_eq!(
            read_edit(&edit_text(&EditText::default())),
            Ok(EditText::default())
        );
        let all = Options {
            limit: Some(u64::MAX),
            rate: NonZeroU32::new(7),
            canary: Some(Canary {
                percent: 1,
                watch: Duration::from_secs(60),
                on_failure: OnFailure::GoOn,
            }),
            ..options()
        };
        assert_eq!(read_options(&options_text(&all)), Ok(all));
        assert_eq!(read_options(&options_text(&options())), Ok(options()));
    }

    #[test]
    fn a_filter_means_the_same_later() {
        let now = "2025-04-02T12:00:00Z".parse().unwrap();
        let filter = Filter::parse_words(["type=order.#", "since=2h", "text=a=b \"c\""], now).unwrap();
        let later = now + chrono::TimeDelta::days(3);
        assert_eq!(read_filter(&filter_text(&filter), later), Ok(filter));
        assert!(read_filter("[[\"colour\",\"red\"]]", later).is_err());
    }
}
