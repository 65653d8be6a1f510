//! The vectors of `conformance/json_patch/`, appendix A of RFC 6902 among them, and the limits.

#![allow(clippy::unwrap_used, reason = "a test may panic, its helper functions too")]

use std::fs;

use serde_json::{Value, json};
use tidegate_core::{
    json_patch::{Patch, PatchError},
    json_text::{Document, Limits},
};

fn apply(document: &str, patch: &str, limits: &Limits) -> Result<String, PatchError> {
    let document = Document::parse(document.as_bytes(), limits).unwrap();
    let before = document.to_string();
    let result = Patch::parse(patch.as_bytes())?.apply(&document, limits);
    assert_eq!(document.to_string(), before, "a patch makes a new text");
    result.map(|edited| edited.to_string())
}

fn shown(error: &PatchError) -> Value {
    match error {
        PatchError::Operation { index, pointer, .. } => {
            json!({"operation": index, "pointer": pointer, "problem": error.as_str()})
        }
        error => json!({"problem": error.as_str()}),
    }
}

#[test]
fn every_vector_holds() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../conformance/json_patch/vectors.json"
    );
    let vectors: Vec<Value> = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    assert!(vectors.len() > 60, "only {} vectors", vectors.len());
    let mut failures = Vec::new();
    for vector in &vectors {
        let patch = match &vector["patch_repeat"] {
            Value::Null => vector["patch"].as_str().unwrap().to_owned(),
            repeat => {
                let times = repeat["times"].as_u64().unwrap().try_into().unwrap();
                format!(
                    "[{}]",
                    vec![repeat["operation"].as_str().unwrap(); times].join(",")
                )
            }
        };
        let document = vector["document"].as_str().unwrap();
        let got = match apply(document, &patch, &Limits::standard()) {
            Ok(text) => json!({ "result": text }),
            Err(error) => json!({ "error": shown(&error) }),
        };
        let want = match vector.get("result") {
            Some(result) => json!({ "result": result }),
            None => json!({ "error": vector["error"] }),
        };
        if got != want {
            failures.push(format!("{}\n   want {want}\n    got {got}", vector["name"]));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn a_patch_that_doubles_the_text_ends_at_the_limit() {
    let copies = vec![r#"{"op":"copy","from":"","path":"/-"}"#; 64].join(",");
    let limits = Limits {
        max_bytes: 10_000,
        max_depth: 100,
    };
    let error = apply("[\"xxxxxxxxxxxxxxxx\"]", &format!("[{copies}]"), &limits).unwrap_err();
    assert_eq!(error.as_str(), "too_large", "{error}");
    // And the same in depth, where the text stays small.
    let limits = Limits {
        max_bytes: usize::MAX,
        max_depth: 8,
    };
    let error = apply("[]", &format!("[{copies}]"), &limits).unwrap_err();
    assert_eq!(error.as_str(), "too_deep", "{error}");
}

#[test]
fn a_patch_can_nest_no_deeper_than_the_limit() {
    let limits = Limits {
        max_bytes: 1_000,
        max_depth: 3,
    };
    let add = |path: &str, value: &str| {
        apply(
            "{\"a\":[]}",
            &format!(r#"[{{"op":"add","path":"{path}","value":{value}}}]"#),
            &limits,
        )
    };
    assert_eq!(add("/a/-", "[1]").unwrap(), "{\"a\":[[1]]}");
    assert_eq!(add("/a/-", "[[1]]").unwrap_err().as_str(), "too_deep");
    assert_eq!(add("", "[[[1]]]").unwrap(), "[[[1]]]");
    assert_eq!(add("", "[[[[1]]]]").unwrap_err().as_str(), "too_deep");
}

#[test]
fn errors_name_operation_place_and_reason_and_hold_no_value() {
    let error = apply(
        r#"{"card":"4111-1111"}"#,
        r#"[{"op":"test","path":"","value":{"card":"4111-1111"}},{"op":"test","path":"/card","value":"4222"}]"#,
        &Limits::standard(),
    )
    .unwrap_err();
    assert_eq!(
        error.to_string(),
        "operation 1 at \"/card\": the value there is not the expected one"
    );
    let patch = Patch::parse(br#"[{"op":"add","path":"/card","value":"4111"}]"#).unwrap();
    assert!(!format!("{patch:?}").contains("4111"));
    assert_eq!((patch.len(), patch.is_empty()), (1, false));
}
