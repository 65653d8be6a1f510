//! What `tidegate cron` never takes, and in which words.

use crate::ledger::Ledger;

#[tokio::test]
async fn what_can_never_work_is_refused_with_advice() {
    let ledger = Ledger::create().await;
    let base = ["add", "x", "--type", "a.b"];
    // B21: deeper than any stack.
    let deep = format!("{{\"a\":{}1{}}}", "[".repeat(30_000), "]".repeat(30_000));
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
        (&["--cron", "@daily", "--payload", &deep], "deep"),
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
        (&["--cron", "@daily", "--jitter", "0.5ms"], "less than 1ms"),
        (&["--cron", "@daily", "--jitter", "-5s"], "can't be negative"),
        (
            &["--cron", "@daily", "--priority", "-1"],
            "priority is -1; write 0 to 255",
        ),
        (
            &["--cron", "@daily", "--max-retries", "-1"],
            "max retries is -1; write 0 to 100",
        ),
        (
            &["--cron", "@daily", "--catch-up-limit", "-1"],
            "catch-up limit is -1",
        ),
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
    let ran = ledger.cron(&["add", " \t", "--type", "a.b", "--cron", "@daily"]);
    assert!(
        ran.code == 2 && ran.stderr.contains("the name is blank"),
        "{ran:?}"
    );
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

/// A row that is as defined and can't be scheduled was told as fine, and as paused.
#[tokio::test]
async fn a_broken_schedule_is_not_told_as_unchanged() {
    let ledger = Ledger::create().await;
    ledger
        .execute("INSERT INTO tidegate.cron_tasks (name, task_type, cron_expression) VALUES ('bad', 'a.b', '0 0 30 2 *')")
        .await;
    ledger
        .execute("INSERT INTO tidegate.cron_tasks (name, task_type, cron_expression, payload) VALUES ('template', 'a.b', '@daily', '{\"a\": \"{{ nope }}\"}')")
        .await;
    let ran = ledger.cron(&["add", "bad", "--type", "a.b", "--cron", "0 0 30 2 *"]);
    assert!(ran.code == 2 && ran.stderr.contains("can never fire"), "{ran:?}");
    let ran = ledger.cron_with(
        &["import", "-"],
        "# name: bad\n0 0 30 2 * a.b {}\n# name: template\n@daily a.b {\"a\": \"{{ nope }}\"}\n",
    );
    assert!(
        ran.code == 2 && ran.stderr.contains("can never fire") && ran.stderr.contains("nope"),
        "{ran:?}"
    );

    // One that has ended is as it was, and is not paused.
    ledger
        .execute("INSERT INTO tidegate.cron_tasks (name, task_type, cron_expression, ends_at, exhausted) VALUES ('over', 'a.b', '@daily', '2001-01-01Z', true)")
        .await;
    let ran = ledger.tidegate.run(&[
        "cron",
        "add",
        "over",
        "--type",
        "a.b",
        "--cron",
        "@daily",
        "--ends-at",
        "2001-01-01T00:00:00Z",
    ]);
    assert!(
        ran.code == 0 && ran.stdout == "unchanged over, ended\n",
        "{ran:?}"
    );
    let listed = ledger.tidegate.run(&["cron", "list"]).stdout;
    let line = listed.lines().find(|line| line.starts_with("over")).unwrap();
    assert!(line.contains(" ended "), "{line}");
    ledger.close().await;
}

#[tokio::test]
async fn a_name_cannot_steer_the_terminal() {
    let ledger = Ledger::create().await;
    let name = "x\u{1b}[2Jy";
    let shown = "x\\u{1b}[2Jy";
    let run = |arguments: &[&str]| {
        let ran = ledger.tidegate.run(&[&["cron"], arguments].concat());
        assert!(
            !ran.stdout.contains('\u{1b}') && !ran.stderr.contains('\u{1b}'),
            "{ran:?}"
        );
        format!("{}{}", ran.stdout, ran.stderr)
    };
    for arguments in [
        &["add", name, "--type", "a.b", "--cron", "@daily"][..],
        &["add", name, "--type", "a.b", "--cron", "@hourly"],
        &["pause", name],
        &["pause", name],
        &["resume", name],
        &["resume", name],
        &["remove", name],
    ] {
        let told = run(arguments);
        assert!(told.contains(shown), "{arguments:?}: {told}");
    }
    ledger.close().await;
}
