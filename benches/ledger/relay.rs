//! Tasks that are due, handed over to the broker, against plain lapin publishing the same bytes with confirms in the same run.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tidegate::{
    scheduler::relay::{self, RelaySettings},
    telemetry::health::Health,
};
use tidegate_testkit::{
    figures::{Figures, Scale},
    plain,
};
use tokio_util::sync::CancellationToken;

use crate::ground::{BYTES, Broker, Database, TASK_TYPE, body};

const TASKS: u32 = 50_000;

pub(crate) async fn measure(scale: &Scale, figures: &mut Figures) {
    let tasks = scale.count(TASKS);
    let bodies: Arc<Vec<String>> = Arc::new((0..tasks).map(body).collect());
    let broker = Broker::create().await;
    let (mut plain, mut relayed) = (Vec::new(), Vec::new());
    for _ in 0..scale.runs {
        plain.push(
            f64::from(tasks)
                / plain::publish(broker.vhost.amqp_url(), "task.exchange", TASK_TYPE, &bodies)
                    .await
                    .as_secs_f64(),
        );
        broker.emptied(tasks).await;
        relayed.push(f64::from(tasks) / by_relay(&broker, &bodies).await.as_secs_f64());
        broker.emptied(tasks).await;
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
