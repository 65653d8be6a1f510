//! Schemas, next versions and payloads, drawn from a list of bytes.

use serde_json::{Map, Value, json};

/// Draws from a list of bytes, and zeros behind its end.
pub(crate) struct Draw<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl<'b> Draw<'b> {
    pub(crate) fn new(bytes: &'b [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Below `most`.
    pub(crate) fn below(&mut self, most: usize) -> usize {
        let byte = self.bytes.get(self.at).copied().unwrap_or(0);
        self.at += 1;
        usize::from(byte) % most
    }

    /// One time in `of`.
    pub(crate) fn once(&mut self, of: usize) -> bool {
        self.below(of) == of - 1
    }

    pub(crate) fn pick<'v, T>(&mut self, from: &'v [T]) -> &'v T {
        &from[self.below(from.len())]
    }
}

pub(crate) const NAMES: [&str; 4] = ["a", "b", "c", "d"];
const TEXTS: [&str; 6] = ["", "a", "ab", "abc", "2025-04-02", "2025-04-02T12:30:00Z"];
/// Numbers as texts: what is equal by value is written in several ways.
const NUMBERS: [&str; 9] = ["0", "-0", "1", "1.0", "1e0", "2", "2.5", "-3", "9007199254740992"];
pub(crate) const LEVELS: usize = 3;

pub(crate) fn schema(draw: &mut Draw<'_>, levels: usize) -> Value {
    match draw.below(12) {
        0 => json!({}),
        1 => json!({"type": "boolean"}),
        2 => json!({"type": ["string", "null"]}),
        3 | 4 => text_schema(draw),
        5 | 6 => number_schema(draw),
        7 => match draw.below(4) {
            0 => json!({"enum": ["a", "ab", null]}),
            1 => json!({"enum": [1, 2, "a"]}),
            2 => json!({"type": "integer", "enum": [1, 2]}),
            _ => json!({"const": true}),
        },
        8 if levels > 0 => {
            let count = 1 + draw.below(3);
            let branches: Vec<Value> = (0..count).map(|_| schema(draw, levels - 1)).collect();
            json!({ "anyOf": branches })
        }
        9 if levels > 0 => {
            let mut array = json!({"type": "array"});
            if !draw.once(4) {
                array["items"] = schema(draw, levels - 1);
            }
            limits(draw, &mut array, "minItems", "maxItems");
            if draw.once(3) {
                array["uniqueItems"] = json!(true);
            }
            array
        }
        _ if levels > 0 => object_schema(draw, levels),
        _ => json!({"type": "string"}),
    }
}

fn text_schema(draw: &mut Draw<'_>) -> Value {
    let mut text = json!({"type": "string"});
    limits(draw, &mut text, "minLength", "maxLength");
    if draw.once(4) {
        text["pattern"] = json!(*draw.pick(&["^a", "b", "^a[b-c]*$"]));
    }
    if draw.once(6) {
        text["format"] = json!(*draw.pick(&["date", "date-time"]));
    }
    text
}

fn number_schema(draw: &mut Draw<'_>) -> Value {
    let mut number = json!({"type": *draw.pick(&["integer", "number"])});
    if draw.once(2) {
        number[*draw.pick(&["minimum", "exclusiveMinimum"])] = json!(draw.below(4) as i64 - 2);
    }
    if draw.once(2) {
        number[*draw.pick(&["maximum", "exclusiveMaximum"])] = json!(draw.below(4) as i64);
    }
    number
}

pub(crate) fn object_schema(draw: &mut Draw<'_>, levels: usize) -> Value {
    let mut object = json!({"type": "object"});
    let (mut properties, mut required) = (Map::new(), Vec::new());
    for name in NAMES {
        if draw.once(2) {
            properties.insert(name.to_owned(), schema(draw, levels - 1));
        }
        if draw.once(4) {
            required.push(name);
        }
    }
    object["properties"] = Value::Object(properties);
    object["required"] = json!(required);
    match draw.below(4) {
        0 => {}
        1 => object["additionalProperties"] = schema(draw, levels - 1),
        _ => object["additionalProperties"] = json!(false),
    }
    if draw.once(6) {
        limits(draw, &mut object, "minProperties", "maxProperties");
    }
    object
}

fn limits(draw: &mut Draw<'_>, schema: &mut Value, min: &str, max: &str) {
    if draw.once(3) {
        schema[min] = json!(draw.below(3));
    }
    if draw.once(3) {
        schema[max] = json!(draw.below(4));
    }
}

/// `schema` with some of its parts drawn anew or left out: what a next version looks like.
pub(crate) fn next_version(draw: &mut Draw<'_>, schema_now: &Value, levels: usize) -> Value {
    if draw.once(8) {
        return schema(draw, levels);
    }
    let Value::Object(members) = schema_now else {
        return schema_now.clone();
    };
    let mut next = Map::new();
    for (keyword, value) in members {
        let changed = match (keyword.as_str(), value) {
            ("minLength" | "minItems" | "minProperties" | "maxLength" | "maxItems" | "maxProperties", _) => {
                if draw.once(3) {
                    continue;
                }
                if draw.once(3) {
                    json!(draw.below(4))
                } else {
                    value.clone()
                }
            }
            ("pattern" | "format" | "uniqueItems" | "minimum" | "maximum", _) if draw.once(4) => continue,
            ("items" | "additionalProperties", Value::Object(_)) => {
                next_version(draw, value, levels.saturating_sub(1))
            }
            ("properties", Value::Object(properties)) => {
                let mut changed = Map::new();
                for (name, property) in properties {
                    if !draw.once(8) {
                        changed.insert(
                            name.clone(),
                            next_version(draw, property, levels.saturating_sub(1)),
                        );
                    }
                }
                if draw.once(4) {
                    let new = schema(draw, levels.saturating_sub(1));
                    changed.insert((*draw.pick(&NAMES)).to_owned(), new);
                }
                Value::Object(changed)
            }
            ("required", Value::Array(names)) if draw.once(3) => {
                json!(names.iter().filter(|_| !draw.once(3)).collect::<Vec<_>>())
            }
            ("anyOf", Value::Array(branches)) => {
                let mut changed: Vec<Value> = branches
                    .iter()
                    .map(|branch| next_version(draw, branch, levels.saturating_sub(1)))
                    .collect();
                if draw.once(2) {
                    changed.push(schema(draw, levels.saturating_sub(1)));
                }
                Value::Array(changed)
            }
            _ => value.clone(),
        };
        let renamed = match keyword.as_str() {
            "minimum" if draw.once(3) => "exclusiveMinimum",
            "exclusiveMaximum" if draw.once(3) => "maximum",
            keyword => keyword,
        };
        next.insert(renamed.to_owned(), changed);
    }
    if members.get("type") == Some(&json!("array")) && draw.once(4) {
        next.insert("uniqueItems".to_owned(), json!(true));
        if draw.once(2) {
            next.insert("items".to_owned(), schema(draw, 0));
        }
    }
    Value::Object(next)
}

/// A payload as text, by `schema` where that is easy: most of them are valid.
pub(crate) fn payload(draw: &mut Draw<'_>, schema: &Value, levels: usize) -> String {
    if draw.once(16)
        || schema.get("type").is_none() && schema.get("anyOf").is_none() && schema.get("enum").is_none()
    {
        return any_payload(draw, levels);
    }
    if let Some(values) = schema.get("enum").and_then(Value::as_array) {
        let value = draw.pick(values).to_string();
        return if value == "1" {
            (*draw.pick(&["1", "1.0"])).to_owned()
        } else {
            value
        };
    }
    if let Some(branches) = schema.get("anyOf").and_then(Value::as_array) {
        let branch = draw.pick(branches);
        return payload(draw, branch, levels);
    }
    let kind = match &schema["type"] {
        Value::Array(kinds) => draw.pick(kinds).clone(),
        kind => kind.clone(),
    };
    match kind.as_str().unwrap() {
        "null" => "null".to_owned(),
        "boolean" => (*draw.pick(&["true", "false"])).to_owned(),
        "string" => format!("\"{}\"", draw.pick(&TEXTS)),
        "integer" => (*draw.pick(&["-2", "-1", "0", "1", "2", "3"])).to_owned(),
        "number" => (*draw.pick(&NUMBERS)).to_owned(),
        "array" => {
            let least = schema["minItems"].as_u64().unwrap_or(0);
            let count = least + draw.below(3) as u64;
            let items: Vec<String> = (0..count)
                .map(|_| payload(draw, &schema["items"], levels.saturating_sub(1)))
                .collect();
            format!("[{}]", items.join(","))
        }
        _ => object_payload(draw, schema, levels),
    }
}

fn object_payload(draw: &mut Draw<'_>, schema: &Value, levels: usize) -> String {
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let mut members = Vec::new();
    for name in NAMES {
        let known = schema["properties"].get(name);
        let is_required = required.contains(&json!(name)) && !draw.once(8);
        let wanted = is_required || draw.once(if known.is_some() { 2 } else { 8 });
        if wanted {
            let like = known.unwrap_or(&schema["additionalProperties"]);
            members.push(format!(
                "\"{name}\":{}",
                payload(draw, like, levels.saturating_sub(1))
            ));
        }
    }
    format!("{{{}}}", members.join(","))
}

fn any_payload(draw: &mut Draw<'_>, levels: usize) -> String {
    match draw.below(8) {
        0 => "null".to_owned(),
        1 => "true".to_owned(),
        2 | 3 => format!("\"{}\"", draw.pick(&TEXTS)),
        4 | 5 => (*draw.pick(&NUMBERS)).to_owned(),
        6 if levels > 0 => format!("[{}]", any_payload(draw, levels - 1)),
        7 if levels > 0 => format!("{{\"{}\":{}}}", draw.pick(&NAMES), any_payload(draw, levels - 1)),
        _ => "{}".to_owned(),
    }
}
