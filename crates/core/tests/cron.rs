//! Schedules: the shared vectors, and every kind of schedule around changes of the clock against a walk over every
//! minute.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::HashSet;
use std::time::Instant;

use chrono::{DateTime, Datelike, Duration, NaiveDateTime, TimeZone, Timelike, Utc};
use proptest::prelude::*;
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

/// The rule of cron(8) word by word, over every minute. `matches` judges a local time.
fn minute_by_minute(
    zone: chrono_tz::Tz,
    real_time: bool,
    matches: impl Fn(NaiveDateTime) -> bool,
    from: DateTime<Utc>,
    until: DateTime<Utc>,
) -> Vec<DateTime<Utc>> {
    let minute = Duration::minutes(1);
    let mut fires = Vec::new();
    let mut seen = HashSet::new();
    let mut at = from - Duration::hours(26);
    let mut before = at.with_timezone(&zone).naive_local();
    while at < until {
        at += minute;
        let now = at.with_timezone(&zone).naive_local();
        let first_pass = seen.insert(now);
        let mut fire = matches(now) && (real_time || first_pass);
        let jump = now - before - minute;
        if !real_time && jump > Duration::zero() && jump <= Duration::hours(3) {
            fire |= (1..=jump.num_minutes()).any(|m| matches(before + minute * m as i32));
        }
        if fire && at >= from {
            fires.push(at);
        }
        before = now;
    }
    fires
}

/// A change of the clock, with the instant near which it happens.
const CHANGES: [(&str, &str); 14] = [
    ("America/New_York", "2025-03-09T07:00:00Z"),
    ("America/New_York", "2025-11-02T06:00:00Z"),
    ("Europe/London", "2025-03-30T01:00:00Z"),
    ("Europe/Berlin", "2025-10-26T01:00:00Z"),
    ("Australia/Lord_Howe", "2025-10-04T15:30:00Z"),
    ("Australia/Lord_Howe", "2025-04-05T15:00:00Z"),
    ("America/Sao_Paulo", "2018-11-04T03:00:00Z"),
    ("America/Sao_Paulo", "2018-02-18T02:00:00Z"),
    ("America/St_Johns", "2010-11-07T02:31:00Z"),
    ("America/St_Johns", "2010-03-14T03:31:00Z"),
    ("Antarctica/Troll", "2025-10-26T01:00:00Z"),
    ("Antarctica/Troll", "2025-03-30T01:00:00Z"),
    ("Pacific/Apia", "2011-12-30T10:00:00Z"),
    ("Asia/Kathmandu", "2025-06-01T00:00:00Z"),
];

/// A field as text and as the list of its values.
fn field(min: u32, max: u32, star: bool) -> BoxedStrategy<(String, Vec<u32>)> {
    let all = Just(("*".to_owned(), (min..=max).collect::<Vec<u32>>()));
    let steps = (2..=(max - min) / 2)
        .prop_map(move |step| (format!("*/{step}"), (min..=max).step_by(step as usize).collect()));
    let one = (min..=max).prop_map(|value| (value.to_string(), vec![value]));
    let two = (min..=max, min..=max).prop_map(|(a, b)| (format!("{a},{b}"), vec![a, b]));
    let range = (min..=max, min..=max).prop_map(move |(a, b)| {
        let values = if a <= b {
            (a..=b).collect()
        } else {
            (min..=b).chain(a..=max).collect()
        };
        (format!("{a}-{b}"), values)
    });
    if star {
        prop_oneof![all, steps, one, two, range].boxed()
    } else {
        prop_oneof![one, two, range].boxed()
    }
}

/// A day-of-week field, mostly of the kind that looks at the month.
fn weekday_of_the_month() -> impl Strategy<Value = String> {
    let one = || {
        prop_oneof![
            3 => (0..=7u32, 1..=5u32).prop_map(|(day, n)| format!("{day}#{n}")),
            2 => prop_oneof![Just("FRIL"), Just("0L"), Just("tueL")].prop_map(str::to_owned),
            1 => (0..=7u32).prop_map(|day| day.to_string()),
        ]
    };
    prop_oneof![
        2 => Just("*".to_owned()),
        2 => one(),
        1 => (one(), one()).prop_map(|(a, b)| format!("{a},{b}")),
    ]
}

fn small_hours() -> impl Strategy<Value = (String, Vec<u32>)> {
    (0..=4u32, 0..=2u32).prop_map(|(a, more)| match more {
        0 => (a.to_string(), vec![a]),
        more => (format!("{a}-{}", a + more), (a..=a + more).collect()),
    })
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn agrees_with_the_rule_around_changes_of_the_clock(
        change in 0..CHANGES.len(),
        start in -40..4i64,
        fields in prop_oneof![
            (field(0, 59, true), field(0, 23, true)),
            // Half of the cases are fixed times in the small hours, where clocks change.
            (field(0, 59, false), small_hours()),
        ],
        day in prop_oneof![3 => Just(("*".to_owned(), (1..=31).collect::<Vec<u32>>())), 1 => field(1, 31, true)],
        weekday in prop_oneof![3 => Just(("*".to_owned(), (0..=6).collect::<Vec<u32>>())), 1 => field(0, 6, true)],
    ) {
        let (minute, hour) = fields;
        let (zone, near) = CHANGES[change];
        let expression = format!("{} {} {} * {}", minute.0, hour.0, day.0, weekday.0);
        let schedule = Schedule::parse(&expression, zone).unwrap();
        let matches = |local: NaiveDateTime| {
            let of_day = day.1.contains(&local.day());
            let of_week = weekday.1.contains(&local.weekday().num_days_from_sunday());
            let star = day.0.starts_with('*') || weekday.0.starts_with('*');
            minute.1.contains(&local.minute())
                && hour.1.contains(&local.hour())
                && if star { of_day && of_week } else { of_day || of_week }
        };
        let real_time = minute.0.starts_with('*') || hour.0.starts_with('*');
        let after = utc(near) + Duration::minutes(start * 15);
        let until = after + Duration::hours(50);
        let expected =
            minute_by_minute(schedule.zone(), real_time, matches, after + Duration::minutes(1), until);
        let got: Vec<_> = schedule.occurrences_between(after, until, usize::MAX).collect();
        prop_assert_eq!(got, expected, "{} in {} after {}", expression, zone, after);
    }

    #[test]
    fn next_does_not_depend_on_where_one_asks(
        change in 0..CHANGES.len(),
        seconds in -40_000_000..400_000i64,
        time in (field(0, 59, true), field(0, 59, true), field(0, 23, true)),
        date in prop_oneof![
            Just(("*".to_owned(), "*".to_owned())),
            (field(1, 28, true), field(1, 12, true)).prop_map(|(day, month)| (day.0, month.0)),
        ],
        part in 0.0..1.0f64,
    ) {
        let (zone, near) = CHANGES[change];
        let (second, minute, hour) = time;
        let expression = format!("{} {} {} {} {} *", second.0, minute.0, hour.0, date.0, date.1);
        let schedule = Schedule::parse(&expression, zone).unwrap();
        let after = utc(near) + Duration::seconds(seconds);
        let next = schedule.next_after(after).unwrap();
        prop_assert!(next > after);
        let between = after + Duration::milliseconds(((next - after).num_milliseconds() as f64 * part) as i64);
        for start in [between, next - Duration::days(2), next - Duration::milliseconds(1)] {
            let start = start.max(after);
            prop_assert_eq!(schedule.next_after(start), Some(next), "{} in {} after {}", expression, zone, start);
        }
    }

    #[test]
    fn in_utc_agrees_with_another_implementation(
        minute in field(0, 59, true), hour in field(0, 23, true), day in field(1, 31, false),
        month in field(1, 12, true), weekday in weekday_of_the_month(), from in 0..4_000_000_000i64,
    ) {
        // That one reads no range that wraps.
        let wraps = |text: &str| {
            text.split_once('-').is_some_and(|(a, b)| a.parse::<u32>().unwrap() > b.parse::<u32>().unwrap())
        };
        let expression = format!("{} {} {} {} {weekday}", minute.0, hour.0, day.0, month.0);
        prop_assume!(!expression.split(' ').any(wraps));
        let Ok(schedule) = Schedule::parse(&expression, "UTC") else {
            let lengths = [31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
            let longest = month.1.iter().map(|m| lengths[*m as usize - 1]).max().unwrap();
            prop_assert!(day.1.iter().all(|d| *d > longest), "{} was refused", expression);
            return Ok(());
        };
        let other: croner::Cron = expression.parse().unwrap();
        let after = Utc.timestamp_opt(from, 0).unwrap();
        prop_assert_eq!(schedule.next_after(after), other.find_next_occurrence(&after, false).ok(), "{}", expression);
    }

    #[test]
    fn counting_agrees_with_walking(
        change in 0..CHANGES.len(),
        seconds in -400_000..400_000i64,
        length in prop_oneof![0..100_000i64, 0..3_000_000i64],
        second in prop_oneof![Just("0"), Just("30"), Just("*/20"), Just("7,59")],
        fields in prop_oneof![
            (field(0, 59, true), field(0, 23, true)),
            (field(0, 59, false), small_hours()),
        ],
        date in prop_oneof![
            2 => Just(("*".to_owned(), "*".to_owned())),
            1 => (field(1, 31, true), Just("*".to_owned())).prop_map(|(day, month)| (day.0, month)),
            1 => (field(1, 28, true), field(1, 12, true)).prop_map(|(day, month)| (day.0, month.0)),
        ],
        weekday in weekday_of_the_month(),
        millis in 0..1000i64,
        nth in 1..50u64,
    ) {
        let (zone, near) = CHANGES[change];
        let expression =
            format!("{second} {} {} {} {} {weekday}", fields.0.0, fields.1.0, date.0, date.1);
        let Ok(schedule) = Schedule::parse(&expression, zone) else { return Ok(()) };
        let after = utc(near) + Duration::seconds(seconds) + Duration::milliseconds(millis);
        let until = after + Duration::seconds(length) + Duration::milliseconds(999 - millis);
        let walked: Vec<_> = schedule.occurrences_between(after, until, usize::MAX).collect();
        let place = format!("{expression} in {zone} in ({after}, {until}]");
        prop_assert_eq!(schedule.count_between(after, until), walked.len() as u64, "{}", place);
        for nth in [1, 2, nth, walked.len() as u64, walked.len() as u64 + 1] {
            let expected = (walked.len() as u64).checked_sub(nth).and_then(|at| walked.get(at as usize));
            prop_assert_eq!(schedule.nth_last(after, until, nth), expected.copied(), "{}th last of {}", nth, place);
        }
    }

    #[test]
    fn no_text_is_a_panic(text in "[-*/,0-9LA-Z@?# \t５]{0,40}", zone in "(UTC|[A-Za-z/_+:0-9]{0,20})") {
        if let Ok(schedule) = Schedule::parse(&text, &zone) {
            prop_assert!(schedule.next_after(utc("2025-01-01T00:00:00Z")).is_some());
        }
    }
}
