//! `tidegate contract` needs neither broker nor database.

use serde_json::json;

use crate::run::Tidegate;

/// A contract that keeps every rule, with `more` among its properties.
fn contract(more: &str, required: &str, extension: &str) -> String {
    format!(
        r#"{{
  "title": "Close an order",
  "type": "object",
  "additionalProperties": false,
  "required": ["orderId"{required}],
  "properties": {{
    "orderId": {{"type": "string", "minLength": 1}}{more}
  }},
  "examples": [{{"orderId": "1", "currency": "CNY"}}],
  "x-tidegate": {{"owner": "order-team", "idempotencyKey": "/orderId"{extension}}}
}}
"#
    )
}

const CURRENCY: &str = ",\n    \"currency\": {\"type\": \"string\"}";

/// Version 1, and a version 2 that requires what 1 may leave out.
fn two_versions(extension: &str) -> Tidegate {
    Tidegate::new()
        .file("contracts/order.close/1.json", &contract(CURRENCY, "", ""))
        .file(
            "contracts/order.close/2.json",
            &contract(CURRENCY, ", \"currency\"", extension),
        )
}

#[test]
fn contracts_that_keep_every_rule_are_fine() {
    let ran = two_versions(r#", "upcasts": [{"op": "default", "path": "/currency", "value": "CNY"}]"#)
        .file("contracts/README.md", "not a contract")
        .run(&["contract", "check"]);
    assert_eq!(
        (ran.code, ran.stdout.as_str()),
        (0, "2 files, no findings\n"),
        "{ran:?}"
    );
}

#[test]
fn a_version_that_breaks_the_one_before_is_3_and_says_whom_it_breaks() {
    let dir = two_versions("");
    let ran = dir.run(&["contract", "check"]);
    assert_eq!(ran.code, 3, "{ran:?}");
    assert_eq!(
        ran.stdout,
        "contracts/order.close/2.json:8: /properties/currency: /currency may be missing, the reader requires it (required)\n    \
         breaks: old producers, tasks already delayed or dead of version 1\n    \
         do: keep what the older version sends valid, or declare \"upcasts\" that make it so\n\
         1 finding in 1 of 2 files\n"
    );
    assert!(
        ran.stderr.starts_with("error: there is 1 finding\n"),
        "{}",
        ran.stderr
    );
    for (mode, code) in [
        ("none", 0),
        ("forward", 0),
        ("FULL", 3),
        ("backward_transitive", 3),
    ] {
        assert_eq!(
            dir.run(&["contract", "check", "--mode", mode]).code,
            code,
            "{mode}"
        );
    }
    assert_eq!(dir.run(&["contract", "check", "--mode", "sideways"]).code, 2);
}

#[test]
fn a_report_has_a_form_for_each_reader() {
    let dir = two_versions("");
    let ran = dir.run(&["--json", "contract", "check"]);
    assert_eq!(
        ran.json(),
        json!({
            "files": ["contracts/order.close/1.json", "contracts/order.close/2.json"],
            "findings": [{
                "file": "contracts/order.close/2.json",
                "line": 8,
                "pointer": "/properties/currency",
                "rule": "required",
                "what": "/currency may be missing, the reader requires it",
                "next": "keep what the older version sends valid, or declare \"upcasts\" that make it so",
                "against": 1,
                "direction": "backward",
                "breaks": ["old_producers", "tasks_in_flight"],
            }],
        })
    );
    assert_eq!((ran.code, &ran.error()["exitCode"]), (3, &json!(3)));

    let ran = dir.run(&["contract", "check", "--format", "github"]);
    let expected = "::error file=contracts/order.close/2.json,line=8,title=required::/properties/currency: ";
    assert!(ran.code == 3 && ran.stdout.starts_with(expected), "{ran:?}");

    let ran = dir.run(&["contract", "check", "--format", "junit"]);
    let failures = "<testsuite name=\"contracts\" tests=\"2\" failures=\"1\" errors=\"0\">";
    assert!(ran.code == 3 && ran.stdout.contains(failures), "{ran:?}");
    assert!(roxmltree::Document::parse(&ran.stdout).is_ok(), "{}", ran.stdout);
}

#[test]
fn what_is_published_stays_as_it_is() {
    let published = contract(CURRENCY, "", "");
    // The same value, written in another way.
    let same = published.replace("\n", "\n ");
    let dir = Tidegate::new()
        .file("published/order.close/1.json", &published)
        .file("contracts/order.close/1.json", &same);
    let check = ["contract", "check", "--against", "published"];
    assert_eq!(dir.run(&check).code, 0);

    let dir = dir.file("contracts/order.close/1.json", &contract("", "", ""));
    let ran = dir.run(&check);
    let changed = "contracts/order.close/1.json:1: file: this version is published, and was changed (published_changed)\n";
    assert!(ran.code == 3 && ran.stdout.starts_with(changed), "{ran:?}");

    let dir = dir
        .file("contracts/order.close/1.json", &published)
        .file("published/order.paid/1.json", &published);
    let ran = dir.run(&check);
    let removed = "contracts/order.paid/1.json:1: file: this version is published, and isn't there (published_removed)\n";
    assert!(ran.code == 3 && ran.stdout.starts_with(removed), "{ran:?}");
}

/// A published version can't be corrected, so only what is new has to keep the rules.
#[test]
fn what_is_new_is_compared_with_what_is_published() {
    let old = "{\"type\": \"object\"}";
    let dir = Tidegate::new()
        .file("published/order.close/1.json", old)
        .file("contracts/order.close/1.json", old)
        .file("contracts/order.close/2.json", &contract(CURRENCY, "", ""));
    let check = ["--json", "contract", "check", "--against", "published"];
    let ran = dir.run(&check);
    let found = ran.json()["findings"].as_array().unwrap().clone();
    assert!(!found.is_empty(), "{ran:?}");
    assert!(
        found
            .iter()
            .all(|f| f["file"] == "contracts/order.close/2.json" && f["against"] == 1),
        "{ran:?}"
    );
}

#[test]
fn a_file_that_is_no_contract_is_told_of_with_its_line() {
    let dir = Tidegate::new()
        .file(
            "contracts/order.close/1.json",
            "{\n  \"type\": \"object\",\n  \"allOf\": []\n}\n",
        )
        .file("contracts/order.close/v2.json", "{}")
        .file("contracts/order.json", "{}");
    let ran = dir.run(&["contract", "check"]);
    assert_eq!(ran.code, 3, "{ran:?}");
    let lines: Vec<&str> = ran.stdout.lines().collect();
    assert_eq!(
        lines,
        [
            "contracts/order.close/1.json:3: /allOf: \"allOf\" is not enforced here; write the members of all into one object \
             (unknown_keyword)",
            "contracts/order.close/v2.json:1: file: a version is a whole number from 1 to 2147483647, without leading zeros (path)",
            "contracts/order.json:1: file: a contract stands in <taskType>/<version>.json, such as order.close/1.json (path)",
            "3 findings in 3 of 3 files",
        ]
    );
}

#[test]
fn a_service_names_types_and_versions_that_exist() {
    let dir = Tidegate::new()
        .file("contracts/order.close/1.json", &contract(CURRENCY, "", ""))
        .file(
            "tidegate.contract.toml",
            "service = \"order-service\"\n[[produces]]\ntype = \"order.close\"\nversions = [1]\n",
        )
        .file(
            "other.toml",
            "service = \"other\"\n[[consumes]]\ntype = \"order.close\"\nversions = [2]\n",
        )
        .file("broken.toml", "service = \"other\"\nowner = \"x\"\n");
    let check = |file| dir.run(&["contract", "check", "--service", file]);
    assert_eq!(check("tidegate.contract.toml").code, 0);
    let ran = check("other.toml");
    assert_eq!(ran.code, 3);
    let expected =
        "other.toml:1: /consumes/0/versions/0: order.close has no version 2; there are 1 (unknown_version)\n";
    assert!(ran.stdout.starts_with(expected), "{ran:?}");
    let ran = check("broken.toml");
    assert_eq!(ran.code, 3);
    assert!(
        ran.stdout
            .starts_with("broken.toml:2: file: unknown field `owner`"),
        "{ran:?}"
    );
    assert_eq!(check("none.toml").code, 2);
}

#[test]
fn a_check_of_nothing_does_not_pass() {
    let ran = Tidegate::new().run(&["contract", "check"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{ran:?}");
    let ran = Tidegate::new()
        .file("contracts/README.md", "")
        .run(&["contract", "check"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.stderr.contains("there is no contract"), "{ran:?}");
}

#[test]
fn contracts_are_listed_with_their_owners() {
    let dir = two_versions("").file("contracts/order.paid/1.json", "{}");
    let ran = dir.run(&["contract", "list"]);
    let lines: Vec<Vec<&str>> = ran
        .stdout
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(lines.len(), 4, "{ran:?}");
    assert_eq!(lines[0], ["TYPE", "VERSION", "OWNER", "KEY", "TITLE"]);
    assert_eq!(lines[2][..4], ["order.close", "2", "order-team", "/orderId"]);
    assert_eq!(lines[3], ["order.paid", "1", "-", "-", "-"]);
    let ran = dir.run(&["--json", "contract", "list"]);
    let first: serde_json::Value = serde_json::from_str(ran.stdout.lines().next().unwrap()).unwrap();
    assert_eq!(
        first,
        json!({
            "type": "order.close",
            "version": 1,
            "title": "Close an order",
            "owner": "order-team",
            "idempotencyKey": "/orderId",
            "upcasts": false,
        })
    );
}
