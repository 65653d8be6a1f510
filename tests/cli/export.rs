//! `topology export`, what a warning in the files looks like from outside, and a publish with exported permissions.

use serde_json::Value;
use tidegate_testkit::Vhost;

use crate::run::{ORDER, Tidegate};

const TIMEOUT: &str =
    "[[queue]]\nname = \"slow.queue\"\nbind = [\"slow.#\"]\nowner = \"o\"\nconsumer_timeout = \"2h\"\n";

fn with(team: &str) -> Tidegate {
    Tidegate::new()
        .file("topology/platform.toml", "")
        .file("topology/order.toml", ORDER)
        .file("topology/team.toml", team)
}

#[test]
fn each_form_goes_to_stdout_and_needs_no_broker() {
    for (format, first) in [
        ("definitions", "{\n"),
        ("mermaid", "flowchart LR\n"),
        ("svg", "<svg "),
        ("markdown", "# Topology\n"),
        ("permissions", "# operator\n"),
    ] {
        let ran = with(TIMEOUT).run(&["topology", "export", "--format", format]);
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:?}");
        assert!(
            ran.stdout.starts_with(first) && ran.stdout.contains("slow"),
            "{ran:?}"
        );
    }
    let ran = with(TIMEOUT).run(&["topology", "export"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{ran:?}");
}

#[test]
fn definitions_can_name_a_vhost_and_leave_policies_out() {
    let call = ["topology", "export", "--format", "definitions", "--vhost", "v 1"];
    let json = with(TIMEOUT).run(&call).json();
    assert_eq!(json["queues"][0]["vhost"], "v 1");
    assert_eq!(json["policies"][0]["definition"]["consumer-timeout"], 7_200_000);
    let json = with(TIMEOUT)
        .run(&["topology", "export", "--format", "definitions", "--no-policies"])
        .json();
    assert_eq!(
        (&json["policies"], json["queues"][0].get("vhost")),
        (&Value::Array(Vec::new()), None)
    );
}

#[test]
fn a_warning_goes_to_stderr_and_stops_nothing() {
    let both = "[[queue]]\nname = \"audit.queue\"\nowner = \"audit\"\nbind = [\"order.#\"]\n";
    let ran = with(both).run(&["topology", "export", "--format", "markdown"]);
    assert_eq!(ran.code, 0);
    assert!(ran.stdout.starts_with("# Topology"));
    let place = "warning: topology/team.toml:4: queue \"audit.queue\" takes order.#";
    assert!(
        ran.stderr.starts_with(place) && ran.stderr.contains("topology/order.toml:3"),
        "{ran:?}"
    );
    assert_eq!(ran.stderr.lines().count(), 1, "{ran:?}");
}

/// Whether a queue took the task can't be seen without a queue of one's own: that is said, and the task is published.
#[tokio::test]
async fn a_service_that_may_not_declare_publishes_and_is_told_what_was_not_checked() {
    let vhost = Vhost::create().await;
    let operator = with("").env("AMQP_URL", vhost.amqp_url());
    assert_eq!(operator.run(&["topology", "apply"]).code, 0);
    let granted = operator.run(&["topology", "export", "--format", "permissions"]);
    let line = granted
        .stdout
        .lines()
        .find(|line| line.contains("'SERVICE'"))
        .unwrap();
    let words: Vec<&str> = line.split('\'').skip(1).step_by(2).collect();
    let [_, _, configure, write, read] = words[..] else {
        panic!("{words:?}")
    };
    let user = format!("service-{}", vhost.name());
    vhost
        .management()
        .add_user(&user, "s3cret-pa55", (configure, write, read))
        .await;
    let service = with("").env("AMQP_URL", &vhost.amqp_url_as(&user, "s3cret-pa55"));
    let call = [
        "publish",
        "--type",
        "order.close",
        "--payload",
        "{}",
        "--id",
        "t-1",
        "--json",
    ];
    let ran = service.run(&call);
    assert_eq!(
        (ran.code, ran.json()["status"].as_str()),
        (0, Some("confirmed")),
        "{ran:?}"
    );
    let note = "note: whether a queue takes it can't be checked";
    assert!(
        ran.stderr.contains(note) && ran.stderr.contains("ACCESS_REFUSED"),
        "{ran:?}"
    );
    assert!(!ran.stderr.contains("s3cret-pa55"), "{ran:?}");
    let refused = service.run(&["topology", "apply"]);
    assert_eq!(refused.code, 1, "{refused:?}");
    vhost.management().remove_user(&user).await;
    vhost.close().await;
}
