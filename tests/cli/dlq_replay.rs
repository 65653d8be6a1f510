//! `tidegate dlq replay` and `dlq replays`: exit codes, what is shown, what is asked.

use serde_json::{Value, json};
use sqlx::PgPool;
use tidegate_testkit::{Database, Vhost};
use uuid::Uuid;

use crate::run::{ORDER, Tidegate};

struct Stage {
    vhost: Vhost,
    database: Database,
    sql: PgPool,
    tidegate: Tidegate,
}

impl Stage {
    async fn create() -> Self {
        let (vhost, database) = (Vhost::create().await, Database::create().await);
        let tidegate = Tidegate::new()
            .file("topology/platform.toml", "")
            .file("topology/order.toml", ORDER)
            .env("AMQP_URL", vhost.amqp_url())
            .env("DATABASE_URL", database.url())
            .env("USER", "ann");
        for command in [["migrate", "--json"], ["topology", "apply"]] {
            let ran = tidegate.run(&command);
            assert_eq!(ran.code, 0, "{ran:?}");
        }
        Self {
            sql: PgPool::connect(database.url()).await.unwrap(),
            vhost,
            database,
            tidegate,
        }
    }

    /// Dead letters `from` to `to` of a type, in the archive for a minute.
    async fn dead(&self, task_type: &str, count: i32) {
        sqlx::query("SELECT tidegate.dead_letters_make_day((clock_timestamp() AT TIME ZONE 'UTC')::date)")
            .execute(&self.sql)
            .await
            .unwrap();
        sqlx::query(
            "WITH letters AS (INSERT INTO tidegate.dead_letters (day, id, archived_at, died_at, task_id, task_type, queue, routing_key, reason, \
               error_kind, error, attempts, fingerprint) \
             SELECT (t AT TIME ZONE 'UTC')::date, gen_random_uuid(), t, t, $1 || '-' || n, $1, 'order.close.queue', \
               'order.close.timeout', 'rejected', 'declined', 'card declined', 4, decode(md5($1), 'hex') \
             FROM generate_series(1, $2) AS n, \
               LATERAL (SELECT clock_timestamp() - interval '1 millisecond' * n) AS at (t) RETURNING day, id, task_id) \
             INSERT INTO tidegate.dead_letter_messages (day, id, body, properties) SELECT day, id, \
               convert_to(format('{\"taskId\":\"%s\",\"taskType\":\"%s\",\"payload\":{\"n\":1.10}}', task_id, $1), 'UTF8'), \
               '{\"properties\":{},\"headers\":{}}' FROM letters",
        )
        .bind(task_type)
        .bind(count)
        .execute(&self.sql)
        .await
        .unwrap();
    }

    async fn messages(&self) -> u64 {
        let queue = self.vhost.management().queue("order.close.queue").await;
        queue.map_or(0, |queue| queue.messages)
    }

    async fn close(self) {
        self.sql.close().await;
        self.vhost.close().await;
        self.database.close().await;
    }
}

#[tokio::test]
async fn a_replay_is_previewed_reasoned_sent_once_and_told_about() {
    let stage = Stage::create().await;
    stage.dead("order.close", 3).await;
    let run = |arguments: &[&str]| stage.tidegate.run(&[&["dlq"], arguments].concat());

    assert_eq!(run(&["replay"]).code, 2, "nothing says which");
    assert_eq!(
        run(&["replay", "state=replayed"]).code,
        2,
        "only open ones are replayed"
    );
    let ran = run(&["replay", "type=order.#", "--canary", "1%", "--dry-run", "--json"]);
    let shown = ran.json();
    assert_eq!(
        (&shown["wouldSend"], &shown["canary"], &shown["tried"]),
        (&json!(3), &json!(1), &json!(3))
    );
    assert_eq!(shown["samples"][0]["to"], "queue order.close.queue");
    let means = |choice: &str| -> Value {
        let choices = shown["choices"].as_array().unwrap();
        choices.iter().find(|c| c["choice"] == choice).unwrap()["means"].clone()
    };
    for choice in ["to", "edit", "task id", "idempotency key", "retries"] {
        assert!(means(choice).as_str().unwrap().len() > 10, "{choice}");
    }
    let patch = r#"[{"op":"replace","path":"/payload/n","value":1.20}]"#;
    let ran = run(&["replay", "type=order.#", "--patch", patch, "--dry-run"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(
        ran.stdout.contains("--- before") && ran.stdout.contains("1.10") && ran.stdout.contains("1.20"),
        "{ran:?}"
    );
    assert_eq!(run(&["replay", "type=order.#"]).code, 2, "three need a reason");
    assert_eq!(
        run(&["replay", "type=order.#", "--reason", "x", "--patch", "[{}]"]).code,
        2
    );
    assert_eq!(run(&["replay", "type=nothing.at.all", "--reason", "x"]).code, 4);
    let unfit = r#"[{"op":"remove","path":"/payload/x"}]"#;
    let ran = run(&["replay", "type=order.#", "--reason", "x", "--patch", unfit]);
    assert!(ran.code == 1 && ran.stderr.contains("3 were not sent"), "{ran:?}");
    assert_eq!(stage.messages().await, 0, "until now nothing was sent");

    let ran = run(&["replay", "type=order.#", "--reason", "bank is back"]);
    assert!(
        ran.code == 0 && ran.stdout.contains("3 of 3 sent, 0 refused"),
        "{ran:?}"
    );
    let ran = run(&["replay", "type=order.#", "--reason", "bank is back", "--json"]);
    assert_eq!(ran.code, 5, "a second call: {ran:?}");
    assert_eq!(ran.error()["errors"][0]["askedBy"], "ann");
    assert_eq!(ran.error()["errors"][0]["count"], 3);

    let runs = run(&["replays", "list", "--json"]).json();
    assert_eq!(runs.as_array().unwrap().len(), 2);
    assert_eq!(
        (&runs[0]["state"], &runs[0]["sent"], &runs[0]["why"]),
        (&json!("DONE"), &json!(3), &json!("bank is back"))
    );
    let id = runs[0]["run"].as_str().unwrap();
    let ran = run(&["replays", "show", id]);
    assert!(ran.code == 0 && ran.stdout.contains("bank is back"), "{ran:?}");
    assert_eq!(
        run(&["replays", "stop", id, "--reason", "x"]).code,
        5,
        "it has ended"
    );
    assert_eq!(run(&["replay", "--resume", id]).code, 5, "it has ended");
    let nobody = Uuid::nil().to_string();
    assert_eq!(run(&["replays", "show", &nobody]).code, 4);
    assert_eq!(run(&["replays", "stop", &nobody, "--reason", "x"]).code, 4);
    assert_eq!(run(&["replay", "--resume", &nobody]).code, 4);
    stage.close().await;
}

#[tokio::test]
async fn many_are_not_sent_without_a_question_or_a_yes() {
    let stage = Stage::create().await;
    stage.dead("order.close", 101).await;
    let run = |arguments: &[&str]| {
        let replay = ["dlq", "replay", "type=order.close", "--reason", "mended"];
        stage.tidegate.run(&[&replay, arguments].concat())
    };
    let ran = run(&[]);
    assert!(ran.code == 2 && ran.stderr.contains("--yes"), "{ran:?}");
    assert_eq!(run(&["--idempotency-key", "one-for-all", "--yes"]).code, 2);
    let ran = run(&["--yes", "--limit", "100", "--json"]);
    assert_eq!((ran.code, &ran.json()["sent"]), (0, &json!(100)), "{ran:?}");
    let ran = run(&["--json"]);
    assert_eq!(
        (ran.code, &ran.json()["sent"]),
        (0, &json!(1)),
        "one needs no question: {ran:?}"
    );
    stage.close().await;
}
