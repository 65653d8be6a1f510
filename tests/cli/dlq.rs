//! `dlq` from outside: what people and programs see, and exit codes.

use std::io::Read;

use serde_json::{Value, json};
use sqlx::PgPool;
use tidegate_testkit::Database;

use crate::run::{Ran, Tidegate};

const ID: &str = "0196a5e0-7f20-7f1b-ae7d-00000000000f";
const OTHER: &str = "0196a5e0-7f20-7f1b-ae7d-000000000010";
const POISON: &str = "0196b000-0000-7000-8000-000000000001";

struct Archive {
    database: Database,
    sql: PgPool,
    tidegate: Tidegate,
}

impl Archive {
    /// Two that are alike, and one of bytes that no terminal should see.
    async fn new() -> Self {
        let database = Database::create().await;
        let sql = PgPool::connect(database.url()).await.unwrap();
        let tidegate = Tidegate::new()
            .env("DATABASE_URL", database.url())
            .env("USER", "ann");
        assert_eq!(tidegate.run(&["migrate"]).code, 0);
        for statement in [
            "CREATE TABLE tidegate.dead_letters_20260301 PARTITION OF tidegate.dead_letters FOR VALUES FROM ('2026-03-01') TO ('2026-03-02')",
            "CREATE TABLE tidegate.dead_letter_messages_20260301 PARTITION OF tidegate.dead_letter_messages \
             FOR VALUES FROM ('2026-03-01') TO ('2026-03-02')",
            "INSERT INTO tidegate.dead_letters (day, id, archived_at, died_at, first_failed_at, task_id, task_type, queue, routing_key, reason, \
               error_kind, error, attempts, fingerprint) \
             SELECT '2026-03-01', id::uuid, at::timestamptz, at::timestamptz, '2026-03-01T09:00:00Z', 't-' || n, 'order.close', 'order.close.queue', \
               'order.close', 'retries_exhausted', 'http_503', 'no answer for order ' || n, 4, decode(md5('a'), 'hex') \
             FROM (VALUES (1, '0196a5e0-7f20-7f1b-ae7d-00000000000f', '2026-03-01T10:00:00Z'), \
                          (2, '0196a5e0-7f20-7f1b-ae7d-000000000010', '2026-03-01T11:00:00Z')) AS v (n, id, at)",
            "INSERT INTO tidegate.dead_letters (day, id, archived_at, died_at, queue, reason, error_kind, error, attempts, fingerprint) \
             VALUES ('2026-03-01', '0196b000-0000-7000-8000-000000000001', '2026-03-01T12:00:00Z', '2026-03-01T12:00:00Z', E'q\\u009b31m', \
               'invalid_envelope', 'body', E'the byte \\x1b[2J is no JSON', 1, decode(md5('b'), 'hex'))",
            "INSERT INTO tidegate.dead_letter_messages (day, id, body, properties) SELECT day, id, \
               convert_to('{\"taskId\":\"' || task_id || '\",\"payload\":{\"amount\":1.10,\"n\":9007199254740993}}', 'UTF8'), \
               '{\"properties\":{\"content_type\":\"application/json\"},\"headers\":{\"tenant\":{\"t\":\"S\",\"v\":\"acme\"}}}' \
             FROM tidegate.dead_letters WHERE task_id IS NOT NULL",
            "INSERT INTO tidegate.dead_letter_messages (day, id, body, properties) SELECT day, id, '\\x1b5b324aff00', \
               '{\"properties\":{},\"headers\":{\"x\\u001b\":{\"t\":\"S\",\"v\":\"\\u202e\\u001b[2J\"}}}' \
             FROM tidegate.dead_letters WHERE task_id IS NULL",
        ] {
            sqlx::query(statement).execute(&sql).await.unwrap();
        }
        Self {
            database,
            sql,
            tidegate,
        }
    }

    fn run(&self, arguments: &[&str]) -> Ran {
        self.tidegate.run(&[&["dlq"], arguments].concat())
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let ran = self.run(&[arguments, &["--json"]].concat());
        assert_eq!(ran.code, 0, "{ran:?}");
        ran.json()
    }

    async fn close(self) {
        self.sql.close().await;
        self.database.close().await;
    }
}

/// No byte that a terminal obeys, but for line breaks.
fn is_safe(text: &str) -> bool {
    !text
        .chars()
        .any(|c| c != '\n' && (c.is_control() || c == '\u{202e}'))
}

#[tokio::test]
async fn groups_lists_and_stories() {
    let archive = Archive::new().await;
    let groups = archive.json(&["groups"]);
    assert_eq!((&groups["total"], &groups["open"]), (&json!(2), &json!(3)));
    let group = &groups["groups"][0];
    assert_eq!(
        (
            &group["taskType"],
            &group["open"],
            &group["shareOfType"],
            &group["sampleId"]
        ),
        (&json!("order.close"), &json!(2), &json!(1.0), &json!(OTHER))
    );
    assert_eq!(group["sampleError"], "no answer for order 2");
    assert_ne!(
        group["message"], group["sampleError"],
        "numbers are taken out of a group's message"
    );
    let text = archive.run(&["groups", "type=order.#", "since=2026-03-01T23:00:00Z"]);
    assert!(
        text.stdout.contains("order.close") && text.stdout.lines().count() == 2,
        "{text:?}"
    );

    let list = archive.json(&["list", "--limit", "2"]);
    assert_eq!(
        (&list["deadLetters"][0]["id"], &list["deadLetters"][1]["id"]),
        (&json!(POISON), &json!(OTHER))
    );
    let rest = archive.json(&["list", "--limit", "2", "--after", list["next"].as_str().unwrap()]);
    assert_eq!(
        (&rest["deadLetters"][0]["id"], &rest["next"]),
        (&json!(ID), &Value::Null)
    );
    let found = archive.json(&[
        "list",
        "--type",
        "order.close",
        "reason=retries_exhausted",
        "text=order 1",
        "--state",
        "open",
    ]);
    assert_eq!(found["deadLetters"].as_array().unwrap().len(), 1);
    assert_eq!(archive.json(&["list", ID])["deadLetters"][0]["attempts"], 4);
    let text = archive.run(&["list"]);
    assert!(
        is_safe(&text.stdout) && text.stdout.contains("\\u{1b}[2J"),
        "{text:?}"
    );

    let story = archive.run(&["show", "0196a5e0-7f20-7f1b-ae7d-00000000000"]);
    assert_eq!(story.code, 0, "{story:?}");
    for part in [
        "      \"n\": 9007199254740993",
        "\"amount\": 1.10",
        "headers.tenant: acme",
        "content_type: application/json",
        "4 attempts: the first failed at 2026-03-01T09:00:00.000Z, the last at 2026-03-01T10:00:00.000Z",
        "no answer for order 1",
    ] {
        assert!(
            story.stdout.contains(part.trim_start()),
            "{part}\n{}",
            story.stdout
        );
    }
    let told = archive.json(&["show", ID]);
    assert_eq!(told["deadLetter"]["properties"]["headers"]["tenant"]["v"], "acme");
    assert_eq!(
        (&told["deaths"][0]["id"], &told["audit"]),
        (&json!(ID), &json!([]))
    );
    archive.close().await;
}

#[tokio::test]
async fn poison_is_shown_safely_and_given_exactly() {
    let archive = Archive::new().await;
    for arguments in [&["show", POISON][..], &["list", POISON], &["groups", "type=-"]] {
        let ran = archive.run(arguments);
        assert_eq!(ran.code, 0, "{ran:?}");
        assert!(is_safe(&ran.stdout), "{ran:?}");
    }
    let shown = archive.run(&["show", "0196b0"]);
    assert!(
        shown
            .stdout
            .contains("BODY (binary, 6 bytes)\n\\u{1b}[2J\\xff\\u{0}\n"),
        "{shown:?}"
    );
    let mut child = archive.tidegate.command(&["dlq", "show", POISON, "--body"]);
    let output = child.output().unwrap();
    assert_eq!(output.stdout, b"\x1b[2J\xff\0");
    assert_eq!(
        archive.json(&["show", POISON])["deadLetter"]["bodyBase64"],
        "G1sySv8A"
    );
    archive.close().await;
}

#[tokio::test]
async fn a_discard_has_a_reason_and_leaves_it() {
    let archive = Archive::new().await;
    assert_eq!(archive.run(&["discard", ID]).code, 2, "without a reason");
    assert_eq!(
        archive.run(&["discard", ID, "--reason", " "]).code,
        2,
        "a blank one"
    );
    assert_eq!(archive.run(&["discard", "--reason", "why"]).code, 2, "of nothing");
    assert_eq!(
        archive.run(&["discard", "0196a5e0", "--reason", "why"]).code,
        2,
        "of the beginning of an id"
    );
    assert_eq!(
        archive
            .run(&[
                "discard",
                "0196a5e0-0000-7f1b-ae7d-00000000000f",
                "--reason",
                "why"
            ])
            .code,
        4,
        "of one that is not there"
    );
    let would = archive.json(&["discard", "type=order.#", "--reason", "refunded", "--dry-run"]);
    assert_eq!(
        (&would["discarded"], &would["samples"][0]["id"]),
        (&json!(2), &json!(OTHER))
    );

    let done = archive.json(&["discard", ID, "--reason", "refunded", "--as", "bob"]);
    assert_eq!(done, json!({"discarded": 1, "notOpen": 0}));
    let again = archive.run(&["discard", ID, "--reason", "refunded", "--json"]);
    assert_eq!(
        (again.code, again.json()),
        (5, json!({"discarded": 0, "notOpen": 1}))
    );
    let rest = archive.json(&["discard", "type=order.#", "--reason", "all refunded"]);
    assert_eq!(rest, json!({"discarded": 1, "notOpen": 1}));

    let audit = archive.json(&["audit", "--what", "discard", "--full"]);
    let rows = audit["audit"].as_array().unwrap();
    assert_eq!(rows.len(), 2);
    assert_eq!(
        (&rows[0]["who"], &rows[0]["subject"], &rows[0]["why"]),
        (&json!("ann"), &json!("type=order.#"), &json!("all refunded"))
    );
    assert_eq!(
        (&rows[1]["who"], &rows[1]["subject"], &rows[1]["after"]["text"]),
        (&json!("bob"), &json!(ID), &json!("discarded"))
    );
    assert_eq!(
        archive.json(&["audit", "--who", "bob", "--since", "1h"])["audit"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    let page = archive.json(&["audit", "--limit", "1"]);
    let rest = archive.json(&["audit", "--limit", "1", "--after", page["next"].as_str().unwrap()]);
    assert_eq!(rest["audit"][0]["id"], rows[1]["id"]);

    // Each story tells who and why, of a discard by filter too.
    for (id, who, why) in [(ID, "bob", "refunded"), (OTHER, "ann", "all refunded")] {
        let story = archive.run(&["show", id]);
        assert!(
            story.stdout.contains("discarded") && story.stdout.contains(who) && story.stdout.contains(why),
            "{story:?}"
        );
    }
    archive.close().await;
}

#[tokio::test]
async fn a_day_is_exported_or_nothing_is_there() {
    let archive = Archive::new().await;
    let ran = archive.run(&["export", "2026-03-01"]);
    assert_eq!((ran.code, ran.stdout.lines().count()), (0, 3), "{ran:?}");
    let out = archive.tidegate.path().join("day.gz");
    let name = out.to_str().unwrap();
    let told = archive.json(&["export", "2026-03-01", "--gzip", "--out", name]);
    assert_eq!(told["lines"], 3);
    let mut unpacked = String::new();
    let packed = std::fs::File::open(&out).unwrap();
    flate2::read::GzDecoder::new(packed)
        .read_to_string(&mut unpacked)
        .unwrap();
    assert_eq!(unpacked, ran.stdout);

    // What was there before stays when the next one fails, and no part of that is left.
    let none = archive.run(&["export", "2026-03-02", "--out", name]);
    assert_eq!(none.code, 4, "{none:?}");
    assert_eq!(std::fs::read_dir(archive.tidegate.path()).unwrap().count(), 1);
    assert!(std::fs::metadata(&out).unwrap().len() > 0);
    assert_eq!(
        archive
            .run(&["export", "2026-03-01", "--out", "missing/day"])
            .code,
        1
    );
    assert_eq!(archive.run(&["export", "yesterday"]).code, 2);
    archive.close().await;
}

/// The block of the README under "What failed", line by line.
#[tokio::test]
async fn the_commands_of_the_readme_do_what_they_say() {
    let archive = Archive::new().await;
    let readme = include_str!("../../README.md");
    let section = readme.split("## What failed").nth(1).unwrap();
    let block = section
        .split("```sh\n")
        .nth(1)
        .unwrap()
        .split("```")
        .next()
        .unwrap();
    let mut commands = 0;
    for line in block.lines() {
        let call = line
            .split(" #")
            .next()
            .unwrap()
            .trim()
            .strip_prefix("tidegate ")
            .unwrap();
        // One word is in quotes, at most.
        let mut words: Vec<&str> = Vec::new();
        for (at, part) in call.split('\'').enumerate() {
            if at == 1 {
                words.push(part);
            } else {
                words.extend(part.split_whitespace());
            }
        }
        let ran = archive.tidegate.run(&words);
        assert_eq!(ran.code, 0, "{line}: {ran:?}");
        commands += 1;
    }
    assert_eq!(commands, 5);
    assert!(archive.tidegate.path().join("dead.ndjson.gz").is_file());
    archive.close().await;
}

#[tokio::test]
async fn what_is_not_understood_is_2_and_what_is_not_there_4() {
    let archive = Archive::new().await;
    for (arguments, code) in [
        (&["list", "reason=tired"][..], 2),
        (&["list", "colour=red"], 2),
        (&["list", "--since", "2h", "since=1h"], 2),
        (&["list", "--after", "nowhere"], 2),
        (&["list", "--limit", "0"], 2),
        (&["groups", "text=x"], 2),
        (&["groups", "until=1h"], 2),
        (&["show", "xyz"], 2),
        (&["show", "ffff"], 4),
        (&["show", "0196a5e0"], 5),
        (&["audit", "--since", "soon"], 2),
    ] {
        let ran = archive.run(&[arguments, &["--json"]].concat());
        assert_eq!(
            (ran.code, ran.stdout.as_str()),
            (code, ""),
            "{arguments:?}: {ran:?}"
        );
    }
    let ambiguous = archive.run(&["show", "0196a5e0", "--json"]).error();
    assert_eq!(ambiguous["errors"], json!([{"id": ID}, {"id": OTHER}]));
    archive.close().await;
}
