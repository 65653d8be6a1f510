//! Runs the binary in an empty directory with an environment of its own.

use std::{
    io::Write,
    path::Path,
    process::{Command, Stdio},
};

use serde_json::Value;
use tempfile::TempDir;

/// What a run of the binary left.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    /// Stdout as one JSON value.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|why| panic!("{why}: {self:?}"))
    }

    /// The JSON error on stderr.
    pub(crate) fn error(&self) -> Value {
        let line = self
            .stderr
            .lines()
            .rfind(|line| line.starts_with("{\"error\""))
            .unwrap_or_else(|| panic!("{self:?}"));
        serde_json::from_str::<Value>(line).unwrap()["error"].take()
    }
}

/// The binary with arguments, environment and input.
pub(crate) struct Tidegate {
    pub(crate) dir: TempDir,
    env: Vec<(String, String)>,
}

impl Tidegate {
    pub(crate) fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            env: Vec::new(),
        }
    }

    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// With a file in the directory that it runs in.
    pub(crate) fn file(self, name: &str, text: &str) -> Self {
        let path = self.dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
        self
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command
            .args(arguments)
            .current_dir(self.dir.path())
            .env_clear()
            .envs(self.env.iter().cloned());
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        self.run_with(arguments, "")
    }

    pub(crate) fn run_with(&self, arguments: &[&str], input: &str) -> Ran {
        let mut command = self.command(arguments);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // It may have ended before it read its input.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        let output = child.wait_with_output().unwrap();
        Ran {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

/// A topology with one queue.
pub(crate) const ORDER: &str =
    "[[queue]]\nname = \"order.close.queue\"\nbind = [\"order.close.#\"]\nowner = \"order-team\"\n";
