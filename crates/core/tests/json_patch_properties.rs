//! What holds for any text and any patch: nothing but the named place changes, and nothing panics.

#![allow(clippy::unwrap_used, reason = "a test may panic, its helper functions too")]

use proptest::prelude::*;
use serde_json::Value;
use tidegate_core::{
    json_patch::Patch,
    json_text::{Document, Limits},
};

fn parse(text: &str) -> Document<'_> {
    Document::parse(text.as_bytes(), &Limits::standard()).unwrap()
}

fn scalar() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        // Numbers no double holds, written in every way.
        "-?(0|[1-9][0-9]{0,30})(\\.[0-9]{1,30})?([eE][+-]?[0-9]{1,30})?",
        r#""([a-z é😀]|\\u[0-9a-f]{4}|\\n|\\/|\\\\|\\"){0,8}""#,
    ]
}

fn space() -> impl Strategy<Value = String> {
    "[ \t\r\n]{0,2}"
}

/// A text with its own white space and escapes; keys are unique by their index.
fn value() -> impl Strategy<Value = String> {
    scalar().prop_recursive(4, 24, 4, |inner| {
        let item = (space(), inner.clone(), space()).prop_map(|(a, v, b)| a + &v + &b);
        let array = prop::collection::vec(item, 0..4).prop_map(|items| format!("[{}]", items.join(",")));
        prop_oneof![array, object(inner)]
    })
}

fn object(inner: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    prop::collection::vec((space(), space(), inner, space()), 0..5).prop_map(|members| {
        let members: Vec<String> = members
            .into_iter()
            .enumerate()
            .map(|(at, (a, b, v, c))| format!("{a}\"k{at}\"{b}:{a}{v}{c}"))
            .collect();
        format!("{{{}}}", members.join(","))
    })
}

fn patched(text: &str, patch: &str) -> String {
    let document = parse(text);
    let patch = Patch::parse(patch.as_bytes()).unwrap();
    patch.apply(&document, &Limits::standard()).unwrap().to_string()
}

/// Pointers to every value of `value`.
fn places(value: &Value, here: &str, out: &mut Vec<String>) {
    out.push(here.to_owned());
    match value {
        Value::Object(members) => {
            for (key, inner) in members {
                places(inner, &format!("{here}/{key}"), out);
            }
        }
        Value::Array(items) => {
            for (at, inner) in items.iter().enumerate() {
                places(inner, &format!("{here}/{at}"), out);
            }
        }
        _ => {}
    }
}

/// The shape of a text, each scalar replaced by a plain number, so that `serde_json` can hold it.
fn shape(document: &Document<'_>) -> Vec<String> {
    fn walk(document: &Document<'_>, here: String, out: &mut Vec<String>) {
        let pointer = tidegate_core::json_text::Pointer::parse(&here).unwrap();
        if document.text_at(&pointer).is_none() {
            return;
        }
        for at in 0..5 {
            walk(document, format!("{here}/k{at}"), out);
            walk(document, format!("{here}/{at}"), out);
        }
        out.push(here);
    }
    let mut out = Vec::new();
    walk(document, String::new(), &mut out);
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_text_comes_out_as_it_went_in(before in space(), value in value(), after in space()) {
        let text = before + &value + &after;
        let document = parse(&text);
        prop_assert_eq!(document.to_string(), text.as_str());
        let pretty = document.pretty();
        prop_assert!(parse(&pretty).same_value(&document));
        prop_assert_eq!(parse(&pretty).pretty(), pretty.as_str());
    }

    /// B82: a number beside the edited member was rounded.
    #[test]
    fn replacing_a_value_leaves_every_other_byte(text in value(), new in value(), pick in any::<prop::sample::Index>()) {
        let document = parse(&text);
        let places = shape(&document);
        let place = &places[pick.index(places.len())];
        let old = document.text_at(&tidegate_core::json_text::Pointer::parse(place).unwrap()).unwrap();
        let edited = patched(&text, &format!(r#"[{{"op":"replace","path":"{place}","value":{new}}}]"#));
        // The text is one prefix, the value, one suffix; and so is the result, with another value.
        let fits = text.match_indices(&old).any(|(at, _)| {
            edited == format!("{}{new}{}", &text[..at], &text[at + old.len()..])
        });
        prop_assert!(fits, "{} at {} gave {}", text, place, edited);
        // And back again to the byte.
        prop_assert_eq!(patched(&edited, &format!(r#"[{{"op":"replace","path":"{place}","value":{old}}}]"#)), text);
    }

    #[test]
    fn adding_a_member_and_removing_it_gives_the_text_back(text in object(value()), new in value()) {
        let with = patched(&text, &format!(r#"[{{"op":"add","path":"/new","value":{new}}}]"#));
        let end = text.trim_end().len() - 1;
        let kept = text[..end].trim_end();
        prop_assert!(with.starts_with(kept) && with.contains(&new), "{} gave {}", text, with);
        let without = patched(&with, r#"[{"op":"remove","path":"/new"}]"#);
        prop_assert!(parse(&without).same_value(&parse(&text)));
        if !kept.ends_with('{') {
            prop_assert_eq!(without, text);
        }
    }

    #[test]
    fn a_value_equals_itself_and_a_changed_one_does_not(text in value()) {
        prop_assert!(parse(&text).same_value(&parse(&text)));
        let wrapped = format!("[{text}]");
        prop_assert!(!parse(&text).same_value(&parse(&wrapped)));
    }

    /// The second opinion, on texts whose numbers it can hold.
    #[test]
    fn a_patch_does_what_it_does_to_a_plain_tree(a in -99_i64..99, items in prop::collection::vec(-9_i64..9, 1..6), at in any::<prop::sample::Index>()) {
        let at = at.index(items.len());
        let text = format!(r#"{{"a":{a},"items":{items:?}}}"#);
        let mut expected = items.clone();
        expected.insert(at, a);
        let inserted = patched(&text, &format!(r#"[{{"op":"copy","from":"/a","path":"/items/{at}"}}]"#));
        let value: Value = serde_json::from_str(&inserted).unwrap();
        prop_assert_eq!(&value["items"], &Value::from(expected));
        let mut all = Vec::new();
        places(&value, "", &mut all);
        prop_assert_eq!(all.len(), items.len() + 4);
        prop_assert_eq!(patched(&inserted, &format!(r#"[{{"op":"remove","path":"/items/{at}"}}]"#)), text);
    }

    #[test]
    fn no_text_makes_it_panic(
        text in r#"([\{\}\[\],:"\\]|"[a-z\\]{0,3}"|\\u[0dD][08-9a-f]00|-?[0-9.e+-]{1,4}|true|null|é| ){0,40}"#,
        bytes in prop::collection::vec(any::<u8>(), 0..64),
        path in r"[/~01a-z-]{0,6}",
        op in "(add|remove|replace|move|copy|test|x)",
    ) {
        for text in [text.as_bytes(), &bytes] {
            let patch = Patch::parse(text);
            if let Ok(document) = Document::parse(text, &Limits::standard()) {
                let written = document.to_string();
                prop_assert_eq!(written.as_bytes(), text);
                document.pretty();
                if let Ok(patch) = patch {
                    let _ = patch.apply(&document, &Limits::standard());
                }
            }
        }
        let patch = format!(r#"[{{"op":"{op}","path":"{path}","from":"/a","value":[1]}}]"#);
        if let Ok(patch) = Patch::parse(patch.as_bytes()) {
            let document = parse(r#"{"a":{"b":[1,{}]},"0":[]}"#);
            if let Ok(edited) = patch.apply(&document, &Limits::standard()) {
                let text = edited.to_string();
                prop_assert_eq!(parse(&text).to_string(), text);
            }
        }
    }
}
