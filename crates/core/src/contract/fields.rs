//! A contract for people: each place that a payload can have, what may stand there, and what the contract says about it.
//!
//! It goes over the text and not over the schema, which keeps nothing that is for people only. The text was read before, so
//! every `$ref` leads to a definition and none comes back to itself. What is shown is bounded: a text that a thousand
//! references lead to is cut each time.
//!
//! May import: `json_text`, `place`, `read` (limits).

use super::{
    Contract,
    place::child,
    read::{MAX_DEPTH, MAX_SCHEMAS},
};
use crate::json_text::{Document, Limits, Node};

/// Longest description in characters; what is longer is cut.
const MAX_TEXT_CHARS: usize = 2_000;

/// Longest value in characters; what is longer is cut.
const MAX_VALUE_CHARS: usize = 300;

/// A place in a payload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Field {
    /// JSON pointer into the payload, empty for the whole. A step `*` is each item, or each member without a name of its
    /// own; `(form 1)` behind a step is the first of several forms. Names over 64 characters are cut.
    pub path: String,
    /// What may stand there: `string or null`, `one of 2 forms`, `anything`.
    pub types: String,
    /// Whether the object above must have it.
    pub is_required: bool,
    /// What else holds, each with its name: `length` `1 to 64`.
    pub limits: Vec<(&'static str, String)>,
    /// `title` and `description`.
    pub description: Option<String>,
    /// `default` as JSON.
    pub default: Option<String>,
    /// The first of its `examples`, else what the contract's first example has there, as JSON.
    pub example: Option<String>,
    /// `deprecated`.
    pub is_deprecated: bool,
}

impl Contract {
    /// Every place of a payload, each before what is inside of it; the whole payload is the first.
    pub fn fields(&self) -> Vec<Field> {
        // It was read within tighter limits before.
        let Ok(document) = Document::parse(self.text.as_bytes(), &Limits::standard()) else {
            return Vec::new();
        };
        let root = document.root();
        let example = root.member("examples").and_then(|node| node.items()?.next());
        let mut walk = Walk {
            definitions: root.member("$defs"),
            fields: Vec::new(),
        };
        let mut whole = Field {
            is_required: true,
            ..Field::default()
        };
        walk.describe(&mut whole, root, root);
        // Both belong to the contract, whose head shows them.
        (whole.description, whole.example) = (None, None);
        walk.fields.push(whole);
        walk.inside(root, "", example, 0);
        walk.fields
    }
}

struct Walk<'d> {
    definitions: Option<&'d Node<'d>>,
    fields: Vec<Field>,
}

impl<'d> Walk<'d> {
    fn place(
        &mut self,
        node: &'d Node<'d>,
        path: String,
        is_required: bool,
        example: Option<&Node<'_>>,
        depth: usize,
    ) {
        if self.fields.len() >= MAX_SCHEMAS || depth > MAX_DEPTH {
            return;
        }
        let target = self.target(node);
        let mut field = Field {
            path,
            is_required,
            ..Field::default()
        };
        self.describe(&mut field, node, target);
        if field.example.is_none() {
            let leaf = example.filter(|node| !matches!(node, Node::Object(..) | Node::Array(..)));
            field.example = leaf.map(|node| cut(&node.to_string(), MAX_VALUE_CHARS));
        }
        let path = field.path.clone();
        self.fields.push(field);
        self.inside(target, &path, example, depth);
    }

    /// What is inside of the value that `schema`, no reference, is for.
    fn inside(&mut self, schema: &'d Node<'d>, path: &str, example: Option<&Node<'_>>, depth: usize) {
        let required: Vec<_> = list(schema, "required").filter_map(Node::as_string).collect();
        let properties = schema.member("properties").and_then(Node::members);
        for (name, node) in properties.into_iter().flatten() {
            let shown = example.and_then(|example| example.member(name));
            let is_required = required.iter().any(|required| **required == *name);
            self.place(node, child(path, name), is_required, shown, depth + 1);
        }
        if let Some(node @ Node::Object(..)) = schema.member("additionalProperties") {
            self.place(node, format!("{path}/*"), false, None, depth + 1);
        }
        if let Some(node) = schema.member("items") {
            let first = example.and_then(|example| example.items()?.next());
            self.place(node, format!("{path}/*"), false, first, depth + 1);
        }
        for (index, node) in list(schema, "anyOf").enumerate() {
            // Which form an example has isn't known here.
            self.place(
                node,
                format!("{path} (form {})", index + 1),
                false,
                None,
                depth + 1,
            );
        }
    }

    /// Where the references of `node` lead to.
    fn target(&self, node: &'d Node<'d>) -> &'d Node<'d> {
        let mut target = node;
        for _ in 0..MAX_DEPTH {
            let name = target.member("$ref").and_then(Node::as_string);
            let Some(name) = name.as_deref().and_then(|name| name.strip_prefix("#/$defs/")) else {
                break;
            };
            let name = name.replace("~1", "/").replace("~0", "~");
            match self.definitions.and_then(|definitions| definitions.member(&name)) {
                Some(found) => target = found,
                None => break,
            }
        }
        target
    }

    /// What `target` allows; what is for people stands at the reference, `node`, or at the definition.
    fn describe(&self, field: &mut Field, node: &'d Node<'d>, target: &'d Node<'d>) {
        let note = |name| node.member(name).or_else(|| target.member(name));
        let texts = ["title", "description"].map(|name| note(name).and_then(Node::as_string));
        let texts: Vec<&str> = texts.iter().flatten().map(|text| text.trim()).collect();
        let text = texts.join("\n");
        field.types = types(target);
        field.limits = limits(target);
        field.description = (!text.is_empty()).then(|| cut(&text, MAX_TEXT_CHARS));
        field.default = note("default").map(|node| cut(&node.to_string(), MAX_VALUE_CHARS));
        let examples = note("examples").and_then(|node| node.items()?.next());
        field.example = examples.map(|node| cut(&node.to_string(), MAX_VALUE_CHARS));
        field.is_deprecated = matches!(note("deprecated"), Some(Node::Word("true")));
    }
}

fn list<'n>(schema: &'n Node<'n>, keyword: &str) -> impl Iterator<Item = &'n Node<'n>> {
    schema.member(keyword).and_then(Node::items).into_iter().flatten()
}

fn types(schema: &Node<'_>) -> String {
    let name = |node: &Node<'_>| node.as_string().map(|name| name.into_owned());
    match (
        schema,
        schema.member("anyOf").and_then(Node::items),
        schema.member("type"),
    ) {
        (Node::Word("false"), ..) => "nothing".to_owned(),
        (_, Some(forms), _) => format!("one of {} forms", forms.len()),
        (_, None, None) => "anything".to_owned(),
        (_, None, Some(types)) => match types.items() {
            Some(names) => names.filter_map(name).collect::<Vec<_>>().join(" or "),
            None => name(types).unwrap_or_default(),
        },
    }
}

fn limits(schema: &Node<'_>) -> Vec<(&'static str, String)> {
    let mut found = Vec::new();
    let number = |keyword| schema.member(keyword).and_then(Node::as_number);
    let text = |keyword| schema.member(keyword).and_then(Node::as_string);
    let mut add = |name, value: String| found.push((name, cut(&value, MAX_VALUE_CHARS)));
    if let Some(value) = schema.member("const") {
        add("only", value.to_string());
    }
    let values: Vec<String> = list(schema, "enum").map(Node::to_string).collect();
    if !values.is_empty() {
        add("one of", values.join(", "));
    }
    for (name, least, most) in [
        ("length", "minLength", "maxLength"),
        ("items", "minItems", "maxItems"),
        ("members", "minProperties", "maxProperties"),
    ] {
        match (number(least), number(most)) {
            (None, None) => {}
            (Some(least), Some(most)) => add(name, format!("{least} to {most}")),
            (Some(least), None) => add(name, format!("at least {least}")),
            (None, Some(most)) => add(name, format!("at most {most}")),
        }
    }
    for (keyword, sign) in [
        ("minimum", "≥"),
        ("exclusiveMinimum", ">"),
        ("maximum", "≤"),
        ("exclusiveMaximum", "<"),
    ] {
        if let Some(bound) = number(keyword) {
            add("value", format!("{sign} {bound}"));
        }
    }
    if let Some(pattern) = text("pattern") {
        add("pattern", pattern.into_owned());
    }
    if let Some(format) = text("format") {
        add("format", format.into_owned());
    }
    if matches!(schema.member("uniqueItems"), Some(Node::Word("true"))) {
        add("each item", "once".to_owned());
    }
    let is_object = types(schema).split(" or ").any(|name| name == "object");
    match schema.member("additionalProperties") {
        Some(Node::Word("false")) if schema.member("properties").is_none() => {
            add("members", "none".to_owned())
        }
        Some(Node::Word("true")) | None if is_object => add("other members", "any".to_owned()),
        _ => {}
    }
    found
}

/// At most `most` characters of `text`, with an ellipsis where it was cut.
fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()),
        None => text.to_owned(),
    }
}
