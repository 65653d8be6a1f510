//! The Python that tests run clients of other languages with.

use std::process::{Command, Stdio};

/// The first Python that has `module`: a version manager's often lacks what the system's has. `TIDEGATE_PYTHON` names another.
///
/// # Panics
/// If none has it.
pub fn python(module: &str) -> String {
    let named = std::env::var("TIDEGATE_PYTHON")
        .ok()
        .filter(|name| !name.is_empty());
    let known = ["python3", "/usr/bin/python3"].map(str::to_owned);
    let has = |python: &String| {
        let look = Command::new(python)
            .args(["-c", &format!("import {module}")])
            .stderr(Stdio::null())
            .status();
        look.is_ok_and(|status| status.success())
    };
    named.into_iter().chain(known).find(has).unwrap_or_else(|| {
        panic!("no Python with {module}: `./dev test` installs it, or name one by TIDEGATE_PYTHON")
    })
}
