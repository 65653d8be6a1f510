//! What looking at 100,000 dead letters of 40 kinds reads: counts and a page of rows by index, never a partition from end to
//! end. Told by the server's own counters, so it holds for the statements as they are sent.

use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use tidegate::store::{
    Store,
    dead_letters::{
        groups::GroupFilter,
        look::{Cursor, Page},
    },
    digests::Due,
};
use tidegate_core::{dead_letter::DeadLetterId, dead_letter_filter::Filter};

use crate::support::{Database, SOON, eventually};

const ROWS: i64 = 100_000;

/// On the last four of ninety days.
async fn fill(db: &Database) {
    db.execute(
        "DO $$ BEGIN FOR back IN 0..89 LOOP EXECUTE format('CREATE TABLE tidegate.dead_letters_%s PARTITION OF tidegate.dead_letters \
           FOR VALUES FROM (%L) TO (%L) WITH (autovacuum_enabled = false)', to_char(date '2026-03-31' - back, 'YYYYMMDD'), date '2026-03-31' - back, date '2026-03-31' - back + 1); \
         END LOOP; END $$",
    )
    .await;
    sqlx::query(
        "INSERT INTO tidegate.dead_letters (day, id, archived_at, died_at, task_id, task_type, queue, reason, error_kind, error, attempts, \
           fingerprint, state, discarded_in) \
         SELECT (at AT TIME ZONE 'UTC')::date, gen_random_uuid(), at, at - interval '1 second', 't-' || n, 'order.kind' || n % 20, \
           'order.queue' || n % 4, CASE WHEN n % 8 = 0 THEN 'rejected' ELSE 'retries_exhausted' END, 'http_503', \
           'no answer from 10.0.0.' || n % 256 || ' for order ' || n, 4, decode(md5((n % 40)::text), 'hex'), \
           CASE WHEN n % 3 = 0 THEN 'DISCARDED' ELSE 'OPEN' END, CASE WHEN n % 3 = 0 THEN 0 END \
         FROM generate_series(1, $1) n, LATERAL (SELECT '2026-03-28T00:00:00Z'::timestamptz + n * interval '96 hours' / ($1 + 1) AS at) AS t",
    )
    .bind(ROWS)
    .execute(&db.sql)
    .await
    .unwrap();
    db.run(
        "CREATE TABLE tidegate.all_messages PARTITION OF tidegate.dead_letter_messages DEFAULT; \
         INSERT INTO tidegate.dead_letter_messages (day, id, body, properties) \
         SELECT day, id, convert_to('{\"taskId\":\"' || task_id || '\"}', 'UTF8'), '{\"properties\":{},\"headers\":{}}' FROM tidegate.dead_letters",
    )
    .await;
}

/// Rows of the archive read so far: from end to end, and by index.
async fn read(db: &Database) -> (i64, i64) {
    eventually(SOON, "the end of the store's sessions, which tell what they read", async || {
        db.one::<i64>("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'tidegate'")
            .await
            == 0
    })
    .await;
    sqlx::query_as(
        "SELECT coalesce(sum(seq_tup_read), 0)::bigint, coalesce(sum(idx_tup_fetch), 0)::bigint \
         FROM pg_stat_user_tables WHERE relname ~ '^dead_letters_[0-9]'",
    )
    .fetch_one(&db.sql)
    .await
    .unwrap()
}

fn filter(words: &[&str]) -> Filter {
    Filter::parse_words(words.iter().copied(), Utc::now()).unwrap()
}

async fn page(store: &Store, words: &[&str], after: Option<&Cursor>) -> Page {
    let page = store
        .dead_letters()
        .list(&filter(words), after, 50)
        .await
        .unwrap();
    assert_eq!(page.letters.len(), 50, "{words:?}");
    page
}

async fn groups(store: &Store) {
    let found = store
        .dead_letters()
        .groups(&GroupFilter::default(), 50)
        .await
        .unwrap();
    assert_eq!((found.groups.len(), found.open), (40, ROWS - ROWS / 3));
    assert!(found.groups.iter().all(|group| group.sample_error.is_some()));
}

#[tokio::test]
async fn groups_and_pages_read_what_they_show() {
    let db = Database::create().await;
    db.store.close().await;
    fill(&db).await;
    let fingerprint: String = db.one("SELECT 'fingerprint=' || md5('7')").await;
    let task_id: String = db.one("SELECT 'task-id=t-' || (random() * 99999 + 1)::int").await;
    let id: uuid::Uuid = db
        .one("SELECT id FROM tidegate.dead_letters WHERE task_id = 't-50000'")
        .await;
    // Before the first look of autovacuum the planner knows nothing, and that is when many die at once.
    for analysed in [false, true] {
        if analysed {
            db.execute("ANALYZE tidegate.dead_letters").await;
        }
        for (words, most) in [
            (&[][..], 60),
            (&["type=order.#"], 60),
            // The planner may read past twenty of other types for each, in the order of the list.
            (&["type=order.kind7"], 1_200),
            (&[&fingerprint], 60),
            (&["state=open"], 100),
            (&["state=open", "type=order.kind7"], 1_200),
            (&["reason=rejected"], 600),
            (&["queue=order.*"], 60),
            (&["since=2026-03-30T00:00:00Z", "text=order 9"], 200),
        ] {
            let before = read(&db).await;
            let store = db.another_store();
            let first = page(&store, words, None).await;
            let second = page(&store, words, first.next.as_ref()).await;
            assert!(second.letters[0].archived_at < first.letters[49].archived_at);
            store.close().await;
            let after = read(&db).await;
            assert_eq!(
                after.0 - before.0,
                0,
                "{words:?} reads from end to end, analysed: {analysed}"
            );
            assert!(
                after.1 - before.1 <= 2 * most,
                "{words:?} reads {} rows, analysed: {analysed}",
                after.1 - before.1
            );
        }
        let before = read(&db).await;
        let store = db.another_store();
        groups(&store).await;
        let counted = store
            .dead_letters()
            .count(&filter(&["type=order.#", "state=open"]))
            .await
            .unwrap();
        assert_eq!(counted.total(), ROWS - ROWS / 3);
        let letters = store.dead_letters();
        assert_eq!(letters.count(&filter(&[&task_id])).await.unwrap().total(), 1);
        let id = DeadLetterId(id.into_bytes());
        letters.find(id, id).await.unwrap();
        let until: DateTime<Utc> = "2026-03-31T12:00:00Z".parse().unwrap();
        let hour = Due {
            since: until - chrono::TimeDelta::hours(1),
            until,
            tries: 1,
        };
        let new = store.digests().numbers(&hour, 10, 10).await.unwrap().new;
        store.close().await;
        let after = read(&db).await;
        assert_eq!(
            after.0 - before.0,
            0,
            "reads from end to end, analysed: {analysed}"
        );
        assert!(
            after.1 - before.1 <= 2 * new + 100,
            "{} rows, {new} of them new, analysed: {analysed}",
            after.1 - before.1
        );
    }
    if std::env::var_os("TIDEGATE_LONG").is_some() {
        in_time(&db).await;
    }
}

/// On a machine that does nothing else: each answer within 100 ms, from the call to the last row.
async fn in_time(db: &Database) {
    let store = db.another_store();
    groups(&store).await;
    let mut slowest = [Duration::ZERO; 2];
    for _ in 0..50 {
        let began = Instant::now();
        groups(&store).await;
        slowest[0] = slowest[0].max(began.elapsed());
        let began = Instant::now();
        page(&store, &[], None).await;
        slowest[1] = slowest[1].max(began.elapsed());
    }
    tidegate_testkit::report(&format!(
        "slowest of 50 over {ROWS} dead letters: groups {:?}, first page {:?}",
        slowest[0], slowest[1]
    ));
    assert!(
        slowest.iter().all(|took| *took < Duration::from_millis(100)),
        "{slowest:?}"
    );
}
