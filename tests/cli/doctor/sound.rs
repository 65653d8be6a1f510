//! Broker and database answer: what of the topology, the schema and the policies is as it must be?

use serde_json::{Value, json};
use sqlx::Connection;
use tidegate_testkit::{Database, Vhost, services};

use super::{assert_no_secret, complaints, on, only};

async fn execute(database: &Database, statement: &'static str) {
    let mut connection = sqlx::PgConnection::connect(database.url()).await.unwrap();
    sqlx::query(statement).execute(&mut connection).await.unwrap();
}

#[tokio::test]
async fn a_sound_installation_has_no_complaint_and_each_thing_that_is_missing_one() {
    let (vhost, database) = (Vhost::create().await, Database::create().await);
    let management = services().management;
    let tidegate = on(vhost.amqp_url(), &management, database.url());

    let ran = tidegate.run(&["doctor", "--json"]);
    assert_eq!(
        (ran.code, complaints(&ran)),
        (
            3,
            vec![
                "database.schema_missing".to_owned(),
                "topology.missing".to_owned()
            ]
        ),
        "{ran:?}"
    );
    assert!(
        ran.stdout.contains("tidegate migrate") && ran.stdout.contains("tidegate topology apply"),
        "{ran:?}"
    );
    // What AMQP alone can tell is enough to see that.
    let blind = on(vhost.amqp_url(), "", database.url()).run(&["doctor", "--json"]);
    assert_eq!(complaints(&blind), complaints(&ran), "{blind:?}");
    let unseen = blind.json()["notLookedAt"].to_string();
    assert!(
        unseen.contains("MANAGEMENT_URL (management.url) is not set"),
        "{unseen}"
    );

    assert_eq!(tidegate.run(&["topology", "apply"]).code, 0);
    only(
        &tidegate.run(&["doctor", "--json"]),
        3,
        "database.schema_missing",
        "tidegate migrate",
    );
    assert_eq!(tidegate.run(&["migrate"]).code, 0);
    let ran = tidegate.run(&["doctor", "--json"]);
    assert_eq!((ran.code, complaints(&ran)), (0, Vec::new()), "{ran:?}");
    let report = ran.json();
    assert_eq!(
        (&report["errors"], &report["warnings"], &report["notLookedAt"]),
        (&json!(0), &json!(0), &json!([]))
    );
    assert_no_secret(&ran);
    let rules: Vec<String> = report["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|f| format!("{}.{}", f["part"].as_str().unwrap(), f["rule"].as_str().unwrap()))
        .collect();
    for looked_at in [
        "broker.login",
        "broker.version",
        "broker.feature_flags",
        "broker.alarms",
        "management.clock",
        "database.clock",
        "database.schema",
        "topology.objects",
        "topology.unroutable_schedules",
    ] {
        assert!(
            rules.iter().any(|rule| rule == looked_at),
            "{looked_at}: {rules:?}"
        );
    }
    let ran = tidegate.run(&["doctor"]);
    assert!(
        ran.code == 0 && ran.stdout.ends_with("\n0 errors, 0 warnings.\n") && ran.stderr.is_empty(),
        "{ran:?}"
    );

    let ran = tidegate.run(&["doctor", "--quiet"]);
    assert_eq!(
        (ran.code, ran.stdout.as_str()),
        (0, "\n0 errors, 0 warnings.\n"),
        "{ran:?}"
    );
    // As an older program left it.
    execute(
        &database,
        "DELETE FROM tidegate.schema_migrations WHERE version = 6",
    )
    .await;
    only(
        &tidegate.run(&["doctor", "--json"]),
        3,
        "database.schema_behind",
        "tidegate migrate",
    );
    execute(
        &database,
        "INSERT INTO tidegate.schema_migrations (version, description, success, checksum, execution_time) \
         VALUES (6, '', true, 'x', 0), (99, '', true, 'x', 0)",
    )
    .await;
    let ran = tidegate.run(&["doctor", "--json"]);
    assert_eq!(
        complaints(&ran),
        ["database.schema_changed", "database.schema_ahead"],
        "{ran:?}"
    );
    vhost
        .management()
        .unbind("task.exchange", "order.close.queue")
        .await;
    let ran = tidegate.run(&["doctor", "--json"]);
    assert!(
        complaints(&ran).contains(&"topology.missing".to_owned()),
        "{ran:?}"
    );
    database.close().await;
    vhost.close().await;
}

#[tokio::test]
async fn a_policy_that_hurts_is_named_with_the_way_out() {
    let vhost = Vhost::create().await;
    let tidegate = on(vhost.amqp_url(), &services().management, "");
    assert_eq!(tidegate.run(&["topology", "apply"]).code, 0);
    let definitions = [
        json!({"overflow": "drop-head"}),
        json!({"message-ttl": 60_000}),
        json!({"max-length": 1_000}),
        json!({"delivery-limit": 3}),
    ];
    for definition in definitions {
        let policy = json!({"pattern": r"^order\.close\.queue$", "apply-to": "queues", "priority": 7, "definition": definition});
        vhost.management().put_policy("ops-1", &policy).await;
        let ran = tidegate.run(&["doctor", "--json"]);
        assert_eq!(ran.code, 3, "{ran:?}");
        assert_eq!(complaints(&ran)[0], "topology.policy", "{ran:?}");
        let report = ran.json();
        let found = report["findings"].as_array().unwrap();
        let found: Vec<&Value> = found.iter().filter(|f| f["rule"] == "policy").collect();
        assert_eq!(found.len(), 1, "{report}");
        let key = definition.as_object().unwrap().keys().next().unwrap();
        let (what, next) = (
            found[0]["what"].as_str().unwrap(),
            found[0]["next"].as_str().unwrap(),
        );
        assert!(
            what.contains(&format!("x-{key}")) && what.contains("policy ops-1"),
            "{what}"
        );
        assert!(next.contains("rabbitmqctl clear_policy"), "{next}");
        assert_eq!(found[0]["where"], json!("queue order.close.queue"));
    }
    vhost.close().await;
}

#[tokio::test]
async fn a_schedule_that_no_queue_takes_is_named() {
    let database = Database::create().await;
    let tidegate = on("", "", database.url());
    assert_eq!(tidegate.run(&["migrate"]).code, 0);
    for (name, task_type) in [("closes", "order.close.all"), ("lost", "report.daily")] {
        let add = [
            "cron",
            "add",
            name,
            "--type",
            task_type,
            "--cron",
            "@daily",
            "--payload",
            "{}",
        ];
        let ran = tidegate.run(&add);
        assert_eq!(ran.code, 0, "{ran:?}");
    }
    let ran = tidegate.run(&["doctor", "--json"]);
    assert_eq!(
        (ran.code, complaints(&ran)),
        (0, vec!["topology.unroutable_schedules".to_owned()]),
        "{ran:?}"
    );
    assert!(
        ran.stdout.contains("lost (report.daily)") && !ran.stdout.contains("closes"),
        "{ran:?}"
    );
    database.close().await;
}
