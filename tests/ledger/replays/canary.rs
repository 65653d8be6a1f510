//! A share first, watched; and what dies again at once.

use std::{num::NonZeroU32, time::Duration};

use tidegate::{
    broker::connection::Link,
    core::{
        envelope::Limits,
        replay::plan::{Canary, OnFailure, Options},
    },
    deadletter::{
        archivist::{Archivist, ArchivistSettings},
        discard::{Reason, discard},
        replay::request::{Request, options},
    },
    store::dead_letters::runs::RunState,
    telemetry::health::Health,
    worker::{TaskError, Worker},
};
use tokio_util::sync::CancellationToken;

use super::stage::{Stage, request, states};
use crate::{
    broker::QUEUE,
    support::{SOON, eventually},
};

/// A worker that rejects everything, and an archivist that archives it again.
struct Mourners {
    stop: CancellationToken,
}

impl Mourners {
    fn of(stage: &Stage) -> Self {
        let stop = CancellationToken::new();
        let worker = Worker::builder(stage.broker.settings.clone(), stage.broker.topology.clone())
            .queue(QUEUE)
            .handle("order.close", || async {
                Err::<(), _>(TaskError::reject("still_broken", "the bank is away"))
            })
            .build()
            .unwrap();
        tokio::spawn(worker.run(stop.clone()));
        let archivist = Archivist::new(
            Link::new(stage.broker.settings.clone(), "consume"),
            stage.db.store.clone(),
            &stage.broker.topology.names,
            ArchivistSettings {
                limits: Limits::standard(),
                ..ArchivistSettings::default()
            },
        );
        let cancel = stop.clone();
        tokio::spawn(async move { Box::pin(archivist.run(Health::default(), cancel)).await });
        Self { stop }
    }
}

impl Drop for Mourners {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn with_canary(percent: u8, watch: Duration, on_failure: OnFailure) -> Request {
    Request {
        options: Options {
            canary: Some(Canary {
                percent,
                watch,
                on_failure,
            }),
            ..options()
        },
        ..request(["type=order.close"])
    }
}

async fn again(stage: &Stage, count: i64) {
    eventually(SOON, "all of them dead again", async || {
        let again: i64 = stage
            .db
            .one("SELECT count(*) FROM tidegate.dead_letters WHERE deaths = 2")
            .await;
        again == count
    })
    .await;
}

#[tokio::test]
async fn a_canary_that_dies_again_ends_the_run_and_shows_its_history() {
    let stage = Stage::create().await;
    stage.dead(200).await;
    let _mourners = Mourners::of(&stage);
    let report = stage
        .replay(&with_canary(5, Duration::from_secs(60), OnFailure::Stop))
        .await;
    assert_eq!(report.end, RunState::CanaryFailed, "{report:?}");
    assert!(report.died > 0 && report.sent == 10, "{report:?}");
    again(&stage, 10).await;
    assert_eq!(stage.states().await, states([("OPEN", 200), ("REPLAYED", 10)]));
    let proven: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM tidegate.dead_letters d JOIN tidegate.dead_letters p ON p.id = d.parent_id \
         WHERE d.sent_by = $1 AND p.replay_id = $1 AND p.state = 'REPLAYED' AND d.task_id = p.task_id AND d.deaths = 2",
    )
    .bind(report.run)
    .fetch_one(&stage.db.sql)
    .await
    .unwrap();
    assert_eq!(proven, 10, "each names its first death and the run that sent it");
}

#[tokio::test]
async fn a_canary_that_lives_lets_the_rest_follow() {
    let stage = Stage::create().await;
    stage.dead(200).await;
    let report = stage
        .replay(&with_canary(1, Duration::from_millis(700), OnFailure::Stop))
        .await;
    assert_eq!((report.end, report.sent), (RunState::Done, 200));
    assert_eq!(stage.take(200).await.len(), 200);
}

/// What fails at once comes back into the archive while the run goes on. The run lacks some that it had counted on, and must
/// not take what it has sent itself in their place.
#[tokio::test]
async fn a_run_does_not_chase_its_own_tail() {
    let stage = Stage::create().await;
    let letters = stage.dead(300).await;
    let _mourners = Mourners::of(&stage);
    let asked = Request {
        options: Options {
            rate: NonZeroU32::new(200),
            ..options()
        },
        ..request(["type=order.close"])
    };
    let replays = stage.replays();
    let hold = replays.begin(&asked).await.unwrap().unwrap();
    let ids: Vec<String> = letters[200..]
        .iter()
        .map(|letter| format!("id={}", letter.id))
        .collect();
    let refunded = request(ids.iter().map(String::as_str)).filter;
    let reason = Reason::new("bob", "refunded").unwrap();
    let discarded = discard(&stage.db.store, &refunded, &reason, |_| {})
        .await
        .unwrap();
    assert_eq!(discarded.discarded, 100);
    let report = stage.execute(&replays, &hold).await.unwrap();
    assert_eq!(
        (report.end, report.planned, report.sent),
        (RunState::Done, 300, 200)
    );
    again(&stage, 200).await;
    assert_eq!(
        stage.states().await,
        states([("DISCARDED", 100), ("OPEN", 200), ("REPLAYED", 200)])
    );
    // Another run is another try, and tells a third death from a second.
    assert_eq!(stage.replay(&asked).await.sent, 200);
    eventually(SOON, "all of them dead a third time", async || {
        let again: i64 = stage
            .db
            .one("SELECT count(*) FROM tidegate.dead_letters WHERE deaths = 3")
            .await;
        again == 200
    })
    .await;
}
