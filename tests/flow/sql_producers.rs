//! `tidegate.enqueue` inside the own transaction of a service, with the drivers of five languages: the task runs once
//! if the transaction commits, and is never seen if it fails after the call (B40).

use std::{
    path::Path,
    process::{Command, Stdio},
};

use secrecy::SecretString;
use sqlx::{Connection, PgConnection, PgPool};
use tidegate::{
    scheduler::relay::{self, RelaySettings},
    store::{Store, StoreSettings},
    telemetry::health::Health,
};
use tidegate_testkit::{Database, python};
use tokio_util::sync::CancellationToken;

use crate::platform::{PATIENCE, Platform};

/// The example is compiled here too: its function is called, its `main` is not.
#[path = "../../examples/producers/transaction/place_order.rs"]
#[allow(dead_code)]
mod place_order;

const PROGRAMS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/producers/transaction");

/// Runs a program of the examples to its end: the task's id, or what it said when it failed.
async fn run(mut command: Command, database: &str, order: &str) -> Result<String, String> {
    command
        .arg(order)
        .env("DATABASE_URL", database)
        .stdin(Stdio::null());
    let running = tokio::task::spawn_blocking(move || {
        command
            .output()
            .unwrap_or_else(|why| panic!("{command:?} does not start: {why}"))
    });
    let output = tokio::time::timeout(4 * PATIENCE, running)
        .await
        .expect("it ends")
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap().trim().to_owned();
    if output.status.success() {
        Ok(text(output.stdout))
    } else {
        Err(text(output.stderr))
    }
}

/// `place` with a database's URL and an order places an order, fails to place it again, and places another.
async fn places_orders(place: impl AsyncFn(&str, &str) -> Result<String, String>) {
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

    let first = place(database.url(), "o-1").await.unwrap();
    assert_eq!(seen.wait(1).await[0].task_id, first);
    let told = place(database.url(), "o-1").await.unwrap_err();
    assert!(told.contains("orders_pkey"), "the order is there already: {told}");
    let second = place(database.url(), "o-2").await.unwrap();
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn psycopg_enqueues_in_its_own_transaction() {
    let python = python("psycopg");
    places_orders(async |database, order| {
        let mut command = Command::new(&python);
        command.arg(file("place_order.py"));
        run(command, database, order).await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_postgres_enqueues_in_its_own_transaction() {
    places_orders(async |database, order| {
        let mut command = Command::new("node");
        command
            .arg(file("place_order.js"))
            // Where Debian's node-pg is; one from npm is found beside the program.
            .env("NODE_PATH", "/usr/share/nodejs");
        run(command, database, order).await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jdbc_enqueues_in_its_own_transaction() {
    places_orders(async |database, order| {
        let mut command = Command::new("java");
        command
            .args(["-cp", "/usr/share/java/postgresql.jar"])
            .arg(file("PlaceOrder.java"));
        run(command, database, order).await
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
    places_orders(async |database, order| run(Command::new(&binary), database, order).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlx_enqueues_in_its_own_transaction() {
    places_orders(async |database, order| {
        let mut connection = PgConnection::connect(database).await.unwrap();
        let placed = place_order::place_order(&mut connection, order).await;
        connection.close().await.unwrap();
        placed.map_err(|error| error.to_string())
    })
    .await;
}
