//! Why bytes are no task: the closed set of rules, and a violation's place, rule and advice.
//!
//! Nothing here ever holds a value of the producer's: keys may be named (cut), values never. So an error may be
//! logged, stored and returned over HTTP.

use std::fmt;

/// Why bytes are no task: one or more broken rules, never none.
///
/// `Display` gives all of them on one line of at most [`EnvelopeError::MAX_DISPLAY_BYTES`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvelopeError {
    /// The broken rules, in the order of the text; missing fields last.
    pub violations: Vec<Violation>,
}

/// One broken rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// JSON pointer (RFC 6901) to the offending value; empty for the whole body. A missing field's pointer is
    /// where it should stand; a key that is itself the offence is named by the object that holds it. Keys longer
    /// than 64 characters end in `…`, and characters that would break a log line are shown as U+FFFD.
    pub pointer: String,
    /// The rule that is broken.
    pub rule: Rule,
    /// What to do about it.
    pub advice: String,
}

/// The rules of the wire format, a closed set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// The body is JSON.
    Syntax,
    /// The body is UTF-8 without byte order mark.
    NotUtf8,
    /// The body is one JSON object.
    NotAnObject,
    /// No top-level field that the format does not know.
    UnknownField,
    /// No key twice in one object, escapes decoded.
    DuplicateKey,
    /// A field in camelCase or in snake_case, not both.
    BothSpellings,
    /// `taskId`, `taskType` and `payload` are there.
    MissingField,
    /// A field has its type; an optional field is left out rather than null.
    WrongType,
    /// A number or a text's length is within the field's range.
    OutOfRange,
    /// A text has the field's form.
    BadFormat,
    /// A number is one that a double holds: |n| ≤ 2^53, at most 17 significant digits, not rounded to zero.
    NumberNotExact,
    /// No U+0000 in keys or texts.
    Nul,
    /// No half of a surrogate pair in keys or texts.
    LoneSurrogate,
    /// The payload is nested no deeper than the limit.
    TooDeep,
    /// The body is no larger than the limit, packed and unpacked.
    TooLarge,
    /// `scheduleTime` is no further ahead than the limit.
    TooFarAhead,
    /// The content encoding is known and the body unpacks by it.
    BadEncoding,
}

impl Rule {
    /// Every rule.
    pub const ALL: [Self; 17] = [
        Self::Syntax,
        Self::NotUtf8,
        Self::NotAnObject,
        Self::UnknownField,
        Self::DuplicateKey,
        Self::BothSpellings,
        Self::MissingField,
        Self::WrongType,
        Self::OutOfRange,
        Self::BadFormat,
        Self::NumberNotExact,
        Self::Nul,
        Self::LoneSurrogate,
        Self::TooDeep,
        Self::TooLarge,
        Self::TooFarAhead,
        Self::BadEncoding,
    ];

    /// The rule's name in errors and vectors, snake_case.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Syntax => "syntax",
            Self::NotUtf8 => "not_utf8",
            Self::NotAnObject => "not_an_object",
            Self::UnknownField => "unknown_field",
            Self::DuplicateKey => "duplicate_key",
            Self::BothSpellings => "both_spellings",
            Self::MissingField => "missing_field",
            Self::WrongType => "wrong_type",
            Self::OutOfRange => "out_of_range",
            Self::BadFormat => "bad_format",
            Self::NumberNotExact => "number_not_exact",
            Self::Nul => "nul",
            Self::LoneSurrogate => "lone_surrogate",
            Self::TooDeep => "too_deep",
            Self::TooLarge => "too_large",
            Self::TooFarAhead => "too_far_ahead",
            Self::BadEncoding => "bad_encoding",
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = if self.pointer.is_empty() {
            "body"
        } else {
            &self.pointer
        };
        write!(f, "{place}: {} ({})", self.advice, self.rule)
    }
}

impl std::error::Error for EnvelopeError {}

impl EnvelopeError {
    /// Checking stops after this many violations.
    pub const MAX_VIOLATIONS: usize = 20;

    /// Longest `Display` in bytes, so that it fits a header or a log line.
    pub const MAX_DISPLAY_BYTES: usize = 2048;

    /// Whether the body broke the size limit: its dead-letter reason is `too_large` then, else
    /// `invalid_envelope`.
    pub fn is_too_large(&self) -> bool {
        self.violations.iter().any(|v| v.rule == Rule::TooLarge)
    }

    /// One violation that concerns the whole body.
    pub(super) fn whole_body(rule: Rule, advice: impl Into<String>) -> Self {
        Self {
            violations: vec![Violation {
                pointer: String::new(),
                rule,
                advice: advice.into(),
            }],
        }
    }

    pub(super) fn too_large(max_body_bytes: usize) -> Self {
        Self::whole_body(
            Rule::TooLarge,
            format!(
                "the body is over {max_body_bytes} bytes; store the data elsewhere and send a reference to it"
            ),
        )
    }

    pub(super) fn syntax(text: &str, error: &serde_json::Error) -> Self {
        let advice = if text.trim().is_empty() {
            "the body is empty; send one JSON object".to_owned()
        } else {
            // serde_json's grammar errors are fixed texts with a place; they quote nothing of the body.
            format!("not JSON: {error}; send one JSON object")
        };
        Self::whole_body(Rule::Syntax, advice)
    }
}

impl fmt::Display for EnvelopeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Room for the "; and N more" that closes a cut list.
        const ROOM: usize = 32;
        let mut written = 0;
        for (at, violation) in self.violations.iter().enumerate() {
            let separator = if at == 0 { "" } else { "; " };
            let text = violation.to_string();
            if written + separator.len() + text.len() > Self::MAX_DISPLAY_BYTES - ROOM {
                return write!(f, "{separator}and {} more", self.violations.len() - at);
            }
            write!(f, "{separator}{text}")?;
            written += separator.len() + text.len();
        }
        Ok(())
    }
}
