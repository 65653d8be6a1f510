//! What becomes of missed occurrences.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::{Duration, Instant};

use chrono::{DateTime, TimeDelta, Utc};
use proptest::prelude::*;
use tidegate_core::cron::FireOutcome::{CaughtUp, Fired, SkippedMisfire};
use tidegate_core::cron::{
    FireOutcome, FirePlan, FirePolicy, MisfirePolicy, Overlap, Schedule, Span, plan as decide,
};

const GRACE: Duration = Duration::from_secs(60);

fn utc(text: &str) -> DateTime<Utc> {
    text.parse().unwrap()
}

fn every(expression: &str) -> Schedule {
    Schedule::parse(expression, "UTC").unwrap()
}

/// What `policy` makes of what is due, where runs may overlap and never end.
fn plan(
    schedule: &Schedule,
    planned: DateTime<Utc>,
    now: DateTime<Utc>,
    misfire: MisfirePolicy,
    catch_up_limit: u32,
    grace: Duration,
) -> FirePlan {
    let policy = FirePolicy {
        misfire,
        catch_up_limit,
        overlap: Overlap::Allow,
        grace,
        ends_at: None,
    };
    decide(schedule, planned, now, &policy)
}

/// Every occurrence that `plan` accounts for, one by one.
fn each(schedule: &Schedule, plan: &FirePlan) -> Vec<(DateTime<Utc>, FireOutcome)> {
    let mut all = Vec::new();
    for span in &plan.spans {
        let mut at = span.first;
        for _ in 0..span.occurrences {
            all.push((at, span.outcome));
            at = schedule.next_after(at).unwrap();
        }
        assert_eq!(all.last().unwrap().0, span.last);
    }
    all
}

fn outcomes(planned: &str, now: &str, policy: MisfirePolicy, limit: u32) -> Vec<(String, FireOutcome)> {
    let schedule = every("0 * * * *");
    let plan = plan(&schedule, utc(planned), utc(now), policy, limit, GRACE);
    each(&schedule, &plan)
        .iter()
        .map(|(at, outcome)| (at.format("%H:%M").to_string(), *outcome))
        .collect()
}

fn row(time: &str, outcome: FireOutcome) -> (String, FireOutcome) {
    (time.to_owned(), outcome)
}

#[test]
fn nothing_is_due_before_its_time() {
    let planned = utc("2025-01-01T10:00:00Z");
    let now = planned - TimeDelta::milliseconds(1);
    let plan = plan(
        &every("0 * * * *"),
        planned,
        now,
        MisfirePolicy::FireOnce,
        0,
        GRACE,
    );
    assert_eq!((plan.spans, plan.next), (Vec::new(), Some(planned)));
}

#[test]
fn on_time_fires_under_every_policy() {
    for policy in [
        MisfirePolicy::FireOnce,
        MisfirePolicy::Skip,
        MisfirePolicy::CatchUp,
    ] {
        for now in [
            "2025-01-01T10:00:00Z",
            "2025-01-01T10:00:59Z",
            "2025-01-01T10:01:00Z",
        ] {
            let schedule = every("0 * * * *");
            let plan = plan(&schedule, utc("2025-01-01T10:00:00Z"), utc(now), policy, 0, GRACE);
            assert_eq!(each(&schedule, &plan), [(utc("2025-01-01T10:00:00Z"), Fired)]);
            assert_eq!(plan.next, Some(utc("2025-01-01T11:00:00Z")));
        }
    }
}

#[test]
fn the_policies_differ_in_what_was_missed() {
    let (planned, now) = ("2025-01-01T07:00:00Z", "2025-01-01T10:30:00Z");
    let skipped = |time| row(time, SkippedMisfire);
    assert_eq!(
        outcomes(planned, now, MisfirePolicy::FireOnce, 0),
        [
            skipped("07:00"),
            skipped("08:00"),
            skipped("09:00"),
            row("10:00", CaughtUp)
        ]
    );
    assert_eq!(
        outcomes(planned, now, MisfirePolicy::Skip, 5),
        [
            skipped("07:00"),
            skipped("08:00"),
            skipped("09:00"),
            skipped("10:00")
        ]
    );
    assert_eq!(
        outcomes(planned, now, MisfirePolicy::CatchUp, 2),
        [
            skipped("07:00"),
            skipped("08:00"),
            row("09:00", CaughtUp),
            row("10:00", CaughtUp)
        ]
    );
    assert_eq!(
        outcomes(planned, now, MisfirePolicy::CatchUp, 100),
        ["07:00", "08:00", "09:00", "10:00"].map(|time| row(time, CaughtUp))
    );
}

#[test]
fn a_run_on_time_counts_towards_what_is_made_up_for() {
    let (planned, now) = ("2025-01-01T08:00:00Z", "2025-01-01T10:00:30Z");
    let skipped = |time| row(time, SkippedMisfire);
    let on_time = row("10:00", Fired);
    let expected = [skipped("08:00"), skipped("09:00"), on_time.clone()];
    assert_eq!(outcomes(planned, now, MisfirePolicy::FireOnce, 0), expected);
    assert_eq!(outcomes(planned, now, MisfirePolicy::Skip, 0), expected);
    assert_eq!(
        outcomes(planned, now, MisfirePolicy::CatchUp, 2),
        [skipped("08:00"), row("09:00", CaughtUp), on_time]
    );
}

#[test]
fn ten_seconds_down_for_an_hour() {
    let schedule = every("*/10 * * * * *");
    let (planned, now) = (utc("2025-01-01T10:00:00Z"), utc("2025-01-01T11:00:05Z"));
    let fires = |policy, limit| {
        let plan = plan(&schedule, planned, now, policy, limit, Duration::from_secs(2));
        assert_eq!(plan.spans.iter().map(|span| span.occurrences).sum::<u64>(), 361);
        assert_eq!(plan.next, Some(utc("2025-01-01T11:00:10Z")));
        plan.spans.iter().filter(|span| span.outcome.fires()).count()
    };
    assert_eq!(fires(MisfirePolicy::Skip, 10), 0);
    assert_eq!(fires(MisfirePolicy::FireOnce, 10), 1);
    assert_eq!(fires(MisfirePolicy::CatchUp, 10), 10);
}

#[test]
fn a_months_outage_of_a_five_second_schedule_is_one_span_and_its_runs() {
    let schedule = Schedule::parse("*/5 * * * * *", "America/New_York").unwrap();
    let now = utc("2025-11-05T10:00:03Z");
    let planned = now - TimeDelta::days(30) - TimeDelta::seconds(3);
    let started = Instant::now();
    let plan = plan(
        &schedule,
        planned,
        now,
        MisfirePolicy::FireOnce,
        1,
        Duration::ZERO,
    );
    assert!(started.elapsed().as_millis() < 1000, "{:?}", started.elapsed());
    let last = utc("2025-11-05T10:00:00Z");
    let span = |first, last, occurrences, outcome| Span {
        first,
        last,
        occurrences,
        outcome,
    };
    assert_eq!(
        plan.spans,
        [
            span(planned, last - TimeDelta::seconds(5), 518_400, SkippedMisfire),
            span(last, last, 1, CaughtUp)
        ]
    );
    assert_eq!(plan.next, Some(last + TimeDelta::seconds(5)));
}

#[test]
fn words_round_trip() {
    for word in ["fire_once", "skip", "catch_up"] {
        assert_eq!(MisfirePolicy::parse(word).unwrap().as_str(), word);
    }
    for word in [
        "FIRED",
        "CAUGHT_UP",
        "SKIPPED_MISFIRE",
        "SKIPPED_OVERLAP",
        "MANUAL",
    ] {
        assert_eq!(FireOutcome::parse(word).unwrap().as_str(), word);
    }
    assert_eq!(MisfirePolicy::parse("FIRE_ONCE"), None);
    assert_eq!(FireOutcome::parse("fired"), None);
    assert_eq!(MisfirePolicy::default(), MisfirePolicy::FireOnce);
}

/// What `plan` decides, by walking over each occurrence.
fn walked(schedule: &Schedule, planned: DateTime<Utc>, now: DateTime<Utc>, policy: &FirePolicy) -> FirePlan {
    if planned > now {
        return FirePlan {
            spans: Vec::new(),
            next: Some(planned),
        };
    }
    let runs = match policy.misfire {
        MisfirePolicy::Skip => 0,
        MisfirePolicy::FireOnce => 1,
        MisfirePolicy::CatchUp => policy.catch_up_limit.min(1000) as usize,
    };
    let mut due = vec![planned];
    due.extend(schedule.occurrences_between(planned, now, usize::MAX));
    let next = due.last().and_then(|last| schedule.next_after(*last));
    due.retain(|at| policy.ends_at.is_none_or(|end| *at < end));
    let grace = TimeDelta::from_std(policy.grace).unwrap_or(TimeDelta::MAX);
    let missed = due.partition_point(|at| now.signed_duration_since(*at) > grace);
    let late_runs = runs.saturating_sub(due.len() - missed);
    let mut busy = policy.overlap == Overlap::Skip { busy: true };
    let mut spans: Vec<Span> = Vec::new();
    for (nth, at) in due.into_iter().enumerate() {
        let mut outcome = match nth {
            nth if nth >= missed => Fired,
            nth if nth + late_runs >= missed => CaughtUp,
            _ => SkippedMisfire,
        };
        if outcome.fires() {
            if busy {
                outcome = FireOutcome::SkippedOverlap;
            }
            busy |= policy.overlap != Overlap::Allow;
        }
        match spans.last_mut() {
            Some(span) if span.outcome == outcome && !outcome.fires() => {
                span.last = at;
                span.occurrences += 1;
            }
            _ => spans.push(Span {
                first: at,
                last: at,
                occurrences: 1,
                outcome,
            }),
        }
    }
    FirePlan { spans, next }
}

#[test]
fn ten_years_of_every_second_are_decided_at_once() {
    let schedule = Schedule::parse("* * * * * *", "America/New_York").unwrap();
    let (planned, now) = (utc("2015-01-01T00:00:00Z"), utc("2025-01-01T00:00:00.5Z"));
    let seconds = (now - planned).num_seconds() as u64 + 1;
    let started = Instant::now();
    for (misfire, fires) in [
        (MisfirePolicy::Skip, 0),
        (MisfirePolicy::FireOnce, 1),
        (MisfirePolicy::CatchUp, 1000),
    ] {
        let plan = plan(&schedule, planned, now, misfire, 1000, Duration::ZERO);
        assert_eq!(
            plan.spans.iter().map(|span| span.occurrences).sum::<u64>(),
            seconds
        );
        assert_eq!(
            plan.spans.iter().filter(|span| span.outcome.fires()).count(),
            fires
        );
        assert_eq!(plan.next, Some(utc("2025-01-01T00:00:01Z")));
    }
    // A walk takes minutes.
    assert!(started.elapsed().as_secs() < 3, "{:?}", started.elapsed());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn decides_as_if_it_had_looked_at_each(
        zone in prop_oneof![
            Just(("America/New_York", "2025-03-09T07:00:00Z")), Just(("America/New_York", "2025-11-02T06:00:00Z")),
            Just(("Australia/Lord_Howe", "2025-04-05T15:00:00Z")), Just(("Pacific/Apia", "2011-12-30T10:00:00Z")),
            Just(("UTC", "2025-01-01T00:00:00Z")),
        ],
        expression in prop_oneof![
            Just("*/30 * * * * *"), Just("*/7 * * * *"), Just("30 1-2 * * *"), Just("*/15 2 * * *"),
            Just("0,20,40 0-3 * * *"), Just("0 0 * * SUNL"), Just("15 2 1,9,30 * *"), Just("0 0 29 2 *"),
        ],
        seconds in -200_000..100_000i64,
        down in prop_oneof![-5..100i64, 0..100_000i64, 0..600_000i64],
        at_occurrence in any::<bool>(),
        millis in 0..2000i64,
        misfire in prop_oneof![Just(MisfirePolicy::Skip), Just(MisfirePolicy::FireOnce), Just(MisfirePolicy::CatchUp)],
        catch_up_limit in prop_oneof![0..5u32, 0..1500u32],
        overlap in prop_oneof![
            Just(Overlap::Allow), Just(Overlap::Skip { busy: false }), Just(Overlap::Skip { busy: true }),
        ],
        grace in prop_oneof![Just(Duration::ZERO), (0..100_000u64).prop_map(Duration::from_millis), Just(Duration::from_secs(86_400)), Just(Duration::MAX)],
        end in prop::option::of(-1000..600_000i64),
    ) {
        let schedule = Schedule::parse(expression, zone.0).unwrap();
        let mut planned = utc(zone.1) + TimeDelta::seconds(seconds);
        if at_occurrence {
            planned = schedule.next_after(planned).unwrap();
        } else if millis % 2 == 0 {
            planned += TimeDelta::milliseconds(millis / 2);
        }
        let now = planned + TimeDelta::seconds(down) + TimeDelta::milliseconds(millis);
        let ends_at = end.map(|end| planned + TimeDelta::seconds(end));
        let policy = FirePolicy { misfire, catch_up_limit, overlap, grace, ends_at };
        prop_assert_eq!(
            decide(&schedule, planned, now, &policy),
            walked(&schedule, planned, now, &policy),
            "{} in {} from {} to {}, {:?}", expression, zone.0, planned, now, policy
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_occurrence_has_one_outcome_and_the_latest_run(
        period in prop_oneof![Just(1usize), Just(10), Just(30)],
        down in 0..4000i64,
        policy in prop_oneof![
            Just((MisfirePolicy::Skip, 0)),
            Just((MisfirePolicy::FireOnce, 1)),
            (1..1500u32).prop_map(|limit| (MisfirePolicy::CatchUp, limit)),
        ],
        grace in 0..100u64,
    ) {
        let expression = if period == 1 { "* * * * * *".to_owned() } else { format!("*/{period} * * * * *") };
        let schedule = every(&expression);
        let first = utc("2025-01-01T10:00:00Z");
        let now = first + TimeDelta::seconds(down);
        let plan = plan(&schedule, first, now, policy.0, policy.1, Duration::from_secs(grace));
        let all = each(&schedule, &plan);
        let due: Vec<_> = (0..=down).step_by(period).map(|s| first + TimeDelta::seconds(s)).collect();
        prop_assert_eq!(all.iter().map(|(at, _)| *at).collect::<Vec<_>>(), due);
        let on_time = all.iter().filter(|(at, _)| (now - *at).num_seconds() <= grace as i64).count();
        let late_runs = (policy.1.min(1000) as usize).saturating_sub(on_time).min(all.len() - on_time);
        let expected = std::iter::repeat_n(SkippedMisfire, all.len() - on_time - late_runs)
            .chain(std::iter::repeat_n(CaughtUp, late_runs))
            .chain(std::iter::repeat_n(Fired, on_time));
        prop_assert!(all.iter().map(|(_, outcome)| *outcome).eq(expected));
    }
}
