//! `tidegate.enqueue`: in the caller's transaction, checked, and open to roles that own no table.

use std::time::Duration;

use chrono::Utc;
use sqlx::{PgPool, postgres::PgDatabaseError};
use tidegate::store::wake::Channel;
use tidegate_core::envelope::{Envelope, Limits};
use tokio::time::Instant;

use crate::{
    broker::{Broker, RelayLoop},
    support::{Database, SOON, eventually},
};

/// SQLSTATE, message, argument and hint of an error of the function.
pub(crate) fn told(error: sqlx::Error) -> (String, String, String, String) {
    let sqlx::Error::Database(error) = error else {
        panic!("{error:?}")
    };
    let error = error.downcast_ref::<PgDatabaseError>();
    let text = |value: Option<&str>| value.unwrap_or_default().to_owned();
    (
        error.code().to_owned(),
        error.message().to_owned(),
        text(error.column()),
        text(error.hint()),
    )
}

/// Evaluates `tidegate.enqueue(<arguments>)`.
pub(crate) async fn enqueue(sql: &PgPool, arguments: &str) -> sqlx::Result<String> {
    sqlx::query_scalar(sqlx::AssertSqlSafe(format!(
        "SELECT tidegate.enqueue({arguments})"
    )))
    .fetch_one(sql)
    .await
}

async fn envelope(db: &Database, id: &str) -> (String, Envelope) {
    let text = db.store.tasks().envelope(id).await.unwrap().unwrap();
    let envelope = Envelope::parse(text.as_bytes(), &Limits::standard(), Utc::now())
        .unwrap_or_else(|why| panic!("{why}: {text}"));
    (text, envelope)
}

#[tokio::test]
async fn a_payload_stays_byte_for_byte_and_the_envelope_is_a_task() {
    let db = Database::create().await;
    let payload = r#"{ "b":1.10, "a" : [1e2, "é\u00e9 \"任务"], "z":{}, "b2":-0, "big":"9007199254740993" }"#;
    for (kind, cast) in [("text", ""), ("json", "::json")] {
        let id = enqueue(&db.sql, &format!("'order.close', '{payload}'{cast}"))
            .await
            .unwrap();
        let (text, envelope) = envelope(&db, &id).await;
        assert_eq!(envelope.payload.as_str(), payload, "{kind}");
        assert_eq!(
            text,
            format!(r#"{{"taskId":"{id}","taskType":"order.close","payload":{payload}}}"#)
        );
        assert_eq!(
            uuid::Uuid::parse_str(&id).unwrap().get_version_num(),
            7,
            "ids follow time: {id}"
        );
    }
    let id = enqueue(&db.sql, r#"'order.close', '{"b":  1.10, "a": 1e2}'::jsonb"#)
        .await
        .unwrap();
    assert_eq!(
        envelope(&db, &id).await.1.payload.as_str(),
        r#"{"a": 100, "b": 1.10}"#
    );
}

#[tokio::test]
async fn every_argument_reaches_row_and_envelope() {
    let db = Database::create().await;
    let id = enqueue(
        &db.sql,
        r#"'order.close', '{"n": 1}', due_at => now() + interval '89 days', idempotency_key => E'k "\\ é', routing_key => 'order.vip',
           exchange => 'shop', payload_version => 3, max_retries => 0, timeout_ms => 1500, priority => 255,
           producer => 'shop "x"', trace_id => 't-1', task_id => 'order:1'"#,
    )
    .await
    .unwrap();
    assert_eq!(id, "order:1");
    let (_, envelope) = envelope(&db, &id).await;
    let row = db.store.tasks().get(&id).await.unwrap().unwrap();
    assert_eq!(envelope.schedule_time.unwrap(), row.due_at);
    assert_eq!(envelope.idempotency_key.as_deref(), Some(r#"k "\ é"#));
    assert_eq!(row.idempotency_key, envelope.idempotency_key);
    assert_eq!(
        (envelope.payload_version, envelope.max_retries, envelope.priority),
        (3, Some(0), 255)
    );
    assert_eq!(envelope.timeout, Some(Duration::from_millis(1_500)));
    assert_eq!(
        (envelope.producer.as_deref(), envelope.trace_id.as_deref()),
        (Some("shop \"x\""), Some("t-1"))
    );
    assert_eq!(
        (row.producer.as_deref(), row.trace_id.as_deref(), row.priority),
        (Some("shop \"x\""), Some("t-1"), 255)
    );
    assert_eq!(
        (row.exchange.as_deref(), row.routing_key.as_deref()),
        (Some("shop"), Some("order.vip"))
    );
    assert_eq!((row.origin.as_str(), row.state.as_str()), ("sql", "PENDING"));
}

#[tokio::test]
async fn what_is_wrong_is_refused_with_what_to_write() {
    let db = Database::create().await;
    let long = "x".repeat(65_530);
    let deep = r#"{"1":{"2":{"3":{"4":{"5":{}}}}}}"#;
    let nested = format!("{{\"a\":{}{}}}", "[".repeat(30_000), "]".repeat(30_000));
    for (arguments, argument, message) in [
        ("NULL, '{}'".to_owned(), "task_type", "not a task type"),
        ("'order', '{}'".to_owned(), "task_type", "not a task type"),
        ("'Order.close', '{}'".to_owned(), "task_type", "not a task type"),
        (
            "E'order.close\\n', '{}'".to_owned(),
            "task_type",
            "not a task type",
        ),
        ("'a.b.c.d.e.f.g', '{}'".to_owned(), "task_type", "not a task type"),
        ("'a.b', NULL".to_owned(), "payload", "NULL"),
        ("'a.b', ''".to_owned(), "payload", "not JSON"),
        ("'a.b', 'x'".to_owned(), "payload", "not JSON"),
        ("'a.b', '[]'".to_owned(), "payload", "not array"),
        ("'a.b', 'null'::jsonb".to_owned(), "payload", "not null"),
        (r#"'a.b', '"{}"'"#.to_owned(), "payload", "not string"),
        (
            r#"'a.b', '{"a":{"b/":1,"b/":2}}'"#.to_owned(),
            "payload",
            "at /a/b~1: the key stands twice",
        ),
        (
            r#"'a.b', '{"a":1,"\u0061":2}'"#.to_owned(),
            "payload",
            "at /a: the key stands twice",
        ),
        (
            r#"'a.b', '{"a":[9007199254740993]}'"#.to_owned(),
            "payload",
            "at /a/0: the number",
        ),
        (
            r#"'a.b', '{"a":1e400}'"#.to_owned(),
            "payload",
            "at /a: the number",
        ),
        (
            r#"'a.b', '{"a":1e99999}'"#.to_owned(),
            "payload",
            "at /a: the number",
        ),
        (
            r#"'a.b', '{"a":0.123456789012345678}'"#.to_owned(),
            "payload",
            "at /a: the number",
        ),
        (r#"'a.b', '{"a":"\u0000"}'"#.to_owned(), "payload", "u0000"),
        (r#"'a.b', '{"a":"\ud800"}'"#.to_owned(), "payload", "urrogate"),
        (
            format!("'a.b', '{deep}'"),
            "payload",
            "at /1/2/3/4/5: is nested deeper",
        ),
        (format!("'a.b', '{nested}'"), "payload", "payload"),
        (format!("'a.b', '{{\"a\":\"{long}\"}}'"), "payload", "65536"),
        (
            format!("'a.b', '{{\"a\":\"{}\"}}'", "x".repeat(65_480)),
            "payload",
            "makes a task of",
        ),
        (
            "'a.b', '{}', now() + interval '2161 hours'".to_owned(),
            "due_at",
            "90 days",
        ),
        ("'a.b', '{}', 'infinity'".to_owned(), "due_at", "90 days"),
        (
            "'a.b', '{}', '1969-12-31T23:59:59Z'".to_owned(),
            "due_at",
            "before 1970",
        ),
        (
            "'a.b', '{}', idempotency_key => ''".to_owned(),
            "idempotency_key",
            "empty",
        ),
        (
            "'a.b', '{}', idempotency_key => repeat('é', 129)".to_owned(),
            "idempotency_key",
            "256 bytes",
        ),
        (
            "'a.b', '{}', routing_key => repeat('x', 256)".to_owned(),
            "routing_key",
            "255 bytes",
        ),
        ("'a.b', '{}', exchange => ''".to_owned(), "exchange", "empty"),
        (
            "'a.b', '{}', payload_version => 0".to_owned(),
            "payload_version",
            "range",
        ),
        (
            "'a.b', '{}', max_retries => 101".to_owned(),
            "max_retries",
            "range",
        ),
        (
            "'a.b', '{}', timeout_ms => 86400001".to_owned(),
            "timeout_ms",
            "range",
        ),
        ("'a.b', '{}', priority => 256".to_owned(), "priority", "range"),
        (
            "'a.b', '{}', producer => repeat('x', 256)".to_owned(),
            "producer",
            "255 bytes",
        ),
        (
            "'a.b', '{}', task_id => 'a b'".to_owned(),
            "task_id",
            "not a task id",
        ),
    ] {
        let error = enqueue(&db.sql, &arguments)
            .await
            .expect_err(&arguments[..arguments.len().min(80)]);
        let (code, what, column, hint) = told(error);
        let shown = &arguments[..arguments.len().min(80)];
        assert_eq!(
            (code.as_str(), column.as_str()),
            ("22023", argument),
            "{shown}: {what}"
        );
        assert!(what.contains(message), "{shown}: {what}");
        assert!(!hint.is_empty(), "{shown}");
    }
    assert_eq!(db.one::<i64>("SELECT count(*) FROM tidegate.tasks").await, 0);
}

/// What the wire format allows, the function allows.
#[tokio::test]
async fn what_is_right_is_taken() {
    let db = Database::create().await;
    for payload in [
        "{}",
        " {\n} ",
        r#"{"a":{"b":{"c":{"d":[1,"2",null,true]}}}}"#,
        r#"{"n":[9007199254740992,-9007199254740992,0.1,1.0,-0,1e15,0e400,5e-324,0.30000000000000004,1.50000000000000000000000000]}"#,
        r#"{"a":1,"A":1,"":2,"b":{"a":1}}"#,
        r#"{"a":"\ud83d\ude00 ' \\ \n"}"#,
    ] {
        let id: String = sqlx::query_scalar("SELECT tidegate.enqueue('a.b', $1)")
            .bind(payload)
            .fetch_one(&db.sql)
            .await
            .unwrap_or_else(|why| panic!("{payload}: {why}"));
        assert_eq!(envelope(&db, &id).await.1.payload.as_str(), payload.trim());
    }
    let largest = 65_536 - r#"{"taskId":"t","taskType":"a.b","payload":{"a":""}}"#.len();
    let arguments = format!("'a.b', '{{\"a\":\"{}\"}}', task_id => 't'", "x".repeat(largest));
    enqueue(&db.sql, &arguments).await.unwrap();
    assert_eq!(envelope(&db, "t").await.0.len(), 65_536);
}

/// B40: the transaction fails after the call, on a unique violation.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_that_fails_after_the_call_leaves_nothing() {
    let (db, broker) = (Database::create().await, Broker::create().await);
    let relay = RelayLoop::start(&db.store, &broker.tasks);
    db.execute("CREATE TABLE orders (id int PRIMARY KEY)").await;
    for (order, fails) in [(1, false), (1, true), (2, false)] {
        let mut tx = db.sql.begin().await.unwrap();
        sqlx::query("SELECT tidegate.enqueue('order.close.timeout', json_build_object('order', $1::int))")
            .bind(order)
            .execute(&mut *tx)
            .await
            .unwrap();
        let placed = sqlx::query("INSERT INTO orders VALUES ($1)")
            .bind(order)
            .execute(&mut *tx)
            .await;
        assert_eq!(placed.is_err(), fails);
        if !fails {
            tx.commit().await.unwrap();
        }
    }
    let mut orders = Vec::new();
    eventually(SOON, "both orders' tasks", async || {
        for delivery in broker.take().await {
            let body: serde_json::Value = serde_json::from_slice(&delivery.data).unwrap();
            orders.push(body["payload"]["order"].as_i64().unwrap());
        }
        orders.len() >= 2
    })
    .await;
    relay.stop().await;
    assert!(broker.take().await.is_empty());
    orders.sort_unstable();
    assert_eq!(orders, [1, 2]);
    assert_eq!(db.one::<i64>("SELECT count(*) FROM tidegate.tasks").await, 2);
}

#[tokio::test]
async fn a_commit_wakes_the_relay() {
    let db = Database::create().await;
    let wakes = db.store.listen(Channel::Tasks);
    let far = Instant::now() + Duration::from_secs(20);
    wakes.wait_until(far, None).await;
    let mut tx = db.sql.begin().await.unwrap();
    sqlx::query("SELECT tidegate.enqueue('a.b', '{}')")
        .execute(&mut *tx)
        .await
        .unwrap();
    let near = Instant::now() + Duration::from_millis(300);
    wakes.wait_until(near, None).await;
    assert!(Instant::now() >= near, "nothing is told before the commit");
    tx.commit().await.unwrap();
    wakes.wait_until(far, None).await;
    assert!(Instant::now() < far);
}

#[tokio::test]
async fn a_producer_needs_no_table() {
    let db = Database::create().await;
    let role = format!("producer_{}", uuid::Uuid::now_v7().simple());
    let execute = |sql: String| {
        let pool = db.sql.clone();
        async move { sqlx::query(sqlx::AssertSqlSafe(sql)).execute(&pool).await }
    };
    execute(format!("CREATE ROLE {role}")).await.unwrap();
    let mut session = db.sql.acquire().await.unwrap();
    let mut as_producer = async |sql: &'static str| {
        sqlx::query(sqlx::AssertSqlSafe(format!("SET ROLE {role}")))
            .execute(&mut *session)
            .await
            .unwrap();
        let answer = sqlx::query_scalar::<_, String>(sql)
            .fetch_one(&mut *session)
            .await;
        sqlx::query("RESET ROLE").execute(&mut *session).await.unwrap();
        answer
    };
    let denied = |answer: sqlx::Result<String>| told(answer.unwrap_err()).0 == "42501";
    let call = r#"SELECT tidegate.enqueue('a.b', '{"n":1}')"#;
    assert!(denied(as_producer(call).await), "nothing is open to everybody");

    execute(format!("SELECT tidegate.allow_producer('{role}')"))
        .await
        .unwrap();
    let id = as_producer(call).await.unwrap();
    for call in [
        "SELECT tidegate.enqueue('a.b', '{}'::json)",
        "SELECT tidegate.enqueue('a.b', '{}'::jsonb, due_at => now() + interval '1 minute')",
    ] {
        as_producer(call).await.unwrap();
    }
    for call in [
        "SELECT task_id FROM tidegate.tasks LIMIT 1",
        "SELECT name FROM tidegate.cron_tasks LIMIT 1",
        "INSERT INTO tidegate.tasks (task_id, task_type, envelope) VALUES ('x', 'a.b', '{}') RETURNING task_id",
        "SELECT tidegate.promote('x')",
        "SELECT tidegate.reschedule('x', now())",
        "SELECT tidegate.allow_producer('postgres')::text",
    ] {
        assert!(denied(as_producer(call).await), "{call}");
    }
    assert_eq!(
        as_producer("SELECT tidegate.cancel('nobody')").await.unwrap(),
        "not_found"
    );
    let cancel = format!("SELECT tidegate.cancel('{id}')");
    assert_eq!(
        as_producer(Box::leak(cancel.into_boxed_str())).await.unwrap(),
        "canceled"
    );

    drop(session);
    execute(format!("DROP OWNED BY {role}")).await.unwrap();
    execute(format!("DROP ROLE {role}")).await.unwrap();
}
