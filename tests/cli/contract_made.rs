//! What `tidegate contract` makes of contracts: the catalogue and the golden envelopes.

use serde_json::{Value, json};

use crate::run::{Ran, Tidegate};

const ORDER: &str = r#"{
  "title": "Close <b>an</b> order",
  "type": "object",
  "additionalProperties": false,
  "required": ["orderId"],
  "properties": {"orderId": {"type": "string", "minLength": 1}, "weight": {"type": "number"}},
  "examples": [{"orderId": "1", "weight": 1.50}],
  "x-tidegate": {"owner": "order-team", "idempotencyKey": "/orderId"}
}
"#;

fn shop() -> Tidegate {
    Tidegate::new().file("contracts/order.close/1.json", ORDER)
}

fn read(dir: &Tidegate, name: &str) -> String {
    std::fs::read_to_string(dir.path().join(name)).unwrap()
}

fn lines(ran: &Ran) -> Vec<&str> {
    ran.stdout.lines().collect()
}

#[test]
fn a_catalogue_goes_to_stdout_in_each_form() {
    let dir = shop();
    for (format, first, title) in [
        ("markdown", "# Contracts\n", r"Close \<b\>an\</b\> order"),
        ("html", "<!doctype html>\n", "Close &lt;b&gt;an&lt;/b&gt; order"),
        (
            "asyncapi",
            "{\n  \"asyncapi\": \"3.0.0\",\n",
            "\"Close <b>an</b> order\"",
        ),
    ] {
        let ran = dir.run(&["contract", "docs", "--format", format]);
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:?}");
        assert!(
            ran.stdout.starts_with(first) && ran.stdout.contains(title),
            "{ran:?}"
        );
    }
    assert_eq!(dir.run(&["contract", "docs"]).code, 2);
    assert_eq!(
        dir.run(&["contract", "docs", "--format", "html", "--check"]).code,
        2
    );
    assert_eq!(
        dir.run(&["contract", "docs", "--format", "html", "--prefix", "A b"])
            .code,
        2
    );
    let ran = dir.run(&["contract", "docs", "--format", "asyncapi", "--prefix", "jobs"]);
    assert_eq!(
        ran.json()["channels"]["order.close"]["bindings"]["amqp"]["exchange"]["name"],
        "jobs.exchange"
    );
}

#[test]
fn a_catalogue_in_files_is_checked_against_the_contracts() {
    let dir = shop();
    let write = ["contract", "docs", "--out", "site"];
    let check = ["contract", "docs", "--out", "site", "--check"];
    let ran = dir.run(&check);
    assert_eq!(
        (ran.code, lines(&ran)[0]),
        (3, "site/asyncapi.json: isn't there"),
        "{ran:?}"
    );
    assert!(!dir.path().join("site").exists());

    let ran = dir.run(&write);
    assert_eq!(
        (ran.code, lines(&ran)),
        (
            0,
            vec![
                "site/asyncapi.json written",
                "site/contracts.html written",
                "site/contracts.md written"
            ]
        ),
        "{ran:?}"
    );
    let ran = dir.run(&check);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, ""), "{ran:?}");
    assert_eq!(lines(&dir.run(&write))[0], "site/asyncapi.json unchanged");

    let dir = dir.file(
        "contracts/order.close/1.json",
        &ORDER.replace("order-team", "shop-team"),
    );
    let ran = dir.run(&check);
    assert_eq!(ran.code, 3, "{ran:?}");
    assert_eq!(
        lines(&ran)[0],
        "site/asyncapi.json: /components/messages/order.close.v1/tags/0/name: is \"order-team\", should be \"shop-team\""
    );
    assert_eq!(
        lines(&ran)[3],
        "site/contracts.md:7: differs from this line on",
        "{ran:?}"
    );
    assert!(
        ran.stderr
            .starts_with("error: 3 files aren't as the contracts make them\n"),
        "{ran:?}"
    );

    // One form alone leaves the others as they are.
    let ran = dir.run(&["contract", "docs", "--out", "site", "--format", "markdown"]);
    assert_eq!(lines(&ran), ["site/contracts.md written"], "{ran:?}");
    assert_eq!(
        dir.run(&[
            "contract", "docs", "--out", "site", "--format", "markdown", "--check"
        ])
        .code,
        0
    );
    assert_eq!(dir.run(&check).code, 3);
}

#[test]
fn nothing_is_made_while_a_file_is_no_contract() {
    let dir = shop().file("contracts/order.paid/1.json", "{\n\"allOf\": []}");
    for call in [
        &["contract", "docs", "--out", "made"][..],
        &["contract", "docs", "--format", "html"],
        &["contract", "snapshot", "--out", "made"],
    ] {
        let ran = dir.run(call);
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{ran:?}");
        assert!(
            ran.stderr
                .contains("  - contracts/order.paid/1.json:2: \"allOf\" is not enforced"),
            "{ran:?}"
        );
    }
    assert!(!dir.path().join("made").exists());
}

#[test]
fn golden_envelopes_are_the_bodies_that_producers_send() {
    let dir = shop();
    let ran = dir.run(&["contract", "snapshot", "--out", "golden"]);
    assert_eq!(
        (ran.code, lines(&ran)),
        (0, vec!["golden/order.close/1.json written"]),
        "{ran:?}"
    );
    let text = read(&dir, "golden/order.close/1.json");
    assert!(text.contains("\"weight\": 1.50\n"), "{text}");
    assert_eq!(
        serde_json::from_str::<Value>(&text).unwrap(),
        json!({
            "taskId": "golden:order.close:1",
            "taskType": "order.close",
            "payloadVersion": 1,
            "idempotencyKey": "1",
            "payload": {"orderId": "1", "weight": 1.5},
        })
    );
    assert_eq!(
        dir.run(&["contract", "snapshot", "--out", "golden", "--check"])
            .code,
        0
    );
    assert_eq!(dir.run(&["contract", "snapshot"]).code, 2);
}

#[test]
fn a_golden_envelope_that_differs_says_where() {
    let dir = shop();
    assert_eq!(dir.run(&["contract", "snapshot", "--out", "golden"]).code, 0);
    let golden = read(&dir, "golden/order.close/1.json");
    let changed = golden
        .replace("1.50", "2")
        .replace("\"orderId\": \"1\"", "\"order\\u001bId\": [\n \"\u{202e}\"]");
    let dir = dir
        .file("golden/order.close/1.json", &changed)
        .file("golden/order.paid/1.json", "{}")
        .file("golden/README.md", "");
    let call = ["contract", "snapshot", "--out", "golden", "--check"];
    let ran = dir.run(&call);
    assert_eq!(ran.code, 3, "{ran:?}");
    assert_eq!(
        lines(&ran),
        [
            "golden/order.close/1.json: /payload/orderId: isn't there, should be \"1\"",
            "golden/order.close/1.json: /payload/order\u{fffd}Id: is [ \"\\u202e\"], shouldn't be there",
            "golden/order.close/1.json: /payload/weight: is 2, should be 1.50",
            "golden/order.paid/1.json: no contract makes it",
        ]
    );
    let ran = dir.run(&["--json", "contract", "snapshot", "--out", "golden", "--check"]);
    let values: Vec<Value> = lines(&ran)
        .into_iter()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(
        values[0]["differences"][2],
        json!({"pointer": "/payload/weight", "is": "2", "should": "1.50"})
    );
    assert_eq!(
        values[1],
        json!({"file": "golden/order.paid/1.json", "state": "extra"})
    );
    assert_eq!(ran.error()["exitCode"], 3);

    // The same values in other bytes differ too.
    let dir = dir.file("golden/order.close/1.json", &golden.replace("\n", "\n "));
    assert_eq!(
        lines(&dir.run(&call))[0],
        "golden/order.close/1.json:2: differs from this line on"
    );

    // What no contract makes is told of and stays.
    let ran = dir.run(&["contract", "snapshot", "--out", "golden"]);
    assert_eq!(
        (ran.code, lines(&ran)),
        (0, vec!["golden/order.close/1.json written"]),
        "{ran:?}"
    );
    assert!(
        ran.stderr
            .contains("golden/order.paid/1.json: no contract makes it"),
        "{ran:?}"
    );
    assert!(dir.path().join("golden/order.paid/1.json").exists());
}

#[test]
fn a_contract_without_an_example_has_no_golden_envelope() {
    let dir = shop().file("contracts/order.paid/1.json", "{}");
    let ran = dir.run(&["contract", "snapshot", "--out", "golden"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{ran:?}");
    assert!(
        ran.stderr
            .contains("  - order.paid version 1: there is no example"),
        "{ran:?}"
    );
    assert!(!dir.path().join("golden").exists());
}
