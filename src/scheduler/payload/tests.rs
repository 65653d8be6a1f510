use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;

fn values() -> Values<'static> {
    Values {
        name: "täglich \"neun\"",
        task_type: "a.b",
        task_id: "cron:x:20261101T053000Z",
        fire_time: "2026-11-01T05:30:00Z".parse().unwrap(),
        zone: chrono_tz::America::New_York,
    }
}

fn filled(text: &str) -> Result<String, String> {
    let payload = Payload::parse(text).map_err(|e| e.to_string())?;
    payload
        .fill(&values())
        .map(Cow::into_owned)
        .map_err(|e| e.to_string())
}

/// What the template in the one string of `{"s": …}` gives.
fn string(template: &str) -> Result<String, String> {
    let text = filled(&format!(
        "{{\"s\": {}}}",
        serde_json::to_string(template).unwrap()
    ))?;
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    Ok(value["s"].as_str().unwrap().to_owned())
}

#[test]
fn each_value_is_what_the_docs_say() {
    for (template, expected) in [
        ("{{name}}", "täglich \"neun\""),
        ("{{ task_type }}", "a.b"),
        ("{{task_id}}", "cron:x:20261101T053000Z"),
        ("{{attempt_id}}", "cron:x:20261101T053000Z"),
        ("{{fire_time}}", "2026-11-01T05:30:00Z"),
        ("{{scheduled_time}}", "2026-11-01T01:30:00-04:00"),
        ("{{scheduled_date}}", "2026-11-01"),
        ("{{zone}}", "America/New_York"),
        ("{{ scheduled_date | add_days(-1) }}", "2026-10-31"),
        ("{{ fire_time | add_days(30) }}", "2026-12-01T05:30:00Z"),
        (
            "{{ scheduled_time | date('%Y/%m/%d %H:%M') }}",
            "2026/11/01 01:30",
        ),
        (
            "{{ scheduled_date | add_days(-1) | date('%-d %b %y, %A') }}",
            "31 Oct 26, Saturday",
        ),
        ("{{ fire_time | date('%s') }}", "1793511000"),
        (
            "{{ name | upper }} {{ task_type | lower }}",
            "TÄGLICH \"NEUN\" a.b",
        ),
        (
            "{{ 'this' if scheduled_date < '2027' else 'next' }} year\n",
            "this year\n",
        ),
        ("{{ 'weekly' if zone == 'UTC' else 'daily' }}", "daily"),
        ("{{ '{{' }} {# stays #} {{'}}'}}\r\n", "{{ {# stays #} }}\r\n"),
        ("{{ 1 + 2 }}", "3"),
        ("no template {# stays #} }}", "no template {# stays #} }}"),
    ] {
        assert_eq!(string(template).as_deref(), Ok(expected), "{template}");
    }
}

#[test]
fn what_is_wrong_is_said() {
    for (template, part) in [
        ("{{ nme }}", "there is no \"nme\", only name, task_type"),
        ("{{ name", "no }}"),
        ("{{ name ' }}", "no }}"),
        ("{{ }}", "unexpected"),
        ("{{ name if }}", "unexpected"),
        ("{{ name | truncate }}", "truncate"),
        ("{{ name.x.y }}", "undefined"),
        ("{{ range(10) }}", "range"),
        ("{{ name == zone }}", "of kind bool"),
        ("{% include 'x' %}", "{% %} is not offered"),
        ("{{ 2 * 3 }}", "'*' is not offered"),
        ("{{ fire_time | date('%Q') }}", "after % may stand"),
        ("{{ fire_time | date('%') }}", "after % may stand"),
        ("{{ scheduled_date | date('%H') }}", "doesn't have"),
        ("{{ name | date('%Y') }}", "neither a date"),
        (
            "{{ scheduled_date | add_days(2147483647) }}",
            "out of the calendar",
        ),
        ("{{ scheduled_date | add_days('1') }}", "cannot convert"),
        ("{{ 1 // 0 }}", "template \"1 // 0\""),
    ] {
        let error = string(template).unwrap_err();
        assert!(
            error.contains(part) && error.contains("payload template"),
            "{template}: {error}"
        );
    }
    // A lone surrogate is no text. (jsonb refuses it already.)
    assert!(
        filled(r#"{"s": "{{name}}\ud800"}"#)
            .unwrap_err()
            .contains("no JSON")
    );
    assert!(
        filled(&format!("{{\"s\": \"{{{{name}}}}{}\"}}", "x".repeat(MAX_BYTES)))
            .unwrap_err()
            .contains("bytes")
    );
}

/// What costs more than a moment, in steps, bytes or depth, is refused, and quickly.
#[test]
fn no_template_costs_more_than_a_moment() {
    let json = |template: &str| serde_json::to_string(template).unwrap();
    let open = "(".repeat(20_000);
    for payload in [
        json("{{ [name] * 9999999 }}"),
        json("{{ '}}' ~ \"\\\"}}\" * 9999999 }}"),
        json("{{ {'a': {'b': 1}} * 3 }}"),
        json("{% set a, b = [1]*99999999 %}"),
        json("{{ name }}{%- for i in name %}{% endfor %}"),
        json("{{ [name, zone] }}"),
        json(&format!("{{{{ {open}1{} }}}}", ")".repeat(20_000))),
        json(&format!("{{{{ {}1 }}}}", "-".repeat(20_000))),
        json(&format!("{{{{ {}1 }}}}", "not ".repeat(15_000))),
        json(&format!("{{{{ {}' }}}}", "'".to_owned() + &"x".repeat(20_000))),
        json(&"{{name}}".repeat(8_000)),
        json(&format!("{{{{ {} }}}}", "name~".repeat(12_000) + "name")),
        format!("[{}]", vec![json("{{ name }}"); 5_000].join(",")),
    ] {
        let started = Instant::now();
        let error = filled(&payload).unwrap_err();
        assert!(
            started.elapsed() < Duration::from_secs(2),
            "{error}: {:?}",
            started.elapsed()
        );
    }
    let text = "x".repeat(300);
    let long = format!("{{{{zone}}}} * {text}").repeat(200);
    assert_eq!(
        string(&long).unwrap().len(),
        200 * 319,
        "within reason it may be long"
    );
}

#[test]
fn keys_numbers_and_escapes_stay_as_they_were() {
    let text = r#" {"{{name}}" : 1e2, "n":9007199254740993, "z": -0.0 ,"\u007b\u007bname}}": ["a\/b\u00e9\ud83d\ude00", "{{zone}}" ,"\"{{"], "t":"\\{{zone}}\ud83d\ude00" } "#;
    let error = filled(text).unwrap_err();
    assert!(
        error.contains("payload template"),
        "an open template is an error: {error}"
    );
    let text = text.replace(r#","\"{{""#, "");
    assert_eq!(
        filled(&text).unwrap(),
        r#" {"{{name}}" : 1e2, "n":9007199254740993, "z": -0.0 ,"\u007b\u007bname}}": ["a\/b\u00e9\ud83d\ude00", "America/New_York"], "t":"\\America/New_York😀" } "#.replace("York\"]", "York\" ]")
    );
    // Written as an escape it is a template all the same: it is the value that counts.
    assert_eq!(
        filled(r#"["\u007b{zone}}", "\u007B\u007B zone }}"]"#).unwrap(),
        r#"["America/New_York", "America/New_York"]"#
    );
}

/// JSON text, and the same as it must be after filling in `name`.
fn json() -> impl Strategy<Value = (String, String)> {
    let untouched = prop_oneof![
        Just("null".to_owned()),
        "-?[1-9][0-9]{0,20}(\\.[0-9]{1,20})?([eE][+-]?[0-9]{1,3})?",
        "\\PC{0,12}".prop_map(|text| serde_json::to_string(&text.replace('{', "")).unwrap()),
        Just(r#""\u0041\/\ud83d\ude00\n""#.to_owned()),
    ]
    .prop_map(|text| (text.clone(), text));
    let template = ("[^{}]{0,12}", "[^{}]{0,12}").prop_map(|(before, after)| {
        let text = |inside: &str| serde_json::to_string(&format!("{before}{inside}{after}")).unwrap();
        (text("{{ name }}"), text(values().name))
    });
    prop_oneof![2 => untouched, 1 => template].prop_recursive(4, 40, 6, |inner| {
        let list = prop::collection::vec(inner, 0..6);
        let key = prop_oneof![Just("{{name}}".to_owned()), "\\PC{0,8}"]
            .prop_map(|key| serde_json::to_string(&key).unwrap());
        (list, key, " {0,2}", any::<bool>()).prop_map(|(items, key, space, object)| {
            let joined = |of: fn(&(String, String)) -> &String| {
                let (open, close) = if object { ("{", "}") } else { ("[", "]") };
                let items: Vec<String> = items
                    .iter()
                    .map(|item| match object {
                        true => format!("{space}{key}{space}:{}{space}", of(item)),
                        false => format!("{space}{}", of(item)),
                    })
                    .collect();
                format!("{open}{}{close}", items.join(","))
            };
            (joined(|pair| &pair.0), joined(|pair| &pair.1))
        })
    })
}

proptest! {
    #[test]
    fn only_string_values_with_templates_change((text, expected) in json()) {
        prop_assert_eq!(filled(&text).unwrap(), expected);
    }

    #[test]
    fn whatever_it_says_it_is_valid_json_or_an_error(pieces in prop::collection::vec(
        prop_oneof![
            "\\PC{0,4}",
            Just("{{".to_owned()), Just("}}".to_owned()), Just("{%".to_owned()), Just("%}".to_owned()),
            Just(" name ".to_owned()), Just(" | ".to_owned()), Just("date('%Y')".to_owned()), Just("(".to_owned()), Just(")".to_owned()),
            Just("'\\\"".to_owned()), Just("[1,2]".to_owned()), Just(", ".to_owned()),
            Just(" * 3".to_owned()), Just("if ".to_owned()), Just("\u{0}\u{1f600}".to_owned()), Just("{#".to_owned()),
        ],
        0..16,
    )) {
        let payload = serde_json::to_string(&[pieces.concat()]).unwrap();
        if let Ok(text) = filled(&payload) {
            let strings: Vec<String> = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(strings.len(), 1);
        }
    }
}
