//! What goes out for one dead letter: the exact bytes, and what changes beside them.
//!
//! A dead letter that nobody edits goes out as it came in, whatever it is: what no parser understands can be replayed once
//! its consumer is mended. What is edited must be an envelope afterwards, and its text changes only where the edit says.
//! Identity is chosen, never a by-product: an edit of the body that changes the task id or the key behind the chooser's back is
//! refused.

use std::borrow::Cow;

use chrono::{DateTime, Utc};

use super::{
    choice::{BodyEdit, KeyChoice, Retries, TaskIdChoice},
    header::HeaderValue,
};
use crate::{
    dead_letter::DeadLetterId,
    envelope::{self, Envelope, EnvelopeError, Rule, Violation, peek, unpack},
    headers::{self, Origin},
    json_patch::PatchError,
    json_text::{self, Document, EditError, Node, Pointer},
};

/// How a dead letter is changed before it goes out.
#[derive(Clone, Copy, Debug)]
pub struct Edit<'e> {
    /// The body.
    pub body: BodyEdit<'e>,
    /// The task id.
    pub task_id: TaskIdChoice<'e>,
    /// The idempotency key.
    pub key: KeyChoice<'e>,
    /// A higher `payloadVersion`, for a payload that was edited to fit it.
    pub payload_version: Option<u32>,
    /// The attempts.
    pub retries: Retries,
}

/// A dead letter, as far as edits look at it.
#[derive(Clone, Copy, Debug)]
pub struct Original<'o> {
    /// Its id.
    pub id: DeadLetterId,
    /// The body as it was sent.
    pub body: &'o [u8],
    /// The property `content_encoding`.
    pub content_encoding: Option<&'o str>,
}

/// What goes out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edited<'o> {
    /// The body.
    pub body: Cow<'o, [u8]>,
    /// What the body says, where it was edited; else it is whatever it was. Where there is one, `message_id`, `type`,
    /// `app_id` and `correlation_id` become those of the envelope, and `content_encoding` goes, for the body is plain.
    pub envelope: Option<Box<Envelope>>,
    /// Headers to set; what becomes of the others says [`header_fate`](super::header::header_fate).
    pub headers: Vec<(&'static str, HeaderValue)>,
}

/// Why an edit is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EditRefused {
    /// The body can't be edited in place: it is no JSON, or can't be unpacked. It can be replaced as a whole.
    #[error("the body can't be edited, only replaced: {0}")]
    Unreadable(Violation),
    /// The new payload or body is no JSON.
    #[error("the new text can't be read: {0}")]
    NotJson(Violation),
    /// The patch doesn't fit.
    #[error(transparent)]
    Patch(#[from] PatchError),
    /// A field can't be set.
    #[error("/{field}: {why}")]
    Field {
        /// Its name.
        field: &'static str,
        /// Why.
        why: EditError,
    },
    /// The edited body has another task id, or none, while the old one was to be kept.
    #[error("the edit changes the task id: choose a new one, or leave it as it is")]
    TaskIdChanged,
    /// The edited body has another idempotency key, or none, while the old one was to be kept.
    #[error("the edit changes the idempotency key: choose a new one or none, or leave it as it is")]
    KeyChanged,
    /// The new `payloadVersion` is not above the old one.
    #[error("payloadVersion is {current} already: it can only be raised")]
    NotRaised {
        /// The old one.
        current: u64,
    },
    /// The result is no envelope.
    #[error("the edited body is no task: {0}")]
    NotAnEnvelope(EnvelopeError),
}

impl Edit<'_> {
    /// Nothing changes but the attempts.
    pub const fn none(retries: Retries) -> Self {
        Self {
            body: BodyEdit::None,
            task_id: TaskIdChoice::Keep,
            key: KeyChoice::Keep,
            payload_version: None,
            retries,
        }
    }

    /// Whether the body stays as it is.
    pub fn keeps_body(&self) -> bool {
        matches!(self.body, BodyEdit::None)
            && self.task_id == TaskIdChoice::Keep
            && self.key == KeyChoice::Keep
            && self.payload_version.is_none()
    }

    /// What goes out for `original`; `now` is what `scheduleTime` is checked by.
    ///
    /// # Errors
    /// The first reason not to send the result; see [`EditRefused`].
    pub fn apply<'o>(
        &self,
        original: &Original<'o>,
        limits: &envelope::Limits,
        now: DateTime<Utc>,
    ) -> Result<Edited<'o>, EditRefused> {
        if self.keeps_body() {
            let task_type = peek(&readable(original).unwrap_or_default()).task_type;
            return Ok(Edited {
                body: Cow::Borrowed(original.body),
                envelope: None,
                headers: self.headers(original.id, task_type.as_ref().map(|t| t.as_str())),
            });
        }
        let body = self.body(original)?;
        let envelope = Envelope::parse(body.as_bytes(), limits, now).map_err(EditRefused::NotAnEnvelope)?;
        Ok(Edited {
            headers: self.headers(original.id, Some(envelope.task_type.as_str())),
            body: Cow::Owned(body.into_bytes()),
            envelope: Some(Box::new(envelope)),
        })
    }

    fn headers(&self, id: DeadLetterId, task_type: Option<&str>) -> Vec<(&'static str, HeaderValue)> {
        let text = |text: &str| HeaderValue::Text(text.to_owned());
        let mut set = vec![
            (headers::ORIGIN, text(Origin::Replay.as_str())),
            (headers::REPLAY_OF, text(&id.to_string())),
        ];
        if self.retries == Retries::Reset {
            set.push((headers::ATTEMPT, HeaderValue::Integer(1)));
        }
        set.extend(task_type.map(|task_type| (headers::TASK_TYPE, text(task_type))));
        set
    }

    fn body(&self, original: &Original<'_>) -> Result<String, EditRefused> {
        let limits = json_text::Limits::standard();
        let unpacked = readable(original);
        let before = match &unpacked {
            Ok(bytes) => Document::parse(bytes, &limits),
            Err(why) => Err(why.clone()),
        };
        let new = |text| Document::parse(text, &limits).map_err(EditRefused::NotJson);
        let mut document = match (self.body, &before) {
            (BodyEdit::Whole(text), _) => new(text)?,
            (_, Err(why)) => return Err(EditRefused::Unreadable(why.clone())),
            (BodyEdit::None, Ok(before)) => before.clone(),
            (BodyEdit::Patch(patch), Ok(before)) => patch.apply(before, &limits)?,
            (BodyEdit::Payload(text), Ok(before)) => {
                let mut document = before.clone();
                set(&mut document, ["payload"; 2], new(text)?.root().clone(), &limits)?;
                document
            }
        };
        let old_id = peek(unpacked.as_deref().unwrap_or_default()).task_id;
        match (self.task_id, old_id) {
            (TaskIdChoice::New(id), _) => set(&mut document, TASK_ID, Node::string(id.as_str()), &limits)?,
            (TaskIdChoice::Keep, Some(old)) if text(&document, TASK_ID).as_deref() != Some(old.as_str()) => {
                return Err(EditRefused::TaskIdChanged);
            }
            (TaskIdChoice::Keep, _) => {}
        }
        match (self.key, &before) {
            (KeyChoice::New(key), _) => set(&mut document, KEY, Node::string(key), &limits)?,
            (KeyChoice::Remove, _) => {
                for name in KEY {
                    // That it isn't there is what is wanted.
                    let _ = document.remove(&Pointer::to_member(name));
                }
            }
            (KeyChoice::Keep, Ok(before)) if text(before, KEY) != text(&document, KEY) => {
                return Err(EditRefused::KeyChanged);
            }
            (KeyChoice::Keep, _) => {}
        }
        if let Some(version) = self.payload_version {
            let current = self::version(before.as_ref().unwrap_or(&document));
            if u64::from(version) <= current {
                return Err(EditRefused::NotRaised { current });
            }
            set(&mut document, VERSION, Node::number(version), &limits)?;
        }
        Ok(document.to_string())
    }
}

/// The two spellings of a field.
type Names = [&'static str; 2];

const TASK_ID: Names = ["taskId", "task_id"];
const KEY: Names = ["idempotencyKey", "idempotency_key"];
const VERSION: Names = ["payloadVersion", "payload_version"];

/// The body unpacked; larger ones than are accepted too, since cutting one down may be the repair.
fn readable<'o>(original: &Original<'o>) -> Result<Cow<'o, [u8]>, Violation> {
    let limits = envelope::Limits {
        max_body_bytes: json_text::Limits::standard().max_bytes,
        ..envelope::Limits::standard()
    };
    unpack(original.body, original.content_encoding, &limits).map_err(|error| {
        error.violations.into_iter().next().unwrap_or(Violation {
            pointer: String::new(),
            rule: Rule::BadEncoding,
            advice: "the body can't be unpacked".to_owned(),
        })
    })
}

/// The spelling that the body uses, or else the first.
fn spelled(document: &Document<'_>, names: Names) -> Pointer {
    let used = names
        .into_iter()
        .find(|name| document.root().member(name).is_some());
    Pointer::to_member(used.unwrap_or(names[0]))
}

fn text(document: &Document<'_>, names: Names) -> Option<String> {
    document.string_at(&spelled(document, names))
}

/// The body's `payloadVersion`; 1 where it has none, or none that counts.
fn version(document: &Document<'_>) -> u64 {
    let at = spelled(document, VERSION);
    let number = document.get(&at).ok().and_then(Node::as_number);
    number.and_then(|text| text.parse().ok()).unwrap_or(1)
}

fn set<'a>(
    document: &mut Document<'a>,
    names: Names,
    value: Node<'a>,
    limits: &json_text::Limits,
) -> Result<(), EditRefused> {
    let at = spelled(document, names);
    let field = names[0];
    document
        .add(&at, value, limits)
        .map_err(|why| EditRefused::Field { field, why })
}
