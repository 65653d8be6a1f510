//! The topology in forms that others read: a broker's import, a picture, a page of a wiki, permissions.
//!
//! Each form is a pure function to a text that depends on nothing but the files: the same files give the same bytes.
//! May import: `core`, the model and its objects.

mod definitions;
mod graph;
mod markdown;
mod mermaid;
mod permissions;
mod svg;

use std::time::Duration;

pub use definitions::definitions;
pub use markdown::markdown;
pub use mermaid::mermaid;
pub use permissions::{MAX_PATTERN_BYTES, Permissions, Role, permissions, set_permissions, used_by_serve};
pub use svg::svg;

/// A span for people: its two largest units, with `~` where smaller ones are left out.
fn span(span: Duration) -> String {
    let millis = span.as_millis();
    let units = [
        (86_400_000, "d"),
        (3_600_000, "h"),
        (60_000, "m"),
        (1_000, "s"),
        (1, "ms"),
    ];
    let mut rest = millis;
    let mut shown = Vec::new();
    for (size, name) in units {
        let count = rest / size;
        if count > 0 && shown.len() < 2 {
            shown.push(format!("{count}{name}"));
            rest %= size;
        }
    }
    let about = if rest > 0 { "~" } else { "" };
    format!("{about}{}", shown.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_short_and_say_when_they_are_cut() {
        for (millis, text) in [
            (32, "32ms"),
            (90_000, "1m 30s"),
            (1_800_000, "30m"),
            (8_192, "8s 192ms"),
            (536_870_912, "~6d 5h"),
            (86_400_000 * 99, "99d"),
        ] {
            assert_eq!(span(Duration::from_millis(millis)), text);
        }
    }
}
