//! `tidegate.enqueue` inside the own transaction of a service, with the drivers of five languages: the task runs once
//! if the transaction commits, and is never seen if it fails after the call (B40).

use std::{
    path::Path,
    process::{Command, Output, Stdio},
};

use secrecy::SecretString;
use sqlx::PgPool;
use tidegate::{
    scheduler::relay::{self, RelaySettings},
    store::{Store, StoreSettings},
    telemetry::health::Health,
};
use tidegate_testkit::Database;
use tokio_util::sync::CancellationToken;

use crate::platform::{PATIENCE, Platform};

const PROGRAMS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/producers/transaction");

/// Runs a program of the examples to its end.
async fn run(mut command: Command, database: &Database, order: &str) -> Output {
    command
        .arg(order)
        .env("DATABASE_URL", database.url())
        .stdin(Stdio::null());
    let running = tokio::task::spawn_blocking(move || {
        command
            .output()
            .unwrap_or_else(|why| panic!("{command:?} does not start: {why}"))
    });
    tokio::time::timeout(4 * PATIENCE, running)
        .await
        .expect("it ends")
        .unwrap()
}

/// The program's task id; fails with what it said if it failed.
fn task_id(output: &Output) -> String {
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout.clone())
        .unwrap()
        .trim()
        .to_owned()
}

/// `program` places an order, fails to place it again, and places another.
async fn places_orders(program: impl Fn() -> Command) {
    let (platform, database) = (Platform::new().await, Database::create().await);
    let url = SecretString::from(database.url().to_owned());
    let store = Store::connect(&url, &StoreSettings::default()).unwrap();
    store.migrate().await.unwrap();
    let sql = PgPool::connect(database.url()).await.unwrap();
    let schema = std::fs::read_to_string(Path::new(PROGRAMS).join("schema.sql")).unwrap();
    sqlx::raw_sql(sqlx::AssertSqlSafe(schema))
        .execute(&sql)
        .await
        .unwrap();
    let cancel = CancellationToken::new();
    let relay = tokio::spawn(relay::run(
        store.clone(),
        platform.tasks.clone(),
        RelaySettings::default(),
        Health::default(),
        cancel.clone(),
    ));
    let seen = platform.listening();

    let first = task_id(&run(program(), &database, "o-1").await);
    assert_eq!(seen.wait(1).await[0].task_id, first);
    let again = run(program(), &database, "o-1").await;
    assert!(!again.status.success(), "the order is there already");
    let told = String::from_utf8_lossy(&again.stderr).to_lowercase();
    assert!(told.contains("orders_pkey"), "{told}");
    let second = task_id(&run(program(), &database, "o-2").await);
    // A task of the failed transaction would have been due before this one.
    seen.wait(2).await;
    assert_eq!(seen.ids(), [first.clone(), second.clone()]);
    let mut ids: Vec<String> = sqlx::query_scalar("SELECT task_id FROM tidegate.tasks ORDER BY created_at")
        .fetch_all(&sql)
        .await
        .unwrap();
    assert_eq!(ids, [first.clone(), second.clone()]);
    ids = sqlx::query_scalar("SELECT close_task_id FROM orders ORDER BY id")
        .fetch_all(&sql)
        .await
        .unwrap();
    assert_eq!(ids, [first, second]);
    platform.drained("order.close.queue").await;

    cancel.cancel();
    tokio::time::timeout(PATIENCE, relay)
        .await
        .expect("it stops")
        .unwrap()
        .unwrap();
    sql.close().await;
    store.close().await;
    platform.close().await;
    database.close().await;
}

fn file(name: &str) -> String {
    format!("{PROGRAMS}/{name}")
}

/// A Python that has psycopg: Debian's package is in none but Debian's own.
fn python() -> String {
    let named = std::env::var("TIDEGATE_PYTHON").ok();
    let candidates = named
        .into_iter()
        .chain(["python3", "/usr/bin/python3"].map(str::to_owned));
    let has = |python: &String| {
        let look = Command::new(python)
            .args(["-c", "import psycopg"])
            .stderr(Stdio::null())
            .status();
        look.is_ok_and(|status| status.success())
    };
    candidates
        .into_iter()
        .find(has)
        .expect("no Python with psycopg 3; ./dev test installs python3-psycopg")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn psycopg_enqueues_in_its_own_transaction() {
    let python = python();
    places_orders(|| {
        let mut command = Command::new(&python);
        command.arg(file("place_order.py"));
        command
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_postgres_enqueues_in_its_own_transaction() {
    places_orders(|| {
        let mut command = Command::new("node");
        command
            .arg(file("place_order.js"))
            // Where Debian's node-pg is.
            .env("NODE_PATH", "/usr/share/nodejs");
        command
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jdbc_enqueues_in_its_own_transaction() {
    places_orders(|| {
        let mut command = Command::new("java");
        command
            .args(["-cp", "/usr/share/java/postgresql.jar"])
            .arg(file("PlaceOrder.java"));
        command
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pgx_enqueues_in_its_own_transaction() {
    let dir = tempfile::tempdir().unwrap();
    let binary = dir.path().join("place_order");
    let mut build = Command::new("go");
    build
        .arg("build")
        .arg("-o")
        .arg(&binary)
        .current_dir(file("go"))
        .env("GOFLAGS", "-mod=readonly");
    let built = tokio::task::spawn_blocking(move || build.output())
        .await
        .unwrap()
        .expect("no Go; ./dev test installs golang-go");
    assert!(
        built.status.success(),
        "{}",
        String::from_utf8_lossy(&built.stderr)
    );
    places_orders(|| Command::new(&binary)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlx_enqueues_in_its_own_transaction() {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    places_orders(|| {
        let mut command = Command::new(&cargo);
        command
            .args(["run", "--quiet", "--example", "place_order", "--"])
            .current_dir(env!("CARGO_MANIFEST_DIR"));
        command
    })
    .await;
}
