//! Dead letters in the archive, replayed as fast as they are confirmed, beside plain lapin at the same bytes.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tidegate::{
    broker::{BrokerSettings, connection::Link},
    core::{dead_letter_filter::Filter, envelope::Limits},
    deadletter::replay::{
        Replays,
        execute::Ending,
        request::{EditText, Request, options},
    },
};
use tidegate_testkit::{
    figures::{Figures, Scale},
    plain,
};

use crate::ground::{BYTES, Broker, Database, QUEUE, TASK_TYPE, body};

const LETTERS: u32 = 100_000;
const FINGERPRINTS: u32 = 40;

pub(crate) async fn measure(scale: &Scale, figures: &mut Figures) {
    let count = scale.count(LETTERS);
    let bodies: Arc<Vec<String>> = Arc::new((0..count).map(body).collect());
    let broker = Broker::create().await;
    let (mut plain, mut replayed) = (Vec::new(), Vec::new());
    for _ in 0..scale.runs {
        let took = plain::publish(broker.vhost.amqp_url(), "task.exchange", TASK_TYPE, &bodies).await;
        plain.push(f64::from(count) / took.as_secs_f64());
        broker.emptied(count).await;
        replayed.push(f64::from(count) / by_replay(&broker, &bodies).await.as_secs_f64());
        broker.emptied(count).await;
    }
    broker.vhost.close().await;
    let what = format!("{count} dead letters of {FINGERPRINTS} fingerprints, {BYTES} bytes");
    let plain = figures.add(
        "replay",
        format!("{what}: plain lapin, confirmed"),
        "messages/s",
        plain,
    );
    let replayed = figures.add("replay", format!("{what}: replay"), "messages/s", replayed);
    figures.ratio(replayed, plain, "plain lapin");
}

async fn by_replay(broker: &Broker, bodies: &[String]) -> Duration {
    let database = Database::create().await;
    archive(&database, bodies).await;
    database.execute("VACUUM (ANALYZE) tidegate.dead_letters").await;
    database
        .execute("VACUUM (ANALYZE) tidegate.dead_letter_messages")
        .await;
    database
        .execute("VACUUM (ANALYZE) tidegate.dead_letter_counts")
        .await;
    database.execute("CHECKPOINT").await;
    let link = Link::new(
        BrokerSettings::new(broker.vhost.amqp_url().to_owned().into()),
        "replay",
    );
    link.channel().await.unwrap();
    let replays = Replays::new(
        database.store.clone(),
        broker.publisher.clone(),
        link,
        Limits::standard(),
        "bench",
    );
    let ask = |words: &[&str], limit| Request {
        filter: Filter::parse_words(words.iter().copied(), chrono::Utc::now()).unwrap(),
        edit: EditText::default(),
        options: tidegate::core::replay::plan::Options { limit, ..options() },
        who: "bench".to_owned(),
        why: "measured".to_owned(),
    };
    // The connections stand before the clock runs, as those of plain lapin do.
    let first = replays
        .begin(&ask(&["state=open"], Some(1)))
        .await
        .unwrap()
        .unwrap();
    Box::pin(replays.execute(&first, &Ending::default(), &|_| {}))
        .await
        .unwrap();
    let began = Instant::now();
    let hold = replays.begin(&ask(&["state=open"], None)).await.unwrap().unwrap();
    let report = Box::pin(replays.execute(&hold, &Ending::default(), &|_| {}))
        .await
        .unwrap();
    let took = began.elapsed();
    assert_eq!(report.sent as usize, bodies.len() - 1, "{report:?}");
    database.close().await;
    took
}

async fn archive(database: &Database, bodies: &[String]) {
    database
        .execute("SELECT tidegate.dead_letters_make_day((clock_timestamp() AT TIME ZONE 'UTC')::date)")
        .await;
    // As a worker's dead letter has them.
    let properties = format!(
        r#"{{"properties":{{"content_type":"application/json","delivery_mode":2,"type":"{TASK_TYPE}","timestamp":1743595200}},"headers":{{"taskType":{{"t":"S","v":"{TASK_TYPE}"}},"x-task-routing-key":{{"t":"S","v":"{TASK_TYPE}"}},"x-task-attempt":{{"t":"l","v":4}},"x-task-origin":{{"t":"S","v":"amqp"}},"x-task-failed-queue":{{"t":"S","v":"{QUEUE}"}},"x-task-error-kind":{{"t":"S","v":"declined"}},"x-task-error":{{"t":"S","v":"the bank says no"}},"x-task-dead-reason":{{"t":"S","v":"rejected"}}}}}}"#
    );
    // Ids have the time of death in front, as the archivist's do.
    for (at, some) in bodies.chunks(5_000).enumerate() {
        sqlx::query(
            "WITH letters AS (SELECT (t AT TIME ZONE 'UTC')::date AS day, (lpad(to_hex((extract(epoch FROM t) * 1000)::bigint), 12, '0') || substr(md5(body), 1, 20))::uuid AS id, t, body, n \
               FROM unnest($1::text[]) WITH ORDINALITY AS b (body, n), \
                 LATERAL (SELECT greatest(clock_timestamp() - interval '1 hour', date_trunc('day', clock_timestamp(), 'UTC')) \
                   + interval '1 microsecond' * ($6 + n)) AS a (t)\
             ), messages AS (\
               INSERT INTO tidegate.dead_letter_messages (day, id, body, properties) SELECT day, id, convert_to(body, 'UTF8'), $5 FROM letters\
             ) INSERT INTO tidegate.dead_letters (day, id, archived_at, died_at, task_id, task_type, queue, routing_key, reason, \
               error_kind, error, attempts, fingerprint) \
             SELECT day, id, t, t, body::json ->> 'taskId', $2, $3, $2, 'rejected', 'declined', 'the bank says no', 4, \
               decode(md5((n % $4)::text), 'hex') FROM letters",
        )
        .bind(some)
        .bind(TASK_TYPE)
        .bind(QUEUE)
        .bind(i64::from(FINGERPRINTS))
        .bind(&properties)
        .bind((at * 5_000) as i64)
        .execute(&database.sql)
        .await
        .unwrap();
    }
}
