//! The `tidegate` binary; everything is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    tidegate::cli::run()
}
