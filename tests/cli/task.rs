//! `task`: get, list, cancel, promote, move, against a ledger without a server.

use serde_json::{Value, json};
use sqlx::PgPool;
use tidegate_testkit::Database;

use crate::run::{Ran, Tidegate};

struct Ledger {
    tidegate: Tidegate,
    sql: PgPool,
    _database: Database,
}

impl Ledger {
    async fn create() -> Self {
        let database = Database::create().await;
        let tidegate = Tidegate::new().env("DATABASE_URL", database.url());
        assert_eq!(tidegate.run(&["migrate"]).code, 0);
        let sql = PgPool::connect(database.url()).await.unwrap();
        Self {
            tidegate,
            sql,
            _database: database,
        }
    }

    /// Enqueues a task under `id`, to run in an hour.
    async fn enqueue(&self, id: &str) {
        sqlx::query(
            "SELECT tidegate.enqueue('order.close', '{\"n\":1.10}', due_at => now() + interval '1 hour', task_id => $1)",
        )
        .bind(id)
        .execute(&self.sql)
        .await
        .unwrap();
    }

    async fn set(&self, id: &str, state: &str) {
        sqlx::query("UPDATE tidegate.tasks SET state = $2, published_at = now(), last_error = CASE $2 WHEN 'FAILED' THEN E'no\\u001b[2J route' END WHERE task_id = $1")
            .bind(id)
            .bind(state)
            .execute(&self.sql)
            .await
            .unwrap();
    }

    fn run(&self, arguments: &[&str]) -> Ran {
        self.tidegate.run(arguments)
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let ran = self.run(&[arguments, &["--json"]].concat());
        assert_eq!(ran.code, 0, "{ran:?}");
        ran.json()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_shown_by_its_id() {
    let ledger = Ledger::create().await;
    ledger.enqueue("t-1").await;
    let task = ledger.json(&["task", "get", "t-1"]);
    assert_eq!(
        (
            &task["taskId"],
            &task["state"],
            &task["origin"],
            &task["attempts"]
        ),
        (&json!("t-1"), &json!("PENDING"), &json!("sql"), &json!(0))
    );
    assert!(task["dueAt"].is_string() && task["publishedAt"].is_null());
    let text = ledger.run(&["task", "get", "t-1"]).stdout;
    assert!(text.contains("state") && text.contains("PENDING"), "{text}");
    let envelope = ledger.run(&["task", "get", "t-1", "--envelope"]).stdout;
    assert!(
        envelope.ends_with(r#""payload":{"n":1.10}}"#),
        "byte for byte, no newline: {envelope:?}"
    );
    for more in [&[][..], &["--envelope"]] {
        let ran = ledger.run(&[&["task", "get", "nobody", "--json"][..], more].concat());
        assert_eq!(ran.code, 4, "{ran:?}");
        assert!(ran.error()["what"].as_str().unwrap().contains("nobody"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_are_listed_by_pages_and_filters() {
    let ledger = Ledger::create().await;
    for n in 1..=5 {
        ledger.enqueue(&format!("t-{n}")).await;
    }
    ledger.set("t-4", "FAILED").await;
    ledger.set("t-5", "PUBLISHED").await;
    let ids = |page: &Value| -> Vec<String> {
        let tasks = page["tasks"].as_array().unwrap();
        tasks
            .iter()
            .map(|task| task["taskId"].as_str().unwrap().to_owned())
            .collect()
    };
    let first = ledger.json(&["task", "list", "--limit", "2"]);
    assert_eq!(ids(&first), ["t-1", "t-2"], "those that wait, earliest first");
    let next = first["next"].as_str().unwrap();
    let second = ledger.json(&["task", "list", "--limit", "2", "--after", next]);
    assert_eq!(ids(&second), ["t-3", "t-5"], "then the others, latest first");
    let next = second["next"].as_str().unwrap();
    let third = ledger.json(&["task", "list", "--limit", "2", "--after", next]);
    assert_eq!(ids(&third), ["t-4"]);
    assert!(third["next"].is_null());

    assert_eq!(
        ids(&ledger.json(&[
            "task",
            "list",
            "--state",
            "failed",
            "--state",
            "PUBLISHED",
            "--error"
        ])),
        ["t-4"]
    );
    assert!(ids(&ledger.json(&["task", "list", "--type", "order.other"])).is_empty());
    assert!(ids(&ledger.json(&["task", "list", "--due-before", "2026-01-01T00:00:00+08:00"])).is_empty());
    assert_eq!(
        ids(&ledger.json(&["task", "list", "--due-after", "2026-01-01T00:00:00Z"])).len(),
        5
    );

    let ran = ledger.run(&["task", "list", "--limit", "2"]);
    assert!(ran.stdout.starts_with("TASK ID"), "{ran:?}");
    assert!(ran.stderr.contains("--after w."), "{ran:?}");
    let all = ledger.run(&["task", "list"]).stdout;
    assert!(
        !all.contains('\u{1b}') && all.contains("\\u{1b}"),
        "an error can't steer the terminal: {all}"
    );
    for wrong in [
        &["--state", "waiting"][..],
        &["--after", "here"],
        &["--limit", "0"],
        &["--due-before", "tomorrow"],
    ] {
        let ran = ledger.run(&[&["task", "list"][..], wrong].concat());
        assert_eq!(ran.code, 2, "{ran:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cancel_says_what_it_means_and_ends_accordingly() {
    let ledger = Ledger::create().await;
    for (id, state) in [
        ("waits", None),
        ("sent", Some("PUBLISHED")),
        ("runs", Some("RUNNING")),
        ("done", Some("SUCCESS")),
    ] {
        ledger.enqueue(id).await;
        if let Some(state) = state {
            ledger.set(id, state).await;
        }
    }
    let answers = ledger.json(&["task", "cancel", "waits", "sent", "runs"]);
    assert_eq!(
        answers,
        json!([
            {"taskId": "waits", "outcome": "canceled"},
            {"taskId": "sent", "outcome": "canceled_in_flight"},
            {"taskId": "runs", "outcome": "cancel_requested"},
        ])
    );
    let again = ledger.run(&["task", "cancel", "waits"]);
    assert_eq!(again.code, 0, "what was asked for is so: {again:?}");
    assert!(again.stdout.contains("already_canceled"), "{again:?}");
    let ran = ledger.run(&["task", "cancel", "done", "nobody", "--json"]);
    assert_eq!(ran.code, 5, "{ran:?}");
    assert_eq!(ran.json()[0]["outcome"], "already_ended");
    assert_eq!(ran.json()[1]["outcome"], "not_found");
    assert_eq!(ran.error()["errors"][0]["taskId"], "done");
    assert_eq!(ledger.run(&["task", "cancel", "nobody"]).code, 4);
    assert_eq!(ledger.run(&["task", "cancel"]).code, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_tasks_are_moved_and_promoted() {
    let ledger = Ledger::create().await;
    ledger.enqueue("t").await;
    let moved = ledger.json(&["task", "move", "t", "--to", "2026-01-01T09:00:00+08:00"]);
    assert_eq!(
        moved,
        json!([{"taskId": "t", "outcome": "rescheduled", "dueAt": "2026-01-01T01:00:00.000Z"}])
    );
    let before = chrono::Utc::now();
    ledger.json(&["task", "move", "t", "--in", "1h30m"]);
    let due = ledger.json(&["task", "get", "t"])["dueAt"]
        .as_str()
        .unwrap()
        .parse::<chrono::DateTime<chrono::Utc>>()
        .unwrap();
    let ahead = (due - before).num_seconds();
    assert!((5_395..5_430).contains(&ahead), "{ahead}");
    assert_eq!(
        ledger.json(&["task", "promote", "t"])[0]["outcome"],
        json!("promoted")
    );
    for wrong in [
        &["--in", "91d"][..],
        &["--to", "2126-01-01T00:00:00Z"],
        &["--in", "5"],
        &[],
        &["--in", "1h", "--to", "2026-01-01T00:00:00Z"],
    ] {
        let ran = ledger.run(&[&["task", "move", "t"][..], wrong].concat());
        assert_eq!(ran.code, 2, "{ran:?}");
    }
    ledger.set("t", "PUBLISHED").await;
    for refused in [
        &["task", "promote", "t"][..],
        &["task", "move", "t", "--in", "1h"],
    ] {
        let ran = ledger.run(refused);
        assert_eq!(ran.code, 5, "{ran:?}");
        assert!(ran.stdout.contains("already_published"), "{ran:?}");
    }
    assert_eq!(ledger.run(&["task", "promote", "nobody"]).code, 4);
}

/// One that a relay has in hand ended the command, and the rest was not asked for.
#[tokio::test(flavor = "multi_thread")]
async fn a_busy_task_holds_up_no_other() {
    let ledger = Ledger::create().await;
    for id in ["a", "held", "c"] {
        ledger.enqueue(id).await;
    }
    let mut relay = ledger.sql.begin().await.unwrap();
    sqlx::query("SELECT FROM tidegate.tasks WHERE task_id = 'held' FOR UPDATE")
        .execute(&mut *relay)
        .await
        .unwrap();
    let ran = ledger.run(&["task", "cancel", "a", "held", "c", "--json"]);
    assert_eq!(ran.code, 5, "{ran:?}");
    assert_eq!(
        ran.json(),
        json!([
            {"taskId": "a", "outcome": "canceled"},
            {"taskId": "held", "outcome": "busy"},
            {"taskId": "c", "outcome": "canceled"},
        ])
    );
    assert_eq!(ran.error()["errors"][0]["taskId"], "held");
    let ran = ledger.run(&["task", "promote", "held"]);
    assert_eq!(ran.code, 5, "{ran:?}");
    assert!(
        ran.stderr.contains("held: busy: nothing changed, try again") && !ran.stderr.contains("unavailable"),
        "{ran:?}"
    );
    relay.rollback().await.unwrap();
    assert_eq!(ledger.json(&["task", "cancel", "held"])[0]["outcome"], "canceled");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_task_is_shown_whole() {
    let ledger = Ledger::create().await;
    ledger.enqueue("t").await;
    let why = "because ".repeat(60);
    sqlx::query("UPDATE tidegate.tasks SET last_error = $1")
        .bind(&why)
        .execute(&ledger.sql)
        .await
        .unwrap();
    let shown = ledger.run(&["task", "get", "t"]).stdout;
    assert!(shown.contains(why.trim_end()), "{shown}");
    let listed = ledger.run(&["task", "list"]).stdout;
    assert!(
        listed.contains('…') && !listed.contains(why.trim_end()),
        "{listed}"
    );
    let ran = ledger.run(&["task", "move", "t", "--in", "-5m"]);
    assert!(
        ran.code == 2 && ran.stderr.contains("can't be negative") && !ran.stderr.contains("tip:"),
        "{ran:?}"
    );
}
