//! What a run would do: how many, how many of them as canary, and what comes of the first few.
//!
//! May import: `core`, `store`. Nothing is claimed and nothing sent.

use chrono::Utc;
use tidegate_core::{
    dead_letter::DeadLetterId,
    dead_letter_filter::Filter,
    envelope,
    replay::{
        plan::{End, Options, Step},
        run::Run,
    },
};
use uuid::Uuid;

use super::{
    message::{Editor, NoContracts},
    request::Request,
    told::Refusals,
};
use crate::store::{Store, StoreError};

/// Most dead letters that an edit is tried on.
pub const MAX_TRIED: u32 = 200;

/// What a run would do.
#[derive(Clone, Debug)]
pub struct Preview {
    /// How many it would take.
    pub would_take: u64,
    /// How many of them as canary.
    pub canary: u64,
    /// How many of the first were tried.
    pub tried: u64,
    /// Why some of those would not go out.
    pub refusals: Refusals,
    /// What would become of the first few.
    pub samples: Vec<Sample>,
}

/// What would become of one dead letter.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Which.
    pub id: DeadLetterId,
    /// Its type.
    pub task_type: Option<String>,
    /// The queue or key it would go to.
    pub target: Result<String, String>,
    /// The bytes that were sent.
    pub before: Vec<u8>,
    /// The bytes that would go out, if they are others.
    pub after: Option<Vec<u8>>,
}

/// Previews `request`, with at most `samples` samples.
///
/// # Errors
/// The database.
pub async fn preview(
    store: &Store,
    request: &Request,
    limits: &envelope::Limits,
    samples: usize,
) -> Result<Preview, StoreError> {
    let letters = store.dead_letters();
    let matching = letters.count_open(&request.filter, request.options.limit).await?;
    let (would_take, canary) = counts(request.options, matching);
    let mut preview = Preview {
        would_take,
        canary,
        tried: 0,
        refusals: Refusals::default(),
        samples: Vec::new(),
    };
    let Ok(editor) = Editor::new(Uuid::nil(), &request.edit, limits, &NoContracts) else {
        // Whoever asks has read the patch before.
        return Ok(preview);
    };
    let most = u32::try_from(would_take).unwrap_or(MAX_TRIED).min(MAX_TRIED);
    for letter in first(store, &request.filter, most).await? {
        let (id, task_type, before) = (letter.id, letter.task_type.clone(), letter.body.clone());
        preview.tried += 1;
        let (target, after) = match editor.outbound(letter, Utc::now()) {
            Ok(out) => (Ok(named(&out.target)), out.edited),
            Err(why) => {
                preview.refusals.add(id, &why);
                (Err(why), None)
            }
        };
        if preview.samples.len() < samples {
            preview.samples.push(Sample {
                id,
                task_type,
                target,
                before,
                after,
            });
        }
    }
    Ok(preview)
}

async fn first(
    store: &Store,
    filter: &Filter,
    most: u32,
) -> Result<Vec<crate::store::dead_letters::replay::Claimed>, StoreError> {
    if most == 0 {
        return Ok(Vec::new());
    }
    store.dead_letters().samples(filter, most).await
}

fn counts(options: Options, matching: u64) -> (u64, u64) {
    let dry = Options {
        dry_run: true,
        ..options
    };
    let now = Utc::now();
    match Run::begin(dry, matching, now).step(now) {
        Step::End(End::DryRun { would_take, canary }) => (would_take, canary),
        _ => (matching, 0),
    }
}

fn named(target: &tidegate_core::ladder::Target) -> String {
    use tidegate_core::ladder::Target;
    match target {
        Target::Queue(queue) => format!("queue {queue}"),
        Target::Key(key) | Target::HighKey(key) => format!("key {key}"),
    }
}
