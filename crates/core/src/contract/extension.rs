//! `x-tidegate`: what a contract says beyond the form of its payload. `owner`, `idempotencyKey` (a pointer to the field
//! that makes a task the same task) and `upcasts` (how a payload of the version before becomes one of this).
//!
//! May import: `json_text`, `envelope` (how a key is shown), `error`, `place`.

use super::{
    error::{ContractError, Problem},
    place::child,
};
use crate::{
    envelope::pointer::shown,
    json_text::{Node, Pointer, PointerError},
};

/// Most steps of one contract.
const MAX_UPCASTS: usize = 64;

/// Longest owner in characters.
const MAX_OWNER_CHARS: usize = 128;

/// What stands under `x-tidegate`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Extension {
    pub(crate) owner: Option<Box<str>>,
    pub(crate) idempotency_key: Option<Pointer>,
    /// `None`: nothing is said about payloads of the version before. Without steps, they are taken as they are.
    pub(crate) upcasts: Option<Vec<Upcast>>,
}

/// One step from the payload of the version before.
#[derive(Clone, Debug)]
pub(crate) enum Upcast {
    /// Adds a member that isn't there, as this JSON text.
    Default(Pointer, Box<str>),
    /// Gives a member another name in the same object.
    Rename(Pointer, Pointer),
    /// Takes a member out.
    Remove(Pointer),
}

/// Reads the value of `x-tidegate`, which stands at `at`.
pub(crate) fn read(node: &Node<'_>, at: &str) -> Result<Extension, ContractError> {
    let mut extension = Extension::default();
    let members = node
        .members()
        .ok_or_else(|| wrong(at, "x-tidegate", "an object"))?;
    for (name, value) in members {
        let here = child(at, name);
        match name {
            "owner" => {
                let expected = "a text of 1 to 128 characters that names a team";
                let owner = value.as_string().ok_or_else(|| wrong(&here, "owner", expected))?;
                if owner.trim().is_empty() || owner.chars().count() > MAX_OWNER_CHARS {
                    return Err(wrong(&here, "owner", expected));
                }
                extension.owner = Some(owner.as_ref().into());
            }
            "idempotencyKey" => extension.idempotency_key = Some(field(value, &here, "idempotencyKey")?),
            "upcasts" => {
                let expected =
                    "an array of steps such as {\"op\":\"default\",\"path\":\"/currency\",\"value\":\"CNY\"}";
                let steps = value.items().ok_or_else(|| wrong(&here, "upcasts", expected))?;
                if steps.len() > MAX_UPCASTS {
                    let problem = Problem::TooMany {
                        what: "steps in \"upcasts\"",
                        most: MAX_UPCASTS,
                    };
                    return Err(ContractError::new(here, problem));
                }
                let steps = steps.enumerate();
                let read = steps.map(|(index, step)| upcast(step, &format!("{here}/{index}")));
                extension.upcasts = Some(read.collect::<Result<_, _>>()?);
            }
            other => {
                let problem = Problem::UnknownKeyword {
                    keyword: shown(other),
                    advice: "x-tidegate has owner, idempotencyKey and upcasts",
                };
                return Err(ContractError::new(here, problem));
            }
        }
    }
    Ok(extension)
}

fn upcast(step: &Node<'_>, at: &str) -> Result<Upcast, ContractError> {
    let op = step.member("op").and_then(Node::as_string);
    let wanted: &[&str] = match op.as_deref() {
        Some("default") => &["op", "path", "value"],
        Some("rename") => &["op", "from", "to"],
        Some("remove") => &["op", "path"],
        _ => return Err(wrong(&child(at, "op"), "op", "one of default, rename, remove")),
    };
    for (name, _) in step.members().into_iter().flatten() {
        if !wanted.contains(&name) {
            let problem = Problem::UnknownKeyword {
                keyword: shown(name),
                advice: "a step is op, path and value (default), op, from and to (rename) or op and path (remove)",
            };
            return Err(ContractError::new(child(at, name), problem));
        }
    }
    let pointer = |name: &'static str| {
        let missing = || wrong(&child(at, name), name, "a JSON pointer, and is missing");
        field(step.member(name).ok_or_else(missing)?, &child(at, name), name)
    };
    match wanted {
        ["op", "path", "value"] => {
            let value = step.member("value");
            let value =
                value.ok_or_else(|| wrong(&child(at, "value"), "value", "any JSON value, and is missing"))?;
            Ok(Upcast::Default(pointer("path")?, value.to_string().into()))
        }
        ["op", "from", "to"] => {
            let (from, to) = (pointer("from")?, pointer("to")?);
            let same_object = from.steps().split_last().map(|s| s.1) == to.steps().split_last().map(|s| s.1);
            if !same_object || from == to {
                return Err(wrong(
                    &child(at, "to"),
                    "to",
                    "another name in the same object as \"from\"",
                ));
            }
            Ok(Upcast::Rename(from, to))
        }
        _ => Ok(Upcast::Remove(pointer("path")?)),
    }
}

/// A pointer to something inside of the payload.
fn field(node: &Node<'_>, at: &str, name: &'static str) -> Result<Pointer, ContractError> {
    let text = node.as_string();
    let text = text.ok_or_else(|| wrong(at, name, "a JSON pointer, as text"))?;
    let refuse = |why| ContractError::new(at, Problem::Pointer(name, why));
    let pointer = Pointer::parse(&text).map_err(refuse)?;
    if pointer.steps().is_empty() {
        return Err(refuse(PointerError::NoSlash));
    }
    Ok(pointer)
}

fn wrong(at: &str, keyword: &'static str, expected: &'static str) -> ContractError {
    ContractError::new(at, Problem::WrongValue { keyword, expected })
}
