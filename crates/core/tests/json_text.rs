//! The tree that keeps every byte: what it refuses, and how it is shown.

#![allow(clippy::unwrap_used, reason = "a test may panic, its helper functions too")]

use tidegate_core::{
    envelope::Rule,
    json_text::{Document, Limits, MAX_DEPTH, Pointer},
};

fn parse(text: &str) -> Document<'_> {
    Document::parse(text.as_bytes(), &Limits::standard()).unwrap()
}

fn refused(text: &[u8]) -> (String, Rule) {
    let violation = Document::parse(text, &Limits::standard()).unwrap_err();
    (violation.pointer, violation.rule)
}

#[test]
fn every_text_comes_out_as_it_went_in() {
    for text in [
        "{}",
        " [ ] \n",
        "{ \"a\" : 1 , \"b\":[ 1 ,2 ] }\r\n",
        "\t\"\\u0041\\/\\ud83d\\ude00 é\"",
        "-0.10e+07",
        "null",
        "[true,false,null,\"\",{}]",
        "{\"\":{\"\":[[[]]]}}",
        "{\"nul\":\"\\u0000\",\"half\":\"\\ud800\"}",
        "[9007199254740993,18446744073709551616,1e400,0.1,1.0,-0]",
    ] {
        assert_eq!(parse(text).to_string(), text);
    }
}

#[test]
fn what_is_refused_is_named_by_rule_and_place() {
    let deep = format!("{}{}", "[".repeat(MAX_DEPTH + 1), "]".repeat(MAX_DEPTH + 1));
    let bottomless = "[".repeat(200_000);
    for (text, pointer, rule) in [
        (&b"{\"a\":1,\"a\":1}"[..], "/a", Rule::DuplicateKey),
        (
            b"{\"x\":[0,{\"a\":1,\"\\u0061\":1}]}",
            "/x/1/a",
            Rule::DuplicateKey,
        ),
        (b"{\"\\ud800\":1}", "", Rule::LoneSurrogate),
        (b"{\"a\":1", "", Rule::Syntax),
        (b"", "", Rule::Syntax),
        (b"01", "", Rule::Syntax),
        (b"[1] 2", "", Rule::Syntax),
        (b"\"\xff\"", "", Rule::NotUtf8),
        (bottomless.as_bytes(), "", Rule::Syntax),
        (deep.as_bytes(), &"/0".repeat(MAX_DEPTH), Rule::TooDeep),
        (&[b' '; 300_000], "", Rule::TooLarge),
    ] {
        assert_eq!(refused(text), (pointer.to_owned(), rule));
    }
    let just = &deep[1..deep.len() - 1];
    assert_eq!(parse(just).to_string(), just);
}

#[test]
fn many_keys_and_many_items_take_linear_time() {
    let members: Vec<String> = (0..20_000).map(|n| format!("\"{n}\":0")).collect();
    let text = format!("{{{}}}", members.join(","));
    let document = parse(&text);
    assert!(document.same_value(&parse(&text)));
    let items = format!("[{}0]", "0,".repeat(100_000));
    assert_eq!(parse(&items).to_string(), items);
}

#[test]
fn people_see_numbers_untouched_and_nothing_that_moves_the_cursor() {
    let text = "{\"id\":9007199254740993,\"e\":[1.0,{}, [ ]],\"name\":\"a\u{202e}b\u{9b}2J\\u001b\",\"k\u{200b}\":null}";
    let expected = r#"{
  "id": 9007199254740993,
  "e": [
    1.0,
    {},
    []
  ],
  "name": "a\u202eb\u009b2J\u001b",
  "k\u200b": null
}"#;
    assert_eq!(parse(text).pretty(), expected);
    assert!(parse(expected).same_value(&parse(text)));
    // A text of brackets is not shown as megabytes of spaces.
    let deep = format!(
        "{}{}{}",
        "[".repeat(100),
        "1,".repeat(10_000) + "1",
        "]".repeat(100)
    );
    assert!(parse(&deep).pretty().len() < 500_000);
}

#[test]
fn values_are_found_by_pointer() {
    let text = r#"{"a/b":{"~":[1.10 , "x\u0041"]},"half":"\ud800"}"#;
    let document = parse(text);
    let at = |pointer: &str| document.text_at(&Pointer::parse(pointer).unwrap());
    assert_eq!(at("/a~1b/~0/0").as_deref(), Some("1.10"));
    assert_eq!(at("/a~1b/~0").as_deref(), Some(r#"[1.10 , "x\u0041"]"#));
    assert_eq!(at("").as_deref(), Some(text));
    for absent in ["/a", "/a~1b/~0/2", "/a~1b/~0/00", "/a~1b/~0/-", "/a~1b/~0/0/x"] {
        assert_eq!(at(absent), None, "{absent}");
    }
    let string = |pointer: &str| document.string_at(&Pointer::parse(pointer).unwrap());
    assert_eq!(string("/a~1b/~0/1").as_deref(), Some("xA"));
    assert_eq!((string("/half"), string("/a~1b")), (None, None));
    assert!(!format!("{document:?}").contains("1.10"));
}
