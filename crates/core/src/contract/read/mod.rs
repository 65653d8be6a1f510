//! From the JSON text of a contract to the schema. What isn't understood is refused: a keyword that is ignored is a
//! promise that nobody keeps.
//!
//! A `$ref` is followed inside of `$defs` of the same file only, and written out. Bombs end at the number of schemas that
//! this makes ([`MAX_SCHEMAS`]) and circles at the first return; nothing recurses deeper than [`MAX_DEPTH`].
//!
//! May import: `json_text`, `schema`, `error`, `place`, and what values of keywords are read into.

mod keyword;
mod values;

use self::values::{Keywords, too_many, wrong};
use super::{
    error::{ContractError, Problem},
    place::child,
    schema::{Additional, ArrayRules, Kind, NumberRules, ObjectRules, Rules, Schema, TextRules, Types},
};
use crate::json_text::Node;

/// Most schemas in one contract, every `$ref` written out.
pub(crate) const MAX_SCHEMAS: usize = 1_000;

/// Most schemas inside each other.
pub(crate) const MAX_DEPTH: usize = 16;

/// Most branches of an `anyOf`.
const MAX_BRANCHES: usize = 16;

type Read<T> = Result<T, ContractError>;

/// Reads the schemas of one contract.
pub(crate) struct Reader<'d> {
    definitions: Option<&'d Node<'d>>,
    left: usize,
    /// Names of the definitions that are being written out, outermost first.
    inside: Vec<&'d str>,
}

impl<'d> Reader<'d> {
    /// A reader of the contract whose root is `root`.
    pub(crate) fn new(root: &'d Node<'d>) -> Self {
        Self {
            definitions: root.member("$defs"),
            left: MAX_SCHEMAS,
            inside: Vec::new(),
        }
    }

    /// Reads `root`, and every definition for itself, so that none holds what nobody noticed.
    pub(crate) fn contract(&mut self, root: &'d Node<'d>) -> Read<Schema> {
        let schema = self.schema(root, "", 0)?;
        if let Some(definitions) = self.definitions {
            let expected = "an object of schemas by name";
            let named = definitions.members();
            for (name, node) in named.ok_or_else(|| wrong("", "$defs", expected))? {
                self.inside.push(name);
                self.schema(node, &child("/$defs", name), 1)?;
                self.inside.pop();
            }
        }
        Ok(schema)
    }

    fn schema(&mut self, node: &'d Node<'d>, at: &str, depth: usize) -> Read<Schema> {
        self.left = self
            .left
            .checked_sub(1)
            .ok_or_else(|| too_many(at, "schemas, with every $ref written out", MAX_SCHEMAS))?;
        if depth > MAX_DEPTH {
            return Err(too_many(at, "schemas inside each other", MAX_DEPTH));
        }
        let kind = match node {
            Node::Word("true") if depth > 0 => Kind::Value(Box::new(Rules::of(Types::ALL))),
            Node::Word("false") if depth > 0 => Kind::AnyOf(Vec::new()),
            Node::Object(..) => return self.object(Keywords { node, at }, depth),
            _ => return Err(ContractError::new(at, Problem::NotASchema)),
        };
        Ok(Schema { at: at.into(), kind })
    }

    fn object(&mut self, words: Keywords<'d, '_>, depth: usize) -> Read<Schema> {
        words.check(depth == 0)?;
        if let Some(target) = words.get("$ref") {
            words.alone("$ref", "write its members here instead")?;
            return self.reference(target, words.at, depth);
        }
        let kind = if let Some(branches) = words.get("anyOf") {
            words.alone("anyOf", "put it into each branch")?;
            let at = words.pointer("anyOf");
            let branches = branches.items().filter(|branches| branches.len() > 0);
            let branches =
                branches.ok_or_else(|| wrong(words.at, "anyOf", "an array of at least one schema"))?;
            if branches.len() > MAX_BRANCHES {
                return Err(too_many(&at, "branches", MAX_BRANCHES));
            }
            let branches = branches.enumerate();
            let read = branches.map(|(index, node)| self.schema(node, &format!("{at}/{index}"), depth + 1));
            Kind::AnyOf(read.collect::<Read<_>>()?)
        } else {
            Kind::Value(Box::new(self.rules(words, depth)?))
        };
        let at = words.at.into();
        Ok(Schema { at, kind })
    }

    fn reference(&mut self, target: &Node<'_>, at: &str, depth: usize) -> Read<Schema> {
        let target = target.as_string();
        let target = target.ok_or_else(|| wrong(at, "$ref", "a text such as \"#/$defs/address\""))?;
        let here = child(at, "$ref");
        let name = target.strip_prefix("#/$defs/").filter(|name| !name.contains('/'));
        let name = name.ok_or_else(|| ContractError::new(&*here, Problem::RemoteReference))?;
        let name = name.replace("~1", "/").replace("~0", "~");
        let named = self.definitions.and_then(Node::members).into_iter().flatten();
        let found = named.into_iter().find(|(known, _)| *known == name);
        let (name, node) = found.ok_or_else(|| ContractError::new(&*here, Problem::UnknownReference))?;
        if self.inside.contains(&name) {
            return Err(ContractError::new(here, Problem::Circle));
        }
        self.inside.push(name);
        let schema = self.schema(node, &child("/$defs", name), depth + 1)?;
        self.inside.pop();
        Ok(schema)
    }

    fn rules(&mut self, words: Keywords<'d, '_>, depth: usize) -> Read<Rules> {
        let types = words.types()?;
        let values = words.values(types)?;
        words.fit(types)?;
        Ok(Rules {
            types: match &values {
                Some(values) => types.both(values.any_of.iter().fold(Types::NONE, |t, v| t.with(v.types()))),
                None => types,
            },
            values,
            text: TextRules {
                min: words.count("minLength")?.unwrap_or(0),
                max: words.count("maxLength")?,
                pattern: words.pattern()?,
                format: words.format()?,
            },
            number: NumberRules {
                min: words.bound("minimum", "exclusiveMinimum")?,
                max: words.bound("maximum", "exclusiveMaximum")?,
            },
            array: ArrayRules {
                items: match words.get("items") {
                    Some(node) => Some(Box::new(self.schema(node, &words.pointer("items"), depth + 1)?)),
                    None => None,
                },
                min: words.count("minItems")?.unwrap_or(0),
                max: words.count("maxItems")?,
                is_unique: words.truth("uniqueItems")?.unwrap_or(false),
            },
            object: ObjectRules {
                properties: self.properties(words, depth)?,
                required: words.required()?,
                additional: match words.get("additionalProperties") {
                    None | Some(Node::Word("true")) => Additional::Anything,
                    Some(Node::Word("false")) => Additional::Nothing,
                    Some(node) => {
                        let at = words.pointer("additionalProperties");
                        Additional::Like(Box::new(self.schema(node, &at, depth + 1)?))
                    }
                },
                min: words.count("minProperties")?.unwrap_or(0),
                max: words.count("maxProperties")?,
            },
        })
    }

    fn properties(&mut self, words: Keywords<'d, '_>, depth: usize) -> Read<Vec<(Box<str>, Schema)>> {
        let Some(node) = words.get("properties") else {
            return Ok(Vec::new());
        };
        let at = words.pointer("properties");
        let members = node.members();
        let members = members.ok_or_else(|| wrong(words.at, "properties", "an object of schemas by name"))?;
        let read = members.map(|(name, node)| {
            let schema = self.schema(node, &child(&at, name), depth + 1)?;
            Ok((name.into(), schema))
        });
        read.collect()
    }
}
