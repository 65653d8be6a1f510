//! Adding, replacing and removing a value in the tree. White space goes where a person would put it: a new member
//! stands like the one before it, and a removed one takes its comma along. The text of other values is not touched.

use std::borrow::Cow;

use super::{
    Document, Limits, Pointer,
    node::{Item, Member, Node, literal},
};

/// Why a value can't be put, or taken, where it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// There is no such member, or no such place on the way.
    #[error("there is no value there")]
    NotFound,
    /// A step leads into a string, a number or another value that holds no others.
    #[error("the value above it is neither an object nor an array")]
    NotAContainer,
    /// Not digits without a leading zero, nor `-` where one may be added.
    #[error("an array's index is digits without a leading zero, or '-' for its end where one is added")]
    BadIndex,
    /// An index beyond the array's end.
    #[error("the index is beyond the array's end")]
    BeyondEnd,
    /// The root can be replaced but not removed.
    #[error("the whole text can be replaced, but not removed")]
    Root,
    /// The text would be larger than its limit.
    #[error("the text would be over {0} bytes")]
    TooLarge(usize),
    /// The text would be nested deeper than its limit.
    #[error("the text would be nested deeper than {0} levels")]
    TooDeep(usize),
}

impl EditError {
    /// Its name in the vectors, snake_case.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotFound => "not_found",
            Self::NotAContainer => "not_a_container",
            Self::BadIndex => "bad_index",
            Self::BeyondEnd => "beyond_end",
            Self::Root => "root",
            Self::TooLarge(_) => "too_large",
            Self::TooDeep(_) => "too_deep",
        }
    }
}

impl<'a> Document<'a> {
    /// Puts `value` at `pointer`, by the rules of RFC 6902: a member is added or replaced, an item is inserted.
    pub(crate) fn add(
        &mut self,
        pointer: &Pointer,
        value: Node<'a>,
        limits: &Limits,
    ) -> Result<(), EditError> {
        if pointer.steps().len() + value.depth() > limits.depth() {
            return Err(EditError::TooDeep(limits.depth()));
        }
        // The key counts, and punctuation; a value that is replaced is counted as if it stayed.
        let new = value.bytes() + pointer.as_str().len() + 8;
        if self.root().bytes() + new > limits.max_bytes {
            return Err(EditError::TooLarge(limits.max_bytes));
        }
        let Some((last, above)) = pointer.steps().split_last() else {
            *self.root_mut() = value;
            return Ok(());
        };
        match descend(self.root_mut(), above)? {
            Node::Object(members, empty) => {
                match members.iter_mut().find(|m| m.name == **last) {
                    Some(member) => member.value = value,
                    None => push_member(members, empty, last, value),
                }
                Ok(())
            }
            Node::Array(items, empty) => {
                let at = match &**last {
                    "-" => items.len(),
                    step => index(step).ok_or(EditError::BadIndex)?,
                };
                if at > items.len() {
                    return Err(EditError::BeyondEnd);
                }
                insert_item(items, empty, at, value);
                Ok(())
            }
            _ => Err(EditError::NotAContainer),
        }
    }

    /// Takes the value at `pointer` out.
    pub(crate) fn remove(&mut self, pointer: &Pointer) -> Result<Node<'a>, EditError> {
        let (last, above) = pointer.steps().split_last().ok_or(EditError::Root)?;
        match descend(self.root_mut(), above)? {
            Node::Object(members, empty) => {
                let at = members.iter().position(|m| m.name == **last);
                let removed = members.remove(at.ok_or(EditError::NotFound)?);
                match (at.and_then(|at| at.checked_sub(1)), members.len()) {
                    (_, 0) => *empty = removed.before,
                    (None, _) => members[0].before = removed.before,
                    (Some(before), left) if before + 1 == left => members[before].after = removed.after,
                    _ => {}
                }
                Ok(removed.value)
            }
            Node::Array(items, empty) => {
                let at = index(last).ok_or(EditError::BadIndex)?;
                if at >= items.len() {
                    return Err(EditError::BeyondEnd);
                }
                let removed = items.remove(at);
                match (at.checked_sub(1), items.len()) {
                    (_, 0) => *empty = removed.before,
                    (None, _) => items[0].before = removed.before,
                    (Some(before), left) if before + 1 == left => items[before].after = removed.after,
                    _ => {}
                }
                Ok(removed.value)
            }
            _ => Err(EditError::NotAContainer),
        }
    }

    /// Puts `value` in the place of the one at `pointer`, which must be there.
    pub(crate) fn replace(
        &mut self,
        pointer: &Pointer,
        value: Node<'a>,
        limits: &Limits,
    ) -> Result<(), EditError> {
        if pointer.steps().len() + value.depth() > limits.depth() {
            return Err(EditError::TooDeep(limits.depth()));
        }
        let bytes = self.root().bytes() + value.bytes();
        let slot = descend(self.root_mut(), pointer.steps())?;
        if bytes - slot.bytes() > limits.max_bytes {
            return Err(EditError::TooLarge(limits.max_bytes));
        }
        *slot = value;
        Ok(())
    }

    /// The value at `pointer`.
    pub(crate) fn get(&self, pointer: &Pointer) -> Result<&Node<'a>, EditError> {
        let mut node = self.root();
        for step in pointer.steps() {
            node = match node {
                Node::Object(..) => node.member(step).ok_or(EditError::NotFound)?,
                Node::Array(items, _) => {
                    let at = index(step).ok_or(EditError::BadIndex)?;
                    &items.get(at).ok_or(EditError::BeyondEnd)?.value
                }
                _ => return Err(EditError::NotAContainer),
            };
        }
        Ok(node)
    }
}

fn descend<'n, 'a>(root: &'n mut Node<'a>, steps: &[Box<str>]) -> Result<&'n mut Node<'a>, EditError> {
    let mut node = root;
    for step in steps {
        node = match node {
            Node::Object(members, _) => {
                let member = members.iter_mut().find(|m| m.name == **step);
                &mut member.ok_or(EditError::NotFound)?.value
            }
            Node::Array(items, _) => {
                let at = index(step).ok_or(EditError::BadIndex)?;
                &mut items.get_mut(at).ok_or(EditError::BeyondEnd)?.value
            }
            _ => return Err(EditError::NotAContainer),
        };
    }
    Ok(node)
}

/// RFC 6901: digits without a leading zero.
pub(super) fn index(step: &str) -> Option<usize> {
    let plain = step == "0" || !step.starts_with('0');
    let digits = plain && step.bytes().all(|b| b.is_ascii_digit());
    step.parse().ok().filter(|_| digits)
}

fn push_member<'a>(members: &mut Vec<Member<'a>>, empty: &mut &'a str, name: &str, value: Node<'a>) {
    let (before, colon, after) = match members.last_mut() {
        Some(last) => (last.before, last.colon, std::mem::take(&mut last.after)),
        None => ("", ("", ""), *empty),
    };
    members.push(Member {
        before,
        key: Cow::Owned(literal(name)),
        name: Cow::Owned(name.to_owned()),
        colon,
        value,
        after,
    });
}

fn insert_item<'a>(items: &mut Vec<Item<'a>>, empty: &mut &'a str, at: usize, value: Node<'a>) {
    let (before, after) = match items.get(at) {
        Some(next) => (next.before, ""),
        None => match items.last_mut() {
            Some(last) => (last.before, std::mem::take(&mut last.after)),
            None => ("", *empty),
        },
    };
    items.insert(at, Item { before, value, after });
}
