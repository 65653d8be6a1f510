//! `tidegate topology verify` from outside: exit codes, what it prints, what it leaves behind.

use std::time::Duration;

use tidegate_testkit::{Process, Vhost, eventually, services};
use uuid::{NoContext, Timestamp, Uuid};

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

#[tokio::test]
async fn a_refused_login_is_said_as_a_plan_says_it_and_nothing_is_made() {
    let vhost = Vhost::create().await;
    let url = services().management;
    let (scheme, host) = (url.split_once("://").unwrap().0, url.rsplit_once('@').unwrap().1);
    let at_http = format!("{scheme}://nobody:s3cret@{host}");
    let by_http = on(&vhost).env("MANAGEMENT_URL", &at_http);
    // AMQP refuses; without the management API a plan goes by AMQP too.
    let at_amqp = vhost.amqp_url_as("nobody", "s3cret");
    let by_amqp = on(&vhost).env("AMQP_URL", &at_amqp);
    let asked = on(&vhost).env("AMQP_URL", &at_amqp).env("MANAGEMENT_URL", &url);
    for (plan, verify, setting) in [
        (&by_http, &by_http, "MANAGEMENT_URL"),
        (&by_amqp, &asked, "AMQP_URL"),
    ] {
        let plan = plan.run(&["topology", "plan", "--json"]);
        let verify = verify.run(&["topology", "verify", "--json"]);
        assert_eq!((plan.code, verify.code), (7, 7), "{plan:?} {verify:?}");
        assert_eq!(plan.error(), verify.error());
        let error = verify.error();
        assert!(error["next"].as_str().unwrap().contains(setting), "{error}");
        assert!(
            !verify.stderr.contains("s3cret") && !verify.stderr.contains("throw-away"),
            "{verify:?}"
        );
    }
    assert_eq!(left_behind(&vhost).await, Vec::<String>::new());
    vhost.close().await;
}

/// What a killed run leaves may be another's that still runs, until it is an hour old: its name says when it was made.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_killed_run_leaves_is_deleted_once_it_is_old() {
    let vhost = Vhost::create().await;
    let tidegate = on(&vhost).env("MANAGEMENT_URL", &services().management);
    let applied = tidegate.run(&["topology", "apply"]);
    assert_eq!(applied.code, 0, "{applied:?}");
    let mut process = Process::start("verify", &mut tidegate.command(&["topology", "verify"]));
    let young = eventually(
        PATIENCE,
        "the throw-away virtual host, with something in it",
        async || {
            let name = left_behind(&vhost).await.pop()?;
            let queues = vhost.management().get(&format!("/api/queues/{name}")).await?;
            (!queues.as_array()?.is_empty()).then_some(name)
        },
    )
    .await;
    process.kill();
    assert!(
        !process.output().contains("routes deliver"),
        "{}",
        process.output()
    );

    // The same two hours ago, and something of somebody else's.
    let ago = chrono::Utc::now().timestamp() - 2 * 3600;
    let made = Timestamp::from_unix(NoContext, ago.try_into().unwrap(), 0);
    let prefix = format!("{}.verify.", vhost.name());
    let (old, theirs) = (
        format!("{prefix}{}", Uuid::new_v7(made)),
        format!("{prefix}theirs"),
    );
    for name in [&old, &theirs] {
        vhost
            .management()
            .put(&format!("/api/vhosts/{name}"), &serde_json::json!({}))
            .await;
    }
    let ran = tidegate.run(&["topology", "verify"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let said = "deleted 1 virtual host that earlier runs left behind";
    assert!(ran.stderr.contains(said), "{ran:?}");
    let mut left = left_behind(&vhost).await;
    left.sort();
    assert_eq!(left, [young.clone(), theirs.clone()]);
    for name in [young, theirs] {
        vhost.management().delete(&format!("/api/vhosts/{name}")).await;
    }
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
