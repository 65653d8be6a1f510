//! From the patch's text to operations. Members that an operation doesn't know are ignored, as RFC 6902 says.

use super::{Operation, Patch, PatchError, Problem};
use crate::json_text::{Document, Limits, Node, Pointer};

/// Reads a patch.
pub(super) fn patch(text: &[u8]) -> Result<Vec<Operation<'_>>, PatchError> {
    let document = Document::parse(text, &Limits::standard()).map_err(PatchError::Unreadable)?;
    let items = document.root().items().ok_or(PatchError::NotAnArray)?;
    if items.len() > Patch::MAX_OPERATIONS {
        return Err(PatchError::TooMany { found: items.len() });
    }
    items
        .enumerate()
        .map(|(index, item)| {
            operation(item).map_err(|problem| PatchError::Operation {
                index,
                pointer: written(item, &problem),
                problem,
            })
        })
        .collect()
}

/// The place that a problem is about, cut: it may be any text.
fn written(item: &Node<'_>, problem: &Problem) -> String {
    let name = match problem {
        Problem::BadPointer(name, _) => name,
        _ => "path",
    };
    let text = item.member(name).and_then(Node::as_string).unwrap_or_default();
    text.chars().take(256).collect()
}

fn operation<'p>(item: &Node<'p>) -> Result<Operation<'p>, Problem> {
    if !matches!(item, Node::Object(..)) {
        return Err(Problem::NotAnObject);
    }
    let op = item
        .member("op")
        .and_then(Node::as_string)
        .ok_or(Problem::UnknownOp)?;
    if !["add", "remove", "replace", "move", "copy", "test"].contains(&&*op) {
        return Err(Problem::UnknownOp);
    }
    let path = pointer(item, "path")?;
    let value = || item.member("value").cloned().ok_or(Problem::Missing("value"));
    Ok(match &*op {
        "add" => Operation::Add(path, value()?),
        "replace" => Operation::Replace(path, value()?),
        "test" => Operation::Test(path, value()?),
        "move" => Operation::Move {
            from: pointer(item, "from")?,
            to: path,
        },
        "copy" => Operation::Copy {
            from: pointer(item, "from")?,
            to: path,
        },
        _ => Operation::Remove(path),
    })
}

fn pointer(item: &Node<'_>, name: &'static str) -> Result<Pointer, Problem> {
    let text = item
        .member(name)
        .and_then(Node::as_string)
        .ok_or(Problem::Missing(name))?;
    Pointer::parse(&text).map_err(|why| Problem::BadPointer(name, why))
}
