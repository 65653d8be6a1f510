//! Every kind of schedule around changes of the clock, against a walk over every minute, against counting, and against
//! another implementation.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::HashSet;

use chrono::{DateTime, Datelike, Duration, NaiveDateTime, TimeZone, Timelike, Utc};
use proptest::prelude::*;
use tidegate_core::cron::Schedule;

fn utc(text: &str) -> DateTime<Utc> {
    text.parse().unwrap()
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
