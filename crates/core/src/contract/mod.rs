//! What a task's payload looks like, as a contract that every language can read: JSON Schema 2020-12, the part of it that
//! can be enforced in bounded time and means the same everywhere.
//!
//! | question | answer |
//! |---|---|
//! | is this text a contract that can be enforced? | [`Contract::read`] |
//! | is it one that will not hurt its readers? | [`Contract::findings`] |
//! | does this payload keep it? | [`Contract::validate`] |
//! | whom does a new version break? | [`compatibility`] |
//! | which versions of a type exist, and how does a payload get from one to another? | [`Versions`], [`Catalogue`] |
//! | may this worker take a payload of this version? | [`verdict`] |
//! | does what a service says about itself exist? | [`Declaration`] |
//! | what does it say, for people? | [`Contract::fields`], [`difference`] |
//! | what does a producer send? | [`golden`], [`Contract::embedded`] |
//!
//! Payloads stay text. No number passes through a float, and up-casts leave every byte alone that they don't name. Nothing
//! outside of a contract's own text is ever read: no `$ref` leads out. The same rules as vectors for other languages are in
//! `conformance/contract/`.
//!
//! May import: `envelope` (what makes a payload), `idempotency` (its key), `json_text`, `task`, regex-lite, chrono, serde.

mod catalogue;
pub mod compatibility;
mod declaration;
mod difference;
mod embed;
mod error;
mod extension;
mod fields;
mod finding;
mod format;
mod golden;
mod lint;
mod pattern;
mod place;
mod read;
mod scalar;
mod schema;
mod upcast;
mod validate;
mod versions;
mod violation;

use std::fmt;

pub use catalogue::{Catalogue, ContractId, InvalidContractId, Versions};
pub use declaration::{Declaration, Role, ServiceFinding, ServiceRule, Use};
pub use difference::{FieldChange, FieldDifference, difference};
pub use error::{ContractError, Problem};
pub use fields::Field;
pub use finding::{Finding, LintRule};
pub use golden::{GoldenError, golden};
pub use pattern::PatternError;
pub use upcast::UpcastError;
pub use versions::{Taken, TakenError, Verdict, verdict};
pub use violation::{ValueRule, Violation};

use crate::json_text::{Document, Limits, Node, Pointer};

/// The `$schema` of a contract.
const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";

/// Most examples of a contract.
const MAX_EXAMPLES: usize = 20;

/// A contract that can be enforced. `Debug` shows its length only.
#[derive(Clone)]
pub struct Contract {
    text: Box<str>,
    title: Option<Box<str>>,
    description: Option<Box<str>>,
    schema: schema::Schema,
    extension: extension::Extension,
    /// As JSON texts.
    examples: Vec<Box<str>>,
}

impl Contract {
    /// Largest contract in bytes.
    pub const MAX_BYTES: usize = 64 * 1024;

    /// Most violations that one payload is told of.
    pub const MAX_VIOLATIONS: usize = validate::MAX_VIOLATIONS;

    /// Reads a contract: a JSON Schema, and our own data under `x-tidegate`.
    ///
    /// # Errors
    /// The first thing that can't be enforced, by its place; see [`Problem`].
    pub fn read(bytes: &[u8]) -> Result<Self, ContractError> {
        let limits = Limits {
            max_bytes: Self::MAX_BYTES,
            max_depth: 64,
        };
        let document = Document::parse(bytes, &limits)
            .map_err(|why| ContractError::new(why.pointer.clone(), Problem::Unreadable(why)))?;
        let root = document.root();
        if !matches!(root, Node::Object(..)) {
            return Err(ContractError::new("", Problem::NotASchema));
        }
        dialect(root)?;
        let schema = read::Reader::new(root).contract(root)?;
        let extension = root.member("x-tidegate");
        let text = |name| root.member(name).and_then(Node::as_string);
        Ok(Self {
            title: text("title").map(|title| title.as_ref().into()),
            description: text("description").map(|text| text.as_ref().into()),
            schema,
            extension: extension.map_or_else(
                || Ok(extension::Extension::default()),
                |node| extension::read(node, "/x-tidegate"),
            )?,
            examples: examples(root)?,
            text: document.to_string().into(),
        })
    }

    /// The contract as it was read, byte for byte.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// `title`.
    pub fn title(&self) -> Option<&str> {
        self.title.as_deref()
    }

    /// `description`.
    pub fn description(&self) -> Option<&str> {
        self.description.as_deref()
    }

    /// Who answers for it: `owner` in `x-tidegate`.
    pub fn owner(&self) -> Option<&str> {
        self.extension.owner.as_deref()
    }

    /// The payload's field that makes a task the same task: `idempotencyKey` in `x-tidegate`.
    pub fn idempotency_key(&self) -> Option<&Pointer> {
        self.extension.idempotency_key.as_ref()
    }

    /// Whether it says how a payload of the version before becomes one of this, if only by taking it as it is.
    pub fn has_upcasts(&self) -> bool {
        self.extension.upcasts.is_some()
    }

    /// Payloads that show what is meant, as JSON texts.
    pub fn examples(&self) -> impl ExactSizeIterator<Item = &str> {
        self.examples.iter().map(|text| &**text)
    }

    /// Whether both say the same: the same JSON value, however it is written.
    pub fn same(&self, other: &Self) -> bool {
        // Both were read within tighter limits before.
        let limits = Limits::standard();
        let both = (
            Document::parse(self.text.as_bytes(), &limits),
            Document::parse(other.text.as_bytes(), &limits),
        );
        matches!(both, (Ok(one), Ok(two)) if one.same_value(&two))
    }
}

impl fmt::Debug for Contract {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Contract({} bytes)", self.text.len())
    }
}

fn dialect(root: &Node<'_>) -> Result<(), ContractError> {
    if let Some(node) = root.member("$schema") {
        let named = node.as_string();
        let named = named
            .as_deref()
            .map(|name| name.strip_suffix('#').unwrap_or(name));
        if named != Some(DIALECT) {
            return Err(ContractError::new("/$schema", Problem::OtherDialect));
        }
    }
    match root.member("$id") {
        Some(node) if node.as_string().is_none() => Err(ContractError::new(
            "/$id",
            Problem::WrongValue {
                keyword: "$id",
                expected: "a text; it is a name only, and nothing is fetched from there",
            },
        )),
        _ => Ok(()),
    }
}

fn examples(root: &Node<'_>) -> Result<Vec<Box<str>>, ContractError> {
    let Some(node) = root.member("examples") else {
        return Ok(Vec::new());
    };
    let problem = Problem::WrongValue {
        keyword: "examples",
        expected: "an array of payloads",
    };
    let items = node.items();
    let items = items.ok_or_else(|| ContractError::new("/examples", problem))?;
    if items.len() > MAX_EXAMPLES {
        let problem = Problem::TooMany {
            what: "examples",
            most: MAX_EXAMPLES,
        };
        return Err(ContractError::new("/examples", problem));
    }
    Ok(items.map(|item| item.to_string().into()).collect())
}
