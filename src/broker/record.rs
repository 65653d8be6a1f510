//! Properties and headers of a message as text: every AMQP value keeps its type, and all of it is ASCII.
//!
//! May import: lapin, `core` (`printable`), serde_json, base64. The dead-letter archive stores them so. A text column of
//! Postgres holds no NUL, and JSON has neither bytes nor types; here both survive, so that a replay sends what came. Headers are
//! a stranger's: size and depth have limits in both directions, and nothing recurses beyond them.
//!
//! ```text
//! {"properties":{"content_type":"application/json","delivery_mode":2},"headers":{"tenant":{"t":"S","v":"acme"}}}
//! ```
//!
//! `t` is the letter of the type on the wire, before all else of its value:
//!
//! | `t` | value |
//! |---|---|
//! | `t` | `"v":true` |
//! | `b` `B` `s` `u` `I` `i` `l` `T` | `"v":` a whole number |
//! | `f` `d` | `"v":"1.5"`; of what is no finite number `"bits":"7ff80000…"` |
//! | `D` | `"scale":2,"v":1999` |
//! | `S` | `"v":"text"`; of what is no UTF-8 or holds a NUL `"b64":"…"` |
//! | `_` | `"v":"text"`: a short string, which no wire carries inside a table |
//! | `x` | `"b64":"…"` |
//! | `A` | `"v":[…]` |
//! | `F` | `"v":{…}` |
//! | `V` | nothing |

mod read;
mod show;
#[cfg(test)]
mod tests;
mod write;

use lapin::BasicProperties;

/// Most tables and arrays within each other below the headers' own table: as many as are read off the wire.
pub const MAX_DEPTH: usize = 128;

/// Largest text that is read, in bytes. A header frame holds 128 KiB, and no byte of it becomes more than six.
pub const MAX_BYTES: usize = 2 * 1024 * 1024;

/// A text that [`record`] did not write, or that was changed since.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the recorded properties can't be read: {0}")]
pub struct RecordError(String);

/// `properties` as text. What lies deeper than [`MAX_DEPTH`], which no message off the wire does, is left out.
pub fn record(properties: &BasicProperties) -> String {
    write::text(properties)
}

/// The properties that [`record`] made `text` of.
///
/// # Errors
/// Another text, one over [`MAX_BYTES`], or tables deeper than [`MAX_DEPTH`].
pub fn restore(text: &str) -> Result<BasicProperties, RecordError> {
    read::properties(text)
}

/// What [`record`] made `text` of for people: name and value of each property, then of each header as `headers.NAME`. Values
/// are on one line, without anything that a terminal would obey, and cut to 4,096 characters.
///
/// # Errors
/// As [`restore`].
pub fn lines(text: &str) -> Result<Vec<(String, String)>, RecordError> {
    Ok(show::lines(&restore(text)?))
}
