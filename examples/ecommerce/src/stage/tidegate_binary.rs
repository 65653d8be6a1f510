//! The real `tidegate`, run as anyone would run it: `migrate`, `topology apply`, `serve`.

use std::{path::PathBuf, time::Duration};

use tokio::{process::Command, time::Instant};

use super::{Child, Stage};
use crate::problem::Problem;

/// Longest wait for a command that ends by itself, and for the server to be ready.
const PATIENCE: Duration = Duration::from_secs(60);

impl Stage {
    pub(super) async fn serve(&mut self) -> Result<(), Problem> {
        self.run(&["migrate"]).await?;
        self.run(&["topology", "apply"]).await?;
        self.narrator.say(
            "stage",
            format_args!(
                "tidegate serve, health on {}, metrics on {}",
                self.health_url, self.metrics_url
            ),
        );
        let serve = self.tidegate(&["serve"])?;
        self.server = Some(Child::start(serve)?);
        self.ready().await
    }

    /// Runs a command to its end.
    async fn run(&self, arguments: &[&str]) -> Result<(), Problem> {
        let shown = arguments.join(" ");
        self.narrator.say("stage", format_args!("tidegate {shown}"));
        let mut child = Child::start(self.tidegate(arguments)?)?;
        match child.wait(PATIENCE).await {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(Problem::Child(format!("tidegate {shown}: {status}"))),
            None => {
                child.end().await;
                Err(Problem::Child(format!(
                    "tidegate {shown} did not end within {PATIENCE:?}"
                )))
            }
        }
    }

    async fn ready(&mut self) -> Result<(), Problem> {
        let http = reqwest::Client::builder()
            .timeout(Duration::from_secs(2))
            .build()?;
        let (url, end) = (format!("{}/readyz", self.health_url), Instant::now() + PATIENCE);
        loop {
            let answer = http.get(&url).send().await;
            if answer.as_ref().is_ok_and(|answer| answer.status().is_success()) {
                return Ok(());
            }
            if let Some(status) = self.server.as_mut().and_then(Child::ended) {
                return Err(Problem::Child(format!(
                    "tidegate serve ended before it was ready: {status}"
                )));
            }
            if Instant::now() > end {
                let why = match answer {
                    Ok(answer) => answer.text().await.unwrap_or_default(),
                    Err(error) => error.to_string(),
                };
                return Err(Problem::Child(format!(
                    "tidegate serve is not ready after {PATIENCE:?}: {why}"
                )));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// The whole configuration of a server: two URLs, where to listen, where the topology files are.
    fn tidegate(&self, arguments: &[&str]) -> Result<Command, Problem> {
        let mut command = Command::new(binary()?);
        command
            .args(arguments)
            .current_dir(self.dir.path()) // so that no tidegate.toml of somebody else's is read
            .env("AMQP_URL", &self.vhost.amqp_url)
            .env("DATABASE_URL", &self.database.url)
            .env("TIDEGATE_TOPOLOGY_DIR", Self::topology_dir())
            .env(
                "TIDEGATE_HTTP_LISTEN",
                self.health_url.trim_start_matches("http://"),
            )
            .env(
                "TIDEGATE_METRICS_LISTEN",
                self.metrics_url.trim_start_matches("http://"),
            )
            .stdout(self.log("server.log")?)
            .stderr(self.log("server.log")?);
        Ok(command)
    }
}

/// Built into the same directory as this program.
fn binary() -> Result<PathBuf, Problem> {
    let path = std::env::current_exe()?.with_file_name("tidegate");
    match path.is_file() {
        true => Ok(path),
        false => Err(Problem::Missing(format!(
            "{} is not there; run ./dev demo, or: cargo build --bin tidegate",
            path.display()
        ))),
    }
}
