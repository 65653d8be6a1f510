//! Cancel against relays that hand over at the same moment, undisturbed and killed in the middle of it: whatever was called
//! certain is never on a queue.

use std::{collections::BTreeMap, time::Duration};

use tidegate::{scheduler::relay::RelaySettings, store::Store};
use tidegate_core::lifecycle::CancelOutcome;
use tokio::task::JoinSet;

use crate::{
    broker::{Broker, RelayLoop},
    support::{Database, SOON, eventually},
};

fn races() -> usize {
    if std::env::var_os("TIDEGATE_LONG").is_some() {
        10_000
    } else {
        400
    }
}

fn settings() -> RelaySettings {
    RelaySettings {
        batch: 20,
        ..RelaySettings::default()
    }
}

/// Eight callers, each of which makes tasks that are due in a moment and cancels each of them around its time.
async fn race(db: &Database, store: &Store, races: usize) -> BTreeMap<String, CancelOutcome> {
    let mut racers = JoinSet::new();
    for racer in 0..8 {
        let (store, sql) = (store.clone(), db.sql.clone());
        racers.spawn(async move {
            let mut answers = Vec::new();
            for race in 0..races / 8 {
                let id = format!("t-{racer}-{race}");
                sqlx::query("SELECT tidegate.enqueue('order.close.timeout', '{}', due_at => clock_timestamp() + interval '20 ms', task_id => $1)")
                    .bind(&id)
                    .execute(&sql)
                    .await
                    .unwrap();
                tokio::time::sleep(Duration::from_millis(rand::random_range(5..45))).await;
                answers.push((id.clone(), canceled(&store, &id).await));
            }
            answers
        });
    }
    racers.join_all().await.into_iter().flatten().collect()
}

/// Asks again as long as the answer is to try again: nothing was changed then.
async fn canceled(store: &Store, id: &str) -> CancelOutcome {
    loop {
        match store.tasks().cancel(id).await {
            Ok(answer) => return answer,
            Err(error) => assert!(error.is_transient(), "{error}"),
        }
    }
}

async fn nothing_waits(db: &Database) {
    eventually(SOON, "no pending task", async || {
        db.one::<bool>("SELECT NOT EXISTS (SELECT FROM tidegate.tasks WHERE state = 'PENDING')")
            .await
    })
    .await;
}

/// How many messages each task has on the queue.
async fn sent(broker: &Broker) -> BTreeMap<String, usize> {
    let mut sent = BTreeMap::new();
    for delivery in broker.take().await {
        let id = delivery.properties.message_id().as_ref().unwrap().to_string();
        *sent.entry(id).or_default() += 1;
    }
    sent
}

/// How many were called certain; none of them may have been sent.
fn certain(answers: &BTreeMap<String, CancelOutcome>, sent: &BTreeMap<String, usize>) -> usize {
    let mut certain = 0;
    for (id, answer) in answers {
        match answer {
            CancelOutcome::Canceled => {
                certain += 1;
                assert_eq!(sent.get(id), None, "{id} was called certain");
            }
            CancelOutcome::CanceledInFlight => {}
            other => panic!("{id}: {other}"),
        }
    }
    certain
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_task_is_both_canceled_and_sent() {
    let (db, broker) = (Database::create().await, Broker::create().await);
    let other = db.another_store();
    let relays = [&db.store, &other].map(|store| RelayLoop::start_with(store, &broker.tasks, settings()));
    let answers = race(&db, &db.another_store(), races()).await;
    nothing_waits(&db).await;
    for relay in relays {
        relay.stop().await;
    }
    let sent = sent(&broker).await;
    let certain = certain(&answers, &sent);
    for (id, answer) in &answers {
        let copies = usize::from(*answer == CancelOutcome::CanceledInFlight);
        assert_eq!(sent.get(id).copied().unwrap_or_default(), copies, "{id}");
    }
    tidegate_testkit::report(&format!(
        "cancel against two relays: {} races, {certain} won by cancel, none of them sent; {} sent, each once",
        answers.len(),
        sent.len()
    ));
    let races = answers.len();
    assert!(
        certain > races / 20 && certain < races * 19 / 20,
        "no race: {certain} of {races}"
    );
}

/// Killed between its first publish and its commit a relay leaves rows that look as if nothing had been sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_task_is_both_canceled_and_sent_by_a_relay_that_is_killed() {
    let (db, broker) = (Database::create().await, Broker::create().await);
    let canceller = db.another_store();
    let mut racing = Box::pin(race(&db, &canceller, races()));
    let (mut kills, mut last) = (0, 0_i64);
    let answers = loop {
        let relay = RelayLoop::start_with(&db.store, &broker.tasks, settings());
        let sending = async {
            let newest = "SELECT coalesce(max(id), 0) FROM tidegate.handovers";
            while db.one::<i64>(newest).await <= last {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            last = db.one(newest).await;
            tokio::time::sleep(Duration::from_millis(rand::random_range(0..15))).await;
        };
        let ended = tokio::select! {
            answers = &mut racing => Some(answers),
            () = sending => None,
        };
        // Its locks go; what it has given to the publisher is sent all the same.
        drop(relay);
        kills += 1;
        if let Some(answers) = ended {
            break answers;
        }
    };
    let relay = RelayLoop::start_with(&db.store, &broker.tasks, settings());
    nothing_waits(&db).await;
    relay.stop().await;
    let left: i64 = db.one("SELECT count(*) FROM tidegate.handovers").await;
    let sent = sent(&broker).await;
    let certain = certain(&answers, &sent);
    tidegate_testkit::report(&format!(
        "cancel against a relay killed {kills} times: {} races, {certain} called certain, none of them sent; {left} hand-overs were cut short, \
         {} tasks sent twice",
        answers.len(),
        sent.values().filter(|copies| **copies > 1).count()
    ));
    assert!(left > 0, "no kill hit a hand-over");
}
