//! A second Postgres that follows a first one, to take over.

use std::{
    net::TcpListener,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use sqlx::{Connection, PgConnection};
use tempfile::TempDir;

use crate::{Process, Services, database::block_on, eventually};

const PATIENCE: Duration = Duration::from_secs(60);

/// A hot standby; stopped and removed when dropped.
#[derive(Debug)]
pub struct Replica {
    // Before its directory goes.
    process: Process,
    _data: TempDir,
    url: String,
    primary: String,
}

impl Replica {
    /// Copies the Postgres of `services`, which must be private and of the newest version installed, and follows it. From then
    /// on that Postgres waits with each commit until the replica has it.
    pub async fn of(services: &Services) -> Self {
        let data = tempfile::Builder::new()
            .prefix("tidegate-replica-")
            // Postgres takes no directory that others can read.
            .permissions(std::fs::Permissions::from_mode(0o700))
            .tempdir()
            .expect("a temporary directory can be made");
        let port = TcpListener::bind("127.0.0.1:0")
            .and_then(|listener| listener.local_addr())
            .expect("a port is free")
            .port();
        // Postgres refuses to run as root.
        let is_root = run(Command::new("id").arg("-u")).trim() == "0";
        if is_root {
            run(Command::new("chown").arg("postgres").arg(data.path()));
        }
        let mut copy = command("pg_basebackup", is_root);
        copy.arg("--dbname").arg(&services.database);
        copy.args(["--write-recovery-conf", "--checkpoint=fast", "--pgdata"]);
        copy.arg(data.path());
        tokio::task::spawn_blocking(move || run(&mut copy))
            .await
            .expect("the copy ends");
        let mut start = command("postgres", is_root);
        start.arg("-D").arg(data.path()).args(["-p", &port.to_string()]);
        for setting in [
            "listen_addresses=127.0.0.1",
            "unix_socket_directories=",
            // At least what the primary has.
            "max_connections=200",
        ] {
            start.args(["-c", setting]);
        }
        let process = Process::start("replica", &mut start);
        let url = with_port(&services.database, port);
        let replica = Self {
            process,
            _data: data,
            url,
            primary: services.database.clone(),
        };
        follow(&services.database, "*").await;
        let mut primary = PgConnection::connect(&services.database)
            .await
            .expect("the primary answers");
        eventually(PATIENCE, "the replica to follow", async || {
            let state = "SELECT coalesce(max(sync_state), 'none') FROM pg_stat_replication";
            sqlx::query_scalar::<_, String>(state)
                .fetch_one(&mut primary)
                .await
                .is_ok_and(|state| state == "sync")
        })
        .await;
        replica
    }

    /// Where it is: the URL of the primary with its own port.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Makes it a primary of its own, and waits until it takes writes.
    pub async fn promote(&self) {
        let mut connection = PgConnection::connect(&self.url)
            .await
            .unwrap_or_else(|why| panic!("the replica answers: {why}\n{}", self.process.output()));
        let done: bool = sqlx::query_scalar("SELECT pg_promote()")
            .fetch_one(&mut connection)
            .await
            .expect("it is a standby");
        assert!(done, "promoted in time");
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        // Or whatever is still to be removed there would wait for it.
        let primary = self.primary.clone();
        block_on(async move { follow(&primary, "").await });
    }
}

/// Whom the primary waits for with each commit.
async fn follow(primary: &str, standbys: &str) {
    let mut primary = PgConnection::connect(primary).await.expect("the primary answers");
    for order in [
        format!("ALTER SYSTEM SET synchronous_standby_names = '{standbys}'"),
        "SELECT pg_reload_conf()".to_owned(),
    ] {
        let order = sqlx::query(sqlx::AssertSqlSafe(order));
        order
            .execute(&mut primary)
            .await
            .expect("the user may configure it");
    }
}

/// A program of Postgres, as a user that it accepts.
fn command(program: &str, is_root: bool) -> Command {
    let program = newest().join(program);
    if !is_root {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args([
        "--reuid",
        "postgres",
        "--regid",
        "postgres",
        "--init-groups",
        "--",
    ]);
    command.arg(program).current_dir("/");
    command
}

/// Where the programs of the newest Postgres are, as `./dev` finds them.
fn newest() -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten();
    let version = versions
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .max()
        .expect("Postgres is installed: on Debian, apt-get install postgresql");
    Path::new("/usr/lib/postgresql")
        .join(version.to_string())
        .join("bin")
}

fn run(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|why| panic!("{command:?}: {why}"));
    assert!(
        output.status.success(),
        "{:?}: {}",
        command.get_program(),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn with_port(url: &str, port: u16) -> String {
    let (before, rest) = url.rsplit_once(':').expect("the URL has a port");
    let after = rest.find('/').map_or("", |at| &rest[at..]);
    format!("{before}:{port}{after}")
}
