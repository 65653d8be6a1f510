//! What a broken body still says about itself, so that its dead letter can be found by id and type.

use super::{
    field::Field,
    scan::{RawStr, Scanner, Token},
    utf8,
};
use crate::task::{TaskId, TaskType};

/// How much of a body is looked at, in bytes: the standard limit of a whole one.
const MAX_BYTES: usize = 64 * 1024;

/// The names found in a body. They label a dead letter and are good for nothing else: the body is invalid.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peek {
    /// The first valid `taskId`.
    pub task_id: Option<TaskId>,
    /// The first valid `taskType`.
    pub task_type: Option<TaskType>,
}

/// Looks for id and type at the top level of the first 64 KiB of `body`, up to the place where it stops looking
/// like JSON. Never fails; takes time linear in what it looks at.
pub fn peek(body: &[u8]) -> Peek {
    let body = body.strip_prefix(utf8::BOM).unwrap_or(body);
    let text = String::from_utf8_lossy(&body[..body.len().min(MAX_BYTES)]);
    let mut peek = Peek::default();
    // The scan ends at the first oddity; what was found before stays.
    let _ = look(&text, &mut peek);
    peek
}

fn look(text: &str, peek: &mut Peek) -> Option<()> {
    let mut scanner = Scanner::new(text);
    if !scanner.eat(b'{') {
        return None;
    }
    loop {
        let field = Field::by_name(&scanner.key()?.decode().unwrap_or_default());
        match (field, scanner.value()?) {
            (Some(Field::TaskId), Token::Str(id)) if peek.task_id.is_none() => {
                peek.task_id = name(id, TaskId::parse);
            }
            (Some(Field::TaskType), Token::Str(kind)) if peek.task_type.is_none() => {
                peek.task_type = name(kind, TaskType::parse);
            }
            (_, Token::Object | Token::Array) => scanner.skip_container()?,
            _ => {}
        }
        if !scanner.eat(b',') {
            return None;
        }
    }
}

fn name<T, E>(text: RawStr<'_>, parse: impl Fn(&str) -> Result<T, E>) -> Option<T> {
    parse(&text.decode()?).ok()
}
