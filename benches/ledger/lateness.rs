//! How late tasks reach a consumer at a steady 500 a second (`TIDEGATE_BENCH_RATE`): half from cron rows of every second, which
//! are all due at once, half from scheduled tasks at random instants. Scheduler and relay are a process of `tidegate serve`.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use chrono::{DateTime, Utc};
use futures::StreamExt;
use lapin::{
    Connection, ConnectionProperties,
    options::{BasicAckOptions, BasicConsumeOptions, BasicQosOptions},
    types::FieldTable,
};
use tidegate::{
    broker::message,
    core::headers::{self, Origin},
};
use tidegate_testkit::eventually;
use tokio_util::task::AbortOnDropHandle;

use tidegate_testkit::figures::{Figures, Scale};

use crate::ground::{Broker, Database, QUEUE, Server, TASK_TYPE};

/// Tasks a second.
const RATE: u32 = 500;

/// Until the first is due: everything is inserted and noticed by then.
const LEAD: Duration = Duration::from_secs(10);

/// Longest wait for the last.
const PATIENCE: Duration = Duration::from_secs(120);

/// Not counted: connections open, plans are made.
const WARM_UP: Duration = Duration::from_secs(3);

/// Arrivals by kind, in milliseconds after their time.
#[derive(Default)]
struct Late {
    cron: Vec<f64>,
    scheduled: Vec<f64>,
}

pub(crate) async fn measure(scale: &Scale, figures: &mut Figures) {
    let time = scale.time(Duration::from_secs(30));
    let rate = scale.setting("TIDEGATE_BENCH_RATE", RATE);
    let mut runs: Vec<Late> = Vec::new();
    for _ in 0..scale.runs {
        runs.push(run(time, rate / 2).await);
    }
    let mut add = |what: &str, part: f64, of: &dyn Fn(&Late) -> Vec<f64>| {
        let runs = runs.iter().map(|late| percentile(of(late), part)).collect();
        let name = format!("lateness at {} a second, {what}: p{:.0}", rate, 100.0 * part);
        figures.add("lateness", name, "ms", runs);
    };
    for part in [0.5, 0.99] {
        add("all", part, &|late| {
            [&late.cron[..], &late.scheduled[..]].concat()
        });
        add("cron rows", part, &|late| late.cron.clone());
        add("scheduled tasks", part, &|late| late.scheduled.clone());
    }
}

fn percentile(mut all: Vec<f64>, part: f64) -> f64 {
    all.sort_by(f64::total_cmp);
    all[((all.len() - 1) as f64 * part) as usize]
}

async fn run(time: Duration, per_second: u32) -> Late {
    let (broker, database) = (Broker::create().await, Database::create().await);
    let server = Server::start(&broker.vhost, &database).await;
    let (from, to): (DateTime<Utc>, DateTime<Utc>) = sqlx::query_as(
        "SELECT date_trunc('second', now()) + $1 * interval '1 s', date_trunc('second', now()) + ($1 + $2) * interval '1 s'",
    )
    .bind(LEAD.as_secs_f64())
    .bind((WARM_UP + time).as_secs_f64())
    .fetch_one(&database.sql)
    .await
    .unwrap();
    sqlx::query(
        "INSERT INTO tidegate.cron_tasks (name, task_type, cron_expression, starts_at, ends_at) \
         SELECT 'every-second-' || n, $1, '* * * * * *', $2, $3 FROM generate_series(1, $4) n",
    )
    .bind(TASK_TYPE)
    .bind(from)
    .bind(to)
    .bind(per_second as i32)
    .execute(&database.sql)
    .await
    .unwrap();
    sqlx::query(
        "INSERT INTO tidegate.tasks (task_id, task_type, envelope, due_at) \
         SELECT 's-' || n, $1, format('{\"taskId\":\"s-%s\",\"taskType\":\"%s\",\"payload\":{}}', n, $1), $2 + random() * ($3::timestamptz - $2) \
         FROM generate_series(1, $4) n",
    )
    .bind(TASK_TYPE)
    .bind(from)
    .bind(to)
    .bind((f64::from(per_second) * (WARM_UP + time).as_secs_f64()) as i32)
    .execute(&database.sql)
    .await
    .unwrap();
    let late = Arc::new(Mutex::new(Late::default()));
    let counted_from = from + WARM_UP;
    let consuming = AbortOnDropHandle::new(tokio::spawn(consume(
        broker.vhost.amqp_url().to_owned(),
        counted_from,
        Arc::clone(&late),
    )));
    assert!(Utc::now() < from, "everything was inserted in time");
    let scheduled: i64 =
        sqlx::query_scalar("SELECT count(*) FROM tidegate.tasks WHERE origin = 'sql' AND due_at >= $1")
            .bind(counted_from)
            .fetch_one(&database.sql)
            .await
            .unwrap();
    let wait = (to - Utc::now()).to_std().unwrap_or_default();
    tokio::time::sleep(wait).await;
    let expected = (u64::from(per_second) * time.as_secs(), scheduled.unsigned_abs());
    eventually(PATIENCE, "everything to have arrived", async || {
        let late = late.lock().unwrap();
        late.cron.len() as u64 >= expected.0 && late.scheduled.len() as u64 >= expected.1
    })
    .await;
    consuming.abort();
    let late = std::mem::take(&mut *late.lock().unwrap());
    drop(server);
    database.close().await;
    broker.vhost.close().await;
    late
}

async fn consume(url: String, counted_from: DateTime<Utc>, late: Arc<Mutex<Late>>) {
    let connection = Connection::connect(&url, ConnectionProperties::default())
        .await
        .unwrap();
    let channel = connection.create_channel().await.unwrap();
    channel.basic_qos(500, BasicQosOptions::default()).await.unwrap();
    let mut deliveries = channel
        .basic_consume(
            QUEUE.into(),
            "bench".into(),
            BasicConsumeOptions::default(),
            FieldTable::default(),
        )
        .await
        .unwrap();
    while let Some(delivery) = deliveries.next().await {
        let delivery = delivery.unwrap();
        let now = Utc::now();
        let due = message::instant(&delivery.properties, headers::SCHEDULE_TIME).unwrap();
        let milliseconds = (now - due).num_microseconds().unwrap_or(i64::MAX) as f64 / 1_000.0;
        if due >= counted_from {
            let mut late = late.lock().unwrap();
            if message::text(&delivery.properties, headers::ORIGIN) == Some(Origin::Cron.as_str()) {
                late.cron.push(milliseconds);
            } else {
                late.scheduled.push(milliseconds);
            }
        }
        delivery.ack(BasicAckOptions::default()).await.unwrap();
    }
}
