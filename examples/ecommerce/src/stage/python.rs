//! The consumer that is no worker of Tidegate's: `python/consumer.py`, with pika and nothing else.

use std::{path::PathBuf, process::Stdio, time::Duration};

use chrono::{DateTime, Utc};
use serde::Deserialize;
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    process::{ChildStdout, Command},
    time::timeout,
};

use super::{Child, Stage};
use crate::{
    journal::{Ended, Run},
    problem::Problem,
    shop::Shop,
};

/// A line of its output.
#[derive(Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
enum Said {
    Ready,
    Lost {
        why: String,
    },
    Run {
        key: String,
        attempt: u32,
        started: DateTime<Utc>,
        ended: Ended,
    },
}

impl Stage {
    pub(super) async fn start_python(&mut self, shop: &Shop) -> Result<(), Problem> {
        let python = find_python().await?;
        let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("python/consumer.py");
        let mut command = Command::new(&python);
        command
            .arg(script)
            .env("AMQP_URL", &self.vhost.amqp_url)
            .stdout(Stdio::piped())
            .stderr(self.log("python.log")?);
        let mut child = Child::start(command)?;
        let stdout = child.stdout();
        self.python = Some(child);
        let Some(stdout) = stdout else {
            return Err(Problem::Child("the Python consumer has no output".to_owned()));
        };
        let mut lines = BufReader::new(stdout).lines();
        match timeout(Duration::from_secs(20), listen(&mut lines, shop, true)).await {
            Ok(true) => {}
            Ok(false) => return Err(Problem::Child(format!("the consumer ended at once ({python})"))),
            Err(_) => {
                return Err(Problem::Child(format!(
                    "the consumer is not ready after 20 s ({python})"
                )));
            }
        }
        self.narrator.say(
            "stage",
            "a plain Python consumer (pika, no SDK) serves notify.push.queue",
        );
        let shop = shop.clone();
        tokio::spawn(async move { listen(&mut lines, &shop, false).await });
        Ok(())
    }
}

/// Writes down what it says, until it is ready or ends; `false` at its end.
async fn listen(lines: &mut Lines<BufReader<ChildStdout>>, shop: &Shop, until_ready: bool) -> bool {
    while let Ok(Some(line)) = lines.next_line().await {
        match serde_json::from_str(&line) {
            Ok(Said::Ready) if until_ready => return true,
            Ok(Said::Ready) => {}
            Ok(Said::Lost { why }) => shop
                .narrator
                .say("python", format_args!("lost the broker: {why}")),
            Ok(Said::Run {
                key,
                attempt,
                started,
                ended,
            }) => {
                let what = match ended {
                    Ended::Done => "notice pushed, ack",
                    Ended::Failed | Ended::Rejected => "could not push, nack(requeue=False)",
                };
                let shown: String = key.chars().take(40).collect();
                shop.narrator
                    .say("python", format_args!("attempt {attempt}: {what} ({shown})"));
                shop.journal.ran(Run {
                    key,
                    attempt,
                    started,
                    ended,
                });
            }
            Err(_) => shop.narrator.say("python", line),
        }
    }
    false
}

/// The first Python that has pika. A version manager's `python3` often lacks what the system's has.
async fn find_python() -> Result<String, Problem> {
    let named = std::env::var("TIDEGATE_PYTHON")
        .ok()
        .filter(|named| !named.is_empty());
    for candidate in named
        .into_iter()
        .chain(["python3".to_owned(), "/usr/bin/python3".to_owned()])
    {
        let mut import = Command::new(&candidate);
        import
            .args(["-c", "import pika"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true);
        if let Ok(Ok(status)) = timeout(Duration::from_secs(20), import.status()).await
            && status.success()
        {
            return Ok(candidate);
        }
    }
    let advice =
        "apt-get install python3-pika, or: pip install pika; TIDEGATE_PYTHON names another interpreter";
    Err(Problem::Missing(format!(
        "no Python with the module pika was found; {advice}"
    )))
}
