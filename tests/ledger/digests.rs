//! Digests: one process sends each, what it can't deliver is told later, and nothing is sent when nothing is new.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{Json, Router, http::StatusCode, routing::post};
use chrono::{DateTime, TimeDelta, Utc};
use serde_json::Value;
use tidegate::{
    deadletter::digest::{DigestSettings, render::Format, run},
    store::{
        Store,
        digests::{DigestPlan, Due, Ending, LONGEST, Turn},
    },
    telemetry::health::Health,
};
use tidegate_core::dispose::DeadReason;
use tokio_util::sync::CancellationToken;

use crate::{
    letters::{Letter, archive},
    support::{Database, eventually},
};

const HOUR: Duration = Duration::from_secs(3_600);
const PATIENCE: Duration = Duration::from_secs(30);

fn plan(owner: &str) -> DigestPlan {
    DigestPlan {
        target: "webhook".to_owned(),
        interval: HOUR,
        lag: Duration::ZERO,
        owner: owner.to_owned(),
        lease: Duration::from_secs(60),
    }
}

async fn due(store: &Store, plan: &DigestPlan) -> Due {
    match store.digests().turn(plan).await.unwrap() {
        Turn::Send(due) => due,
        Turn::Wait(wait) => panic!("{} waits {wait:?}", plan.owner),
    }
}

async fn waits(store: &Store, plan: &DigestPlan) -> Duration {
    match store.digests().turn(plan).await.unwrap() {
        Turn::Send(due) => panic!("{} has {due:?}", plan.owner),
        Turn::Wait(wait) => wait,
    }
}

/// As if `hours` had passed.
async fn pass(db: &Database, hours: i64) {
    db.run(&format!(
        "UPDATE tidegate.digests SET until = until - interval '{hours} hours', since = since - interval '{hours} hours'"
    ))
    .await;
}

#[tokio::test]
async fn one_of_several_has_the_turn() {
    let db = Database::create().await;
    let stores: Vec<Store> = (0..4).map(|_| db.another_store()).collect();
    let turns = stores
        .iter()
        .enumerate()
        .map(async |(n, store)| store.digests().turn(&plan(&n.to_string())).await.unwrap());
    let turns = futures::future::join_all(turns).await;
    let sends: Vec<Due> = turns
        .iter()
        .filter_map(|turn| match turn {
            Turn::Send(due) => Some(*due),
            Turn::Wait(_) => None,
        })
        .collect();
    let [first] = sends.as_slice() else {
        panic!("{turns:?}")
    };
    assert_eq!(
        (first.until.timestamp() % 3_600, first.until - first.since),
        (0, TimeDelta::hours(1))
    );
    let owner: String = db.one("SELECT owner FROM tidegate.digests").await;
    assert!(
        db.store
            .digests()
            .settle(&plan(&owner), first, &Ending::Sent)
            .await
            .unwrap()
    );
    assert!(waits(&db.store, &plan("x")).await <= HOUR);

    // The next span begins where this one ended, however late it is.
    pass(&db, 3).await;
    let next = due(&db.store, &plan("x")).await;
    assert_eq!((next.until - next.since, next.tries), (TimeDelta::hours(3), 1));
    assert!(
        db.store
            .digests()
            .settle(&plan("x"), &next, &Ending::Quiet)
            .await
            .unwrap()
    );
    // After a month nobody reads a month.
    pass(&db, 24 * 30).await;
    let late = due(&db.store, &plan("x")).await;
    assert_eq!(late.until - late.since, TimeDelta::from_std(LONGEST).unwrap());
}

#[tokio::test]
async fn a_turn_that_is_not_ended_is_taken_over_and_its_owner_is_told() {
    let db = Database::create().await;
    let (one, two) = (plan("one"), plan("two"));
    let first = due(&db.store, &one).await;
    assert!(waits(&db.store, &two).await <= one.lease);
    db.execute("UPDATE tidegate.digests SET lease_until = now() - interval '1 second'")
        .await;
    let second = due(&db.store, &two).await;
    assert_eq!(
        (second.since, second.until, second.tries),
        (first.since, first.until, 2)
    );
    assert!(
        !db.store
            .digests()
            .settle(&one, &first, &Ending::Sent)
            .await
            .unwrap()
    );
    assert!(
        db.store
            .digests()
            .settle(&two, &second, &Ending::Sent)
            .await
            .unwrap()
    );
    assert!(
        !db.store
            .digests()
            .settle(&two, &second, &Ending::Sent)
            .await
            .unwrap()
    );
}

#[tokio::test]
async fn what_was_not_taken_is_in_the_next_one() {
    let db = Database::create().await;
    let plan = plan("one");
    let first = due(&db.store, &plan).await;
    let again = Ending::Again(Duration::from_secs(40), "the webhook answered 503".to_owned());
    assert!(db.store.digests().settle(&plan, &first, &again).await.unwrap());
    let wait = waits(&db.store, &plan).await;
    assert!(
        wait > Duration::from_secs(30) && wait <= Duration::from_secs(40),
        "{wait:?}"
    );
    // The next hour ends before it could be sent.
    pass(&db, 1).await;
    db.execute("UPDATE tidegate.digests SET lease_until = now()")
        .await;
    let next = due(&db.store, &plan).await;
    assert_eq!((next.until - next.since, next.tries), (TimeDelta::hours(2), 1));
    let states: String = db
        .one("SELECT string_agg(state, ' ' ORDER BY until) FROM tidegate.digests")
        .await;
    assert_eq!(states, "FAILED SENDING");
    let failed = Ending::Failed("the webhook answered 404".to_owned());
    assert!(db.store.digests().settle(&plan, &next, &failed).await.unwrap());
    assert!(waits(&db.store, &plan).await > Duration::ZERO, "it is given up");
    pass(&db, 1).await;
    assert_eq!(
        due(&db.store, &plan).await.since,
        next.since - TimeDelta::hours(1)
    );
}

#[tokio::test]
async fn numbers_are_those_of_the_span_and_of_what_is_open() {
    let db = Database::create().await;
    let until: DateTime<Utc> = "2026-03-01T00:00:00Z".parse().unwrap();
    let at = |minutes: i64| Letter::at(until + TimeDelta::minutes(minutes));
    let mut letters = vec![at(-61), at(-60), at(-30), at(-1), at(0), at(-2), at(-3)];
    letters[5].task_type = None;
    letters[6].reason = DeadReason::Expired;
    archive(&db, &letters).await;
    db.execute(
        "UPDATE tidegate.dead_letters SET state = 'DISCARDED', discarded_in = 0 WHERE archived_at = '2026-02-28T23:59:00Z'",
    )
    .await;
    let span = Due {
        since: until - TimeDelta::hours(1),
        until,
        tries: 1,
    };
    let numbers = db.store.digests().numbers(&span, 1, 2).await.unwrap();
    assert_eq!(
        (numbers.new, numbers.open, numbers.all_types, numbers.all_groups),
        (5, 6, 2, 3)
    );
    assert_eq!(numbers.types.len(), 1);
    assert_eq!(
        (
            numbers.types[0].task_type.as_deref(),
            numbers.types[0].new,
            numbers.types[0].open
        ),
        (Some("order.close"), 4, 5)
    );
    assert_eq!(numbers.groups.len(), 2);
    assert_eq!((numbers.groups[0].new, numbers.groups[0].open), (3, 4));
    let nothing = Due {
        since: until + TimeDelta::hours(1),
        until: until + TimeDelta::hours(2),
        tries: 1,
    };
    assert_eq!(db.store.digests().numbers(&nothing, 1, 1).await.unwrap().new, 0);
}

/// A webhook of ours: keeps what is posted to it, and answers with the given statuses first.
#[derive(Clone, Default)]
struct Hook {
    posts: Arc<Mutex<Vec<Value>>>,
    answers: Arc<Mutex<VecDeque<StatusCode>>>,
}

impl Hook {
    /// Its URL, with a secret in it.
    async fn listen(&self) -> String {
        let hook = self.clone();
        let take = move |Json(body): Json<Value>| async move {
            let answer = hook.answers.lock().unwrap().pop_front().unwrap_or(StatusCode::OK);
            if answer.is_success() {
                hook.posts.lock().unwrap().push(body);
            }
            answer
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().route("/s3cret-t0ken", post(take));
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        format!("http://{address}/s3cret-t0ken?key=s3cret-t0ken")
    }

    fn posts(&self) -> Vec<Value> {
        self.posts.lock().unwrap().clone()
    }
}

fn settings(url: String) -> DigestSettings {
    DigestSettings {
        interval: Duration::from_secs(1),
        // An insert of the test is committed within that time, however slow the machine is.
        lag: Duration::from_secs(3),
        ..DigestSettings::new(url.into(), Format::Plain)
    }
}

fn start(store: Store, settings: &DigestSettings, cancel: &CancellationToken) -> tokio::task::JoinHandle<()> {
    let (settings, cancel) = (settings.clone(), cancel.clone());
    tokio::spawn(async move { run(store, settings, Health::default(), cancel).await.unwrap() })
}

#[tokio::test]
async fn two_instances_tell_of_everything_once_and_of_nothing_never() {
    let db = Database::create().await;
    let hook = Hook::default();
    let (settings, cancel) = (settings(hook.listen().await), CancellationToken::new());
    let running = [
        start(db.another_store(), &settings, &cancel),
        start(db.another_store(), &settings, &cancel),
    ];
    // Quiet first: a row says that there was nothing.
    eventually(PATIENCE, "a quiet digest", async || {
        db.one::<bool>("SELECT EXISTS (SELECT FROM tidegate.digests WHERE state = 'QUIET')")
            .await
    })
    .await;
    assert_eq!(hook.posts(), Vec::<Value>::new());
    for of_second in [7, 5] {
        let now: DateTime<Utc> = db.one("SELECT clock_timestamp()").await;
        let letters: Vec<Letter> = (0..of_second).map(|_| Letter::at(now)).collect();
        archive(&db, &letters).await;
        let told = hook.posts().len();
        eventually(PATIENCE, "a digest", async || hook.posts().len() > told).await;
    }
    // Another quiet one behind the last: nothing more comes of what was told.
    let last: DateTime<Utc> = hook.posts().last().unwrap()["until"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    eventually(PATIENCE, "a quiet digest after it", async || {
        let quiet: Option<DateTime<Utc>> = db
            .one("SELECT max(until) FROM tidegate.digests WHERE state = 'QUIET'")
            .await;
        quiet.is_some_and(|quiet| quiet > last)
    })
    .await;
    cancel.cancel();
    for loop_of_one in running {
        loop_of_one.await.unwrap();
    }
    let posts = hook.posts();
    let new: Vec<i64> = posts.iter().map(|post| post["new"].as_i64().unwrap()).collect();
    assert_eq!(new, [7, 5], "{posts:?}");
    assert!(
        posts[0]["until"].as_str() <= posts[1]["since"].as_str(),
        "{posts:?}"
    );
    assert_eq!(posts[1]["open"], 12);
    // A payload, an error's text or a task's id is nowhere in it.
    let text = serde_json::to_string(&posts).unwrap();
    assert!(
        !text.contains("card declined") && !text.contains("payload") && !text.contains("t-0"),
        "{text}"
    );
}

#[tokio::test]
async fn a_webhook_that_is_down_gets_it_later_and_its_secret_is_nowhere() {
    let db = Database::create().await;
    let hook = Hook::default();
    hook.answers
        .lock()
        .unwrap()
        .push_back(StatusCode::SERVICE_UNAVAILABLE);
    let now: DateTime<Utc> = db.one("SELECT clock_timestamp()").await;
    archive(&db, &[Letter::at(now)]).await;
    let (settings, cancel) = (settings(hook.listen().await), CancellationToken::new());
    let running = start(db.another_store(), &settings, &cancel);
    eventually(PATIENCE, "the digest", async || !hook.posts().is_empty()).await;
    cancel.cancel();
    running.await.unwrap();
    assert_eq!(hook.posts()[0]["new"], 1);

    // One where nobody listens.
    let closed = {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        format!("http://{}/s3cret-t0ken", listener.local_addr().unwrap())
    };
    let now: DateTime<Utc> = db.one("SELECT clock_timestamp()").await;
    archive(&db, &[Letter::at(now)]).await;
    let (settings, cancel) = (self::settings(closed), CancellationToken::new());
    let running = start(db.another_store(), &settings, &cancel);
    let why: String = eventually(PATIENCE, "a failed try", async || {
        db.one::<Option<String>>(
            "SELECT max(last_error) FROM tidegate.digests WHERE state = 'SENDING' AND lease_until > now()",
        )
        .await
    })
    .await;
    cancel.cancel();
    running.await.unwrap();
    assert_eq!(why, "the webhook can't be reached");
    let stored: String = db
        .one("SELECT string_agg(d::text, ' ') FROM tidegate.digests d")
        .await;
    assert!(!stored.contains("s3cret"), "{stored}");
}

/// The rights that docs/operations.md names, and no others.
#[tokio::test]
async fn a_role_with_the_documented_grants_sends_digests() {
    let db = Database::create().await;
    let role = format!("monitor_{}", uuid::Uuid::now_v7().simple());
    db.run(&format!("CREATE ROLE {role}; {}", crate::guards::grants(&role)))
        .await;
    let (theirs, plan) = (db.store_as(&role), plan("one"));
    let first = due(&theirs, &plan).await;
    theirs.digests().numbers(&first, 10, 10).await.unwrap();
    assert!(
        theirs
            .digests()
            .settle(&plan, &first, &Ending::Quiet)
            .await
            .unwrap()
    );
    db.run(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).await;
}
