//! What needs neither broker nor database.

use serde_json::json;

use crate::run::{ORDER, Tidegate};

fn with_topology() -> Tidegate {
    Tidegate::new()
        .file("topology/platform.toml", "")
        .file("topology/order.toml", ORDER)
        .env("AMQP_URL", "amqp://u:p@127.0.0.1:1/v")
}

#[test]
fn help_names_every_command_and_exit_code() {
    let help = Tidegate::new().run(&["--help"]);
    assert_eq!((help.code, help.stderr.as_str()), (0, ""));
    for word in [
        "serve",
        "migrate",
        "topology",
        "publish",
        "cron",
        "dlq",
        "config",
        "Exit codes",
        "--json",
    ] {
        assert!(help.stdout.contains(word), "{word} is missing in {}", help.stdout);
    }
    assert!(
        Tidegate::new()
            .run(&["publish", "--help"])
            .stdout
            .contains("Examples:")
    );
    assert!(
        Tidegate::new()
            .run(&["--version"])
            .stdout
            .contains(env!("CARGO_PKG_VERSION"))
    );
}

#[test]
fn wrong_usage_is_2_and_goes_to_stderr() {
    for arguments in [
        &[][..],
        &["nonsense"],
        &["publish"],
        &["publish", "--type", "a.b", "file.json"],
        &["publish", "-", "--delay", "1s", "--at", "2026-01-01T00:00:00Z"],
        &["cron", "next"],
        &["cron", "next", "--expression", "@daily", "--count", "0"],
        &["--set", "nothing", "config", "print"],
        &["migrate", "down", "--to", "0"],
    ] {
        let ran = Tidegate::new()
            .env("DATABASE_URL", "postgres://u:p@127.0.0.1:1/x")
            .run(arguments);
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{arguments:?}: {ran:?}");
        assert!(!ran.stderr.is_empty());
    }
}

#[test]
fn wrong_settings_are_2_and_say_where() {
    let ran = Tidegate::new()
        .file("tidegate.toml", "[relay]\nbatches = 3\n")
        .run(&["config", "print"]);
    assert_eq!(ran.code, 2);
    assert!(
        ran.stderr
            .contains("unknown setting \"relay.batches\" in tidegate.toml"),
        "{}",
        ran.stderr
    );
    assert!(
        ran.stderr.contains("\n  where: ") && ran.stderr.contains("\n  next:  "),
        "{}",
        ran.stderr
    );
    let ran = Tidegate::new().run(&["--set", "relay.batches=3", "--json", "config", "print"]);
    assert_eq!((ran.code, &ran.error()["exitCode"]), (2, &json!(2)));
    let ran = Tidegate::new().run(&["migrate"]);
    assert_eq!(ran.code, 2);
    assert!(
        ran.stderr.contains("set DATABASE_URL, or DATABASE_URL_FILE"),
        "{}",
        ran.stderr
    );
    let ran = Tidegate::new().run(&["serve", "--http-listen", "0.0.0.0:0"]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("http.insecure_bind"), "{}", ran.stderr);
    let ran = Tidegate::new().run(&["--config", "nowhere.toml", "config", "print"]);
    assert_eq!(ran.code, 2);
}

#[test]
fn settings_are_shown_with_their_source_and_without_secrets() {
    let tidegate = Tidegate::new()
        .env("AMQP_URL", "amqp://tide:s3cret@mq/orders")
        .env("DATABASE_URL", "postgres://tide:s3cret@db/ledger")
        .file("tidegate.toml", "[relay]\nbatch = 7\n");
    let text = tidegate.run(&["config", "print"]);
    let json = tidegate.run(&["config", "print", "--json", "--set", "amqp.in_flight=5"]);
    assert_eq!((text.code, json.code), (0, 0));
    assert!(!text.stdout.contains("s3cret") && !json.stdout.contains("s3cret"));
    let settings = json.json();
    let setting = |key: &str| {
        settings
            .as_array()
            .unwrap()
            .iter()
            .find(|s| s["key"] == key)
            .unwrap()
            .clone()
    };
    assert_eq!(
        setting("amqp.url"),
        json!({"key": "amqp.url", "value": "amqp://tide:***@mq/orders", "source": "AMQP_URL", "env": "AMQP_URL"})
    );
    assert_eq!(setting("relay.batch")["source"], "tidegate.toml");
    assert_eq!(
        (
            &setting("amqp.in_flight")["value"],
            &setting("amqp.in_flight")["source"]
        ),
        (&json!(5), &json!("command line"))
    );
    assert!(text.stdout.contains("postgres://tide:***@db/ledger"));
}

#[test]
fn cron_next_needs_no_services() {
    let next = |extra: &[&str]| {
        let base = ["cron", "next", "--after", "2026-11-29T00:00:00Z", "--count", "2"];
        Tidegate::new().run(&[&base[..], extra].concat())
    };
    let ran = next(&["--expression", "0 9 * * mon-fri", "--zone", "Asia/Shanghai"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(
        ran.stdout,
        "2026-11-30T01:00:00Z\t2026-11-30T09:00:00+08:00\n2026-12-01T01:00:00Z\t2026-12-01T09:00:00+08:00\n"
    );
    let ran = next(&["--expression", "@daily", "--json"]);
    insta::assert_json_snapshot!(ran.json(), @r#"
    [
      {
        "local": "2026-11-30T00:00:00+00:00",
        "utc": "2026-11-30T00:00:00Z"
      },
      {
        "local": "2026-12-01T00:00:00+00:00",
        "utc": "2026-12-01T00:00:00Z"
      }
    ]
    "#);
    for wrong in [
        &["--expression", "0 9 * *"][..],
        &["--expression", "@daily", "--zone", "Mars/Base"],
    ] {
        let ran = next(wrong);
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{ran:?}");
    }
}

#[test]
fn an_invalid_envelope_lists_every_violation_and_sends_nothing() {
    let body = r#"{"taskType":"Order","payload":{"n":12345678901234567890},"scheduleTime":1}"#;
    let ran = with_topology().run_with(&["publish", "-", "--json"], body);
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{ran:?}");
    let error = ran.error();
    let pointers: Vec<_> = error["errors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|e| e["pointer"].as_str().unwrap())
        .collect();
    assert_eq!(pointers, ["/taskType", "/payload/n", "/scheduleTime"]);
    let rules = error["errors"].as_array().unwrap();
    assert!(
        rules
            .iter()
            .all(|e| e["rule"].is_string() && e["advice"].is_string()),
        "{error}"
    );
    let ran = with_topology().run_with(&["publish", "-"], body);
    assert!(
        ran.stderr.contains("  - /payload/n [number_not_exact]: ") && ran.stderr.contains("where: stdin"),
        "{}",
        ran.stderr
    );

    let lines = format!(
        "{}\n{}\n",
        r#"{"taskId":"a","taskType":"order.close","payload":{}}"#, "{}"
    );
    let ran = with_topology().run_with(&["publish", "-", "--lines"], &lines);
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""));
    assert!(ran.stderr.contains("stdin, line 2"), "{}", ran.stderr);
}

#[test]
fn delays_that_are_unclear_or_too_long_are_refused() {
    let publish =
        |flag: &str, value: &str| with_topology().run(&["publish", "--type", "order.close", flag, value]);
    for (value, part) in [
        (
            "31536000s",
            "over the limit of 90 days (limits.max_schedule_ahead",
        ),
        ("31536000000ms", "over the limit of 90 days"),
        ("1e30", "needs a unit"),
        ("1e30s", "not a delay"),
        ("99999999999999999999999999s", "longer than any limit"),
        ("-1", "can't be negative"),
        ("-1s", "can't be negative"),
        ("1.5", "write 1.5s"),
        ("60", "write 60s"),
    ] {
        let ran = publish("--delay", value);
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{value}: {ran:?}");
        assert!(ran.stderr.contains(part), "{value}: {}", ran.stderr);
    }
    let ran = publish("--at", "9999-01-01T00:00:00Z");
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("over the limit of 90 days"), "{}", ran.stderr);
    assert_eq!(publish("--at", "2026-01-01T00:00:00").code, 2, "no offset");
}

#[test]
fn a_key_that_no_queue_takes_is_4_and_names_what_there_is() {
    let ran = with_topology().run(&["publish", "--type", "order.paid", "--json"]);
    assert_eq!(ran.code, 4, "{ran:?}");
    insta::assert_json_snapshot!(ran.error(), @r#"
    {
      "errors": [
        {
          "bind": [
            "order.close.#"
          ],
          "queue": "order.close.queue"
        }
      ],
      "exitCode": 4,
      "next": "correct --key or the task type, bind a queue to it, or send it anyway with --allow-unrouted",
      "what": "no queue takes the routing key \"order.paid\"; these patterns exist:",
      "where": "topology files"
    }
    "#);
}

#[test]
fn wrong_topology_files_are_listed_with_their_lines() {
    let tidegate = with_topology().file("topology/bad.toml", "[[queue]]\nname = \"x.queue\"\nbinds = []\n");
    let ran = tidegate.run(&["topology", "apply", "--json"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(
        ran.error()["errors"][0]["file"]
            .as_str()
            .unwrap()
            .ends_with("bad.toml")
    );
    let missing = tidegate.path().join("nowhere");
    assert_eq!(
        tidegate
            .run(&["topology", "apply", "--dir", missing.to_str().unwrap()])
            .code,
        2
    );
}

#[test]
fn wrong_usage_is_json_where_json_was_asked_for() {
    for (arguments, what) in [
        (&["--json"][..], "requires a subcommand"),
        (&["--json", "cron"], "a command is missing"),
        (&["nonsense", "--json"], "unrecognized subcommand 'nonsense'"),
        (&["publish", "--json"], "<FILE>"),
        (&["cron", "list", "--json", "--colour"], "'--colour'"),
        (
            &["--json", "cron", "next", "--expression", "@daily", "--count", "0"],
            "--count <COUNT>",
        ),
    ] {
        let ran = Tidegate::new().run(arguments);
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{arguments:?}: {ran:?}");
        assert_eq!(ran.stderr.lines().count(), 1, "{arguments:?}: {ran:?}");
        let error = ran.error();
        assert_eq!(error["exitCode"], json!(2));
        let said = error["what"].as_str().unwrap();
        assert!(
            said.contains(what) && !said.contains("Usage:") && !said.starts_with("error"),
            "{arguments:?}: {said}"
        );
        assert!(error["where"].is_string() && error["next"].is_string());
    }
    let text = Tidegate::new().run(&["nonsense", "--", "--json"]);
    assert!(text.code == 2 && text.stderr.starts_with("error: "), "{text:?}");
    assert_eq!(Tidegate::new().run(&["--help", "--json"]).code, 0);
}

#[test]
fn a_database_that_is_away_is_named_with_its_reason() {
    let ran = |url: &str, arguments: &[&str]| Tidegate::new().env("DATABASE_URL", url).run(arguments);
    for arguments in [
        &["migrate"][..],
        &["migrate", "info"],
        &["cron", "list"],
        &["cron", "next", "x"],
    ] {
        let ran = ran("postgres://t:x@127.0.0.1:1/x", arguments);
        assert_eq!(ran.code, 7, "{arguments:?}: {ran:?}");
        assert!(
            ran.stderr.contains("Connection refused") && !ran.stderr.contains("tried again"),
            "{arguments:?}: {}",
            ran.stderr
        );
    }
    // Takes connections and says nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("postgres://t:x@{}/x", silent.local_addr().unwrap());
    let ran = ran(&url, &["migrate", "--set", "database.acquire_timeout=300ms"]);
    assert_eq!(ran.code, 7, "{ran:?}");
    assert!(ran.stderr.contains("no answer within 300ms"), "{}", ran.stderr);
}

#[test]
fn a_database_url_that_cannot_be_read_is_wrong_usage() {
    let ran = Tidegate::new()
        .env("DATABASE_URL", "postgres://t:s3cret@127.0.0.1:1/x?sslmode=bogus")
        .run(&["migrate", "--json"]);
    assert_eq!((ran.code, &ran.error()["exitCode"]), (2, &json!(2)), "{ran:?}");
    assert!(
        ran.error()["next"].as_str().unwrap().contains("DATABASE_URL") && !ran.stderr.contains("s3cret"),
        "{}",
        ran.stderr
    );
}

/// B21: nesting deeper than any stack is refused by every command that reads JSON; none of them dies of it.
#[test]
fn endless_nesting_ends_no_command() {
    let open = "[".repeat(60_000);
    let closed = format!("{{\"a\":{open}1{}}}", "]".repeat(60_000));
    let tidegate = with_topology()
        .file("deep.json", &closed)
        .file("open.json", &open)
        .env("MANAGEMENT_URL", "http://u:p@127.0.0.1:1");
    for (arguments, input) in [
        (&["publish", "deep.json"][..], ""),
        (&["publish", "open.json"], ""),
        (&["publish", "-"], &closed),
        (&["publish", "--type", "a.b", "--payload", &closed], ""),
        (&["topology", "apply", "deep.json"], ""),
        (&["topology", "apply", "open.json"], ""),
    ] {
        let ran = tidegate.run_with(arguments, input);
        let shown = &arguments[..2];
        let told: String = ran.stderr.chars().take(300).collect();
        assert!(
            [1, 2].contains(&ran.code),
            "{shown:?} ended with {}: {told}",
            ran.code
        );
        assert!(
            !told.contains("panicked") && ran.stderr.len() < 4_000,
            "{shown:?}: {told}"
        );
    }
}
