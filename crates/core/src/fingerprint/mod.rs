//! Which dead letters are alike: one fingerprint for one fault, however many orders it has hit.
//!
//! A fingerprint is a hash of task type, reason, error kind and the [normalised](normalise()) message. It is stored for as
//! long as dead letters are, so neither the rules nor the hash may change under the same [`VERSION`]: the vectors in
//! `conformance/fingerprint/` hold them. Only ASCII is classified, because tables of Unicode change with each of its versions.
//!
//! SHA-256 rather than a quick hash: messages come from anybody, and nobody shall be able to hide his failures in the group of
//! somebody else's.
//!
//! May import: `dispose` (reasons), `headers` (how a kind is cut), sha2.

mod normalise;
mod shape;

use std::fmt;

use sha2::{Digest, Sha256};

pub use normalise::{MAX_CHARS, normalise};

use crate::{dispose::DeadReason, headers};

/// Version of the rules; part of what is hashed.
pub const VERSION: &str = "tidegate-fingerprint-1";

/// 128 bits that failures of one kind share. `Display` is 32 hexadecimal digits in lower case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint(pub [u8; 16]);

impl Fingerprint {
    /// Of a dead letter; `message` as it came, [`normalise`] is applied here. A body that names no type has none.
    pub fn of(task_type: Option<&str>, reason: DeadReason, error_kind: &str, message: &str) -> Self {
        Self::of_normalised(task_type, reason, error_kind, &normalise(message))
    }

    /// As [`Fingerprint::of`], for a message that is normalised already.
    pub fn of_normalised(
        task_type: Option<&str>,
        reason: DeadReason,
        error_kind: &str,
        normalised: &str,
    ) -> Self {
        let kind = headers::cut_kind(error_kind);
        let mut hash = Sha256::new();
        for field in [
            VERSION,
            task_type.unwrap_or_default(),
            reason.as_str(),
            &kind,
            normalised,
        ] {
            // With their lengths, so that no text can move from one field into the next.
            hash.update(format!("{}:", field.len()));
            hash.update(field);
            hash.update(",");
        }
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&hash.finalize()[..16]);
        Self(bytes)
    }

    /// `text` as a fingerprint: 32 hexadecimal digits of either case.
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() != 32 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        u128::from_str_radix(text, 16).ok().map(|n| Self(n.to_be_bytes()))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}
