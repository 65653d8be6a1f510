//! A row of every five seconds after a month in which nobody looked: half a million occurrences, by each misfire policy.

use std::time::{Duration, Instant};

use tidegate::{
    scheduler::claim::{self, ClaimSettings},
    telemetry::health::Health,
};

use tidegate_testkit::figures::{Figures, Scale};

use crate::ground::Database;

const MONTH: Duration = Duration::from_secs(30 * 86_400);

pub(crate) async fn measure(scale: &Scale, figures: &mut Figures) {
    let outage = scale.time(MONTH);
    for policy in ["fire_once", "skip", "catch_up"] {
        let (mut times, mut written) = (Vec::new(), (0, 0));
        for _ in 0..scale.runs {
            let (took, rows, occurrences) = run(policy, outage).await;
            times.push(took.as_secs_f64() * 1_000.0);
            written = (rows, occurrences);
        }
        let what = format!(
            "{} of a five-second row, `{policy}`: {} occurrences in {} rows of cron_fires",
            humantime::format_duration(Duration::from_secs(outage.as_secs())),
            written.1,
            written.0
        );
        figures.add("outage", what, "ms", times);
    }
}

/// How long it took to account for everything, in how many rows, for how many occurrences.
async fn run(policy: &str, outage: Duration) -> (Duration, i64, i64) {
    let database = Database::create().await;
    database.store.ping().await.unwrap();
    sqlx::query(
        "INSERT INTO tidegate.cron_tasks (name, task_type, cron_expression, misfire_policy, next_fire_at) \
         VALUES ('five', 'bench.work', '*/5 * * * * *', $1, \
           to_timestamp(5 * floor((extract(epoch FROM now()) - $2) / 5)))",
    )
    .bind(policy)
    .bind(outage.as_secs_f64())
    .execute(&database.sql)
    .await
    .unwrap();
    let began = Instant::now();
    claim::pass(&database.store, &ClaimSettings::default(), &Health::default())
        .await
        .unwrap();
    let took = began.elapsed();
    let (rows, occurrences): (i64, i64) =
        sqlx::query_as("SELECT count(*), coalesce(sum(occurrences), 0)::bigint FROM tidegate.cron_fires")
            .fetch_one(&database.sql)
            .await
            .unwrap();
    let least = outage.as_secs_f64() as i64 / 5;
    assert!(occurrences >= least, "{occurrences} of {least} are accounted for");
    database.close().await;
    (took, rows, occurrences)
}
