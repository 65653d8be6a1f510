//! The kit against real services.

#![allow(clippy::unwrap_used, reason = "a test ends with it")]

use std::{process::Command, time::Duration};

use lapin::{
    Connection, ConnectionProperties,
    options::{BasicGetOptions, ConfirmSelectOptions, QueueDeclareOptions},
    types::{AMQPValue, FieldTable},
};
use serde_json::json;
use sqlx::{Connection as _, Executor, PgConnection};
use tidegate_testkit::{Database, PrivateServices, Process, Services, Vhost, eventually, services};

const PATIENCE: Duration = Duration::from_secs(30);

async fn declare(connection: &Connection, queue: &str) {
    let channel = connection.create_channel().await.unwrap();
    let mut arguments = FieldTable::default();
    arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
    let durable = QueueDeclareOptions {
        durable: true,
        ..Default::default()
    };
    channel
        .queue_declare(queue.into(), durable, arguments)
        .await
        .unwrap();
    channel.close(200, "declared".into()).await.unwrap();
}

async fn vhost_exists(services: &Services, name: &str) -> bool {
    let client = reqwest::Client::new();
    let url = format!("{}/api/vhosts/{name}", services.management);
    client.get(url).send().await.unwrap().status().is_success()
}

#[tokio::test]
async fn a_vhost_carries_messages_and_vanishes() {
    let vhost = Vhost::create().await;
    let connection = Connection::connect(vhost.amqp_url(), ConnectionProperties::default())
        .await
        .unwrap();
    declare(&connection, "a queue/with marks").await;
    let management = vhost.management();
    let properties = json!({"headers": {"x-one": "1"}, "delivery_mode": 2});
    assert!(
        management
            .publish("", "a queue/with marks", b"\x00\xff", properties)
            .await
    );
    assert!(!management.publish("", "no such queue", b"", json!({})).await);
    eventually(PATIENCE, "the count", async || {
        let queue = management.queue("a queue/with marks").await.unwrap();
        queue.messages_ready == 1
    })
    .await;
    let taken = management.take("a queue/with marks", 5).await;
    assert_eq!(taken.len(), 1);
    assert_eq!(taken[0].body, b"\x00\xff");
    assert_eq!(taken[0].properties["headers"]["x-one"], "1");
    eventually(PATIENCE, "the connection to be listed", async || {
        management.connection_names().await.len() == 1
    })
    .await;
    management.close_connections().await;
    eventually(PATIENCE, "the connection to be closed", async || {
        !connection.status().connected()
    })
    .await;

    let name = vhost.name().to_owned();
    assert!(vhost_exists(&services(), &name).await);
    vhost.close().await;
    assert!(!vhost_exists(&services(), &name).await);
}

/// A failing test drops its vhost and database inside of its runtime.
#[tokio::test]
async fn what_is_dropped_is_removed_too() {
    let vhost = Vhost::create().await;
    let database = Database::create().await;
    let (name, url) = (vhost.name().to_owned(), database.url().to_owned());
    let mut connection = PgConnection::connect(&url).await.unwrap();
    connection.execute("SELECT 1").await.unwrap();
    drop((vhost, database));
    assert!(!vhost_exists(&services(), &name).await);
    assert!(PgConnection::connect(&url).await.is_err());
}

#[tokio::test]
async fn a_process_is_watched_stopped_and_killed() {
    let trap = "trap 'echo stopped; exit 7' TERM; echo ready; while :; do sleep 0.05; done";
    let mut polite = Process::start("polite", Command::new("sh").args(["-c", trap]));
    polite.printed(PATIENCE, "ready").await;
    polite.terminate();
    assert_eq!(polite.wait(PATIENCE).await.code(), Some(7));
    assert!(polite.output().contains("stopped"));

    let mut busy = Process::start("busy", Command::new("sleep").arg("600"));
    assert!(busy.is_running());
    busy.kill();
    assert!(!busy.is_running());
}

#[tokio::test]
#[should_panic(expected = "in vain for the impossible")]
async fn waiting_has_an_end() {
    eventually(Duration::from_millis(20), "the impossible", async || false).await;
}

/// What was confirmed or committed is there after a kill.
#[tokio::test(flavor = "multi_thread")]
async fn private_services_survive_being_killed() {
    let private = PrivateServices::start().await;
    let vhost = Vhost::create_on(private.services()).await;
    let database = Database::create_on(private.services()).await;
    let connection = Connection::connect(vhost.amqp_url(), ConnectionProperties::default())
        .await
        .unwrap();
    declare(&connection, "kept").await;
    let channel = connection.create_channel().await.unwrap();
    channel
        .confirm_select(ConfirmSelectOptions::default())
        .await
        .unwrap();
    let properties = lapin::BasicProperties::default().with_delivery_mode(2);
    let publish = channel.basic_publish(
        "".into(),
        "kept".into(),
        lapin::options::BasicPublishOptions::default(),
        b"survives",
        properties,
    );
    publish.await.unwrap().await.unwrap();
    let mut sql = PgConnection::connect(database.url()).await.unwrap();
    sql.execute("CREATE TABLE kept AS SELECT 42 AS n").await.unwrap();

    // RabbitMQ 3.10 keeps a new quorum queue's registration in memory for half a second: killed before, the queue comes back
    // without a leader, for good. Nothing tells when it is on disk.
    tokio::time::sleep(Duration::from_secs(2)).await;
    private.kill_broker().await;
    private.kill_postgres().await;
    assert!(
        Connection::connect(vhost.amqp_url(), ConnectionProperties::default())
            .await
            .is_err()
    );
    assert!(PgConnection::connect(database.url()).await.is_err());
    private.start_broker().await;
    private.start_postgres().await;

    let connection = Connection::connect(vhost.amqp_url(), ConnectionProperties::default())
        .await
        .unwrap();
    eventually(PATIENCE, "the message that was confirmed", async || {
        // An answer of "no leader yet" closes the channel.
        let channel = connection.create_channel().await.unwrap();
        let got = channel
            .basic_get("kept".into(), BasicGetOptions { no_ack: true })
            .await;
        got.ok()
            .flatten()
            .map(|m| assert_eq!(m.delivery.data, b"survives"))
    })
    .await;
    let mut sql = PgConnection::connect(database.url()).await.unwrap();
    let kept: i32 = sqlx::query_scalar("SELECT n FROM kept")
        .fetch_one(&mut sql)
        .await
        .unwrap();
    assert_eq!(kept, 42);
    database.close().await;
    vhost.close().await;
}
