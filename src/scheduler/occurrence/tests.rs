use tidegate_core::cron::FireOutcome;

use super::*;

const GRACE: Duration = Duration::from_secs(60);

fn utc(text: &str) -> DateTime<Utc> {
    text.parse().unwrap()
}

fn row(expression: &str) -> CronTask {
    CronTask {
        id: 1,
        name: "x".to_owned(),
        id_part: "x".to_owned(),
        task_type: "a.b".to_owned(),
        cron_expression: expression.to_owned(),
        time_zone: "UTC".to_owned(),
        payload: Some("{}".to_owned()),
        payload_version: 1,
        exchange: None,
        routing_key: None,
        enabled: true,
        misfire_policy: "fire_once".to_owned(),
        catch_up_limit: 100,
        overlap_policy: "allow".to_owned(),
        starts_at: None,
        ends_at: None,
        max_retries: None,
        timeout_ms: None,
        priority: 100,
        jitter_ms: 0,
        owner: None,
        last_triggered_at: None,
        next_fire_at: None,
        kept_fire_at: None,
        accounted_until: None,
        exhausted: false,
        version: 7,
        last_error: None,
        busy: false,
    }
}

fn next(decision: &Decision) -> DateTime<Utc> {
    match &decision.verdict {
        Verdict::Next(at) => *at,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_first_time_is_after_now_and_after_what_was_accounted_for() {
    let now = utc("2026-01-01T12:00:00Z");
    let mut row = row("* * * * *");
    assert_eq!(next(&initialise(&row, now)), utc("2026-01-01T12:01:00Z"));
    // The clock went back after 12:10 was accounted for.
    row.accounted_until = Some(utc("2026-01-01T12:10:00Z"));
    assert_eq!(next(&initialise(&row, now)), utc("2026-01-01T12:11:00Z"));
    row.starts_at = Some(utc("2026-01-01T12:30:00Z"));
    assert_eq!(
        next(&initialise(&row, now)),
        utc("2026-01-01T12:30:00Z"),
        "its start counts"
    );
    row.ends_at = Some(utc("2026-01-01T12:30:00Z"));
    assert_eq!(check(&row, now), Ok(None), "its end doesn't");
}

#[test]
fn what_was_accounted_for_does_not_fire_again() {
    let now = utc("2026-01-01T12:00:30Z");
    let mut row = row("* * * * *");
    row.accounted_until = Some(utc("2026-01-01T12:00:00Z"));
    for by_hand in [
        "2026-01-01T12:00:00Z",
        "2026-01-01T11:00:00Z",
        "1970-01-01T00:00:00Z",
    ] {
        row.next_fire_at = Some(utc(by_hand));
        let decision = fire(&row, now, GRACE);
        assert!(decision.fires.is_empty(), "{by_hand}: {:?}", decision.fires);
        assert_eq!(next(&decision), utc("2026-01-01T12:01:00Z"));
    }
    // One is left between what was accounted for and now.
    row.accounted_until = Some(utc("2026-01-01T11:59:00Z"));
    let decision = fire(&row, now, GRACE);
    let fired: Vec<_> = decision.fires.iter().map(|fire| fire.span.first).collect();
    assert_eq!(fired, [utc("2026-01-01T12:00:00Z")]);
    // And none before its start.
    row.accounted_until = None;
    row.starts_at = Some(now);
    assert!(fire(&row, now, GRACE).fires.is_empty());
}

#[test]
fn skipped_ones_are_one_record_without_a_task() {
    let mut row = row("*/5 * * * * *");
    row.next_fire_at = Some(utc("2026-01-01T00:00:00Z"));
    row.misfire_policy = "skip".to_owned();
    let decision = fire(&row, utc("2026-01-31T00:00:00Z"), Duration::ZERO);
    assert_eq!(
        decision.fires.len(),
        2,
        "what was missed, and the one that is on time"
    );
    let (missed, on_time) = (&decision.fires[0], &decision.fires[1]);
    assert_eq!(missed.span.outcome, FireOutcome::SkippedMisfire);
    assert_eq!(missed.span.occurrences, 30 * 24 * 3600 / 5);
    assert!(missed.task.is_none());
    assert_eq!(on_time.span.first, utc("2026-01-31T00:00:00Z"));
    assert_eq!(on_time.task.as_ref().unwrap().task_id, "cron:x:20260131T000000Z");
}

#[test]
fn jitter_moves_the_task_and_not_its_id() {
    let mut row = row("* * * * *");
    row.jitter_ms = 10_000;
    row.payload = Some(r#"{"at": "{{fire_time}}"}"#.to_owned());
    let now = utc("2026-01-01T12:00:30Z");
    let mut offsets = Vec::new();
    for minute in 0..200 {
        let planned = utc("2026-01-01T12:00:00Z") + TimeDelta::minutes(minute);
        row.next_fire_at = Some(planned);
        let now = now + TimeDelta::minutes(minute);
        let decision = fire(&row, now, GRACE);
        let task = decision.fires[0].task.clone().unwrap();
        assert_eq!(decision.fires[0].span.first, planned, "the record keeps the plan");
        assert_eq!(
            task.task_id,
            format!("cron:x:{}", planned.format("%Y%m%dT%H%M%SZ"))
        );
        let envelope = Envelope::parse(task.envelope.as_bytes(), &Limits::standard(), now).unwrap();
        assert_eq!(envelope.schedule_time.unwrap(), task.due_at);
        assert!(
            envelope
                .payload
                .as_str()
                .contains(&planned.format("%Y-%m-%dT%H:%M:%SZ").to_string())
        );
        assert_eq!(
            fire(&row, now, GRACE).fires[0].task.as_ref().unwrap().due_at,
            task.due_at,
            "stable"
        );
        offsets.push((task.due_at - planned).num_milliseconds());
    }
    assert!(
        offsets.iter().all(|offset| (0..=10_000).contains(offset)),
        "{offsets:?}"
    );
    let low = offsets.iter().filter(|offset| **offset < 5_000).count();
    assert!(
        (60..140).contains(&low),
        "spread over the window: {low} of 200 in its first half"
    );
    // The same everywhere and in every version: whoever finds the record finds the time.
    assert_eq!(
        jitter("x", utc("2026-01-01T12:00:00Z"), 10_000).num_milliseconds(),
        offsets[0]
    );
    assert_eq!(jitter("x", utc("2026-01-01T12:00:00Z"), 0), TimeDelta::zero());
}

#[test]
fn a_template_that_fails_breaks_the_row_at_once_or_when_it_fires() {
    let now = utc("2026-01-01T12:00:30Z");
    let mut row = row("* * * * *");
    row.payload = Some(r#"{"a": "{{ nonsense }}"}"#.to_owned());
    assert!(check(&row, now).unwrap_err().contains("nonsense"));
    // Fails on some days only.
    row.payload = Some(r#"{"a": "{{ 1 // 0 if scheduled_date == '2026-01-02' else 1 }}"}"#.to_owned());
    assert!(check(&row, now).is_ok());
    row.next_fire_at = Some(utc("2026-01-02T00:00:00Z"));
    let decision = fire(&row, utc("2026-01-02T00:00:01Z"), GRACE);
    assert!(
        matches!(&decision.verdict, Verdict::Broken(why) if why.contains("payload template")),
        "{decision:?}"
    );
    assert!(decision.fires.is_empty());
    // What it makes must be a valid task too.
    row.name = "n".repeat(255);
    row.payload = Some(format!("{{\"a\": \"{{{{ name }}}}{}\"}}", "x".repeat(65_200)));
    assert!(
        check(&row, now).unwrap_err().contains("refused"),
        "{:?}",
        check(&row, now)
    );
}

#[test]
fn an_error_fits_its_column() {
    let mut row = row(&"é\0".repeat(3000));
    let why = check(&row, utc("2026-01-01T00:00:00Z")).unwrap_err();
    assert!(!why.contains('\0') && why.chars().count() <= MAX_ERROR, "{why}");
    row.cron_expression = "@daily".to_owned();
    row.payload = Some("{\"a\": \"{{ '\\\\u0000' | date('%Y') }}\"}".to_owned());
    let why = check(&row, utc("2026-01-01T00:00:00Z")).unwrap_err();
    assert!(!why.contains('\0'), "{why}");
}
