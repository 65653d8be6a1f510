//! One line per event as it happens: elapsed seconds, who, what. Colours only on a terminal.
//!
//! Imports nothing of the example.

use std::{
    io::{IsTerminal, Write},
    time::Instant,
};

/// Prints what happens; cheap to copy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Narrator {
    since: Instant,
    colour: bool,
}

impl Narrator {
    /// A narrator whose clock starts now.
    pub(crate) fn new() -> Self {
        let colour = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        Self {
            since: Instant::now(),
            colour,
        }
    }

    /// Whether standard output takes colours.
    pub(crate) fn colour(&self) -> bool {
        self.colour
    }

    /// `who` did `what`.
    pub(crate) fn say(&self, who: &str, what: impl std::fmt::Display) {
        let elapsed = self.since.elapsed().as_secs_f32();
        let shade = match who {
            "stage" => "2",
            "shop" => "36",
            "broker" => "33",
            _ => "32",
        };
        let who = format!("{who:<8}");
        let who = if self.colour {
            format!("\x1b[{shade}m{who}\x1b[0m")
        } else {
            who
        };
        self.print(format_args!("{elapsed:7.2} s  {who}  {what}"));
    }

    /// A line of its own, without time or name.
    pub(crate) fn print(&self, line: impl std::fmt::Display) {
        // A reader that went away (`| head`) is no reason to stop.
        let _ = writeln!(std::io::stdout().lock(), "{line}");
    }
}
