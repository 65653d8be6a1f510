//! Schedules: the shared vectors, what is refused and in which words, counting, and which rule about the clock applied.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::HashSet;
use std::time::Instant;

use chrono::{DateTime, Duration, TimeZone, Utc};
use tidegate_core::cron::{CronError, Schedule};

fn utc(text: &str) -> DateTime<Utc> {
    text.parse().unwrap()
}

fn vectors(list: &str) -> Vec<serde_json::Value> {
    let text = include_str!("../../../conformance/cron/vectors.json");
    let vectors: serde_json::Value = serde_json::from_str(text).unwrap();
    vectors[list].as_array().unwrap().clone()
}

#[test]
fn fires_as_in_the_vectors() {
    for v in vectors("fires") {
        let schedule = Schedule::parse(v["expr"].as_str().unwrap(), v["zone"].as_str().unwrap())
            .unwrap_or_else(|error| panic!("{v}: {error}"));
        let expected: Vec<_> = v["next"]
            .as_array()
            .unwrap()
            .iter()
            .map(|t| utc(t.as_str().unwrap()))
            .collect();
        let mut after = utc(v["after"].as_str().unwrap());
        let mut got = Vec::new();
        for _ in &expected {
            after = schedule.next_after(after).unwrap();
            got.push(after);
        }
        assert_eq!(got, expected, "{v}");
    }
}

/// The cases that were collected from other programs' mistakes, by name.
#[test]
fn no_case_is_missing_from_the_vectors() {
    let ids: HashSet<String> = vectors("fires")
        .iter()
        .chain(&vectors("refused"))
        .filter_map(|v| v["id"].as_str().map(str::to_owned))
        .collect();
    for id in [
        "C01", "C02", "C03", "C03b", "C04", "C05", "C06", "C07", "C07b", "C08", "C08b", "C09", "C09c", "C11",
        "C11b", "C12", "C12b", "C13", "C13c", "C14", "C14b", "C14d", "C15", "C15c", "C16", "C16c", "C16d",
        "C19", "C20", "C20b",
    ] {
        assert!(ids.contains(id), "{id}");
    }
    let refused: HashSet<(String, String)> = vectors("refused")
        .iter()
        .map(|v| {
            (
                v["expr"].as_str().unwrap().to_owned(),
                v["zone"].as_str().unwrap().to_owned(),
            )
        })
        .collect();
    for (expression, zone) in [
        ("*/0 * * * *", "UTC"),
        ("*/60 * * * *", "UTC"),
        ("*/90 * * * *", "UTC"),
        ("5/15 * * * *", "UTC"),
        ("1.5 * * * *", "UTC"),
        ("-1 * * * *", "UTC"),
        (", * * * *", "UTC"),
        ("* * * *", "UTC"),
        ("* * * * * * *", "UTC"),
        ("５ * * * *", "UTC"),
        ("0 0 30 2 *", "UTC"),
        ("0 0 31 4,6 *", "UTC"),
        ("0 0 0 1 *", "UTC"),
        ("0 0 * * *", "utc"),
        ("0 0 * * *", "+05:30"),
        ("0 0 * * *", ""),
    ] {
        assert!(
            refused.contains(&(expression.to_owned(), zone.to_owned())),
            "{expression} in {zone}"
        );
    }
}

#[test]
fn refuses_as_in_the_vectors_and_fast() {
    for v in vectors("refused") {
        let started = Instant::now();
        let error = Schedule::parse(v["expr"].as_str().unwrap(), v["zone"].as_str().unwrap())
            .err()
            .unwrap_or_else(|| panic!("{v} was accepted"));
        assert!(
            started.elapsed().as_millis() < 100,
            "{v} took {:?}",
            started.elapsed()
        );
        let kind = match error {
            CronError::TooLong { .. } => "too_long",
            CronError::FieldCount { .. } => "field_count",
            CronError::Field { .. } => "field",
            CronError::Macro { .. } => "macro",
            CronError::NeverFires { .. } => "never_fires",
            CronError::UnknownZone { .. } => "unknown_zone",
        };
        assert_eq!(kind, v["error"].as_str().unwrap(), "{v}: {error}");
    }
}

#[test]
fn errors_say_where_and_what_instead() {
    let table = [
        (
            "5/15 * * * *",
            "UTC",
            "minute field \"5/15\": a step needs a range; write 5-59/15 or */15",
        ),
        (
            "0 0 0 1 *",
            "UTC",
            "day-of-month field \"0\": \"0\" is no value here; allowed are 1-31 or L, ",
        ),
        (
            "0 0 * * FRI#6",
            "UTC",
            "after # stands 1 to 5, and FRIL is the last",
        ),
        ("0 0 * * FRI#L", "UTC", "write FRIL"),
        ("0 0 * * L", "UTC", "write FRIL for the last Friday of the month"),
        ("0 0 * * FRI-SUN#2", "UTC", "\"FRI-SUN\" is no weekday"),
        ("0 0 2#1 * *", "UTC", "'#' belongs into the day-of-week field"),
        ("0 0 ? * 1", "UTC", "write '*'"),
        ("*/90 * * * *", "UTC", "a step is 1-59"),
        ("0 0 30 2 *", "UTC", "can never fire"),
        ("@reboot", "UTC", "macro \"@reboot\" is not offered"),
        ("* * * *", "UTC", "has 4 fields"),
        ("* * * * *", "Mars/Phobos", "unknown time zone \"Mars/Phobos\""),
        ("* * * * *", "europe/berlin", "did you mean \"Europe/Berlin\"?"),
    ];
    for (expression, zone, part) in table {
        let error = Schedule::parse(expression, zone).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    let error = Schedule::parse(&format!("{} * * * *", "９".repeat(80)), "UTC")
        .unwrap_err()
        .to_string();
    assert!(error.contains("minute field") && error.len() < 700, "{error}");
}

#[test]
fn part_of_a_second_counts_as_after() {
    let schedule = Schedule::parse("* * * * * *", "UTC").unwrap();
    assert_eq!(
        schedule.next_after(utc("2025-01-01T00:00:00.999Z")),
        Some(utc("2025-01-01T00:00:01Z"))
    );
    assert_eq!(
        schedule.next_after(utc("2024-12-31T23:59:59.001Z")),
        Some(utc("2025-01-01T00:00:00Z"))
    );
}

#[test]
fn the_ends_of_time_are_no_panic() {
    for zone in ["UTC", "America/New_York", "Pacific/Apia", "Asia/Kolkata"] {
        for expression in ["0 0 29 2 *", "* * * * * *", "30 2 * * *"] {
            let schedule = Schedule::parse(expression, zone).unwrap();
            assert!(schedule.next_after(DateTime::<Utc>::MIN_UTC).is_some());
            assert_eq!(schedule.next_after(DateTime::<Utc>::MAX_UTC), None);
            let end = Utc.with_ymd_and_hms(9999, 12, 31, 23, 59, 59).unwrap() + Duration::days(2);
            assert_eq!(schedule.next_after(end), None);
        }
    }
}

#[test]
fn occurrences_are_bounded_by_limit_and_end() {
    let schedule = Schedule::parse("*/10 * * * *", "UTC").unwrap();
    let (after, until) = (utc("2025-01-01T00:00:00Z"), utc("2025-01-01T00:30:00Z"));
    assert_eq!(
        schedule.occurrences_between(after, until, 100).count(),
        3,
        "after is out, until is in"
    );
    assert_eq!(schedule.occurrences_between(after, until, 2).count(), 2);
    assert_eq!(schedule.occurrences_between(after, until, 0).count(), 0);
    assert_eq!(schedule.occurrences_between(until, after, 100).count(), 0);
}

#[test]
fn counting_does_not_walk() {
    let schedule = Schedule::parse("* * * * * *", "America/New_York").unwrap();
    let (after, until) = (utc("2015-01-01T00:00:00Z"), utc("2025-01-01T00:00:00Z"));
    let started = Instant::now();
    assert_eq!(
        schedule.count_between(after, until),
        (until - after).num_seconds() as u64
    );
    assert_eq!(
        schedule.nth_last(after, until, 3),
        Some(utc("2024-12-31T23:59:58Z"))
    );
    assert_eq!(
        schedule.nth_last(after, until, 300_000_000),
        Some(until - Duration::seconds(299_999_999))
    );
    // A walk takes minutes.
    assert!(started.elapsed().as_secs() < 2, "{:?}", started.elapsed());
    for until in [after, after - Duration::seconds(1), DateTime::<Utc>::MIN_UTC] {
        assert_eq!(schedule.count_between(after, until), 0);
        assert_eq!(schedule.nth_last(after, until, 1), None);
    }
    assert_eq!(schedule.nth_last(after, until, 0), None);
    let seldom = Schedule::parse("0 0 29 2 *", "Pacific/Apia").unwrap();
    assert_eq!(
        seldom.count_between(DateTime::<Utc>::MIN_UTC, DateTime::<Utc>::MAX_UTC),
        2424
    );
    assert_eq!(
        seldom.count_between(utc("2000-03-01T00:00:00Z"), utc("2400-03-01T12:00:00Z")),
        97
    );
}

/// (expression, zone, after) and, for each of the next occurrences, its time and the rules that bore on it.
#[test]
fn says_which_rule_about_the_clock_applied() {
    type Case = (
        &'static str,
        &'static str,
        &'static str,
        &'static [(&'static str, &'static [&'static str])],
    );
    let new_york = "America/New_York";
    let table: &[Case] = &[
        (
            "30 2 * * *",
            new_york,
            "2025-03-07T12:00:00Z",
            &[
                ("2025-03-08T07:30:00Z", &[]),
                (
                    "2025-03-09T07:00:00Z",
                    &["no 2025-03-09 02:00 to 03:00 on the clock: fires once, right after"],
                ),
                ("2025-03-10T06:30:00Z", &[]),
            ],
        ),
        (
            "30 1 * * *",
            new_york,
            "2025-11-01T12:00:00Z",
            &[
                (
                    "2025-11-02T05:30:00Z",
                    &["2025-11-02 01:00 to 02:00 comes twice: fires the first time only"],
                ),
                ("2025-11-03T06:30:00Z", &[]),
            ],
        ),
        (
            "0 * * * *",
            new_york,
            "2025-11-02T04:00:00Z",
            &[
                (
                    "2025-11-02T05:00:00Z",
                    &["2025-11-02 01:00 to 02:00 comes twice: follows real time, first of two"],
                ),
                (
                    "2025-11-02T06:00:00Z",
                    &["2025-11-02 01:00 to 02:00 comes twice: follows real time, second of two"],
                ),
                ("2025-11-02T07:00:00Z", &[]),
            ],
        ),
        (
            "*/15 2 * * *",
            new_york,
            "2025-03-08T07:45:00Z",
            &[
                (
                    "2025-03-10T06:00:00Z",
                    &["no 2025-03-09 02:00 to 03:00 on the clock: follows real time, not made up for"],
                ),
                ("2025-03-10T06:15:00Z", &[]),
            ],
        ),
        (
            "* * * * *",
            new_york,
            "2025-03-09T06:59:00Z",
            &[
                (
                    "2025-03-09T07:00:00Z",
                    &["no 2025-03-09 02:00 to 03:00 on the clock: follows real time, not made up for"],
                ),
                ("2025-03-09T07:01:00Z", &[]),
            ],
        ),
        (
            "0 12 30 12 *",
            "Pacific/Apia",
            "2011-12-29T00:00:00Z",
            &[(
                "2012-12-29T22:00:00Z",
                &["no 2011-12-30 00:00 to 2011-12-31 00:00 on the clock: over 3 hours are not made up for"],
            )],
        ),
        (
            "30 23 * * *",
            "America/Sao_Paulo",
            "2018-02-17T12:00:00Z",
            &[(
                "2018-02-18T01:30:00Z",
                &["2018-02-17 23:00 to 2018-02-18 00:00 comes twice: fires the first time only"],
            )],
        ),
        (
            "15 3 * * *",
            new_york,
            "2025-03-09T05:00:00Z",
            &[("2025-03-09T07:15:00Z", &[])],
        ),
        (
            "0 2 * * *",
            new_york,
            "2025-11-02T04:00:00Z",
            &[("2025-11-02T07:00:00Z", &[])],
        ),
    ];
    for (expression, zone, after, expected) in table {
        let schedule = Schedule::parse(expression, zone).unwrap();
        let mut after = utc(after);
        for (at, rules) in *expected {
            let next = schedule.next_after(after).unwrap();
            assert_eq!(next, utc(at), "{expression}");
            let shown: Vec<String> = schedule
                .explain(after, next)
                .iter()
                .map(ToString::to_string)
                .collect();
            assert_eq!(shown, *rules, "{expression} at {at}");
            after = next;
        }
    }
}
