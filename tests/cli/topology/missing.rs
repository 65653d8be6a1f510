//! What is not there: shown, added, and then no difference.

use serde_json::json;

use super::{Site, TEAM, marks};

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_vhost_needs_everything_once() {
    let site = Site::new(TEAM).await;
    let plan = site.plan();
    let objects = plan["objects"].as_u64().unwrap();
    assert_eq!(
        plan["counts"],
        json!({"add": objects, "change": 0, "conflict": 0, "migrating": 0, "extra": 0})
    );
    assert_eq!(plan["notSeen"], json!([]));
    let text = site.run(&["topology", "plan"]);
    assert_eq!(text.code, 3);
    assert!(
        text.stdout
            .contains("+ queue member.queue.high\n    + x-dead-letter-exchange: \"task.failed\"\n"),
        "{text:?}"
    );
    assert!(text.stdout.ends_with(&format!(
        "Plan: {objects} to add, 0 to change, 0 conflicts, 0 extra.\n"
    )));
    assert!(!text.stdout.contains('\u{1b}'), "colour is for terminals");

    // B08: a delay for what was never declared is not accepted.
    let delayed = site.run(&["publish", "--type", "order.close", "--delay", "1s", "--json"]);
    assert_eq!(
        (delayed.code, &delayed.json()["status"]),
        (4, &json!("unroutable")),
        "{delayed:?}"
    );

    let applied = site.run(&["topology", "apply", "--json"]);
    assert_eq!(applied.code, 0, "{applied:?}");
    let json = applied.json();
    assert_eq!(
        (&json["objects"], &json["added"], &json["queues"]),
        (&json!(objects), &json!(objects), &json!(3))
    );
    site.settled(&[]).await;
    let text = site.run(&["topology", "plan"]);
    assert_eq!(text.code, 0, "{text:?}");
    assert!(
        text.stdout.ends_with(&format!(
            "No differences: the broker is as described ({objects} objects).\n"
        )),
        "{text:?}"
    );
    let again = site.run(&["topology", "apply", "--json"]);
    assert_eq!((again.code, &again.json()["added"]), (0, &json!(0)), "{again:?}");
    site.vhost.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_deleted_is_shown_as_exactly_that_and_added() {
    let site = Site::applied(TEAM).await;
    let unbound = ["add binding task.ingress → task.ingress.queue ()"];
    site.vhost
        .management()
        .unbind("task.ingress", "task.ingress.queue")
        .await;
    site.settled(&unbound).await;
    assert_eq!(site.run(&["topology", "apply"]).code, 0);
    site.settled(&[]).await;

    // Its bindings go with an exchange.
    site.delete("exchanges/VHOST/task.ingress").await;
    site.settled(&["add exchange task.ingress", unbound[0]]).await;
    site.delete("queues/VHOST/task.delay.v1.6.f").await;
    let added = [
        "add exchange task.ingress",
        unbound[0],
        "add queue task.delay.v1.6.f",
        "add binding task.delay.v1.6 → task.delay.v1.6.f (f.#)",
    ];
    site.settled(&added).await;
    let ran = site.run(&["topology", "apply", "--json"]);
    assert_eq!((ran.code, &ran.json()["added"]), (0, &json!(4)), "{ran:?}");
    site.settled(&[]).await;
    site.vhost.close().await;
}

/// By AMQP alone: all that is missing at once, and a plain word about what can't be seen.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_management_api_what_is_missing_is_still_shown() {
    let mut site = Site::new(TEAM).await;
    site.tidegate = site.tidegate.env("MANAGEMENT_URL", "");
    let plan = site.plan();
    assert_eq!(plan["counts"]["add"], plan["objects"]);
    for refused in [
        &["topology", "plan", "--out", "p"][..],
        &["topology", "apply", "--prune"],
        &["topology", "apply", "p"],
    ] {
        let ran = site.run(refused);
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(ran.stderr.contains("MANAGEMENT_URL"), "{ran:?}");
    }
    assert_eq!(site.run(&["topology", "apply"]).code, 0);
    site.delete("queues/VHOST/member.queue").await;
    site.delete("exchanges/VHOST/task.failed").await;
    let found = marks(&site.plan());
    assert!(
        found.contains(&"add queue member.queue".to_owned())
            && found.contains(&"add exchange task.failed".to_owned())
    );
    assert!(found.contains(&"add binding task.exchange → member.queue (member.*)".to_owned()));
    assert_eq!(site.run(&["topology", "apply"]).code, 0);
    let ran = site.run(&["topology", "plan"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(
        ran.stdout.contains("not seen:") && ran.stdout.ends_with("No differences in what could be seen.\n"),
        "{ran:?}"
    );
    site.vhost.close().await;
}

/// B45: names at the limit of AMQP exist, one byte more is told by file and line, with the broker untouched.
#[tokio::test(flavor = "multi_thread")]
async fn a_name_too_long_for_amqp_is_an_error_of_the_file() {
    let team = |name: &str, pattern: &str| {
        format!("[[queue]]\nname = \"{name}\"\nbind = [\"{pattern}\"]\nowner = \"o\"\n")
    };
    // The longest routing key is `*.` seven times, `to.`, and the name.
    let (name, pattern) = ("n".repeat(238), "p".repeat(236));
    let site = Site::applied(&team(&name, &pattern)).await;
    for (name, pattern) in [
        ("n".repeat(239), "a".to_owned()),
        ("a".to_owned(), "p".repeat(237)),
        ("n".repeat(256), "ä".repeat(128)),
    ] {
        site.team(&team(&name, &pattern));
        for verb in ["plan", "apply"] {
            let ran = site.run(&["topology", verb, "--json"]);
            assert_eq!(ran.code, 2, "{ran:?}");
            let error = &ran.error()["errors"][0];
            assert!(
                error["file"].as_str().unwrap().ends_with("team.toml") && error["line"].as_u64() > Some(1),
                "{error}"
            );
        }
    }
    site.team(&team(&name, &pattern));
    site.settled(&[]).await;
    site.vhost.close().await;
}
