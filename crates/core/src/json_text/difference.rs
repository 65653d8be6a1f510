//! Where two JSON texts are not the same value, by pointers.
//!
//! May import: `envelope` (how a key is shown).

use std::collections::HashMap;

use super::{Document, node::Node};
use crate::envelope::pointer::shown;

/// A place where two texts differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// JSON pointer; empty for the whole. Keys over 64 characters are cut, and what would break a line is U+FFFD.
    pub pointer: String,
    /// The text of the first; `None` if nothing is there.
    pub one: Option<String>,
    /// The text of the second; `None` if nothing is there.
    pub two: Option<String>,
}

impl Document<'_> {
    /// Where `other` is not the same value, at most `most` places; no place is inside of another.
    pub fn differences(&self, other: &Document<'_>, most: usize) -> Vec<Difference> {
        let mut found = Vec::new();
        walk("", &self.root, &other.root, most, &mut found);
        found
    }
}

// The recursion is as deep as the shallower tree, whose depth was limited when it was read.
fn walk(at: &str, one: &Node<'_>, two: &Node<'_>, most: usize, found: &mut Vec<Difference>) {
    if found.len() >= most {
        return;
    }
    let mut add = |pointer: String, one: Option<&Node<'_>>, two: Option<&Node<'_>>| {
        if found.len() < most {
            let [one, two] = [one, two].map(|node| node.map(Node::to_string));
            found.push(Difference { pointer, one, two });
        }
    };
    let below = |name: &str| format!("{at}/{}", shown(name).replace('~', "~0").replace('/', "~1"));
    match (one, two) {
        (Node::Object(ones, _), Node::Object(twos, _)) => {
            let in_one: HashMap<&str, &Node<'_>> = ones.iter().map(|m| (&*m.name, &m.value)).collect();
            let in_two: HashMap<&str, &Node<'_>> = twos.iter().map(|m| (&*m.name, &m.value)).collect();
            for member in twos.iter().filter(|m| !in_one.contains_key(&*m.name)) {
                add(below(&member.name), None, Some(&member.value));
            }
            for member in ones.iter().filter(|m| !in_two.contains_key(&*m.name)) {
                add(below(&member.name), Some(&member.value), None);
            }
            for member in ones {
                if let Some(other) = in_two.get(&*member.name) {
                    walk(&below(&member.name), &member.value, other, most, found);
                }
            }
        }
        (Node::Array(ones, _), Node::Array(twos, _)) => {
            for index in 0..ones.len().max(twos.len()) {
                let here = format!("{at}/{index}");
                match (ones.get(index), twos.get(index)) {
                    (Some(one), Some(two)) => walk(&here, &one.value, &two.value, most, found),
                    (one, two) => {
                        let [one, two] = [one, two].map(|item| item.map(|item| item.value.to_string()));
                        if found.len() < most {
                            found.push(Difference {
                                pointer: here,
                                one,
                                two,
                            });
                        }
                    }
                }
            }
        }
        _ if one.same_value(two) => {}
        _ => add(at.to_owned(), Some(one), Some(two)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json_text::Limits;

    fn between(one: &str, two: &str, most: usize) -> Vec<String> {
        let [one, two] =
            [one, two].map(|text| Document::parse(text.as_bytes(), &Limits::standard()).unwrap());
        let found = one.differences(&two, most);
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        found
            .into_iter()
            .map(|d| format!("{} {} {}", d.pointer, or_none(d.one), or_none(d.two)))
            .collect()
    }

    #[test]
    fn each_difference_has_its_place() {
        let all = 99;
        assert_eq!(
            between(r#"{"a":1.0,"b":"\u0061"}"#, r#"{"b":"a", "a":1}"#, all),
            [""; 0]
        );
        assert_eq!(
            between(
                r#"{"a":{"x":1,"y":[1,2,3]},"b":1}"#,
                r#"{"a":{"x":2,"y":[1,4]},"c/d":null}"#,
                all
            ),
            ["/c~1d - null", "/b 1 -", "/a/x 1 2", "/a/y/1 2 4", "/a/y/2 3 -"]
        );
        assert_eq!(between("[1]", r#"{"0":1}"#, all), [r#" [1] {"0":1}"#]);
        assert_eq!(between("[1,2,3]", "[]", 2), ["/0 1 -", "/1 2 -"]);
        assert_eq!(between(r#"{"a":1}"#, r#"{"b":1}"#, 0), [""; 0]);
    }
}
