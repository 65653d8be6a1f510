//! How a run ends early, changes hands, and keeps to its rate.

use std::{num::NonZeroU32, time::Duration};

use tidegate::{
    core::replay::plan::Options,
    deadletter::replay::{
        adopt,
        execute::Ending,
        request::{Request, options},
        told::{Event, ReplayError},
    },
    store::dead_letters::{
        replay::Walk,
        runs::{Hold, RunState, StopAsked, Taken},
        settle::Settled,
    },
    telemetry::health::Health,
};
use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::CancellationToken;

use super::stage::{Stage, request, states};
use crate::support::{SOON, eventually};

fn slow(rate: u32) -> Request {
    Request {
        options: Options {
            rate: NonZeroU32::new(rate),
            ..options()
        },
        ..request(["type=order.close"])
    }
}

/// Ends the lease of all runs, as its time does.
async fn leases_end(stage: &Stage) {
    stage
        .db
        .execute("UPDATE tidegate.replays SET lease_until = clock_timestamp() - interval '1 second'")
        .await;
}

#[tokio::test]
async fn a_rate_is_kept() {
    let stage = Stage::create().await;
    stage.dead(60).await;
    let began = Instant::now();
    assert_eq!(stage.replay(&slow(40)).await.sent, 60);
    // All but the last quarter of a second's worth has waited for its turn.
    assert!(
        began.elapsed() >= Duration::from_millis(1_250),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test]
async fn a_run_that_is_stopped_leaves_the_rest_open() {
    let stage = Stage::create().await;
    stage.dead(400).await;
    for by_row in [false, true] {
        let replays = stage.replays();
        let hold = replays.begin(&slow(40)).await.unwrap().unwrap();
        let (ending, first) = (Ending::default(), Notify::new());
        let told = |event: &Event<'_>| {
            if matches!(event, Event::Progress(_)) {
                first.notify_one();
            }
        };
        let (report, ()) = tokio::join!(replays.execute(&hold, &ending, &told), async {
            first.notified().await;
            if by_row {
                let asked = stage
                    .db
                    .store
                    .dead_letters()
                    .stop_run(hold.run, "bob", "wrong ones")
                    .await;
                assert!(matches!(asked.unwrap(), StopAsked::Asked));
            } else {
                ending.stop.cancel();
            }
        });
        let report = report.unwrap();
        assert_eq!((report.end, report.released), (RunState::Stopped, 0));
        assert!(report.sent > 0 && report.sent < 200, "{report:?}");
        let sent = usize::try_from(report.sent).unwrap();
        assert_eq!(stage.take(sent).await.len(), sent);
        let row = stage
            .db
            .store
            .dead_letters()
            .run(hold.run)
            .await
            .unwrap()
            .unwrap();
        assert_eq!((row.state, row.stop_asked), (RunState::Stopped, by_row));
    }
    let now = stage.states().await;
    assert_eq!(now.values().sum::<i64>(), 400);
    assert!(!now.contains_key("REPLAYING"), "{now:?}");
}

#[tokio::test]
async fn whoever_has_lost_a_run_writes_nothing_more() {
    let stage = Stage::create().await;
    stage.dead(50).await;
    let replays = stage.replays();
    let old = replays.begin(&slow(1_000)).await.unwrap().unwrap();
    let letters = stage.db.store.dead_letters();
    assert!(
        matches!(replays.resume(old.run, "bob", "").await.unwrap(), Taken::Busy(row) if row.owner == "test"),
        "its lease holds"
    );
    leases_end(&stage).await;
    let Taken::Held(new) = replays.resume(old.run, "bob", "").await.unwrap() else {
        panic!("the lease is over")
    };
    assert_eq!(new.fence, old.fence + 1);
    assert!(matches!(
        stage.execute(&replays, &old).await,
        Err(ReplayError::TakenOver)
    ));
    assert_eq!(letters.renew_run(&old, SOON).await.unwrap(), None);
    assert_eq!(
        letters.end_run(&old, RunState::Done, 0, None).await.unwrap(),
        None
    );
    let (wanted, walk) = (request(["type=order.close"]).filter, Walk::from(None));
    assert!(letters.claim(&old, &wanted, walk, 10).await.unwrap().is_none());
    assert_eq!(
        stage.states().await,
        states([("OPEN", 50)]),
        "it has claimed nothing"
    );
    let claimed = letters
        .claim(&new, &wanted, walk, 1)
        .await
        .unwrap()
        .unwrap()
        .letters;
    assert!(letters.claimed(&old, 10).await.unwrap().is_none());
    let sent = [Settled {
        id: claimed[0].id,
        sent: true,
        sent_task_id: None,
        edited: None,
    }];
    assert!(!letters.settle(&old, claimed[0].day, &sent, SOON).await.unwrap());
    assert_eq!(stage.states().await, states([("OPEN", 49), ("REPLAYING", 1)]));
    assert_eq!(stage.execute(&replays, &new).await.unwrap().sent, 50);
    assert!(matches!(
        replays.resume(old.run, "bob", "").await.unwrap(),
        Taken::Ended(_)
    ));
    assert_eq!(stage.take(50).await.len(), 50);
}

/// A run whose process died between its claim and its publish, and one that nobody has begun to work on.
#[tokio::test]
async fn the_server_goes_on_with_what_nobody_works_on() {
    let stage = Stage::create().await;
    stage.dead(1_200).await;
    let replays = stage.replays();
    let hold = replays.begin(&slow(5_000)).await.unwrap().unwrap();
    let claimed = claim(&stage, &hold, 300).await;
    assert_eq!(claimed, 300);
    assert_eq!(stage.states().await, states([("OPEN", 900), ("REPLAYING", 300)]));
    leases_end(&stage).await;

    let (stop, health) = (CancellationToken::new(), Health::default());
    let adopting = tokio::spawn(Box::pin(adopt::run(stage.replays(), health, stop.clone())));
    let letters = stage.db.store.dead_letters();
    eventually(SOON, "the run to end", async || {
        letters.run(hold.run).await.unwrap().unwrap().state == RunState::Done
    })
    .await;
    let row = letters.run(hold.run).await.unwrap().unwrap();
    assert_eq!((row.sent, row.unsettled, row.fence), (1_200, 0, 2));
    assert_eq!(stage.take(1_200).await.len(), 1_200);
    stop.cancel();
    adopting.await.unwrap().unwrap();
}

async fn claim(stage: &Stage, hold: &Hold, count: u64) -> usize {
    let walk = Walk::from(None);
    let wanted = request(["type=order.close"]).filter;
    let batch = stage
        .db
        .store
        .dead_letters()
        .claim(hold, &wanted, walk, count)
        .await;
    batch.unwrap().unwrap().letters.len()
}

#[tokio::test]
async fn a_server_that_stops_lets_go_of_a_run_at_once() {
    let stage = Stage::create().await;
    stage.dead(200).await;
    let replays = stage.replays();
    let hold = replays.begin(&slow(20)).await.unwrap().unwrap();
    let (ending, first) = (Ending::default(), Notify::new());
    let told = |event: &Event<'_>| {
        if matches!(event, Event::Progress(_)) {
            first.notify_one();
        }
    };
    let (left, ()) = tokio::join!(replays.execute(&hold, &ending, &told), async {
        first.notified().await;
        ending.let_go.cancel();
    });
    assert!(matches!(left, Err(ReplayError::LetGo)), "{left:?}");
    let next = stage
        .db
        .store
        .dead_letters()
        .adopt_run("another", SOON)
        .await
        .unwrap();
    assert_eq!(next.unwrap().run, hold.run, "nobody has to wait for the lease");
}

#[tokio::test]
async fn a_run_that_nobody_works_on_is_stopped_by_whoever_asks() {
    let stage = Stage::create().await;
    stage.dead(30).await;
    let hold = stage.replays().begin(&slow(1)).await.unwrap().unwrap();
    assert_eq!(claim(&stage, &hold, 10).await, 10);
    leases_end(&stage).await;
    let letters = stage.db.store.dead_letters();
    let asked = letters.stop_run(hold.run, "bob", "not needed").await.unwrap();
    assert!(matches!(asked, StopAsked::Stopped), "{asked:?}");
    assert_eq!(
        stage.states().await,
        states([("OPEN", 30)]),
        "what it had claimed is open again"
    );
    assert!(matches!(
        letters.stop_run(hold.run, "bob", "twice").await.unwrap(),
        StopAsked::Ended(_)
    ));
    assert!(letters.adopt_run("another", SOON).await.unwrap().is_none());
}
