//! Layers, limits, secrets, and that the documents hold what the table says.

use super::*;
use std::{collections::BTreeMap, fs, time::Duration};

fn outside(env: &[(&str, &str)]) -> Outside {
    let env = env
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    // A file that is named, so that no tidegate.toml around the test is read.
    Outside {
        file: Some("/dev/null".into()),
        env,
        flags: Vec::new(),
    }
}

fn with_file(text: &str, env: &[(&str, &str)]) -> (tempfile::TempDir, Outside) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tidegate.toml");
    fs::write(&path, text).unwrap();
    (
        dir,
        Outside {
            file: Some(path),
            ..outside(env)
        },
    )
}

#[test]
fn defaults_fill_every_type() {
    let config = load(&outside(&[])).unwrap().config;
    assert_eq!(config.amqp.publish_connections, 2);
    assert_eq!(config.serve.grace, Duration::from_secs(25));
    assert_eq!(config.serve.roles.len(), 5);
    assert_eq!(
        config.limits.envelope(),
        tidegate_core::envelope::Limits::standard()
    );
    assert_eq!(
        config.amqp.url().unwrap_err().to_string(),
        "amqp.url is not set: set AMQP_URL, or AMQP_URL_FILE, or amqp.url in tidegate.toml"
    );
}

#[test]
fn each_layer_covers_the_one_below() {
    let (_dir, mut given) = with_file(
        "[amqp]\nin_flight = 10\npublish_connections = 10\nconnect_timeout = '1s'\n",
        &[
            ("TIDEGATE_AMQP_IN_FLIGHT", "20"),
            ("TIDEGATE_AMQP_PUBLISH_CONNECTIONS", "20"),
            ("TIDEGATE_RELAY_BATCH", ""),
        ],
    );
    given.flags.push(("amqp.in_flight".to_owned(), "30".to_owned()));
    let loaded = load(&given).unwrap();
    let amqp = &loaded.config.amqp;
    assert_eq!(
        (amqp.in_flight, amqp.publish_connections, amqp.connect_timeout),
        (30, 20, Duration::from_secs(1))
    );
    assert_eq!(
        loaded.config.relay.batch, 500,
        "an empty variable is an unset one"
    );
    assert_eq!(loaded.settings["amqp.in_flight"].source, Source::Flag);
    assert_eq!(
        loaded.settings["amqp.publish_connections"].source.to_string(),
        "TIDEGATE_AMQP_PUBLISH_CONNECTIONS"
    );
}

#[test]
fn what_is_not_known_is_an_error_that_names_what_is() {
    for (text, message) in [
        ("[relay]\nbatches = 3\n", "unknown setting \"relay.batches\""),
        ("[amqp]\nurls = 'x'\n", "known are amqp.url, amqp.url_file"),
        ("[broker]\n", "unknown setting \"broker\""),
        ("grace = '1s'\n", "known are [amqp], [management], [database]"),
        ("[serve.grace]\nx = 1\n", "serve.grace (from "),
    ] {
        let (_dir, given) = with_file(text, &[]);
        let error = load(&given).unwrap_err().to_string();
        assert!(error.contains(message), "{text}: {error}");
    }
    let error = load(&outside(&[("TIDEGATE_RELAY_BATCHES", "3")]))
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "unknown setting in the environment variable TIDEGATE_RELAY_BATCHES: known are TIDEGATE_RELAY_BATCH"
    );
    let error = load(&outside(&[("TIDEGATE_AMQP_URL", "amqp://x")]))
        .unwrap_err()
        .to_string();
    assert!(error.contains("known are AMQP_URL, AMQP_URL_FILE"), "{error}");
    load(&outside(&[
        ("TIDEGATE_METRICS_SERVICE_HOST", "10.0.0.1"),
        ("TIDEGATE_METRICS_PORT_9400_TCP_ADDR", "10.0.0.1"),
        ("TIDEGATE_DEV_STATE", "x"),
        ("TIDEGATE_METRICS_PORT", "tcp://10.0.0.1:9400"),
    ]))
    .expect("what Kubernetes and scripts set is no setting");
}

#[test]
fn a_secret_comes_from_a_file_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let secret = dir.path().join("amqp");
    fs::write(&secret, "amqp://tide:fr0m-file@mq/orders\n").unwrap();
    let path = secret.to_str().unwrap();
    let loaded = load(&outside(&[("AMQP_URL_FILE", path)])).unwrap();
    assert!(
        loaded
            .config
            .amqp
            .url()
            .unwrap()
            .expose()
            .ends_with("fr0m-file@mq/orders")
    );

    let both = [("AMQP_URL_FILE", path), ("AMQP_URL", "amqp://tide:s3cret@mq")];
    let error = load(&outside(&both)).unwrap_err().to_string();
    assert_eq!(
        error,
        "amqp.url is given twice, by AMQP_URL and as a file by AMQP_URL_FILE: keep one of them"
    );

    let (_dir, given) = with_file("[amqp]\nurl = 'amqp://low:s3cret@mq'\n", &both[..1]);
    assert!(
        load(&given)
            .unwrap()
            .config
            .amqp
            .url()
            .unwrap()
            .expose()
            .contains("fr0m-file"),
        "environment over file"
    );
    let (_dir, given) = with_file(&format!("[amqp]\nurl_file = '{path}'\n"), &both[1..]);
    assert!(
        load(&given)
            .unwrap()
            .config
            .amqp
            .url()
            .unwrap()
            .expose()
            .contains("s3cret"),
        "environment over file"
    );
    assert!(matches!(
        load(&outside(&[("AMQP_URL_FILE", "/nowhere")])),
        Err(ConfigError::Unreadable { .. })
    ));
}

#[test]
fn no_error_and_no_print_repeats_a_secret() {
    let mut errors = Vec::new();
    for text in [
        "[amqp]\nurl = 'http://tide:s3cret@mq'\n",
        "[amqp]\nurl = ['s3cret']\n",
        "[amqp]\nurl = 's3cret\n",
        "[database]\nurl = 'postgres://tide:s3cret@db'\n",
    ] {
        let (_dir, given) = with_file(text, &[]);
        errors.push(format!("{0} {0:?}", load(&given).unwrap_err()));
    }
    let mut given = outside(&[]);
    given
        .flags
        .push(("amqp.url".to_owned(), "amqp://tide:s3cret@mq".to_owned()));
    errors.push(load(&given).unwrap_err().to_string());
    let loaded = load(&outside(&[
        ("AMQP_URL", "amqp://tide:s3cret@mq/v"),
        ("DATABASE_URL", "postgres://t:s3cret@db/l"),
    ]))
    .unwrap();
    errors.push(format!("{:?}", loaded.config));
    errors.push(serde_json::to_string(&print::shown(&loaded.settings)).unwrap());
    for error in errors {
        assert!(!error.contains("s3cret"), "{error}");
    }
    let (_dir, given) = with_file("[amqp]\n\nurl = 's3cret\n", &[]);
    assert!(load(&given).unwrap_err().to_string().contains("line 3"));
}

#[test]
fn an_open_listener_needs_a_word() {
    let open = ("TIDEGATE_HTTP_LISTEN", "0.0.0.0:8080");
    assert!(matches!(load(&outside(&[open])), Err(ConfigError::OpenBind(_))));
    load(&outside(&[open, ("TIDEGATE_HTTP_INSECURE_BIND", "true")])).unwrap();
    load(&outside(&[("TIDEGATE_METRICS_LISTEN", "0.0.0.0:9400")])).unwrap();
}

#[test]
fn the_types_document_what_the_table_says() {
    let types = include_str!("sections.rs");
    let mut seen = BTreeMap::new();
    for field in fields::FIELDS {
        let default = field
            .default
            .map_or("no default".to_owned(), |default| format!("default `{default}`"));
        let ending = format!("(`{}`, {default}, {})", field.env, field.unit);
        assert!(
            types.contains(&ending),
            "a field's documentation should end with {ending}"
        );
        assert!(
            seen.insert(field.env, field.key).is_none(),
            "{} is used twice",
            field.env
        );
        let (section, name) = field.section_and_name();
        let derived = format!("TIDEGATE_{}_{}", section.to_uppercase(), name.to_uppercase());
        assert!(
            field.env == derived || !field.env.starts_with("TIDEGATE_"),
            "{} should be {derived}",
            field.env
        );
    }
}

#[test]
fn the_documentation_holds_the_table() {
    crate::telemetry::docs::assert_holds("docs/configuration.md", &print::documentation());
}

#[test]
fn the_example_file_lists_every_setting_at_its_default() {
    let text = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/tidegate.example.toml")).unwrap();
    let (_dir, given) = with_file(&text, &[]);
    let from_example = load(&given).unwrap().settings;
    for field in fields::FIELDS {
        let Some(default) = field.default else {
            let (_, name) = field.section_and_name();
            assert!(
                text.contains(&format!("\n# {name} = ")),
                "{} is missing",
                field.key
            );
            continue;
        };
        assert!(
            matches!(from_example[field.key].source, Source::File(_)),
            "{} is missing",
            field.key
        );
        assert_eq!(
            from_example[field.key].value,
            field.kind.read(&default.into()).unwrap(),
            "{}",
            field.key
        );
    }
}
