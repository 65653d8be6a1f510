//! What `tidegate dlq replay --dry-run` says: how many, what each choice means, and what becomes of the first few.
//!
//! May import: `core`, `deadletter::replay`. Bodies are shown, to whoever asks for them, without what a terminal would obey.

use std::fmt::Write;

use serde_json::{Value, json};
use tidegate_core::{
    printable,
    replay::{
        choice::{Destination, KeyChoice, TaskIdChoice},
        plan::OnFailure,
    },
    task::TaskId,
};

use super::super::{Failure, Output};
use crate::{
    cli::output::escaped,
    deadletter::replay::{
        preview::{Preview, Sample},
        request::{BodyText, EditText, IdChoice, KeyText, Request},
        told::Refusals,
    },
};

/// Most characters of a body.
const MAX_CHARS: usize = 4_000;

pub(super) fn show(request: &Request, preview: &Preview, output: Output) -> Result<(), Failure> {
    if output.json {
        return output.json_line(&as_json(request, preview));
    }
    output.data(&text(request, preview))
}

/// Each choice, what was chosen, and what that means.
fn choices(edit: &EditText) -> Vec<(&'static str, String, &'static str)> {
    let other = TaskId::parse("other").ok();
    let new_id = other.as_ref().map_or(TaskIdChoice::Keep, TaskIdChoice::New);
    let (id, id_means) = match edit.task_id {
        IdChoice::Keep => ("keep", TaskIdChoice::Keep.meaning()),
        IdChoice::New => ("new", new_id.meaning()),
    };
    let (key, key_means) = match &edit.key {
        KeyText::Keep => ("keep".to_owned(), KeyChoice::Keep.meaning()),
        KeyText::New => ("new".to_owned(), KeyChoice::New("").meaning()),
        KeyText::Remove => ("remove".to_owned(), KeyChoice::Remove.meaning()),
        KeyText::Named(name) => (format!("{name:?}"), KeyChoice::New("").meaning()),
    };
    let to = match edit.to {
        Destination::FailedQueue => "queue",
        Destination::RoutingKey => "routing-key",
    };
    let body = match edit.body {
        BodyText::None => ("none", "the bytes that came go out"),
        BodyText::Patch(_) => ("patch", "what the patch says changes, and no other byte"),
        BodyText::Payload(_) => ("payload", "the payload is replaced, and no other byte"),
        BodyText::Whole(_) => ("body", "the whole body is replaced"),
    };
    let mut choices = vec![
        ("to", to.to_owned(), edit.to.meaning()),
        ("edit", body.0.to_owned(), body.1),
        ("task id", id.to_owned(), id_means),
        ("idempotency key", key, key_means),
        ("retries", format!("{:?}", edit.retries), edit.retries.meaning()),
    ];
    if let Some(version) = edit.payload_version {
        choices.push((
            "payloadVersion",
            version.to_string(),
            "bodies that have it already are refused",
        ));
    }
    choices
}

fn text(request: &Request, preview: &Preview) -> String {
    let mut text = format!("would send {}\n", preview.would_take);
    // Writing to a string can't fail.
    if let Some(canary) = request.options.canary {
        let then = match canary.on_failure {
            OnFailure::Stop => "the run ends if one dies again",
            OnFailure::GoOn => "the run goes on even if some die again",
        };
        let watch = humantime::format_duration(canary.watch);
        let _ = writeln!(
            text,
            "canary: {} first, watched for {watch}; {then}",
            preview.canary
        );
    }
    if let Some(rate) = request.options.rate {
        let _ = writeln!(text, "rate: at most {rate} a second");
    }
    for (name, chosen, means) in choices(&request.edit) {
        let _ = writeln!(text, "{name}: {} ({means})", escaped(&chosen).to_lowercase());
    }
    let fits = preview.tried - refused(&preview.refusals);
    let _ = writeln!(text, "tried on the first {}: {fits} would go out", preview.tried);
    for (why, refused) in preview.refusals.by_count() {
        let ids: Vec<String> = refused.ids.iter().map(ToString::to_string).collect();
        let _ = writeln!(
            text,
            "  {} would not: {} ({} …)",
            refused.count,
            escaped(why),
            ids.join(", ")
        );
    }
    for sample in &preview.samples {
        let _ = match &sample.target {
            Ok(target) => writeln!(text, "\n{} to {}", sample.id, escaped(target)),
            Err(why) => writeln!(text, "\n{} would not go out: {}", sample.id, escaped(why)),
        };
        let before = printable::bytes(&sample.before, MAX_CHARS);
        let _ = match &sample.after {
            None => writeln!(text, "{before}"),
            Some(after) => writeln!(
                text,
                "--- before\n{before}\n--- after\n{}",
                printable::bytes(after, MAX_CHARS)
            ),
        };
    }
    text
}

fn refused(refusals: &Refusals) -> u64 {
    refusals.by_count().iter().map(|(_, refused)| refused.count).sum()
}

fn as_json(request: &Request, preview: &Preview) -> Value {
    let body = |bytes: &[u8]| printable::bytes(bytes, MAX_CHARS);
    let sample = |sample: &Sample| {
        json!({
            "id": sample.id.to_string(), "taskType": sample.task_type,
            "to": sample.target.as_ref().ok(), "refused": sample.target.as_ref().err(),
            "before": body(&sample.before), "after": sample.after.as_deref().map(body),
        })
    };
    let choices: Vec<Value> = choices(&request.edit)
        .into_iter()
        .map(|(name, chosen, means)| json!({"choice": name, "chosen": chosen.to_lowercase(), "means": means}))
        .collect();
    json!({
        "dryRun": true, "wouldSend": preview.would_take, "canary": preview.canary, "tried": preview.tried,
        "refused": super::report::refusals(&preview.refusals),
        "choices": choices,
        "samples": preview.samples.iter().map(sample).collect::<Vec<_>>(),
    })
}
