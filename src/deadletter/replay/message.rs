//! From one dead letter to the message that goes out for it, or why none does. Pure.
//!
//! May import: `core`, `publish`, `store` (its rows), sha2. No reason holds a value of a payload.

use std::borrow::Cow;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use sha2::{Digest, Sha256};
use tidegate_core::{
    dead_letter::DeadLetterId,
    dispose::DeadReason,
    envelope::{self, Envelope},
    json_patch::{Patch, PatchError},
    ladder::Target,
    replay::{
        choice::{BodyEdit, KeyChoice, TaskIdChoice},
        edit::{Edit, Edited, Original},
    },
    task::TaskId,
};
use uuid::Uuid;

use super::request::{BodyText, EditText, IdChoice, KeyText};
use crate::{
    publish::replay::{Again, Changes, Restored},
    store::dead_letters::replay::Claimed,
};

/// Whether an edited task fits what its consumers expect.
pub trait Contracts: Send + Sync + std::fmt::Debug {
    /// Why `envelope` may not go out; the text holds no value of its payload.
    ///
    /// # Errors
    /// It doesn't fit.
    fn check(&self, envelope: &Envelope) -> Result<(), String>;
}

/// Every envelope fits.
#[derive(Clone, Copy, Debug)]
pub struct NoContracts;

impl Contracts for NoContracts {
    fn check(&self, _: &Envelope) -> Result<(), String> {
        Ok(())
    }
}

/// What makes messages of dead letters, for one run.
#[derive(Debug)]
pub struct Editor<'e> {
    run: Uuid,
    text: &'e EditText,
    patch: Option<Patch<'e>>,
    limits: &'e envelope::Limits,
    contracts: &'e dyn Contracts,
}

/// What goes out for a dead letter.
#[derive(Clone, Debug)]
pub struct Outbound {
    /// The dead letter.
    pub id: DeadLetterId,
    /// The message.
    pub again: Again,
    /// Where it goes.
    pub target: Target,
    /// Its priority, where the target is a key.
    pub priority: u8,
    /// Its type.
    pub task_type: Option<String>,
    /// The task id that it goes out with.
    pub task_id: Option<String>,
    /// The body, if it was edited.
    pub edited: Option<Vec<u8>>,
}

impl<'e> Editor<'e> {
    /// An editor for the run `run`.
    ///
    /// # Errors
    /// The patch can't be read.
    pub fn new(
        run: Uuid,
        text: &'e EditText,
        limits: &'e envelope::Limits,
        contracts: &'e dyn Contracts,
    ) -> Result<Self, PatchError> {
        let patch = match &text.body {
            BodyText::Patch(patch) => Some(Patch::parse(patch.as_bytes())?),
            _ => None,
        };
        Ok(Self {
            run,
            text,
            patch,
            limits,
            contracts,
        })
    }

    /// What goes out for `letter`.
    ///
    /// # Errors
    /// Why nothing does: it stays open.
    pub fn outbound(&self, letter: Claimed, now: DateTime<Utc>) -> Result<Outbound, String> {
        let restored = Restored::from_text(&letter.properties).map_err(|why| why.to_string())?;
        let reason = DeadReason::parse(&letter.reason).unwrap_or(DeadReason::Rejected);
        let key = letter.routing_key.as_deref();
        let Some(target) = self.text.to.target(reason, Some(&letter.queue), key) else {
            return Err(match reason {
                DeadReason::Unroutable => {
                    "no queue took it, so there is none that failed: bind one and use --to routing-key"
                        .to_owned()
                }
                _ => "it isn't known where it came from: use the other --to".to_owned(),
            });
        };
        let new_id = self.derived(letter.id, "task id").to_string();
        let other_id = TaskId::parse(&new_id).map_err(|why| why.to_string())?;
        let key = match &self.text.key {
            KeyText::New => format!("replay-{}", self.derived(letter.id, "key")),
            KeyText::Named(name) => name.clone(),
            KeyText::Keep | KeyText::Remove => String::new(),
        };
        let edit = Edit {
            body: match (&self.text.body, &self.patch) {
                (BodyText::Patch(_), Some(patch)) => BodyEdit::Patch(patch),
                (BodyText::Payload(text), _) => BodyEdit::Payload(text.as_bytes()),
                (BodyText::Whole(text), _) => BodyEdit::Whole(text.as_bytes()),
                (BodyText::None | BodyText::Patch(_), _) => BodyEdit::None,
            },
            task_id: match self.text.task_id {
                IdChoice::Keep => TaskIdChoice::Keep,
                IdChoice::New => TaskIdChoice::New(&other_id),
            },
            key: match &self.text.key {
                KeyText::Keep => KeyChoice::Keep,
                KeyText::Remove => KeyChoice::Remove,
                KeyText::New | KeyText::Named(_) => KeyChoice::New(&key),
            },
            payload_version: self.text.payload_version,
            retries: self.text.retries,
        };
        let original = Original {
            id: letter.id,
            body: &letter.body,
            content_encoding: restored.encoding(),
        };
        let Edited {
            body,
            envelope,
            headers,
        } = edit
            .apply(&original, self.limits, now)
            .map_err(|why| why.to_string())?;
        let envelope = envelope.as_deref();
        if let Some(envelope) = envelope {
            self.contracts.check(envelope)?;
        }
        let priority = match (&target, envelope) {
            (Target::Key(_), Some(envelope)) => envelope.priority,
            (Target::Key(_), None) => self.priority(&original, now),
            _ => DEFAULT_PRIORITY,
        };
        let (task_id, task_type) = match envelope {
            Some(envelope) => (
                Some(envelope.task_id.to_string()),
                Some(envelope.task_type.to_string()),
            ),
            None => (letter.task_id.clone(), letter.task_type.clone()),
        };
        let edited = match body {
            Cow::Owned(body) => Some(body),
            Cow::Borrowed(_) => None,
        };
        let body = Bytes::from(edited.clone().unwrap_or(letter.body));
        let changes = Changes {
            headers: &headers,
            envelope,
            retries: self.text.retries,
            routing_key: letter.routing_key.as_deref(),
            message_id: task_id.as_deref().unwrap_or(&new_id),
        };
        Ok(Outbound {
            id: letter.id,
            again: restored.again(body, &changes),
            target,
            priority,
            task_type,
            task_id,
            edited,
        })
    }

    /// The priority in a body that nobody edits; that of most tasks for one that can't be read.
    fn priority(&self, original: &Original<'_>, now: DateTime<Utc>) -> u8 {
        envelope::unpack(original.body, original.content_encoding, self.limits)
            .and_then(|body| Envelope::parse(&body, self.limits, now))
            .map_or(DEFAULT_PRIORITY, |envelope| envelope.priority)
    }

    /// An id that follows from the run and the dead letter: published again after a kill, it is the same.
    fn derived(&self, letter: DeadLetterId, purpose: &str) -> Uuid {
        let digest = Sha256::new()
            .chain_update(purpose)
            .chain_update(self.run.as_bytes())
            .chain_update(letter.0)
            .finalize();
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&digest[..16]);
        uuid::Builder::from_random_bytes(bytes).into_uuid()
    }
}

const DEFAULT_PRIORITY: u8 = 100;

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: &str =
        r#"{"taskId":"t-1","taskType":"order.close","payload":{"n":9007199254740991,"price":1.10}}"#;

    fn letter(body: &str) -> Claimed {
        Claimed {
            id: DeadLetterId([7; 16]),
            day: "2026-04-02".parse().unwrap(),
            task_id: Some("t-1".to_owned()),
            task_type: Some("order.close".to_owned()),
            queue: "order.close.queue".to_owned(),
            routing_key: Some("order.close".to_owned()),
            reason: "rejected".to_owned(),
            body: body.as_bytes().to_vec(),
            properties: r#"{"properties":{},"headers":{}}"#.to_owned(),
            sent_task_id: Some("t-1".to_owned()),
        }
    }

    fn outbound(edit: &EditText, run: Uuid, letter: Claimed) -> Result<Outbound, String> {
        let limits = envelope::Limits::standard();
        let editor = Editor::new(run, edit, &limits, &NoContracts).unwrap();
        editor.outbound(letter, Utc::now())
    }

    #[test]
    fn ids_of_a_replay_follow_from_run_and_dead_letter() {
        let edit = EditText {
            task_id: IdChoice::New,
            key: KeyText::New,
            ..EditText::default()
        };
        let id = |run: u128, letter_id: [u8; 16]| {
            let letter = Claimed {
                id: DeadLetterId(letter_id),
                ..letter(BODY)
            };
            outbound(&edit, Uuid::from_u128(run), letter)
                .unwrap()
                .task_id
                .unwrap()
        };
        assert_eq!(id(1, [7; 16]), id(1, [7; 16]));
        assert_ne!(id(1, [7; 16]), id(2, [7; 16]));
        assert_ne!(id(1, [7; 16]), id(1, [8; 16]));
    }

    #[test]
    fn what_nobody_edits_is_not_told_as_edited() {
        let sent = outbound(&EditText::default(), Uuid::nil(), letter("no json")).unwrap();
        assert_eq!(sent.edited, None);
        assert_eq!(sent.target, Target::Queue("order.close.queue".to_owned()));
        let edit = EditText {
            body: BodyText::Patch(r#"[{"op":"replace","path":"/payload/price","value":1.20}]"#.to_owned()),
            ..EditText::default()
        };
        let sent = outbound(&edit, Uuid::nil(), letter(BODY)).unwrap();
        assert_eq!(sent.edited.unwrap(), BODY.replace("1.10", "1.20").into_bytes());
        assert!(outbound(&edit, Uuid::nil(), letter("no json")).is_err());
    }

    #[derive(Debug)]
    struct Never;

    impl Contracts for Never {
        fn check(&self, _: &Envelope) -> Result<(), String> {
            Err("against its contract".to_owned())
        }
    }

    #[test]
    fn a_contract_is_asked_about_what_was_edited_only() {
        let limits = envelope::Limits::standard();
        let edit = EditText {
            payload_version: Some(2),
            ..EditText::default()
        };
        let editor = Editor::new(Uuid::nil(), &edit, &limits, &Never).unwrap();
        assert_eq!(
            editor.outbound(letter(BODY), Utc::now()).unwrap_err(),
            "against its contract"
        );
        let none = EditText::default();
        let editor = Editor::new(Uuid::nil(), &none, &limits, &Never).unwrap();
        assert!(editor.outbound(letter(BODY), Utc::now()).is_ok());
    }

    #[test]
    fn what_no_queue_took_has_no_queue_that_failed() {
        let unroutable = Claimed {
            reason: "unroutable".to_owned(),
            ..letter(BODY)
        };
        let why = outbound(&EditText::default(), Uuid::nil(), unroutable).unwrap_err();
        assert!(why.contains("--to routing-key"), "{why}");
    }
}
