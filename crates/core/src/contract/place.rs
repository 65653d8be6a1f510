//! Where a value stands: pointers that grow with the walk, keys in them cut and made safe for a log line.
//!
//! May import: `envelope` (how a key is shown).

use crate::envelope::pointer::shown;

/// `at` and one step more.
pub(crate) fn child(at: &str, name: &str) -> String {
    format!("{at}/{}", escaped(name))
}

fn escaped(name: &str) -> String {
    shown(name).replace('~', "~0").replace('/', "~1")
}

/// A place in a payload, on the stack; a pointer only for a violation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place<'p> {
    Payload,
    Key(&'p Place<'p>, &'p str),
    Item(&'p Place<'p>, usize),
}

impl Place<'_> {
    pub(crate) fn pointer(&self) -> String {
        match self {
            Self::Payload => String::new(),
            Self::Key(above, name) => child(&above.pointer(), name),
            Self::Item(above, index) => format!("{}/{index}", above.pointer()),
        }
    }
}
