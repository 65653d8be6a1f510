//! Tasks that are due, handed over to the broker, against plain lapin publishing the same bytes with confirms in the same run.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures::{StreamExt, stream::FuturesUnordered};
use lapin::{
    BasicProperties, Confirmation, Connection, ConnectionProperties,
    options::{BasicPublishOptions, ConfirmSelectOptions, QueuePurgeOptions},
};
use tidegate::{
    scheduler::relay::{self, RelaySettings},
    telemetry::health::Health,
};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::{
    figures::{Figures, Scale},
    ground::{Broker, Database, QUEUE, TASK_TYPE},
};

const TASKS: u32 = 50_000;
const BYTES: usize = 1_000;

/// As many connections and unconfirmed messages as the relay's publisher has.
const CONNECTIONS: usize = 2;
const IN_FLIGHT: usize = 1_000;

pub(crate) async fn measure(scale: &Scale, figures: &mut Figures) {
    let tasks = scale.count(TASKS);
    let bodies: Arc<Vec<String>> = Arc::new((0..tasks).map(body).collect());
    let broker = Broker::create().await;
    let (mut plain, mut relayed) = (Vec::new(), Vec::new());
    for _ in 0..scale.runs {
        plain.push(f64::from(tasks) / by_lapin(&broker, &bodies).await.as_secs_f64());
        emptied(&broker, tasks).await;
        relayed.push(f64::from(tasks) / by_relay(&broker, &bodies).await.as_secs_f64());
        emptied(&broker, tasks).await;
    }
    broker.vhost.close().await;
    let what = format!("{tasks} tasks of {BYTES} bytes");
    let plain = figures.add(
        "relay",
        format!("{what}: plain lapin, confirmed"),
        "tasks/s",
        plain,
    );
    let relayed = figures.add("relay", format!("{what}: relay"), "tasks/s", relayed);
    figures.ratio(relayed, plain, "plain lapin");
}

fn body(n: u32) -> String {
    let start = format!(r#"{{"taskId":"bench-{n:08}","taskType":"{TASK_TYPE}","payload":{{"pad":""#);
    let pad = BYTES - start.len() - 3;
    format!("{start}{}\"}}}}", "x".repeat(pad))
}

async fn by_lapin(broker: &Broker, bodies: &Arc<Vec<String>>) -> Duration {
    let mut publishers = JoinSet::new();
    let mut channels = Vec::new();
    for _ in 0..CONNECTIONS {
        let connection = Connection::connect(broker.vhost.amqp_url(), ConnectionProperties::default())
            .await
            .unwrap();
        let channel = connection.create_channel().await.unwrap();
        channel
            .confirm_select(ConfirmSelectOptions::default())
            .await
            .unwrap();
        channels.push((connection, channel));
    }
    let began = Instant::now();
    for (at, (connection, channel)) in channels.into_iter().enumerate() {
        let bodies = Arc::clone(bodies);
        publishers.spawn(async move {
            let mut confirms = FuturesUnordered::new();
            for (n, body) in bodies.iter().enumerate().skip(at).step_by(CONNECTIONS) {
                if confirms.len() >= IN_FLIGHT {
                    confirmed(confirms.next().await);
                }
                let properties = BasicProperties::default()
                    .with_delivery_mode(2)
                    .with_content_type("application/json".into())
                    .with_type(TASK_TYPE.into())
                    .with_message_id(format!("bench-{n:08}").into());
                let options = BasicPublishOptions {
                    mandatory: true,
                    ..BasicPublishOptions::default()
                };
                let sent = channel
                    .basic_publish(
                        "task.exchange".into(),
                        TASK_TYPE.into(),
                        options,
                        body.as_bytes(),
                        properties,
                    )
                    .await;
                confirms.push(sent.unwrap());
            }
            while let Some(confirm) = confirms.next().await {
                confirmed(Some(confirm));
            }
            connection.close(200, "done".into()).await.unwrap();
        });
    }
    while let Some(ended) = publishers.join_next().await {
        ended.unwrap();
    }
    began.elapsed()
}

fn confirmed(confirm: Option<lapin::Result<Confirmation>>) {
    assert!(
        matches!(confirm, Some(Ok(Confirmation::Ack(None)))),
        "{confirm:?}"
    );
}

async fn by_relay(broker: &Broker, bodies: &[String]) -> Duration {
    let database = Database::create().await;
    sqlx::query(
        "INSERT INTO tidegate.tasks (task_id, task_type, envelope) \
         SELECT body::json ->> 'taskId', $2, body FROM unnest($1::text[]) body",
    )
    .bind(bodies)
    .bind(TASK_TYPE)
    .execute(&database.sql)
    .await
    .unwrap();
    database.settle().await;
    // The connections stand before the clock runs, as those of plain lapin do.
    let first = RelaySettings {
        batch: 1,
        ..RelaySettings::default()
    };
    relay::pass(&database.store, &broker.publisher, &first)
        .await
        .unwrap();
    let cancel = CancellationToken::new();
    let began = Instant::now();
    let running = tokio::spawn(relay::run(
        database.store.clone(),
        broker.publisher.clone(),
        RelaySettings::default(),
        Health::default(),
        cancel.clone(),
    ));
    let left = "SELECT EXISTS (SELECT FROM tidegate.tasks WHERE ready_at IS NOT NULL)";
    while sqlx::query_scalar::<_, bool>(left)
        .fetch_one(&database.sql)
        .await
        .unwrap()
    {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let took = began.elapsed();
    cancel.cancel();
    running.await.unwrap().unwrap();
    database.close().await;
    took
}

/// Empties the queue, which must hold at least so many.
async fn emptied(broker: &Broker, at_least: u32) {
    let connection = Connection::connect(broker.vhost.amqp_url(), ConnectionProperties::default())
        .await
        .unwrap();
    let channel = connection.create_channel().await.unwrap();
    let count = channel
        .queue_purge(QUEUE.into(), QueuePurgeOptions::default())
        .await
        .unwrap();
    assert!(
        count >= at_least,
        "{count} messages of {at_least} were on the queue"
    );
    connection.close(200, "done".into()).await.unwrap();
}
