//! A child process that never outlives us by accident and is asked before it is killed.

use std::{process::ExitStatus, time::Duration};

use tokio::{
    process::{self, Command},
    time::timeout,
};

use crate::problem::Problem;

/// How long a child may take to end by itself after SIGTERM.
const GRACE: Duration = Duration::from_secs(10);

pub(super) struct Child {
    process: process::Child,
}

impl Child {
    /// Starts `command` in a process group of its own, so that Ctrl-C reaches this program alone, which then ends
    /// its children in order.
    pub(super) fn start(mut command: Command) -> Result<Self, Problem> {
        command
            .process_group(0)
            .kill_on_drop(true)
            .stdin(std::process::Stdio::null());
        let name = command.as_std().get_program().to_string_lossy().into_owned();
        let process = command
            .spawn()
            .map_err(|why| Problem::Child(format!("could not start {name}: {why}")))?;
        Ok(Self { process })
    }

    pub(super) fn stdout(&mut self) -> Option<process::ChildStdout> {
        self.process.stdout.take()
    }

    /// How it ended, if it has.
    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        self.process.try_wait().ok().flatten()
    }

    /// Waits for it to end by itself.
    pub(super) async fn wait(&mut self, limit: Duration) -> Option<ExitStatus> {
        timeout(limit, self.process.wait()).await.ok()?.ok()
    }

    /// SIGTERM, a grace period, SIGKILL; reaped in any case.
    pub(super) async fn end(mut self) {
        if let Some(id) = self.process.id() {
            // The shell's own `kill`: the standard library sends SIGKILL only.
            let _ = Command::new("sh")
                .args(["-c", "kill -TERM \"$1\"", "sh", &id.to_string()])
                .status()
                .await;
        }
        if self.wait(GRACE).await.is_none() {
            let _ = self.process.kill().await;
        }
    }
}
