//! Two queues that take the same key each get a copy of the task: meant sometimes, a mistake often. Pure.
//!
//! Patterns are kept in a tree by their words, so that finding all overlaps costs about one walk for each pattern
//! and not one comparison for each two of them: a platform may have thousands. May import: `core`, files, model.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_core::topic::Pattern;

use super::{
    errors::FileWarning,
    files::{QueueEntry, Source},
    model::BusinessQueue,
};

/// Most overlaps that are listed; who has more sees them after mending these.
const MAX_WARNINGS: usize = 100;

/// A queue's table and the file it stands in.
pub(super) struct Bound<'a> {
    pub(super) source: &'a Source,
    pub(super) entry: QueueEntry,
}

/// One warning for each two `queues` whose patterns can match one key, unless either says that it is meant.
/// `tables` are what the queues were read from, in the same order and without errors.
pub(super) fn warnings(queues: &[BusinessQueue], tables: &[Bound<'_>]) -> Vec<FileWarning> {
    let mut tree = Tree::default();
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for (later, queue) in queues.iter().enumerate().filter(|(_, queue)| !queue.fan_out) {
        for (at, pattern) in queue.bind.iter().enumerate() {
            for (earlier, other_at) in tree.overlapping(pattern) {
                if earlier == later || !seen.insert((earlier, later)) {
                    continue;
                }
                let other = &queues[earlier];
                found.push(warning(
                    (queue, &tables[later], at),
                    (other, &tables[earlier], other_at),
                ));
                if found.len() == MAX_WARNINGS {
                    let last = &mut found[MAX_WARNINGS - 1].message;
                    last.push_str("; there may be more overlaps, which are not listed");
                    found.sort();
                    return found;
                }
            }
            tree.insert(pattern, (later, at));
        }
    }
    found.sort();
    found
}

/// Says that two bindings, each a queue with its table and the number of its pattern, take one key.
fn warning(
    (queue, table, at): (&BusinessQueue, &Bound<'_>, usize),
    (other, other_table, other_at): (&BusinessQueue, &Bound<'_>, usize),
) -> FileWarning {
    let place = |table: &Bound<'_>, at: usize| {
        let bind = &table.entry.bind;
        let span = bind.get_ref().get(at).map_or(bind.span(), |text| text.span());
        table.source.place(span.start)
    };
    let other_place = place(other_table, other_at);
    let (pattern, other_pattern) = (&queue.bind[at], &other.bind[other_at]);
    let key = pattern.common_key(other_pattern).unwrap_or_default();
    FileWarning {
        place: place(table, at),
        message: format!(
            "queue {:?} takes {pattern} and queue {:?} takes {other_pattern} ({other_place}): each gets a copy of \
             a task with a key such as {key:?}, and both run it; if that is meant write fan_out = true in either, if \
             not narrow a pattern",
            queue.name, other.name
        ),
        other: Some(other_place),
    }
}

/// Number of a queue, and of a pattern within it.
type Binding = (usize, usize);

/// Patterns by their words; node 0 is the root.
struct Tree<'a>(Vec<Node<'a>>);

#[derive(Default)]
struct Node<'a> {
    children: BTreeMap<&'a str, usize>,
    /// Whose pattern ends here.
    ends: Vec<Binding>,
}

impl Default for Tree<'_> {
    fn default() -> Self {
        Self(vec![Node::default()])
    }
}

impl<'a> Tree<'a> {
    fn insert(&mut self, pattern: &'a Pattern, binding: Binding) {
        let mut at = 0;
        for word in pattern.words() {
            let new = self.0.len();
            at = *self.0[at].children.entry(word).or_insert(new);
            if at == new {
                self.0.push(Node::default());
            }
        }
        self.0[at].ends.push(binding);
    }

    /// All bindings inserted so far whose patterns overlap with `pattern`.
    fn overlapping(&self, pattern: &Pattern) -> Vec<Binding> {
        let words: Vec<&str> = pattern.words().collect();
        let mut walk = Walk {
            tree: self,
            words: &words,
            seen: BTreeSet::new(),
            found: Vec::new(),
        };
        walk.from(0, 0);
        walk.found
    }
}

struct Walk<'w, 'a> {
    tree: &'w Tree<'a>,
    words: &'w [&'w str],
    seen: BTreeSet<(usize, usize)>,
    found: Vec<Binding>,
}

impl Walk<'_, '_> {
    /// Goes on where the words before `at` and the tree's words down to `node` share a key.
    fn from(&mut self, node: usize, at: usize) {
        if !self.seen.insert((node, at)) {
            return;
        }
        let tree = self.tree;
        let Node { children, ends } = &tree.0[node];
        let word = self.words.get(at).copied();
        match word {
            None => self.found.extend(ends),
            // It takes no word, or one of the tree's and maybe more.
            Some("#") => {
                self.from(node, at + 1);
                for (_, child) in children.iter().filter(|(word, _)| **word != "#") {
                    self.from(*child, at);
                }
            }
            Some("*") => {
                for (_, child) in children.iter().filter(|(word, _)| **word != "#") {
                    self.from(*child, at + 1);
                }
            }
            Some(word) => {
                for child in [children.get(word), children.get("*")].into_iter().flatten() {
                    self.from(*child, at + 1);
                }
            }
        }
        // The tree's `#` takes any number of our words.
        if let Some(child) = children.get("#") {
            for after in at..=self.words.len() {
                self.from(*child, after);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_tree_finds_what_comparing_each_with_each_finds(
            texts in proptest::collection::vec("(a|b|\\*|#)(\\.(a|b|\\*|#)){0,3}", 1..12),
        ) {
            let patterns: Vec<Pattern> = texts.iter().filter_map(|text| Pattern::parse(text).ok()).collect();
            let mut tree = Tree::default();
            for (n, pattern) in patterns.iter().enumerate() {
                let mut found = tree.overlapping(pattern);
                found.sort_unstable();
                let expected: Vec<Binding> =
                    (0..n).filter(|m| pattern.overlaps(&patterns[*m])).map(|m| (m, 0)).collect();
                prop_assert_eq!(found, expected, "{}", pattern);
                tree.insert(pattern, (n, 0));
            }
        }
    }
}
