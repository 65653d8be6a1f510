//! The catalogue's three forms: as reviewed, the same each time, and with texts of somebody who means harm.

use serde_json::Value;
use tidegate_core::{
    contract::{Catalogue, Contract, ContractId},
    names::Names,
};

use super::{asyncapi, html, markdown};

fn catalogue(files: &[(&str, &str)]) -> Catalogue {
    let mut catalogue = Catalogue::default();
    for (path, text) in files {
        let contract = Contract::read(text.as_bytes()).unwrap_or_else(|why| panic!("{path}: {why}"));
        catalogue.insert(ContractId::of_path(path).unwrap(), contract);
    }
    catalogue
}

const CLOSE_1: &str = r##"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "title": "Close an order that nobody paid",
  "description": "Sent when an order is placed.\nDue when it expires.",
  "type": "object", "additionalProperties": false, "required": ["orderId", "amount"],
  "properties": {
    "orderId": {"type": "string", "minLength": 1, "maxLength": 64, "description": "As on the receipt"},
    "amount": {"type": "string", "pattern": "^-?[0-9]{1,15}\\.[0-9]{2}$"},
    "lines": {"type": "array", "maxItems": 100, "items": {"$ref": "#/$defs/line"}},
    "note": {"anyOf": [{"type": "string"}, {"type": "null"}], "deprecated": true}
  },
  "$defs": {"line": {"type": "object", "additionalProperties": false, "required": ["sku"], "properties": {
    "sku": {"type": "string", "pattern": "^(A|B)[0-9]+$"},
    "count": {"type": "integer", "minimum": 1, "maximum": 1000, "default": 1}
  }}},
  "examples": [{"orderId": "2025", "amount": "89.90", "lines": [{"sku": "A1"}]}],
  "x-tidegate": {"owner": "order-team", "idempotencyKey": "/orderId"}
}"##;

const CLOSE_2: &str = r##"{
  "title": "Close an order that nobody paid",
  "type": "object", "additionalProperties": false, "required": ["orderId", "amount", "currency"],
  "properties": {
    "orderId": {"type": "string", "minLength": 1, "maxLength": 32, "description": "As on the receipt"},
    "amount": {"type": "string", "pattern": "^-?[0-9]{1,15}\\.[0-9]{2}$"},
    "currency": {"type": "string", "enum": ["CNY", "EUR"]}
  },
  "examples": [{"orderId": "2025", "amount": "89.90", "currency": "CNY"}],
  "x-tidegate": {"owner": "order-team", "idempotencyKey": "/orderId", "upcasts": [
    {"op": "default", "path": "/currency", "value": "CNY"}, {"op": "remove", "path": "/note"}
  ]}
}"##;

fn shop() -> Catalogue {
    let bare = r#"{"type": "object"}"#;
    catalogue(&[
        ("order.close/1.json", CLOSE_1),
        ("order.close/2.json", CLOSE_2),
        ("stock.count/1.json", bare),
    ])
}

#[test]
fn the_catalogue_is_as_reviewed() {
    let names = Names::default();
    insta::assert_snapshot!("markdown", markdown(&shop()));
    insta::assert_snapshot!("html", html(&shop()));
    insta::assert_snapshot!("asyncapi", asyncapi(&shop(), &names));
    assert_eq!(html(&shop()), html(&shop()));
    let other = asyncapi(&shop(), &Names::new("jobs").unwrap());
    assert!(other.contains("\"jobs.exchange\"") && !other.contains("\"task.exchange\""));
}

#[test]
fn an_empty_catalogue_has_pages_too() {
    let none = Catalogue::default();
    assert!(markdown(&none).contains("| Type |") && html(&none).ends_with("</html>\n"));
    let document: Value = serde_json::from_str(&asyncapi(&none, &Names::default())).unwrap();
    assert_eq!(document["channels"], serde_json::json!({}));
}

/// Ends whatever it stands in: elements, attributes, comments, cells, code, fences and lines; and steers terminals.
const HOSTILE: &str = "<script>alert(1)</script>\" onload='x' --> | a\u{202e}b \u{1b}[2J\u{0}\u{2028} `` \\ ``` ~~~\r\n\n# head\n- item\n![i](javascript:x) &lt; </code></td></pre>";

fn hostile() -> Catalogue {
    let text = serde_json::to_string(HOSTILE).unwrap();
    // A key with half of a pair, or a payload with U+0000, is refused before it gets here.
    let name = serde_json::to_string(&HOSTILE.replace('\0', "")[..40]).unwrap();
    let version = |limit: &str| {
        format!(
            r##"{{"title": {text}, "description": {text}, "type": "object", "properties": {{
                {name}: {{"type": "string", "description": {text}, "default": {text}, "enum": [{text}, "x"], "examples": [{text}]}},
                "p": {{"type": "string", "pattern": {limit}}},
                "ref": {{"$ref": "#/$defs/~1~0 <a>"}}
            }}, "$defs": {{"/~ <a>": {{"type": "null"}}}}, "examples": [{{{name}: {text}}}],
            "x-tidegate": {{"owner": "<b>|`\u202e\u0007\n- x", "idempotencyKey": "/<i>|`\u202e", "upcasts": [{{"op": "default", "path": "/<i>", "value": {text}}}]}}}}"##
        )
    };
    let [one, two] = [r#""a|`<b>""#, r#""a|`<i>&amp;""#].map(version);
    catalogue(&[("a.b/1.json", &one), ("a.b/2.json", &two)])
}

fn assert_unseen_is_escaped(text: &str) {
    for c in ['\u{202e}', '\u{1b}', '\0', '\u{2028}', '\u{7}', '\r'] {
        assert!(!text.contains(c), "{c:?} in {text}");
    }
}

#[test]
fn a_page_holds_no_element_of_a_contract() {
    let page = html(&hostile());
    assert_unseen_is_escaped(&page);
    let ours = [
        "!doctype", "html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "code", "table", "tr",
        "th", "td", "a", "section", "details", "summary", "br", "pre", "ul", "li",
    ];
    for tag in page.split('<').skip(1) {
        let tag = tag.split('>').next().unwrap();
        let name = tag.trim_start_matches('/').split(' ').next().unwrap();
        assert!(ours.contains(&name), "<{tag}>");
        assert!(
            !tag.contains(" on") && !tag.contains("src=") && !tag.contains("http:"),
            "<{tag}>"
        );
    }
    // Each element is closed where it was opened, but for those that have no end.
    let xml = page
        .replace("<!doctype html>\n", "")
        .replace("<br>", "<br/>")
        .replace(" open>", " open=\"\">");
    let closed: String = xml
        .lines()
        .map(|line| {
            if line.starts_with("<meta") {
                line.replace('>', "/>")
            } else {
                line.to_owned()
            }
        })
        .collect();
    roxmltree::Document::parse(&closed).unwrap();
}

#[test]
fn a_line_of_markdown_is_one_of_ours() {
    let page = markdown(&hostile());
    assert_unseen_is_escaped(&page);
    let (mut fence, mut columns) = (None::<String>, 0);
    for line in page.lines() {
        let live = line.replace("\\<", "").replace("\\]", "").replace("\\!", "");
        let has_markup = ["<script", "<b>", "<i>", "</pre", "![", "](j"]
            .iter()
            .any(|markup| live.contains(markup));
        assert!(fence.is_some() || !has_markup, "{line}");
        let run: String = line.chars().take_while(|c| *c == '`').collect();
        match &fence {
            Some(open) if run.len() >= open.len() => fence = None,
            Some(_) => continue,
            None if run.len() >= 3 => fence = Some(run),
            None if line.starts_with('|') => {
                // What a reader of tables takes for the end of a cell.
                let cells = line.replace("\\\\", "").replace("\\|", "").matches('|').count();
                if columns > 0 {
                    assert_eq!(cells, columns, "{line}");
                }
                columns = cells;
            }
            None => {
                columns = 0;
                let is_ours = [
                    "# Contracts",
                    "## a.b",
                    "### Version ",
                    "- ",
                    "Owner: ",
                    "Since version ",
                    "<a id=",
                ];
                let is_text =
                    line.is_empty() || line.starts_with("Generated") || line.starts_with(r"\<script\>");
                assert!(
                    is_text || is_ours.iter().any(|start| line.starts_with(start)),
                    "{line}"
                );
                assert!(!line.starts_with("- item"), "{line}");
            }
        }
    }
    assert_eq!(fence, None);
}

#[test]
fn a_description_for_tools_keeps_every_value() {
    let text = asyncapi(&hostile(), &Names::default());
    assert_unseen_is_escaped(&text);
    let document: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        document["components"]["messages"]["a.b.v1"]["description"],
        HOSTILE
    );
    let schema = &document["components"]["schemas"]["a.b.v1"];
    assert_eq!(schema["description"], HOSTILE);
    let reference = schema["properties"]["ref"]["$ref"].as_str().unwrap();
    assert_eq!(reference, "#/components/schemas/a.b.v1/$defs/~1~0%20%3Ca%3E");
}
