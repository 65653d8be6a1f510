//! What a store does while the database is silent, read-only or ends its sessions.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use secrecy::SecretString;
use tidegate::store::{
    Store, StoreError, StoreSettings,
    tasks::Settlement,
    vigil::{PAUSE, SILENCE},
    wake::Channel,
};
use tidegate_testkit::Proxy;
use tokio::time::{Instant, timeout};
use tokio_util::task::AbortOnDropHandle;

use crate::support::{Database, SOON, eventually};

/// A store with a pool of two that gives up soon.
fn store_at(url: &str) -> Store {
    let settings = StoreSettings {
        max_connections: 2,
        acquire_timeout: Duration::from_secs(3),
        ..StoreSettings::default()
    };
    Store::connect(&SecretString::from(url.to_owned()), &settings).unwrap()
}

/// The watch of a store, and what it last said.
struct Watch {
    last: Arc<Mutex<Option<Result<(), String>>>>,
    _task: AbortOnDropHandle<()>,
}

impl Watch {
    fn start(store: &Store) -> Self {
        let last = Arc::new(Mutex::new(None));
        let (store, told) = (store.clone(), Arc::clone(&last));
        let task = tokio::spawn(async move {
            let report = |seen: Result<(), StoreError>| {
                *told.lock().unwrap() = Some(seen.map_err(|why| why.to_string()));
            };
            match store.watch(report).await {}
        });
        Self {
            last,
            _task: AbortOnDropHandle::new(task),
        }
    }

    /// Waits until it says that all is well.
    async fn well(&self) {
        eventually(SOON * 2, "the database to be usable", async || {
            matches!(*self.last.lock().unwrap(), Some(Ok(())))
        })
        .await;
    }

    /// Waits until it complains with `word`.
    async fn complains(&self, word: &str) {
        eventually(
            SOON * 2,
            word,
            async || matches!(&*self.last.lock().unwrap(), Some(Err(why)) if why.contains(word)),
        )
        .await;
    }
}

async fn answers(store: &Store) -> bool {
    // More than the pool has places.
    let (a, b, c) = tokio::join!(store.ping(), store.ping(), store.ping());
    a.is_ok() && b.is_ok() && c.is_ok()
}

/// A connection is tried once more, without a limit of ours, on its way back into the pool: not silenced just then.
async fn at_rest(store: &Store) {
    eventually(SOON, "every connection to be back in the pool", async || {
        store.is_at_rest()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_went_silent_keep_no_place_in_the_pool() {
    let db = Database::create().await;
    let proxy = Proxy::before(db.url()).await;
    let store = store_at(&proxy.url(db.url()));
    for _ in 0..3 {
        let tasks = store.tasks();
        // It has two connections: for the locks, and for what is announced.
        let held = tasks.lock_due(1).await.unwrap();
        proxy.forget_connections();
        // As a loop that has waited long enough for an answer.
        drop(held);
        eventually(SOON, "new connections instead", async || answers(&store).await).await;
        at_rest(&store).await;
        // And as a connection that rests while it goes silent.
        proxy.forget_connections();
        tokio::time::sleep(Duration::from_millis(1_100)).await;
        eventually(SOON, "new connections again", async || answers(&store).await).await;
        at_rest(&store).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_database_is_noticed_and_what_waits_for_it_is_given_up() {
    let db = Database::create().await;
    let proxy = Proxy::before(db.url()).await;
    let store = store_at(&proxy.url(db.url()));
    let watch = Watch::start(&store);
    watch.well().await;
    let held = store.tasks().lock_due(1).await.unwrap();
    proxy.silence();
    let silent = Instant::now();
    let sent = Settlement {
        published: vec!["x".to_owned()],
        ..Settlement::default()
    };
    let work = async { held.settle(&sent).await };
    let given_up = timeout(SOON * 2, store.unless_lost::<_, StoreError>(work)).await;
    let waited = silent.elapsed();
    let error = given_up.expect("it ends").expect_err("nothing was answered");
    assert!(error.is_transient(), "{error}");
    assert!(waited < PAUSE + SILENCE + Duration::from_secs(2), "{waited:?}");
    watch.complains("no answer").await;
    proxy.resume();
    watch.well().await;
    eventually(SOON, "the pool", async || answers(&store).await).await;
}

/// After a fail-over the old primary lives on and refuses writes, on connections that look as good as ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn read_only_sessions_are_named_and_not_used_again() {
    let db = Database::create().await;
    let store = store_at(db.url());
    let watch = Watch::start(&store);
    watch.well().await;
    assert!(answers(&store).await);
    // A session reads this setting when it begins: those that begin now stay read-only to their end.
    let mut admin = db.sql.acquire().await.unwrap();
    for statement in [
        "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = on', current_database()); END $$",
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'tidegate'",
    ] {
        sqlx::query(statement).execute(&mut *admin).await.unwrap();
    }
    watch.complains("read-only").await;
    let error = eventually(SOON, "a refused write", async || {
        store.tasks().unroutable("x", "y").await.err();
        insert(&store).await.err()
    })
    .await;
    assert!(error.is_transient(), "{error}");

    let reset = "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I RESET default_transaction_read_only', current_database()); END $$";
    sqlx::query(reset).execute(&mut *admin).await.unwrap();
    let back = Instant::now();
    // Tried all the time, so that no connection ever rests.
    eventually(SOON, "a write", async || insert(&store).await.is_ok()).await;
    assert!(back.elapsed() < PAUSE * 3, "{:?}", back.elapsed());
    watch.well().await;
}

async fn insert(store: &Store) -> Result<u64, StoreError> {
    let task = tidegate::store::tasks::NewTask {
        task_id: uuid::Uuid::now_v7().to_string(),
        task_type: "a.b".to_owned(),
        exchange: None,
        routing_key: None,
        envelope: "{}".to_owned(),
        priority: 100,
        producer: None,
        trace_id: None,
        origin: tidegate_core::headers::Origin::Http,
        due_at: chrono::Utc::now(),
    };
    store.tasks().insert(&[task]).await
}

/// B65, on the level of the store: whoever asks again gets an answer, however often its sessions are ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_that_are_ended_all_the_time_fail_a_call_at_most() {
    let db = Database::create().await;
    let store = store_at(db.url());
    let (mut failed, mut done) = (0_u32, 0_u32);
    const ENDS: u32 = 6;
    for _ in 0..ENDS {
        db.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
             WHERE datname = current_database() AND application_name = 'tidegate'",
        )
        .await;
        let end = Instant::now();
        while end.elapsed() < Duration::from_millis(1_000) {
            match insert(&store).await {
                Ok(_) => done += 1,
                Err(error) if error.is_transient() => failed += 1,
                Err(error) => panic!("{error}"),
            }
        }
    }
    // Each end hits a call on each connection of the pool at most; a new session takes a tenth of a second and more in a
    // debug build.
    assert!(done > ENDS, "{done} done, {failed} failed");
    assert!(failed <= 2 * ENDS, "{done} done, {failed} failed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wake_ups_come_again_after_their_connection_went_silent() {
    let db = Database::create().await;
    let proxy = Proxy::before(db.url()).await;
    let store = store_at(&proxy.url(db.url()));
    let wakes = store.listen(Channel::Tasks);
    // Listening begins with a wake-up.
    let woken = async |within: Duration| {
        let until = Instant::now() + within;
        wakes.wait_until(until, None).await;
        Instant::now() < until
    };
    assert!(woken(SOON).await);
    proxy.forget_connections();
    insert(&store).await.unwrap();
    assert!(!woken(Duration::from_secs(1)).await, "nobody has noticed yet");
    assert!(
        woken(Duration::from_secs(25)).await,
        "it listens again, and says so"
    );
    insert(&store).await.unwrap();
    assert!(woken(SOON).await);
}
