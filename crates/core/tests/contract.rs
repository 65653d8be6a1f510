//! Limits, texts for people, and what vectors don't say: nothing of a payload in a message, bombs that end, versions and
//! declarations.

#![allow(clippy::unwrap_used, reason = "a test may panic, its helper functions too")]

use std::time::{Duration, Instant};

use tidegate_core::contract::{
    Catalogue, Contract, ContractId, Declaration, Role, Taken, TakenError, Use, Verdict, Versions,
    compatibility::{self, Breaks, Direction, Mode},
    verdict,
};

fn contract(text: &str) -> Contract {
    Contract::read(text.as_bytes()).unwrap_or_else(|why| panic!("{why}: {text}"))
}

fn versions(texts: &[&str]) -> Versions {
    let mut versions = Versions::default();
    for (at, text) in texts.iter().enumerate() {
        versions.insert(u32::try_from(at).unwrap() + 1, contract(text));
    }
    versions
}

#[test]
fn a_contract_gives_back_what_it_was_read_from() {
    let text = r#"{ "title": "t", "description": "d", "examples": [ {"a": 1.10} ],
        "x-tidegate": {"owner": "o", "idempotencyKey": "/a", "upcasts": []} }"#;
    let read = contract(text);
    assert_eq!(read.as_str(), text);
    assert_eq!(
        (read.title(), read.description(), read.owner()),
        (Some("t"), Some("d"), Some("o"))
    );
    assert_eq!(read.idempotency_key().unwrap().as_str(), "/a");
    assert!(read.has_upcasts());
    assert_eq!(read.examples().collect::<Vec<_>>(), [r#"{"a": 1.10}"#]);
    assert_eq!(format!("{read:?}"), format!("Contract({} bytes)", text.len()));
}

#[test]
fn the_same_contract_may_be_written_in_another_way() {
    let one = contract(r#"{"type":"object","maxProperties":3}"#);
    assert!(one.same(&contract("{ \"maxProperties\": 3, \"type\": \"\\u006fbject\" }")));
    assert!(!one.same(&contract(r#"{"type":"object","maxProperties":4}"#)));
    assert!(!one.same(&contract(
        r#"{"type":"object","maxProperties":3,"description":"x"}"#
    )));
}

/// Whoever logs a violation must not log a card number with it.
#[test]
fn violations_hold_names_and_never_values() {
    let contract = contract(
        r#"{"type":"object","additionalProperties":false,"required":["gone"],"properties":{
            "card":{"type":"string","maxLength":4,"pattern":"^[0-9]{4}$","format":"uuid"},
            "pin":{"type":"integer","maximum":9},"kind":{"enum":["a"]},"flag":{"type":"boolean"},
            "list":{"type":"array","uniqueItems":true,"maxItems":1,"items":{"anyOf":[{"type":"null"},{"type":"object"}]}}}}"#,
    );
    let payload = r#"{"card":"4111-SECRET","pin":987654,"kind":"SECRET","flag":"SECRET",
        "list":["SECRET","SECRET"],"extra":"SECRET","SECRET-name":1}"#;
    let violations = contract.validate(payload);
    assert_eq!(violations.len(), 13, "{violations:#?}");
    let names = violations.iter().filter(|v| v.to_string().contains("SECRET"));
    let names: Vec<String> = names.map(ToString::to_string).collect();
    assert_eq!(
        names,
        ["/SECRET-name: the contract has no such member (unknown_field)"]
    );
    assert!(violations.iter().all(|v| !v.to_string().contains("987654")));
    let shown: Vec<String> = violations.iter().take(5).map(ToString::to_string).collect();
    assert_eq!(
        shown,
        [
            "/card: has 11 characters, 0 to 4 are allowed (length)",
            "/card: is not a UUID, such as 0190b5a8-7f20-7f1b-ae7d-1234567890ab (format)",
            "/card: does not match ^[0-9]{4}$ (pattern)",
            "/pin: must be at most 9 (range)",
            "/kind: must be one of \"a\" (enum)",
        ]
    );
}

#[test]
fn violations_are_bounded_whatever_the_payload() {
    let contract = contract(r#"{"type":"object","additionalProperties":{"type":"null"}}"#);
    let members: Vec<String> = (0..500).map(|at| format!("\"k{at}\":1")).collect();
    let violations = contract.validate(&format!("{{{}}}", members.join(",")));
    assert_eq!(violations.len(), Contract::MAX_VIOLATIONS);
    // A long key is cut, and one that would turn a log line around is made safe.
    let long = "x".repeat(1_000);
    let violations = contract.validate(&format!("{{\"{long}\":1,\"a\\u202eb\":1}}"));
    assert!(violations[0].pointer.len() < 100);
    assert_eq!(violations[1].pointer, "/a\u{fffd}b");
}

#[test]
fn errors_say_what_to_write_instead() {
    for (text, shown) in [
        (
            r#"{"oneOf":[]}"#,
            "/oneOf: \"oneOf\" is not enforced here; write \"anyOf\"",
        ),
        (
            r#"{"$ref":"http://127.0.0.1/x"}"#,
            "/$ref: only \"#/$defs/NAME\" can be referred to; nothing outside of this file is ever read",
        ),
        (
            "[]",
            "contract: a schema is an object (or true or false inside of another)",
        ),
        (
            r#"{"type":"integer","minLength":1}"#,
            "/minLength: \"minLength\" says something about texts, and \"type\" here allows none",
        ),
    ] {
        assert_eq!(Contract::read(text.as_bytes()).unwrap_err().to_string(), shown);
    }
}

#[test]
fn what_is_too_large_is_refused() {
    let large = format!("{{\"title\":\"{}\"}}", "x".repeat(Contract::MAX_BYTES));
    assert_eq!(
        Contract::read(large.as_bytes()).unwrap_err().problem.as_str(),
        "too_large"
    );
    let deep = format!("{}{}", "{\"items\":".repeat(10_000), "}".repeat(10_000));
    assert!(Contract::read(deep.as_bytes()).is_err());
    for (text, what) in [
        (
            format!("{{\"enum\":[{}]}}", vec!["1"; 501].join(",")),
            "values: at most 500",
        ),
        (
            format!("{{\"anyOf\":[{}]}}", vec!["{}"; 17].join(",")),
            "branches: at most 16",
        ),
        (
            format!("{{\"examples\":[{}]}}", vec!["{}"; 21].join(",")),
            "examples: at most 20",
        ),
        (
            format!(
                "{{\"x-tidegate\":{{\"upcasts\":[{}]}}}}",
                vec![r#"{"op":"remove","path":"/a"}"#; 65].join(",")
            ),
            "steps in \"upcasts\": at most 64",
        ),
    ] {
        let error = Contract::read(text.as_bytes()).unwrap_err().to_string();
        assert!(error.ends_with(what), "{error}");
    }
}

/// Choices inside of choices, each twice: 2^16 ways through a schema of a few hundred bytes, were it not bounded.
#[test]
fn a_bomb_of_choices_ends() {
    let nested = |inner: &str, times: usize| {
        (0..times).fold(inner.to_owned(), |inner, _| format!(r#"{{"anyOf":[{inner}]}}"#))
    };
    let started = Instant::now();
    let reader = nested(r#"{"type":"string","minLength":3}"#, 15);
    let versions = versions(&[r#"{"type":["string","null","boolean","integer"]}"#, &reader]);
    let changes = compatibility::check(&versions, 2, Mode::FullTransitive);
    assert!(!changes.is_empty());
    assert_eq!(contract(&reader).validate("\"a\"").len(), 1);

    // Each of many items fails seventy-two branches before one takes it.
    let wide = |inner: &str, last: &str| format!(r#"{{"anyOf":[{},{last}]}}"#, [inner; 8].join(","));
    let inner = wide(r#"{"type":"array"}"#, r#"{"type":"object"}"#);
    let wide = contract(&format!(
        r#"{{"type":"array","items":{}}}"#,
        wide(&inner, r#"{"type":"integer"}"#)
    ));
    let payload = format!("[{}]", vec!["0"; 10_000].join(","));
    assert_eq!(wide.validate(&payload), []);
    assert!(
        started.elapsed() < Duration::from_secs(60),
        "{:?}",
        started.elapsed()
    );
}

#[test]
fn a_transitive_mode_looks_at_every_version_before() {
    let versions = versions(&[
        r#"{"type":"object","properties":{"a":{"type":"integer"}}}"#,
        r#"{"type":"object","properties":{"a":{"type":"string"}}}"#,
        r#"{"type":"object","properties":{"a":{"type":"string"}}}"#,
    ]);
    let against = |mode| {
        let changes = compatibility::check(&versions, 3, mode);
        changes
            .iter()
            .map(|c| (c.direction, c.against))
            .collect::<Vec<_>>()
    };
    for mode in [Mode::None, Mode::Backward, Mode::Forward, Mode::Full] {
        assert_eq!(against(mode), [], "{mode:?}");
    }
    assert_eq!(against(Mode::BackwardTransitive), [(Direction::Backward, 1)]);
    assert_eq!(against(Mode::ForwardTransitive), [(Direction::Forward, 1)]);
    let both = [(Direction::Backward, 1), (Direction::Forward, 1)];
    assert_eq!(against(Mode::FullTransitive), both);
    assert_eq!(compatibility::check(&versions, 1, Mode::FullTransitive), []);
    assert_eq!(compatibility::check(&versions, 9, Mode::FullTransitive), []);
}

#[test]
fn up_casts_are_followed_across_versions() {
    let versions = versions(&[
        r#"{"type":"object","additionalProperties":false,"required":["a"],"properties":{"a":{"type":"string"}}}"#,
        r#"{"type":"object","additionalProperties":false,"required":["b"],"properties":{"b":{"type":"string"}},
            "x-tidegate":{"upcasts":[{"op":"rename","from":"/a","to":"/b"}]}}"#,
        r#"{"type":"object","additionalProperties":false,"required":["c"],"properties":{"c":{"type":"string"}},
            "x-tidegate":{"upcasts":[{"op":"rename","from":"/b","to":"/c"}]}}"#,
    ]);
    assert_eq!(compatibility::check(&versions, 3, Mode::BackwardTransitive), []);
    assert_eq!(versions.upcast(r#"{"a":"x"}"#, 1, 3).unwrap(), r#"{"c":"x"}"#);
}

#[test]
fn a_change_says_who_breaks() {
    let versions = versions(&[r#"{"type":"string"}"#, r#"{"type":"string","maxLength":5}"#]);
    let changes = compatibility::check(&versions, 2, Mode::Full);
    let shown: Vec<String> = changes.iter().map(ToString::to_string).collect();
    assert_eq!(
        shown,
        [
            "/maxLength: more characters are sent than the 5 that the reader takes (length against version 1); \
             breaks old producers, tasks already delayed or dead"
        ]
    );
    assert_eq!(Direction::Forward.breaks(), [Breaks::OldConsumers]);
    for (name, mode) in Mode::ALL {
        assert_eq!((Mode::parse(name), mode.as_str()), (Some(mode), name));
    }
    assert_eq!(Mode::parse("FULL_TRANSITIVE"), Some(Mode::FullTransitive));
    assert_eq!(Mode::parse("sideways"), None);
}

#[test]
fn a_worker_names_the_versions_it_takes() {
    let taken = Taken::new([3, 1, 1]).unwrap();
    assert_eq!(taken.to_string(), "1, 3");
    assert_eq!(taken.iter().collect::<Vec<_>>(), [1, 3]);
    assert_eq!(Taken::new([]), Err(TakenError::None));
    assert_eq!(Taken::new([0]), Err(TakenError::NoVersion(0)));
    assert_eq!(Taken::new([u32::MAX]), Err(TakenError::NoVersion(u32::MAX)));
    assert_eq!(Taken::new(1..=65), Err(TakenError::TooMany));
    let Verdict::Park { reason } = verdict(2, &taken, None) else {
        panic!("2 is between 1 and 3");
    };
    assert_eq!(
        reason,
        "the payload has version 2, this worker takes 1, 3, and no contract declares up-casts from 2 to one of these"
    );
}

#[test]
fn a_declaration_names_types_and_versions_that_exist() {
    let mut known = Catalogue::default();
    assert!(known.is_empty());
    for path in ["order.close/1.json", "order.close/2.json", "order.paid/1.json"] {
        known.insert(ContractId::of_path(path).unwrap(), contract("{}"));
    }
    let types: Vec<(&str, Option<u32>)> = known.iter().map(|(t, v)| (t.as_str(), v.newest())).collect();
    assert_eq!(types, [("order.close", Some(2)), ("order.paid", Some(1))]);

    let used = |task_type: &str, versions: &[u32]| Use {
        task_type: task_type.to_owned(),
        versions: versions.to_vec(),
    };
    let mut declaration = Declaration {
        service: "order-service".to_owned(),
        produces: vec![used("order.close", &[2])],
        consumes: vec![used("order.paid", &[1]), used("order.close", &[1, 2])],
    };
    assert_eq!(declaration.findings(&known), []);

    declaration.service = " ".to_owned();
    declaration.produces.push(used("order.close", &[1]));
    declaration.consumes = vec![
        used("order.close", &[1, 3]),
        used("order.refund", &[1]),
        used("Order", &[1]),
        used("order.paid", &[1, 1]),
    ];
    let found = declaration.findings(&known);
    let shown: Vec<String> = found.iter().map(ToString::to_string).collect();
    assert_eq!(
        shown,
        [
            "/service: a service has a name of 1 to 128 characters (service)",
            "/produces/1/type: order.close stands here already; put all versions together (twice)",
            "/consumes/0/versions/1: order.close has no version 3; there are 1, 2 (unknown_version)",
            "/consumes/1/type: there is no contract for order.refund; write order.refund/1.json or correct the type \
             (unknown_type)",
            "/consumes/2/type: a task type is 2 to 6 words of a-z 0-9 _ -, each starting with a letter, joined by \
             dots, at most 128 bytes (task_type)",
            "/consumes/3/versions: a type has 1 to 64 versions from 1 on, each once (versions)",
        ]
    );
    let nothing: Declaration = serde_json::from_str(r#"{"service":"a"}"#).unwrap();
    assert_eq!(nothing.findings(&known).len(), 1);
    assert!(serde_json::from_str::<Declaration>(r#"{"service":"a","owner":"b"}"#).is_err());
    assert_eq!(Role::Produces.as_str(), "produces");
}
