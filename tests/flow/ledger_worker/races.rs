//! `cancel` against due now: the row decides, whoever is faster.

use std::{
    collections::{BTreeMap, HashSet},
    time::Duration,
};

use futures::{StreamExt, stream};
use sqlx::PgPool;
use tidegate_testkit::eventually;

use super::installation::{Installation, QUEUE, TASK};
use crate::platform::{PATIENCE, Seen, noting};

/// Cancels as anybody may.
pub(super) async fn cancel(sql: &PgPool, id: &str) -> String {
    sqlx::query_scalar("SELECT tidegate.cancel($1)")
        .bind(id)
        .fetch_one(sql)
        .await
        .unwrap()
}

/// 500 races, 10,000 with `TIDEGATE_LONG=1`: due at once, cancelled within the time that a task takes.
#[tokio::test(flavor = "multi_thread")]
async fn no_task_is_both_cancelled_and_run() {
    let races = if std::env::var_os("TIDEGATE_LONG").is_some() {
        10_000
    } else {
        500
    };
    let installation = Installation::new().await;
    let seen = Seen::default();
    installation.platform.run(
        installation
            .worker()
            .concurrency(50)
            .prefetch(100)
            .handle(TASK, noting(&seen)),
    );
    let mut answers: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for round in 0..races / 100 {
        let ids: Vec<String> = (0..100).map(|n| format!("t{}", round * 100 + n)).collect();
        let all: Vec<&str> = ids.iter().map(String::as_str).collect();
        let sql = &installation.sql;
        let cancelled = stream::iter(&ids).map(|id| async move {
            // Most of them early, while the relay is at it.
            let share: f64 = rand::random();
            tokio::time::sleep(Duration::from_millis(150).mul_f64(share * share)).await;
            // It may not be inserted yet.
            let answer = eventually(PATIENCE, "the row", async || {
                let known: bool =
                    sqlx::query_scalar("SELECT EXISTS (SELECT FROM tidegate.tasks WHERE task_id = $1)")
                        .bind(id)
                        .fetch_one(sql)
                        .await
                        .unwrap();
                known
            });
            answer.await;
            (id.clone(), cancel(sql, id).await)
        });
        let cancelled = cancelled.buffer_unordered(100).collect::<Vec<_>>();
        let (cancelled, ()) = tokio::join!(cancelled, installation.insert(&all));
        for (id, answer) in cancelled {
            answers.entry(answer).or_default().push(id);
        }
    }
    eventually(PATIENCE, "every task to end", async || {
        let counts = installation.store.tasks().counts().await.unwrap();
        counts
            .iter()
            .all(|(state, _)| state == "SUCCESS" || state == "CANCELED")
    })
    .await;
    installation.platform.drained(QUEUE).await;
    let ran: HashSet<String> = seen.ids().into_iter().collect();
    let of = |answer: &str| answers.get(answer).map_or(&[][..], Vec::as_slice);
    let counts: Vec<String> = answers
        .iter()
        .map(|(answer, ids)| format!("{answer} {}", ids.len()))
        .collect();
    tidegate_testkit::report(&format!(
        "{races} races: {}; ran {}",
        counts.join(", "),
        ran.len()
    ));
    for answer in ["canceled", "canceled_in_flight"] {
        let both: Vec<&String> = of(answer).iter().filter(|id| ran.contains(*id)).collect();
        assert!(both.is_empty(), "{answer} and run: {both:?}");
    }
    for answer in ["cancel_requested", "already_ended"] {
        assert!(
            of(answer).iter().all(|id| ran.contains(id)),
            "{answer} and never run"
        );
    }
    assert!(
        !of("canceled").is_empty() && !of("already_ended").is_empty(),
        "no races: {counts:?}"
    );
    // What was cancelled in flight, and nothing else, is a dead letter.
    let dead = installation
        .platform
        .dead_letters(of("canceled_in_flight").len())
        .await;
    assert!(dead.iter().all(|dead| dead.reason() == "canceled_in_flight"));
    installation.close().await;
}
