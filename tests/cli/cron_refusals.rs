//! What `tidegate cron` never takes, and in which words.

use crate::ledger::Ledger;

#[tokio::test]
async fn what_can_never_work_is_refused_with_advice() {
    let ledger = Ledger::create().await;
    let base = ["add", "x", "--type", "a.b"];
    let table: &[(&[&str], &str)] = &[
        (&["--cron", "0 0 30 2 *"], "can never fire"),
        (&["--cron", "0 0 31 4,6 *"], "can never fire"),
        (&["--cron", "0 0 0 1 *"], "allowed are 1-31"),
        (&["--cron", "5/15 * * * *"], "write 5-59/15"),
        (&["--cron", "* * * *"], "has 4 fields"),
        (
            &["--cron", "@daily", "--zone", "Mars/Phobos"],
            "unknown time zone",
        ),
        (
            &["--cron", "@daily", "--zone", "utc"],
            "did you mean \\\"UTC\\\"?",
        ),
        (&["--cron", "@daily", "--zone", "+05:30"], "unknown time zone"),
        (&["--cron", "@daily", "--zone", ""], "unknown time zone"),
        (&["--cron", "@daily", "--payload", "{"], "the payload is no JSON"),
        (&["--cron", "@daily", "--payload", "[1]"], "/payload"),
        (
            &["--cron", "@daily", "--payload", r#"{"a": "{{ nope }}"}"#],
            "nope",
        ),
        (
            &["--cron", "@daily", "--payload", r#"{"a": "{% if %}"}"#],
            "{% %} is not offered",
        ),
        (
            &["--cron", "@daily", "--payload", r#"{"a": 1, "a": 2}"#],
            "/payload/a",
        ),
        (
            &["--cron", "@daily", "--payload", r#"{"a": 9007199254740993}"#],
            "/payload/a",
        ),
        (
            &["--cron", "@daily", "--payload", "@no/such/file"],
            "no/such/file",
        ),
        (
            &["--cron", "@daily", "--ends-at", "2001-01-01T00:00:00Z"],
            "no occurrence is left before ends_at",
        ),
        (
            &[
                "--cron",
                "@daily",
                "--starts-at",
                "2990-01-01T00:00:00Z",
                "--ends-at",
                "2990-01-01T00:00:00Z",
            ],
            "starts at or after its end",
        ),
        (
            &["--cron", "@daily", "--priority", "256"],
            "priority is 256; write 0 to 255",
        ),
        (
            &["--cron", "@daily", "--catch-up-limit", "0"],
            "catch-up limit is 0",
        ),
        (
            &["--cron", "@daily", "--max-retries", "101"],
            "max retries is 101",
        ),
        (&["--cron", "@daily", "--jitter", "25h"], "jitter in ms"),
        (&["--cron", "@daily", "--jitter", "5"], "needs a unit"),
        (&["--cron", "@daily", "--exchange", ""], "exchange has 0 bytes"),
        (&["--cron", "@daily", "--misfire", "never"], "never"),
    ];
    for (arguments, part) in table {
        let ran = ledger.cron(&[&base[..], arguments].concat());
        assert_eq!(ran.code, 2, "{arguments:?}: {ran:?}");
        assert!(ran.stderr.contains(part), "{arguments:?}: {ran:?}");
    }
    let ran = ledger.cron(&["add", "x", "--type", "NoType", "--cron", "@daily"]);
    assert!(ran.code == 2 && ran.stderr.contains("/taskType"), "{ran:?}");
    let ran = ledger.cron(&["add", "", "--type", "a.b", "--cron", "@daily"]);
    assert!(
        ran.code == 2 && ran.stderr.contains("name has 0 bytes"),
        "{ran:?}"
    );
    assert_eq!(
        ledger
            .one::<i64>("SELECT count(*) FROM tidegate.cron_tasks")
            .await,
        0
    );

    // What came by plain SQL is refused when somebody tries to bring it back.
    ledger
        .execute("INSERT INTO tidegate.cron_tasks (name, task_type, cron_expression, enabled) VALUES ('bad', 'a.b', '0 0 30 2 *', false)")
        .await;
    for verb in ["resume", "run"] {
        let ran = ledger.cron(&[verb, "bad"]);
        assert!(
            ran.code == 2 && ran.stderr.contains("can never fire"),
            "{verb}: {ran:?}"
        );
    }
    assert_eq!(ledger.one::<i64>("SELECT count(*) FROM tidegate.tasks").await, 0);
    assert!(
        !ledger
            .one::<bool>("SELECT enabled FROM tidegate.cron_tasks")
            .await
    );
    ledger.close().await;
}
