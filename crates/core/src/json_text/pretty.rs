//! The tree for people.

use super::node::Node;
use crate::printable;

/// Deepest level that is indented further, so that a text of brackets isn't shown as megabytes of spaces.
const MAX_INDENT: usize = 16;

/// `root` with two spaces per level.
pub(super) fn text(root: &Node<'_>) -> String {
    let mut out = String::new();
    write(root, 0, &mut out);
    out
}

// The recursion is as deep as the tree, whose depth was limited when it was made.
fn write(node: &Node<'_>, level: usize, out: &mut String) {
    match node {
        Node::Object(members, _) => {
            out.push('{');
            for (at, member) in members.iter().enumerate() {
                line(level + 1, out);
                out.push_str(&printable::literal(&member.key));
                out.push_str(": ");
                write(&member.value, level + 1, out);
                comma(at + 1 < members.len(), out);
            }
            close('}', members.is_empty(), level, out);
        }
        Node::Array(items, _) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                line(level + 1, out);
                write(&item.value, level + 1, out);
                comma(at + 1 < items.len(), out);
            }
            close(']', items.is_empty(), level, out);
        }
        Node::Str(literal) => out.push_str(&printable::literal(literal)),
        Node::Number(text) => out.push_str(text),
        Node::Word(text) => out.push_str(text),
    }
}

fn close(bracket: char, is_empty: bool, level: usize, out: &mut String) {
    if !is_empty {
        line(level, out);
    }
    out.push(bracket);
}

fn comma(follows: bool, out: &mut String) {
    if follows {
        out.push(',');
    }
}

fn line(level: usize, out: &mut String) {
    out.push('\n');
    out.extend(std::iter::repeat_n("  ", level.min(MAX_INDENT)));
}
