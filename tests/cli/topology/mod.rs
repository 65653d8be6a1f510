//! `topology plan` and `apply` against a broker that somebody changed by hand.

mod conflicts;
mod extras;
mod files;
mod missing;
mod policies;
mod scale;

use lapin::{Channel, Connection, ConnectionProperties};
use serde_json::{Value, json};
use tidegate_testkit::{Vhost, services};

use crate::run::{Ran, Tidegate};

/// Two queues, one with all that a file can say.
const TEAM: &str = r#"
[[queue]]
name = "order.close.queue"
bind = ["order.close.#"]
owner = "order-team"
max_length = 1000

[[queue]]
name = "member.queue"
bind = ["member.*"]
owner = "member-team"
high_lane = { threshold = 200 }
"#;

/// A vhost, and the program in a directory with topology files for it.
struct Site {
    vhost: Vhost,
    tidegate: Tidegate,
}

impl Site {
    async fn new(team: &str) -> Self {
        let vhost = Vhost::create().await;
        let tidegate = Tidegate::new()
            .file("topology/platform.toml", "[[fixed_delay]]\nname = \"30m\"\n")
            .file("topology/team.toml", team)
            .env("AMQP_URL", vhost.amqp_url())
            .env("MANAGEMENT_URL", &services().management);
        Self { vhost, tidegate }
    }

    /// A site on which everything is as described.
    async fn applied(team: &str) -> Self {
        let site = Self::new(team).await;
        let ran = site.run(&["topology", "apply"]);
        assert_eq!(ran.code, 0, "{ran:?}");
        site.settled(&[]).await;
        site
    }

    fn run(&self, arguments: &[&str]) -> Ran {
        self.tidegate.run(arguments)
    }

    /// With another file of the team.
    fn team(&self, team: &str) {
        std::fs::write(self.tidegate.path().join("topology/team.toml"), team).unwrap();
    }

    /// The plan as JSON; its exit code says whether it has changes.
    fn plan(&self) -> Value {
        let ran = self.run(&["topology", "plan", "--json"]);
        let plan = ran.json();
        let expected = if plan["changes"] == true { 3 } else { 0 };
        assert_eq!(ran.code, expected, "{ran:?}");
        plan
    }

    /// Waits until the plan has these changes: what was done by AMQP is listed a moment later.
    async fn settled(&self, expected: &[&str]) -> Value {
        let mut expected = expected.to_vec();
        expected.sort_unstable();
        let last = std::sync::Mutex::new(Vec::new());
        let found = tokio::time::timeout(
            std::time::Duration::from_secs(20),
            tidegate_testkit::eventually(
                std::time::Duration::from_secs(60),
                "the plan to settle",
                async || {
                    let plan = self.plan();
                    let mut found = marks(&plan);
                    found.sort();
                    let same = found == expected;
                    *last.lock().unwrap() = found;
                    same.then_some(plan)
                },
            ),
        )
        .await;
        found.unwrap_or_else(|_| panic!("expected {expected:#?}, found {:#?}", last.lock().unwrap()))
    }

    async fn put(&self, path: &str, body: Value) {
        let path = format!("/api/{}", path.replace("VHOST", self.vhost.name()));
        self.vhost.management().put(&path, &body).await;
    }

    async fn delete(&self, path: &str) {
        let path = format!("/api/{}", path.replace("VHOST", self.vhost.name()));
        self.vhost.management().delete(&path).await;
    }

    async fn declare(&self, queue: &str, arguments: Value) {
        let body = json!({"durable": true, "arguments": arguments});
        self.put(&format!("queues/VHOST/{queue}"), body).await;
    }

    async fn bind(&self, source: &str, queue: &str, pattern: &str, arguments: Value) {
        let path = format!("/api/bindings/{}/e/{source}/q/{queue}", self.vhost.name());
        let body = json!({"routing_key": pattern, "arguments": arguments});
        self.vhost.management().post(&path, &body).await;
    }

    /// A plain client's connection and channel.
    async fn client(&self) -> (Connection, Channel) {
        let connection = Connection::connect(self.vhost.amqp_url(), ConnectionProperties::default())
            .await
            .unwrap();
        let channel = connection.create_channel().await.unwrap();
        (connection, channel)
    }

    async fn version(&self) -> (u32, u32) {
        let overview = self.vhost.management().get("/api/overview").await.unwrap();
        let text = overview["rabbitmq_version"].as_str().unwrap().to_owned();
        let mut numbers = text.split('.').map(|n| n.parse().unwrap_or(0));
        (numbers.next().unwrap(), numbers.next().unwrap())
    }
}

/// Each change as `action kind object`.
fn marks(plan: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let changes = plan["plan"].as_array().unwrap().iter();
    changes
        .map(|c| {
            format!(
                "{} {} {}",
                text(&c["action"]),
                text(&c["kind"]),
                text(&c["object"])
            )
        })
        .collect()
}

/// The differences of a conflict, as `name: on the broker (from) → wanted`.
fn differences(plan: &Value, object: &str) -> Vec<String> {
    let changes = plan["plan"].as_array().unwrap();
    let change = changes
        .iter()
        .find(|c| c["object"] == object && c.get("differences").is_some())
        .unwrap_or_else(|| panic!("no conflict of {object}: {plan:#}"));
    let line = |d: &Value| {
        let policy = d
            .get("policy")
            .map_or(String::new(), |p| format!(" {}", p.as_str().unwrap()));
        format!(
            "{}: {} ({}{policy}) → {}",
            d["argument"].as_str().unwrap(),
            d["onBroker"],
            d["from"].as_str().unwrap(),
            d["wanted"]
        )
    };
    change["differences"]
        .as_array()
        .unwrap()
        .iter()
        .map(line)
        .collect()
}
