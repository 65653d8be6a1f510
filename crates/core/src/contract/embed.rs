//! A contract as a part of another document, such as a description of an interface: references lead to where it stands there.
//!
//! May import: `json_text`.

use super::Contract;
use crate::json_text::{Document, Limits, Node};

impl Contract {
    /// The contract's JSON for the place `at` of another document (`#/components/schemas/order.close.v1`): without `$schema`
    /// and `$id`, each `$ref` leading to below `at`. What it says about payloads is the same. `at` has no `/` or `~` within
    /// its steps.
    pub fn embedded(&self, at: &str) -> String {
        let mut out = String::with_capacity(self.text.len());
        // It was read within tighter limits before.
        if let Ok(document) = Document::parse(self.text.as_bytes(), &Limits::standard()) {
            schema(document.root(), at, true, &mut out);
        }
        out
    }
}

// The recursion is as deep as the contract, whose depth was limited when it was read.
fn schema(node: &Node<'_>, at: &str, is_root: bool, out: &mut String) {
    let Some(members) = node.members() else {
        out.push_str(&node.to_string());
        return;
    };
    let members = members.filter(|(name, _)| !is_root || !matches!(*name, "$schema" | "$id"));
    object(members, out, |name, value, out| match name {
        "$ref" => out.push_str(&reference(value, at)),
        "properties" | "$defs" => match value.members() {
            Some(named) => object(named, out, |_, value, out| schema(value, at, false, out)),
            None => out.push_str(&value.to_string()),
        },
        "items" | "additionalProperties" => schema(value, at, false, out),
        "anyOf" => {
            out.push('[');
            for (index, branch) in value.items().into_iter().flatten().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                schema(branch, at, false, out);
            }
            out.push(']');
        }
        _ => out.push_str(&value.to_string()),
    });
}

fn object<'n>(
    members: impl Iterator<Item = (&'n str, &'n Node<'n>)>,
    out: &mut String,
    mut write: impl FnMut(&'n str, &'n Node<'n>, &mut String),
) {
    out.push('{');
    for (index, (name, value)) in members.enumerate() {
        if index > 0 {
            out.push(',');
        }
        out.push_str(&Node::string(name).to_string());
        out.push(':');
        write(name, value, out);
    }
    out.push('}');
}

/// The reference as one below `at`. It is a part of a URI there, so what a URI can't hold is in percent.
fn reference(value: &Node<'_>, at: &str) -> String {
    let target = value.as_string().unwrap_or_default();
    let mut moved = at.to_owned();
    for byte in target.trim_start_matches('#').bytes() {
        if byte.is_ascii_alphanumeric() || b"/$-._~".contains(&byte) {
            moved.push(byte.into());
        } else {
            moved.push_str(&format!("%{byte:02X}"));
        }
    }
    Node::string(&moved).to_string()
}
