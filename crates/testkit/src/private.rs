//! RabbitMQ and Postgres of a test's own, to be killed and started again.

mod cluster;
mod control;

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

use tempfile::TempDir;

use crate::Services;

pub use cluster::PrivateCluster;

/// A broker and a database server that nothing else uses; stopped and removed when dropped.
///
/// They are of the version that the test run was started with (`./dev test --broker`).
#[derive(Debug)]
pub struct PrivateServices {
    state: TempDir,
    services: Services,
}

impl PrivateServices {
    /// Starts both; takes some seconds.
    ///
    /// # Panics
    /// If they don't start, with what `./dev up` printed.
    pub async fn start() -> Self {
        let (mut private, env) = Self::launch(&[]).await;
        private.services = Services {
            amqp: env.value("AMQP_URL"),
            database: env.value("DATABASE_URL"),
            management: env.value("MANAGEMENT_URL"),
        };
        private
    }

    /// Starts them and reads where they are; `services` is still empty.
    async fn launch(options: &[&str]) -> (Self, Env) {
        let state = TempDir::with_prefix("tidegate-private-").expect("a temporary directory can be made");
        // Removed with its processes even if the start fails half-way.
        let private = Self {
            state,
            services: Services::default(),
        };
        private.dev("up", options).await;
        let env = std::fs::read_to_string(private.state.path().join("env")).expect("./dev up wrote its env");
        (private, Env(env))
    }

    /// Where they are. Both keep their ports through every restart.
    pub fn services(&self) -> &Services {
        &self.services
    }

    /// Kills the broker (`kill -9`): what it had not written is gone.
    pub async fn kill_broker(&self) {
        self.dev("kill-broker", &[]).await;
    }

    /// Starts the broker on its old data and waits until it serves.
    pub async fn start_broker(&self) {
        self.dev("start-broker", &[]).await;
    }

    /// Kills Postgres (`kill -9`), its children included.
    pub async fn kill_postgres(&self) {
        self.dev("kill-postgres", &[]).await;
    }

    /// Starts Postgres on its old data and waits until it serves.
    pub async fn start_postgres(&self) {
        self.dev("start-postgres", &[]).await;
    }

    async fn dev(&self, command: &str, arguments: &[&str]) {
        let mut program = self.command(command);
        program.args(arguments);
        let run = tokio::task::spawn_blocking(move || program.output());
        let output = run.await.expect("the wait does not panic");
        let output = output.expect("./dev can be run");
        assert!(
            output.status.success(),
            "./dev {command} failed:\n{}",
            text(&output)
        );
    }

    fn command(&self, command: &str) -> Command {
        let mut program = Command::new(script());
        // The services of the test run itself must not be taken for the private ones.
        for name in ["AMQP_URL", "DATABASE_URL", "MANAGEMENT_URL"] {
            program.env_remove(name);
        }
        program.arg(command).arg("--state").arg(self.state.path());
        program
    }
}

impl Drop for PrivateServices {
    fn drop(&mut self) {
        // A failed clean-up must not hide the failure that led here.
        let _ = self.command("down").arg("--purge").output();
    }
}

/// What `./dev up` wrote for programs.
struct Env(String);

impl Env {
    fn value(&self, name: &str) -> String {
        let assignment = self
            .0
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        assignment
            .expect("./dev up names every service")
            .trim_matches('\'')
            .to_owned()
    }
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dev")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
