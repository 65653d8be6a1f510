//! `tidegate topology verify` from outside: exit codes, what it prints, what it leaves behind.

use std::time::Duration;

use tidegate_testkit::{Process, Vhost, eventually, services};

use crate::run::{ORDER, Tidegate};

const PATIENCE: Duration = Duration::from_secs(60);

fn on(vhost: &Vhost) -> Tidegate {
    Tidegate::new()
        .file("topology/platform.toml", "")
        .file("topology/order.toml", ORDER)
        .env("AMQP_URL", vhost.amqp_url())
}

/// Names of the virtual hosts that verifying this one made and that are still there.
async fn left_behind(vhost: &Vhost) -> Vec<String> {
    let all = vhost
        .management()
        .get("/api/vhosts?columns=name")
        .await
        .unwrap_or_default();
    let names = all.as_array().into_iter().flatten();
    let prefix = format!("{}.verify.", vhost.name());
    names
        .filter_map(|row| row["name"].as_str())
        .filter(|name| name.starts_with(&prefix))
        .map(ToOwned::to_owned)
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_exit_code_says_whether_all_routes_deliver() {
    let vhost = Vhost::create().await;
    let tidegate = on(&vhost).env("MANAGEMENT_URL", &services().management);
    let applied = tidegate.run(&["topology", "apply"]);
    assert_eq!(applied.code, 0, "{applied:?}");

    let ran = tidegate.run(&["topology", "verify", "--json"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let report = ran.json();
    assert_eq!(report["tried"], report["delivered"], "{report}");
    assert!(report["tried"].as_u64().unwrap() > 140, "{report}");
    assert_eq!(report["broken"], serde_json::json!([]));

    vhost
        .management()
        .unbind("task.failed", "task.failed.queue")
        .await;
    let ran = tidegate.run(&["topology", "verify"]);
    assert_eq!(ran.code, 3, "{ran:?}");
    let line = "task.failed → task.failed.queue: a rejected message of order.close.queue did not come out as it should: no binding";
    assert!(ran.stderr.contains(line), "{ran:?}");
    assert!(
        ran.stderr.contains("do: run `tidegate topology apply`"),
        "{ran:?}"
    );
    assert!(ran.stdout.contains(" routes deliver ("), "{ran:?}");
    assert_eq!(left_behind(&vhost).await, Vec::<String>::new());
    vhost.close().await;
}

#[tokio::test]
async fn what_it_needs_is_said_where_it_is_missing() {
    let vhost = Vhost::create().await;
    let ran = on(&vhost).run(&["topology", "verify"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.stderr.contains("MANAGEMENT_URL"), "{ran:?}");
    assert!(ran.stderr.contains("administrator"), "{ran:?}");

    // May read everything, and make no virtual host.
    let user = format!("u-{}", vhost.name());
    vhost
        .management()
        .add_user(&user, "s3cret", (".*", ".*", ".*"))
        .await;
    vhost.management().tag_user(&user, "s3cret", "policymaker").await;
    let url = services().management;
    let host = url.rsplit_once('@').map_or(url.as_str(), |(_, host)| host);
    let weak = on(&vhost).env("MANAGEMENT_URL", &format!("http://{user}:s3cret@{host}"));
    let ran = weak.run(&["topology", "verify", "--json"]);
    vhost.management().remove_user(&user).await;
    assert_eq!(ran.code, 7, "{ran:?}");
    assert!(
        ran.error()["next"].as_str().unwrap().contains("administrator"),
        "{ran:?}"
    );
    assert!(!ran.stderr.contains("s3cret"), "{ran:?}");
    vhost.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigterm_leaves_no_virtual_host() {
    let vhost = Vhost::create().await;
    let tidegate = on(&vhost).env("MANAGEMENT_URL", &services().management);
    let applied = tidegate.run(&["topology", "apply"]);
    assert_eq!(applied.code, 0, "{applied:?}");
    let mut process = Process::start("verify", &mut tidegate.command(&["topology", "verify"]));
    eventually(PATIENCE, "the throw-away virtual host", async || {
        !left_behind(&vhost).await.is_empty()
    })
    .await;
    process.terminate();
    let status = process.wait(PATIENCE).await;
    assert_eq!(status.code(), Some(1), "{}", process.output());
    assert!(process.output().contains("interrupted"), "{}", process.output());
    assert_eq!(left_behind(&vhost).await, Vec::<String>::new());
    vhost.close().await;
}
