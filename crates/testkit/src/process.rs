//! Programs that a test starts, watches and kills.

use std::{
    fs::File,
    io::Write,
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};

use tempfile::NamedTempFile;

use crate::eventually;

/// A running program whose output goes to a file, shown if the test fails. Killed when dropped.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    output: NamedTempFile,
}

impl Process {
    /// Starts `command` without input; `name` is what failures call it.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start(name: &str, command: &mut Command) -> Self {
        let output = NamedTempFile::with_prefix("tidegate-output-").expect("a temporary file can be made");
        // Appending, so that what the program's two streams write does not overwrite each other.
        let append = || {
            File::options()
                .append(true)
                .open(output.path())
                .expect("the output file opens")
        };
        command.stdin(Stdio::null()).stdout(append()).stderr(append());
        let child = command
            .spawn()
            .unwrap_or_else(|e| panic!("{name} does not start: {e}"));
        Self {
            name: name.to_owned(),
            child,
            output,
        }
    }

    /// Process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// User and system time so far.
    pub fn cpu(&self) -> Duration {
        cpu(self.id())
    }

    /// Whether it has not ended yet.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// What it has printed so far, both streams.
    pub fn output(&self) -> String {
        let bytes = std::fs::read(self.output.path()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Ends it at once (`SIGKILL`), without a chance to put anything in order.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Asks it to stop (`SIGTERM`).
    pub fn terminate(&self) {
        self.signal("TERM");
    }

    /// Freezes it (`SIGSTOP`): its connections stay open.
    pub fn freeze(&self) {
        self.signal("STOP");
    }

    /// Lets it go on (`SIGCONT`).
    pub fn thaw(&self) {
        self.signal("CONT");
    }

    fn signal(&self, name: &str) {
        let status = Command::new("kill")
            .args([&format!("-{name}"), &self.id().to_string()])
            .stderr(Stdio::null())
            .status();
        assert!(
            status.is_ok_and(|s| s.success()),
            "{} is gone already:\n{}",
            self.name,
            self.output()
        );
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// If it still runs after `patience`.
    pub async fn wait(&mut self, patience: Duration) -> ExitStatus {
        let what = format!("{} to end", self.name);
        let child = &mut self.child;
        eventually(patience, &what, async || child.try_wait().ok().flatten()).await
    }

    /// Waits until its output contains `text`.
    ///
    /// # Panics
    /// If it does not in `patience`.
    pub async fn printed(&self, patience: Duration, text: &str) {
        let what = format!("{} to print {text:?}", self.name);
        eventually(patience, &what, async || self.output().contains(text)).await;
    }
}

/// User and system time of a process so far, in steps of 10 ms.
///
/// # Panics
/// If there is no such process.
pub fn cpu(process: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).expect("it was not waited for yet");
    // After the name, which may hold anything; fields 14 and 15 of the whole, in ticks of 10 ms.
    let fields = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    let ticks: u64 = fields
        .split(' ')
        .skip(11)
        .take(2)
        .map(|ticks| ticks.parse::<u64>().expect("a number of ticks"))
        .sum();
    Duration::from_millis(10 * ticks)
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            let _ = writeln!(
                std::io::stderr(),
                "--- output of {}:\n{}---",
                self.name,
                self.output()
            );
        }
    }
}
