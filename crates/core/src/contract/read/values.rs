//! The keywords of one schema, each as a value of its kind.
//!
//! May import: `json_text`, `keyword`, `schema`, `error`, `place`.

use super::{
    Read,
    keyword::{self, Use},
};
use crate::{
    contract::{
        error::{ContractError, Problem},
        format::Format,
        pattern::Pattern,
        place::child,
        scalar::Scalar,
        schema::{Bound, Types, Values},
    },
    envelope::{number, pointer::shown},
    json_text::{Decimal, Node},
};

/// Most values of an `enum`.
const MAX_VALUES: usize = 500;

/// A schema's keywords, and where it stands.
#[derive(Clone, Copy)]
pub(super) struct Keywords<'d, 'p> {
    pub(super) node: &'d Node<'d>,
    pub(super) at: &'p str,
}

impl<'d> Keywords<'d, '_> {
    pub(super) fn get(&self, keyword: &str) -> Option<&'d Node<'d>> {
        self.node.member(keyword)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &'d str> {
        self.node.members().into_iter().flatten().map(|(name, _)| name)
    }

    pub(super) fn pointer(&self, keyword: &str) -> String {
        child(self.at, keyword)
    }

    /// Every keyword is one that is enforced, or says nothing about payloads.
    pub(super) fn check(&self, is_root: bool) -> Read<()> {
        for name in self.names() {
            let unknown = match keyword::of(name) {
                Some(Use::Root) if !is_root => "it stands at the top of the file only",
                Some(_) => continue,
                None => keyword::advice(name),
            };
            let problem = Problem::UnknownKeyword {
                keyword: shown(name),
                advice: unknown,
            };
            return Err(ContractError::new(self.pointer(name), problem));
        }
        for name in ["title", "description", "$comment"] {
            if self.get(name).is_some_and(|node| node.as_string().is_none()) {
                return Err(wrong(self.at, name, "a text"));
            }
        }
        self.truth("deprecated").map(|_| ())
    }

    /// No keyword that says something about payloads stands beside `keyword`.
    pub(super) fn alone(&self, keyword: &'static str, advice: &'static str) -> Read<()> {
        for name in self.names().filter(|name| *name != keyword) {
            if let Some(Use::For(other, ..) | Use::Choice(other)) = keyword::of(name) {
                let problem = Problem::Together(keyword, other, advice);
                return Err(ContractError::new(self.pointer(name), problem));
            }
        }
        Ok(())
    }

    /// No keyword is for types that aren't allowed.
    pub(super) fn fit(&self, types: Types) -> Read<()> {
        for name in self.names() {
            if let Some(Use::For(keyword, of, about)) = keyword::of(name)
                && !of.meets(types)
            {
                let problem = Problem::Misplaced { keyword, about };
                return Err(ContractError::new(self.pointer(name), problem));
            }
        }
        Ok(())
    }

    pub(super) fn types(&self) -> Read<Types> {
        let named = |node: &Node<'_>| node.as_string().and_then(|name| Types::named(&name));
        let types = match self.get("type") {
            None => Some(Types::ALL),
            Some(node) => match node.items() {
                None => named(node),
                Some(items) => {
                    let all: Option<Vec<Types>> = items.map(named).collect();
                    all.map(|all| all.into_iter().fold(Types::NONE, Types::with))
                }
            },
        };
        let expected = "object, array, string, number, integer, boolean or null, or an array of these";
        types
            .filter(|types| !types.is_empty())
            .ok_or_else(|| wrong(self.at, "type", expected))
    }

    pub(super) fn values(&self, types: Types) -> Read<Option<Values>> {
        let (keyword, nodes): (_, Vec<_>) = match (self.get("enum"), self.get("const")) {
            (None, None) => return Ok(None),
            (Some(_), Some(_)) => {
                let problem = Problem::Together("enum", "const", "const is an enum of one");
                return Err(ContractError::new(self.pointer("const"), problem));
            }
            (Some(node), None) => ("enum", node.items().into_iter().flatten().collect()),
            (None, Some(node)) => ("const", vec![node]),
        };
        if nodes.is_empty() {
            return Err(wrong(self.at, keyword, "an array of at least one value"));
        }
        if nodes.len() > MAX_VALUES {
            return Err(too_many(&self.pointer(keyword), "values", MAX_VALUES));
        }
        let mut any_of = Vec::with_capacity(nodes.len());
        for node in nodes {
            let value = Scalar::of(node).filter(|value| match value {
                Scalar::Number(_, text) if !types.meets(Types::FRACTION) => {
                    types.meets(Types::INTEGER) && !text.contains(['.', 'e', 'E'])
                }
                value => value.types().meets(types),
            });
            let expected = "texts, numbers, truth values or null, of the type that \"type\" names";
            any_of.push(value.ok_or_else(|| wrong(self.at, keyword, expected))?);
        }
        Ok(Some(Values { keyword, any_of }))
    }

    pub(super) fn count(&self, keyword: &'static str) -> Read<Option<u64>> {
        let Some(node) = self.get(keyword) else {
            return Ok(None);
        };
        let digits = node.as_number().filter(|n| n.bytes().all(|b| b.is_ascii_digit()));
        match digits.and_then(|digits| digits.parse().ok()) {
            Some(count) => Ok(Some(count)),
            None => Err(wrong(self.at, keyword, "a whole number from 0 on")),
        }
    }

    pub(super) fn truth(&self, keyword: &'static str) -> Read<Option<bool>> {
        match self.get(keyword) {
            None => Ok(None),
            Some(Node::Word("true")) => Ok(Some(true)),
            Some(Node::Word("false")) => Ok(Some(false)),
            Some(_) => Err(wrong(self.at, keyword, "true or false")),
        }
    }

    pub(super) fn bound(&self, inclusive: &'static str, exclusive: &'static str) -> Read<Option<Bound>> {
        let (keyword, node) = match (self.get(inclusive), self.get(exclusive)) {
            (None, None) => return Ok(None),
            (Some(_), Some(_)) => {
                let problem = Problem::Together(inclusive, exclusive, "one of them says nothing");
                return Err(ContractError::new(self.pointer(exclusive), problem));
            }
            (Some(node), None) => (inclusive, node),
            (None, Some(node)) => (exclusive, node),
        };
        let text = node.as_number().filter(|text| number::is_exact(text));
        let text = text.ok_or_else(|| wrong(self.at, keyword, "a number that a double holds exactly"))?;
        Ok(Some(Bound {
            value: Decimal::of(text),
            text: text.into(),
            is_exclusive: keyword == exclusive,
        }))
    }

    pub(super) fn pattern(&self) -> Read<Option<Pattern>> {
        let Some(node) = self.get("pattern") else {
            return Ok(None);
        };
        let text = node.as_string();
        let text = text.ok_or_else(|| wrong(self.at, "pattern", "a text"))?;
        let refuse = |why| ContractError::new(self.pointer("pattern"), Problem::Pattern(why));
        Pattern::parse(&text).map(Some).map_err(refuse)
    }

    pub(super) fn format(&self) -> Read<Option<Format>> {
        let Some(node) = self.get("format") else {
            return Ok(None);
        };
        let format = node.as_string().and_then(|name| Format::named(&name));
        let expected = "date-time, date or uuid; for another form write a pattern";
        format.map(Some).ok_or_else(|| wrong(self.at, "format", expected))
    }

    pub(super) fn required(&self) -> Read<Vec<Box<str>>> {
        let Some(node) = self.get("required") else {
            return Ok(Vec::new());
        };
        let names = node.items().map(|items| {
            let names = items.map(|item| item.as_string().map(|name| name.as_ref().into()));
            names.collect::<Option<Vec<_>>>()
        });
        names
            .flatten()
            .ok_or_else(|| wrong(self.at, "required", "an array of names"))
    }
}

pub(super) fn wrong(at: &str, keyword: &'static str, expected: &'static str) -> ContractError {
    ContractError::new(child(at, keyword), Problem::WrongValue { keyword, expected })
}

pub(super) fn too_many(at: &str, what: &'static str, most: usize) -> ContractError {
    ContractError::new(at, Problem::TooMany { what, most })
}
