//! Contracts for people and for other languages: places, differences between versions, golden envelopes, and contracts inside
//! of other documents.

#![allow(clippy::unwrap_used, reason = "a test may panic, its helper functions too")]

use chrono::DateTime;
use serde_json::{Value, json};
use tidegate_core::{
    contract::{Contract, ContractId, Field, FieldChange, GoldenError, difference, golden},
    envelope::{Envelope, Limits},
};

fn contract(text: &str) -> Contract {
    Contract::read(text.as_bytes()).unwrap_or_else(|why| panic!("{why}: {text}"))
}

fn id(path: &str) -> ContractId {
    ContractId::of_path(path).unwrap()
}

const ORDER: &str = r##"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "$id": "https://example.org/order",
  "type": "object",
  "additionalProperties": false,
  "required": ["id", "lines"],
  "properties": {
    "id": {"type": "string", "minLength": 1, "maxLength": 64, "description": "Which order"},
    "lines": {
      "type": "array", "minItems": 1, "uniqueItems": true,
      "items": {"$ref": "#/$defs/a line", "description": "What was bought"}
    },
    "how": {"anyOf": [{"type": "string", "enum": ["card", "cash"]}, {"type": "null"}]},
    "tags": {"type": "object", "additionalProperties": {"type": "string"}},
    "n": {"type": ["integer", "null"], "minimum": 0, "exclusiveMaximum": 10, "default": 1, "deprecated": true},
    "a/b~": {"const": "x"},
    "any": true
  },
  "$defs": {"a line": {
    "type": "object", "title": "A line", "required": ["sku"],
    "properties": {"sku": {"type": "string", "pattern": "^[A-Z]+$", "examples": ["B"]}}
  }},
  "examples": [{"id": "1", "lines": [{"sku": "A"}], "n": 9007199254740992}],
  "x-tidegate": {"owner": "o", "idempotencyKey": "/id"}
}"##;

fn shown(field: &Field) -> String {
    let limits: Vec<String> = field
        .limits
        .iter()
        .map(|(name, value)| format!("{name} {value}"))
        .collect();
    let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    format!(
        "{}|{}|{}|{}|{}|{}|{}",
        field.path,
        field.types,
        field.is_required,
        limits.join("; "),
        or_none(&field.description).replace('\n', "/"),
        or_none(&field.default),
        or_none(&field.example)
    )
}

#[test]
fn every_place_is_told_of() {
    let fields = contract(ORDER).fields();
    let lines: Vec<String> = fields.iter().map(shown).collect();
    assert_eq!(
        lines,
        [
            "|object|true||-|-|-",
            r#"/id|string|true|length 1 to 64|Which order|-|"1""#,
            "/lines|array|true|items at least 1; each item once|-|-|-",
            "/lines/*|object|false|other members any|A line/What was bought|-|-",
            r#"/lines/*/sku|string|true|pattern ^[A-Z]+$|-|-|"B""#,
            "/how|one of 2 forms|false||-|-|-",
            r#"/how (form 1)|string|false|one of "card", "cash"|-|-|-"#,
            "/how (form 2)|null|false||-|-|-",
            "/tags|object|false||-|-|-",
            "/tags/*|string|false||-|-|-",
            "/n|integer or null|false|value ≥ 0; value < 10|-|1|9007199254740992",
            r#"/a~1b~0|anything|false|only "x"|-|-|-"#,
            "/any|anything|false||-|-|-",
        ]
    );
    let deprecated: Vec<&str> = fields
        .iter()
        .filter(|f| f.is_deprecated)
        .map(|f| &*f.path)
        .collect();
    assert_eq!(deprecated, ["/n"]);
}

/// 480 places that each show a description of 15,000 characters would be 14 MB for 64 KiB of contract.
#[test]
fn a_small_contract_makes_no_large_description() {
    let uses: Vec<String> = (0..480)
        .map(|n| format!(r##""f{n}":{{"$ref":"#/$defs/d"}}"##))
        .collect();
    let text = format!(
        r#"{{"properties":{{{}}},"$defs":{{"d":{{"type":"string","description":"{}"}}}}}}"#,
        uses.join(","),
        "é".repeat(15_000)
    );
    let fields = contract(&text).fields();
    assert_eq!(fields.len(), 481);
    let longest = fields
        .iter()
        .filter_map(|f| f.description.as_ref())
        .map(|d| d.chars().count());
    assert_eq!(longest.max(), Some(2_001));
}

#[test]
fn a_version_says_what_it_changed() {
    let before = r#"{"type":"object","additionalProperties":false,"required":["a"],"properties":{
        "a":{"type":"string","maxLength":3},"b":{"type":"array","items":{"type":"string"}},"same":{"type":"string","minLength":1}}}"#;
    let now = r#"{"type":"object","additionalProperties":false,"required":["c"],"properties":{
        "same":{"type":"string","minLength":1,"description":"told"},"a":{"type":["string","null"],"maxLength":4},"c":{"anyOf":[{"type":"string"}]},"cc":{"type":"null"}},
        "x-tidegate":{"upcasts":[{"op":"rename","from":"/b","to":"/c"},{"op":"default","path":"/c","value":"x"},{"op":"remove","path":"/d"}]}}"#;
    let (before, now) = (contract(before), contract(now));
    let found: Vec<(String, FieldChange)> = difference(&before, &now)
        .into_iter()
        .map(|d| (d.path, d.kind))
        .collect();
    let change = |name, was: &str, is: &str| (name, was.to_owned(), is.to_owned());
    assert_eq!(
        found,
        [
            (
                "/a".to_owned(),
                FieldChange::Changed(vec![
                    change("type", "string", "string or null"),
                    change("presence", "required", "optional"),
                    change("length", "at most 3", "at most 4"),
                ])
            ),
            ("/c".to_owned(), FieldChange::Added { is_required: true }),
            ("/cc".to_owned(), FieldChange::Added { is_required: false }),
            ("/b".to_owned(), FieldChange::Removed),
        ]
    );
    assert_eq!(difference(&now, &now), []);
    assert_eq!(before.upcast_steps(), None);
    let steps = now.upcast_steps().unwrap();
    assert_eq!(
        steps,
        [
            "/b becomes /c",
            "/c is \"x\" where it is missing",
            "/d is taken out"
        ]
    );
}

#[test]
fn a_golden_envelope_is_the_example_as_it_is_sent() {
    let text = golden(
        &id("order.close/2.json"),
        &contract(
            ORDER
                .replace("9007199254740992", "7.0e0")
                .replace("\"n\": {\"type\": [\"integer\"", "\"n\": {\"type\": [\"number\"")
                .as_str(),
        ),
    )
    .unwrap();
    assert_eq!(
        text,
        r#"{
  "taskId": "golden:order.close:2",
  "taskType": "order.close",
  "payloadVersion": 2,
  "idempotencyKey": "1",
  "payload": {
    "id": "1",
    "lines": [
      {
        "sku": "A"
      }
    ],
    "n": 7.0e0
  }
}
"#
    );
    let envelope = Envelope::parse(text.as_bytes(), &Limits::standard(), DateTime::UNIX_EPOCH).unwrap();
    assert_eq!(
        (envelope.payload_version, envelope.idempotency_key.as_deref()),
        (2, Some("1"))
    );
}

#[test]
fn what_cannot_be_sent_has_no_golden_envelope() {
    let make = |text: &str| golden(&id("order.close/1.json"), &contract(text));
    assert_eq!(make("{}"), Err(GoldenError::NoExample));
    assert!(matches!(
        make(r#"{"type":"object","examples":[1]}"#),
        Err(GoldenError::Invalid(_))
    ));
    assert!(matches!(
        make(r#"{"examples":[1]}"#),
        Err(GoldenError::NoEnvelope(_))
    ));
    let deep = r#"{"examples":[{"a":{"a":{"a":{"a":{"a":{}}}}}}]}"#;
    assert!(matches!(make(deep), Err(GoldenError::NoEnvelope(_))));
    // No field, a field that isn't there, and one that is longer than a key: the envelope goes without.
    for (field, payload) in [
        ("", "{}".to_owned()),
        ("/a", "{}".to_owned()),
        ("/a", format!("{{\"a\":\"{}\"}}", "x".repeat(257))),
    ] {
        let key = if field.is_empty() {
            String::new()
        } else {
            format!("\"idempotencyKey\":\"{field}\"")
        };
        let text = make(&format!("{{\"examples\":[{payload}],\"x-tidegate\":{{{key}}}}}")).unwrap();
        assert!(!text.contains("idempotencyKey"), "{text}");
    }
    let number = make(r#"{"examples":[{"a":10}],"x-tidegate":{"idempotencyKey":"/a"}}"#).unwrap();
    assert!(number.contains("\"idempotencyKey\": \"10\""), "{number}");
    // Ids have at most 128 bytes, and so have types.
    let long = golden(
        &id(&format!("a.{}/2147483647.json", "b".repeat(126))),
        &contract(r#"{"examples":[{}]}"#),
    );
    assert!(long.is_ok(), "{long:?}");
}

#[test]
fn references_follow_a_contract_into_another_document() {
    let text = contract(ORDER).embedded("#/components/schemas/x.v1");
    let value: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        value["properties"]["lines"]["items"]["$ref"],
        "#/components/schemas/x.v1/$defs/a%20line"
    );
    assert_eq!((value.get("$schema"), value.get("$id")), (None, None));
    let mut expected: Value = serde_json::from_str(ORDER).unwrap();
    expected
        .as_object_mut()
        .unwrap()
        .retain(|name, _| !matches!(name.as_str(), "$schema" | "$id"));
    expected["properties"]["lines"]["items"]["$ref"] = value["properties"]["lines"]["items"]["$ref"].clone();
    assert_eq!(value, expected);
    // What only looks like a reference stays, digits too.
    let text = r##"{"properties":{"$ref":{"anyOf":[{"$ref":"#/$defs/n"}]}},"$defs":{"n":{"type":"number","default":1.10}},"examples":[{"$ref":"#/$defs/n"}]}"##;
    let moved = text.replacen("#/$defs/n", "#/at/$defs/n", 1);
    assert_eq!(contract(text).embedded("#/at"), moved);
    assert_eq!(
        serde_json::from_str::<Value>(&moved).unwrap()["examples"],
        json!([{"$ref": "#/$defs/n"}])
    );
}
