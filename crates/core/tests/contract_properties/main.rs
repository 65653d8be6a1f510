//! What holds for any contract and payload: the order of keys changes nothing, and compatibility keeps its promise.
//!
//! Schemas and payloads are drawn from few names and small numbers, so that two of them meet often; how often is counted,
//! because a promise that never was given can't be broken.

#![allow(clippy::unwrap_used, reason = "a test may panic, its helper functions too")]

mod draw;
mod steps;

use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;
use serde_json::{Value, json};
use tidegate_core::contract::{
    Contract, Versions,
    compatibility::{self, Mode},
};

use crate::{
    draw::{Draw, LEVELS, next_version, object_schema, payload, schema},
    steps::{steps, up_cast},
};

fn bytes(most: usize) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), most / 4..most)
}

fn contract(schema: &Value) -> Option<Contract> {
    Contract::read(schema.to_string().as_bytes()).ok()
}

/// How often something was seen in a run of a property.
struct Seen(AtomicUsize);

impl Seen {
    const fn new() -> Self {
        Self(AtomicUsize::new(0))
    }

    fn one(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn at_least(&self, least: usize) {
        let seen = self.0.load(Ordering::Relaxed);
        assert!(
            seen >= least,
            "seen {seen} times, {least} wanted: the drawing shows too little"
        );
    }
}

/// The text with the members of every object turned around.
fn turned(text: &str) -> String {
    fn turn(value: &Value) -> String {
        match value {
            Value::Object(members) => {
                let members: Vec<String> = members
                    .iter()
                    .rev()
                    .map(|(k, v)| format!("\"{k}\":{}", turn(v)))
                    .collect();
                format!("{{{}}}", members.join(","))
            }
            Value::Array(items) => format!("[{}]", items.iter().map(turn).collect::<Vec<_>>().join(",")),
            value => value.to_string(),
        }
    }
    turn(&serde_json::from_str(text).unwrap())
}

#[test]
fn the_order_of_keys_changes_no_verdict() {
    let (valid, invalid) = (Seen::new(), Seen::new());
    let cases = (bytes(60), bytes(120));
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(2_000));
    let run = runner.run(&cases, |(schema_bytes, payload_bytes)| {
        let schema = schema(&mut Draw::new(&schema_bytes), LEVELS);
        let Some(contract) = contract(&schema) else {
            return Ok(());
        };
        let text = payload(&mut Draw::new(&payload_bytes), &schema, LEVELS);
        // Through serde_json once, so that both texts have the same numbers.
        let text = serde_json::from_str::<Value>(&text).unwrap().to_string();
        let sorted = |text: &str| {
            let mut violations = contract.validate(text);
            violations.sort();
            violations
        };
        let one = sorted(&text);
        if one.len() < Contract::MAX_VIOLATIONS {
            if one.is_empty() {
                valid.one()
            } else {
                invalid.one()
            }
            prop_assert_eq!(one, sorted(&turned(&text)), "{} {}", schema, text);
        }
        Ok(())
    });
    run.unwrap();
    valid.at_least(400);
    invalid.at_least(200);
}

/// One run for each direction: `mode` without findings lets every payload of the sender pass the reader.
fn promise(mode: Mode) {
    let (promised, changed, passed) = (Seen::new(), Seen::new(), Seen::new());
    let cases = (bytes(60), bytes(60), prop::collection::vec(bytes(60), 12));
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(6_000));
    let run = runner.run(&cases, |(old_bytes, new_bytes, payloads)| {
        let one = schema(&mut Draw::new(&old_bytes), LEVELS);
        let two = next_version(&mut Draw::new(&new_bytes), &one, LEVELS);
        // What is drawn from another is looser more often than not, and the looser one reads.
        let (old_schema, new_schema) = if mode == Mode::Backward {
            (one, two)
        } else {
            (two, one)
        };
        let (Some(old), Some(new)) = (contract(&old_schema), contract(&new_schema)) else {
            return Ok(());
        };
        let mut versions = Versions::default();
        versions.insert(1, old.clone());
        versions.insert(2, new.clone());
        if !compatibility::check(&versions, 2, mode).is_empty() {
            return Ok(());
        }
        promised.one();
        if old_schema != new_schema {
            changed.one();
        }
        let (sender, reader, sent_schema) = match mode {
            Mode::Backward => (&old, &new, &old_schema),
            _ => (&new, &old, &new_schema),
        };
        for bytes in &payloads {
            let text = payload(&mut Draw::new(bytes), sent_schema, LEVELS);
            if sender.validate(&text).is_empty() {
                passed.one();
                let refused = reader.validate(&text);
                prop_assert!(
                    refused.is_empty(),
                    "old {old_schema}\nnew {new_schema}\npayload {text}\nrefused {refused:?}"
                );
            }
        }
        Ok(())
    });
    run.unwrap();
    promised.at_least(1_000);
    changed.at_least(300);
    passed.at_least(5_000);
}

#[test]
fn backward_without_findings_is_a_promise_to_old_producers() {
    promise(Mode::Backward);
}

#[test]
fn forward_without_findings_is_a_promise_to_old_consumers() {
    promise(Mode::Forward);
}

#[test]
fn backward_without_findings_is_a_promise_that_up_casts_succeed() {
    let (promised, passed) = (Seen::new(), Seen::new());
    let cases = (
        bytes(60),
        bytes(60),
        bytes(12),
        prop::collection::vec(bytes(60), 12),
    );
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(6_000));
    let run = runner.run(&cases, |(old_bytes, new_bytes, step_bytes, payloads)| {
        let old_schema = object_schema(&mut Draw::new(&old_bytes), LEVELS);
        let steps = steps(&mut Draw::new(&step_bytes));
        let mut new_schema = up_cast(&old_schema, &steps);
        if new_bytes.first().is_some_and(|byte| byte % 2 == 0) {
            new_schema = next_version(&mut Draw::new(&new_bytes), &new_schema, LEVELS);
        }
        new_schema["x-tidegate"] = json!({ "upcasts": steps });
        let (Some(old), Some(new)) = (contract(&old_schema), contract(&new_schema)) else {
            return Ok(());
        };
        let mut versions = Versions::default();
        versions.insert(1, old.clone());
        versions.insert(2, new);
        if !compatibility::check(&versions, 2, Mode::Backward).is_empty() {
            return Ok(());
        }
        promised.one();
        for bytes in &payloads {
            let text = payload(&mut Draw::new(bytes), &old_schema, LEVELS);
            if old.validate(&text).is_empty() {
                passed.one();
                let result = versions.upcast(&text, 1, 2);
                prop_assert!(
                    result.is_ok(),
                    "old {old_schema}\nnew {new_schema}\npayload {text}\n{result:?}"
                );
            }
        }
        Ok(())
    });
    run.unwrap();
    promised.at_least(300);
    passed.at_least(1_000);
}

/// Any keyword with any value, most of them nonsense.
fn nonsense(draw: &mut Draw<'_>, levels: usize) -> Value {
    const WORDS: [&str; 24] = [
        "type",
        "enum",
        "const",
        "minLength",
        "maxLength",
        "pattern",
        "format",
        "minimum",
        "maximum",
        "items",
        "minItems",
        "uniqueItems",
        "properties",
        "required",
        "additionalProperties",
        "anyOf",
        "$ref",
        "$defs",
        "$schema",
        "$id",
        "examples",
        "x-tidegate",
        "title",
        "a",
    ];
    match draw.below(10) {
        0 => json!(null),
        1 => json!(true),
        2 => json!(draw.below(5)),
        3 => json!(-1.5),
        4 => json!(*draw.pick(&[
            "string",
            "object",
            "#/$defs/a",
            "^a",
            "date",
            "/a",
            "http://127.0.0.1:1/"
        ])),
        5 => json!([*draw.pick(&["string", "a", "null"])]),
        6 if levels > 0 => json!([nonsense(draw, levels - 1), nonsense(draw, levels - 1)]),
        _ if levels > 0 => {
            let count = draw.below(4);
            let member = |draw: &mut Draw<'_>| ((*draw.pick(&WORDS)).to_owned(), nonsense(draw, levels - 1));
            Value::Object((0..count).map(|_| member(draw)).collect())
        }
        _ => json!({}),
    }
}

#[test]
fn whatever_is_read_is_refused_or_can_be_used() {
    let (read, refused) = (Seen::new(), Seen::new());
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(10_000));
    let run = runner.run(&(bytes(80), bytes(40)), |(schema_bytes, payload_bytes)| {
        let schema = nonsense(&mut Draw::new(&schema_bytes), 5);
        match Contract::read(schema.to_string().as_bytes()) {
            Err(why) => {
                refused.one();
                prop_assert!(!why.to_string().is_empty() && !why.problem.as_str().is_empty());
            }
            Ok(contract) => {
                read.one();
                prop_assert!(contract.findings().len() <= Contract::MAX_FINDINGS);
                let mut versions = Versions::default();
                versions.insert(1, contract.clone());
                versions.insert(2, contract.clone());
                let text = payload(&mut Draw::new(&payload_bytes), &Value::Null, LEVELS);
                prop_assert!(contract.validate(&text).len() <= Contract::MAX_VIOLATIONS);
                let _any = versions.upcast(&text, 1, 2);
                let changes = compatibility::check(&versions, 2, Mode::FullTransitive);
                // The same text twice: only up-casts can make it something else.
                prop_assert!(
                    changes.is_empty() || contract.has_upcasts(),
                    "{schema} {changes:?}"
                );
            }
        }
        Ok(())
    });
    run.unwrap();
    read.at_least(300);
    refused.at_least(300);
}
