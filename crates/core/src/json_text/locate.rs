//! On which line a value stands, for whoever has to correct it.

use super::{Document, Pointer, edit, node::Node};

impl Document<'_> {
    /// The line, from 1, on which the member or item at `pointer` begins; of the nearest one above it if it isn't there.
    pub fn line_of(&self, pointer: &Pointer) -> usize {
        let mut node = self.root();
        // Of the value that was reached, and of the key or item that a person looks for.
        let mut value = 1 + lines(self.gaps.0);
        let mut found = value;
        for step in pointer.steps() {
            let Some(child) = child(node, step) else { break };
            found = value + child.key;
            value += child.value;
            node = child.node;
        }
        found
    }
}

/// A member or item, and how many lines below its container's start its key and its value begin.
struct Child<'n, 'a> {
    node: &'n Node<'a>,
    key: usize,
    value: usize,
}

fn child<'n, 'a>(node: &'n Node<'a>, step: &str) -> Option<Child<'n, 'a>> {
    let mut above = 0;
    match node {
        Node::Object(members, _) => {
            for member in members {
                let key = above + lines(member.before);
                let value = key + lines(member.colon.0) + lines(member.colon.1);
                if member.name == step {
                    let node = &member.value;
                    return Some(Child { node, key, value });
                }
                above = value + inside(&member.value) + lines(member.after);
            }
            None
        }
        Node::Array(items, _) => {
            let wanted = edit::index(step)?;
            for (at, item) in items.iter().enumerate() {
                let key = above + lines(item.before);
                if at == wanted {
                    let node = &item.value;
                    return Some(Child {
                        node,
                        key,
                        value: key,
                    });
                }
                above = key + inside(&item.value) + lines(item.after);
            }
            None
        }
        _ => None,
    }
}

/// Line ends inside of a value: strings have none but as escapes.
fn inside(node: &Node<'_>) -> usize {
    match node {
        Node::Object(members, empty) => {
            let each = members.iter().map(|m| {
                lines(m.before) + lines(m.colon.0) + lines(m.colon.1) + inside(&m.value) + lines(m.after)
            });
            each.sum::<usize>() + lines(empty)
        }
        Node::Array(items, empty) => {
            let each = items
                .iter()
                .map(|i| lines(i.before) + inside(&i.value) + lines(i.after));
            each.sum::<usize>() + lines(empty)
        }
        _ => 0,
    }
}

fn lines(gap: &str) -> usize {
    gap.matches('\n').count()
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Limits, Pointer},
        *,
    };

    #[test]
    fn a_pointer_is_a_line_as_an_editor_counts() {
        let text = "\n{\n  \"a\": {\n  },\n  \"b\":\n    [1,\n 2, {\"c\":\n3}],\n  \"d\": [\n\n], \"e\": \"x\\n\"\n}\n";
        let document = Document::parse(text.as_bytes(), &Limits::standard()).unwrap();
        for (pointer, line) in [
            ("", 2),
            ("/a", 3),
            ("/a/none/deeper", 3),
            ("/b", 5),
            ("/b/0", 6),
            ("/b/1", 7),
            ("/b/2", 7),
            ("/b/2/c", 7),
            ("/b/9", 5),
            ("/d", 9),
            ("/e", 11),
            ("/e/0", 11),
            ("/f", 2),
        ] {
            let pointer = Pointer::parse(pointer).unwrap();
            assert_eq!(document.line_of(&pointer), line, "{pointer}");
        }
    }
}
