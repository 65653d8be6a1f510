//! Figures of a test that passed, which the test harness would not show.

use std::io::Write;

/// Prints to stderr past the test harness, which shows only what failing tests print.
pub fn report(text: &str) {
    // Nobody to tell if it can't be written.
    let _ = std::io::stderr().write_all(format!("\n{}\n", text.trim_end()).as_bytes());
}
