//! `serve`: starts while services are away, tells its state, and stops when told.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::{Child, Stdio},
    time::Duration,
};

use sqlx::PgPool;
use tidegate_testkit::{Database, Vhost, eventually};

use crate::run::{ORDER, Tidegate};

const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Server {
    child: Child,
    http: String,
    metrics: String,
    log: std::thread::JoinHandle<String>,
}

impl Server {
    /// Starts `serve` on free ports and reads from its log which they are.
    pub(crate) fn start(tidegate: &Tidegate, arguments: &[&str]) -> Self {
        let base = [
            "serve",
            "--http-listen",
            "127.0.0.1:0",
            "--metrics-listen",
            "127.0.0.1:0",
        ];
        let mut command = tidegate.command(&[&base[..], arguments].concat());
        let mut child = command
            .env("TIDEGATE_LOG_FORMAT", "json")
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let (mut log, mut http, mut metrics) = (String::new(), None, None);
        while http.is_none() || metrics.is_none() {
            let line = lines.next().unwrap_or_else(|| panic!("it ended: {log}")).unwrap();
            let entry: serde_json::Value = serde_json::from_str(&line).unwrap();
            let address = entry["address"].as_str().map(ToOwned::to_owned);
            match entry["setting"].as_str() {
                Some("http.listen") => http = address,
                Some("metrics.listen") => metrics = address,
                _ => {}
            }
            log.push_str(&line);
        }
        let log = std::thread::spawn(move || {
            lines
                .map_while(Result::ok)
                .fold(log, |log, line| log + &line + "\n")
        });
        Self {
            child,
            http: http.unwrap(),
            metrics: metrics.unwrap(),
            log,
        }
    }

    fn get(address: &str, path: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        (answer[9..12].parse().unwrap(), answer)
    }

    pub(crate) fn signal(&self, name: &str) {
        let status = std::process::Command::new("kill")
            .args(["-s", name, &self.child.id().to_string()])
            .status();
        assert!(status.unwrap().success());
    }

    /// Waits for its end: exit code and log.
    pub(crate) async fn ended(mut self) -> (i32, String) {
        let status = eventually(PATIENCE, "the server's end", async || {
            self.child.try_wait().unwrap()
        })
        .await;
        (status.code().unwrap_or(-1), self.log.join().unwrap())
    }
}

#[tokio::test]
async fn it_runs_while_services_are_away_and_says_so() {
    let tidegate = Tidegate::new()
        .file("topology/platform.toml", "")
        .file("topology/order.toml", ORDER)
        .env("AMQP_URL", "amqp://tide:s3cret-pa55@127.0.0.1:1/v")
        .env("DATABASE_URL", "postgres://tide:s3cret-pa55@127.0.0.1:1/x")
        .env(
            "RUST_LOG",
            "trace,lapin=trace,amq_protocol_tcp=trace,sqlx=trace,hyper=trace",
        );
    let server = Server::start(&tidegate, &["--set", "database.acquire_timeout=300ms"]);
    assert_eq!(Server::get(&server.http, "/livez").0, 200);
    // From the first answer on: a part that has not begun is not ready.
    assert_eq!(Server::get(&server.http, "/readyz").0, 503);
    let mut body = String::new();
    eventually(PATIENCE, "every part that is down", async || {
        let (status, answer) = Server::get(&server.http, "/readyz?verbose");
        assert_eq!(status, 503);
        body = answer;
        ["scheduler", "relay", "topology", "task.failed.queue"]
            .iter()
            .all(|part| body.contains(part))
    })
    .await;
    let (status, metrics) = Server::get(&server.metrics, "/metrics");
    assert_eq!(status, 200);
    assert!(
        metrics.contains("tidegate_role_restarts_total{role=\"relay\"}"),
        "{metrics}"
    );
    assert_eq!(Server::get(&server.http, "/metrics").0, 404);
    server.signal("TERM");
    let (code, log) = server.ended().await;
    assert_eq!(code, 0, "{log}");
    assert!(!log.contains("s3cret-pa55") && !body.contains("s3cret-pa55"));
}

#[tokio::test]
async fn it_turns_ready_and_stops_on_a_signal() {
    let (vhost, database) = (Vhost::create().await, Database::create().await);
    let tidegate = Tidegate::new()
        .file("topology/platform.toml", "")
        .file("topology/order.toml", ORDER)
        .env("AMQP_URL", vhost.amqp_url())
        .env("DATABASE_URL", database.url());
    assert_eq!(tidegate.run(&["migrate"]).code, 0);
    assert_eq!(tidegate.run(&["topology", "apply"]).code, 0);
    let server = Server::start(&tidegate, &[]);
    eventually(PATIENCE, "readiness", async || {
        Server::get(&server.http, "/readyz").0 == 200
    })
    .await;
    server.signal("INT");
    let (code, log) = server.ended().await;
    assert_eq!(code, 0, "{log}");
    vhost.close().await;
    database.close().await;
}

/// With the permissions of `serve` and on a broker where nothing is applied: not ready, what is missing is named, and it
/// goes on by itself once an operator has applied.
#[tokio::test]
async fn without_a_right_to_declare_it_names_what_is_missing() {
    let (vhost, database) = (Vhost::create().await, Database::create().await);
    let tidegate = |url: &str| {
        Tidegate::new()
            .file("topology/platform.toml", "")
            .file("topology/order.toml", ORDER)
            .env("AMQP_URL", url)
            .env("DATABASE_URL", database.url())
    };
    let all = tidegate(vhost.amqp_url());
    assert_eq!(all.run(&["migrate"]).code, 0);
    let granted = all.run(&["topology", "export", "--format", "permissions"]);
    let line = granted
        .stdout
        .lines()
        .find(|line| line.contains("'tidegate-serve'"))
        .unwrap();
    let words: Vec<&str> = line.split('\'').skip(1).step_by(2).collect();
    let [_, _, configure, write, read] = words[..] else {
        panic!("{words:?}")
    };
    let user = format!("serve-{}", vhost.name());
    vhost
        .management()
        .add_user(&user, "s3cret-pa55", (configure, write, read))
        .await;
    let server = Server::start(&tidegate(&vhost.amqp_url_as(&user, "s3cret-pa55")), &[]);
    eventually(PATIENCE, "what is missing", async || {
        let (status, body) = Server::get(&server.http, "/readyz");
        status == 503
            && body.contains("missing on the broker: exchange task.")
            && body.contains("topology apply")
    })
    .await;
    let applied = all.run(&["topology", "apply"]);
    assert_eq!(applied.code, 0, "{applied:?}");
    eventually(PATIENCE, "readiness", async || {
        Server::get(&server.http, "/readyz").0 == 200
    })
    .await;
    server.signal("TERM");
    let (code, log) = server.ended().await;
    assert_eq!(code, 0, "{log}");
    assert!(!log.contains("s3cret-pa55"), "{log}");
    vhost.management().remove_user(&user).await;
    vhost.close().await;
    database.close().await;
}

/// B33: whatever a loop works on is taken from it for a moment, its table or the right to it. Readiness turns red and names the
/// loop, the process lives, and it goes on by itself.
#[tokio::test]
async fn a_loop_that_can_not_work_shows_and_comes_back() {
    let (vhost, database) = (Vhost::create().await, Database::create().await);
    let sql = PgPool::connect(database.url()).await.unwrap();
    let run = async |statement: &str| {
        let statement = sqlx::raw_sql(sqlx::AssertSqlSafe(statement.to_owned()));
        statement.execute(&sql).await.unwrap();
    };
    let tidegate = |url: &str| {
        Tidegate::new()
            .file("topology/platform.toml", "")
            .file("topology/order.toml", ORDER)
            .env("AMQP_URL", vhost.amqp_url())
            .env("DATABASE_URL", url)
    };
    let all = tidegate(database.url());
    assert_eq!(all.run(&["migrate"]).code, 0);
    assert_eq!(all.run(&["topology", "apply"]).code, 0);
    // A role of its own, so that there is a right to take away: the owner can't lose any.
    let role = format!("serve_{}", vhost.name().replace('-', "_"));
    let tables = "SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA tidegate";
    run(&format!(
        "CREATE ROLE {role} LOGIN PASSWORD 's3cret-pa55'; GRANT USAGE ON SCHEMA tidegate TO {role}; GRANT {tables} TO {role}; \
         GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA tidegate TO {role}"
    ))
    .await;
    let (_, rest) = database.url().split_once('@').unwrap();
    let url = format!("postgres://{role}:s3cret-pa55@{rest}");
    let often = ["scheduler.scan_interval=500ms", "retention.interval=1s"];
    let server = Server::start(&tidegate(&url), &["--set", often[0], "--set", often[1]]);
    let ready = async |what: &str, wanted: &[&str]| {
        eventually(PATIENCE, what, async || {
            let (status, body) = Server::get(&server.http, "/readyz");
            match wanted {
                [] => status == 200,
                parts => status == 503 && parts.iter().all(|part| body.contains(part)),
            }
        })
        .await;
        assert_eq!(Server::get(&server.http, "/livez").0, 200);
    };
    ready("readiness", &[]).await;
    let both = "SELECT ON tidegate.tasks, tidegate.cron_tasks";
    let rights = (
        format!("REVOKE {both} FROM {role}"),
        format!("GRANT {both} TO {role}"),
    );
    let [schedules, tasks, keys, archive] =
        ["cron_tasks", "tasks", "executions", "dead_letters"].map(|table| {
            (
                format!("ALTER TABLE tidegate.{table} RENAME TO {table}_away"),
                format!("ALTER TABLE tidegate.{table}_away RENAME TO {table}"),
            )
        });
    for ((take, give_back), parts) in [
        (schedules, &["scheduler"][..]),
        (tasks, &["relay"]),
        (keys, &["retention"]),
        (archive, &["archive_days"]),
        (rights, &["scheduler", "relay"]),
    ] {
        run(&take).await;
        ready(&take, parts).await;
        run(&give_back).await;
        ready(&give_back, &[]).await;
    }
    // Green means that it works: a schedule fires, and its task reaches the queue.
    run("INSERT INTO tidegate.cron_tasks (name, task_type, cron_expression) VALUES ('x', 'order.close.x', '* * * * * *')")
        .await;
    eventually(PATIENCE, "a task of the schedule", async || {
        let queue = vhost.management().queue("order.close.queue").await;
        queue.is_some_and(|queue| queue.messages > 0)
    })
    .await;
    server.signal("TERM");
    let (code, log) = server.ended().await;
    assert!(code == 0 && !log.contains("s3cret-pa55"), "{log}");
    run(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).await;
    sql.close().await;
    vhost.close().await;
    database.close().await;
}
