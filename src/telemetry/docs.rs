//! Holds a page of the documentation to what the code says: tests only.

use std::{env, fs, path::Path};

const BEGIN: &str = "<!-- generated: begin -->\n";
const END: &str = "<!-- generated: end -->";

/// Panics unless the marked part of `page` is `expected`; with `UPDATE_DOCS=1` writes it instead.
pub(crate) fn assert_holds(page: &str, expected: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(page);
    let text = fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(BEGIN).unwrap();
    let (held, after) = rest.split_once(END).unwrap();
    if held == expected {
        return;
    }
    assert!(
        env::var_os("UPDATE_DOCS").is_some(),
        "{page} differs from the code; UPDATE_DOCS=1 rewrites it.\nThe code says:\n{expected}"
    );
    fs::write(path, format!("{before}{BEGIN}{expected}{END}{after}")).unwrap();
}
