//! `tidegate serve` as a process.

use std::{process::Command, time::Duration};

use tidegate_testkit::{Process, eventually};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::installation::PATIENCE;

#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) process: Process,
    http: String,
    metrics: String,
}

impl Server {
    pub(crate) fn arguments<'a>(more: &[&'a str]) -> Vec<&'a str> {
        let base = [
            "serve",
            "--http-listen",
            "127.0.0.1:0",
            "--metrics-listen",
            "127.0.0.1:0",
        ];
        [&base[..], more].concat()
    }

    /// Starts `command` and reads from its log where it listens.
    pub(crate) async fn start(mut command: Command) -> Self {
        command.env("TIDEGATE_LOG_FORMAT", "json");
        let mut process = Process::start("serve", &mut command);
        let [http, metrics] = eventually(PATIENCE, "serve to listen", async || {
            assert!(process.is_running(), "serve has ended:\n{}", process.output());
            let log = process.output();
            let of = |setting: &str| {
                let lines = log
                    .lines()
                    .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
                lines.into_iter().find(|l| l["setting"] == setting)?["address"]
                    .as_str()
                    .map(ToOwned::to_owned)
            };
            Some([of("http.listen")?, of("metrics.listen")?])
        })
        .await;
        Self {
            process,
            http,
            metrics,
        }
    }

    /// Status and body of `/readyz`.
    pub(crate) async fn readyz(&self) -> (u16, String) {
        get(&self.http, "/readyz?verbose").await
    }

    pub(crate) async fn wait_ready(&self) {
        eventually(PATIENCE, "serve to be ready", async || {
            self.readyz().await.0 == 200
        })
        .await;
    }

    /// The value of a metric with exactly these labels.
    pub(crate) async fn metric(&self, name_and_labels: &str) -> Option<f64> {
        let (_, body) = get(&self.metrics, "/metrics").await;
        body.lines()
            .find_map(|line| line.strip_prefix(name_and_labels)?.trim().parse().ok())
    }

    /// CPU time used so far.
    pub(crate) fn cpu(&self) -> Duration {
        self.process.cpu()
    }
}

async fn get(address: &str, path: &str) -> (u16, String) {
    let ask = async {
        let mut stream = TcpStream::connect(address).await?;
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok::<_, std::io::Error>(answer)
    };
    let answer = tokio::time::timeout(PATIENCE, ask)
        .await
        .expect("serve answers in time")
        .expect("serve answers");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    (head[9..12].parse().unwrap(), body.to_owned())
}
