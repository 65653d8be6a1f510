//! Plans in files, and many deploys at once.

use serde_json::json;
use tidegate_testkit::Vhost;

use super::{Site, TEAM};
use crate::run::{ORDER, Tidegate};

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_in_a_file_is_done_or_refused_as_a_whole() {
    let site = Site::new(TEAM).await;
    assert_eq!(site.run(&["topology", "plan", "--out", "first.plan"]).code, 3);
    let path = site.tidegate.path().join("first.plan");
    let text = std::fs::read_to_string(&path).unwrap();
    let password = site.vhost.amqp_url().split(['@', ':']).nth(2).unwrap().to_owned();
    assert!(!text.contains(&password), "no secret is in a plan");

    // It is whole in itself: what the files say by then doesn't matter.
    site.team("");
    let ran = site.run(&["topology", "apply", "first.plan", "--json"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    site.team(TEAM);
    site.settled(&[]).await;
    let again = site.run(&["topology", "apply", "first.plan", "--json"]);
    assert_eq!(
        (again.code, &again.json()["added"]),
        (0, &json!(0)),
        "what is done already is fine: {again:?}"
    );

    // The broker moves on in three ways.
    site.delete("queues/VHOST/member.queue").await;
    assert_eq!(site.run(&["topology", "plan", "--out", "second.plan"]).code, 3);
    site.declare("task.old.queue", json!({"x-queue-type": "classic"}))
        .await;
    site.delete("exchanges/VHOST/task.ingress").await;
    site.declare("member.queue", json!({"x-queue-type": "classic"}))
        .await;
    let ran = site.run(&["topology", "apply", "second.plan", "--json"]);
    assert_eq!(ran.code, 5, "{ran:?}");
    let error = ran.error();
    let moved: Vec<&str> = error["errors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|e| e["object"].as_str().unwrap())
        .collect();
    assert_eq!(
        moved,
        [
            "task.ingress",
            "task.ingress → task.ingress.queue ()",
            "member.queue",
            "task.old.queue"
        ],
        "{error:#}"
    );
    let exchange = format!("/api/exchanges/{}/task.ingress", site.vhost.name());
    assert!(
        site.vhost.management().get(&exchange).await.is_none(),
        "nothing was changed"
    );
    site.vhost.close().await;
}

/// No broker is there: asked for a plan, it would be exit code 7.
#[test]
fn a_place_where_no_plan_can_be_written_is_told_before_the_broker_is_asked() {
    let tidegate = Tidegate::new()
        .file("topology/platform.toml", "")
        .file("topology/order.toml", ORDER)
        .file("a-file", "mine")
        .env("AMQP_URL", "amqp://u:p@127.0.0.1:1/v")
        .env("MANAGEMENT_URL", "http://u:p@127.0.0.1:1");
    for (out, word) in [
        ("no/such/directory/a.plan", "No such file or directory"),
        ("topology", "directory"),
        ("a-file/a.plan", "Not a directory"),
    ] {
        let ran = tidegate.run(&["topology", "plan", "--out", out, "--json"]);
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{ran:?}");
        let error = ran.error();
        assert_eq!(error["where"], out);
        let what = error["what"].as_str().unwrap();
        assert!(
            what.contains("can't be written") && what.contains(word),
            "{error}"
        );
        assert!(error["next"].as_str().unwrap().contains("--out"), "{error}");
    }
    // What can be written is neither made nor emptied before there is a plan.
    for out in ["new.plan", "a-file", "/dev/null"] {
        let ran = tidegate.run(&["topology", "plan", "--out", out]);
        assert_eq!(ran.code, 7, "{ran:?}");
    }
    assert!(!tidegate.path().join("new.plan").exists());
    let kept = std::fs::read_to_string(tidegate.path().join("a-file")).unwrap();
    assert_eq!(kept, "mine");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_for_another_place_or_by_another_hand_is_refused() {
    let site = Site::new(TEAM).await;
    assert_eq!(site.run(&["topology", "plan", "--out", "a.plan"]).code, 3);
    let plan = std::fs::read_to_string(site.tidegate.path().join("a.plan")).unwrap();
    let write = |name: &str, text: &str| std::fs::write(site.tidegate.path().join(name), text).unwrap();
    write("edited.plan", &plan.replacen("task.ingress", "task.egress", 1));
    write("garbage.plan", "{\"plan\": [");
    write("newer.plan", &plan.replacen("\"format\": 1", "\"format\": 9", 1));
    for (file, word) in [
        ("edited.plan", "changed after"),
        ("garbage.plan", "not a plan"),
        ("newer.plan", "format 9"),
        ("none.plan", "No such file"),
    ] {
        let ran = site.run(&["topology", "apply", file]);
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(ran.stderr.contains(word), "{ran:?}");
    }
    let elsewhere = Vhost::create().await;
    let mut command = site.tidegate.command(&["topology", "apply", "a.plan"]);
    let ran = command.env("AMQP_URL", elsewhere.amqp_url()).output().unwrap();
    let said = String::from_utf8(ran.stderr).unwrap();
    assert_eq!(ran.status.code(), Some(5), "{said}");
    assert!(said.contains("virtual host"), "{said}");
    assert_eq!(elsewhere.management().queues().await.len(), 0);
    elsewhere.close().await;
    site.vhost.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn four_deploys_at_once_are_as_one() {
    let site = Site::new(TEAM).await;
    assert_eq!(site.run(&["topology", "plan", "--out", "a.plan"]).code, 3);
    let children: Vec<_> = (0..4)
        .map(|n| {
            let arguments: &[&str] = if n % 2 == 0 {
                &["topology", "apply", "a.plan"]
            } else {
                &["topology", "apply", "--prune"]
            };
            let mut command = site.tidegate.command(arguments);
            command
                .stderr(std::process::Stdio::piped())
                .stdout(std::process::Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
    }
    site.settled(&[]).await;
    site.vhost.close().await;
}
