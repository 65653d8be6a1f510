//! Two who want the same dead letters: each of these goes out once, and who comes too late is told by whom.

use std::collections::BTreeSet;

use tidegate::{
    core::headers,
    deadletter::{
        discard::{Reason, discard},
        replay::{
            execute::Ending,
            request::Request,
            told::{Event, Report},
        },
    },
};

use super::stage::{PATCH, Stage, header, patched, request, states};

fn asked_by(who: &str) -> Request {
    Request {
        who: who.to_owned(),
        edit: patched(&PATCH.replace("EUR", who)),
        // As people write it: what others have had by now is not open any more, and counts all the same.
        ..request(["type=order.close", "state=open"])
    }
}

/// B78: two operators, one edit each, the same thousand.
#[tokio::test]
async fn two_operators_send_each_of_a_thousand_once_and_edited() {
    let stage = Stage::create().await;
    let letters = stage.dead(1_000).await;
    let operator = async |who: &str| -> Option<Report> {
        let replays = stage.replays_on(stage.db.another_store(), who);
        let hold = replays.begin(&asked_by(who)).await.unwrap()?;
        Some(stage.execute(&replays, &hold).await.unwrap())
    };
    let (ann, bob) = tokio::join!(operator("ann"), operator("bob"));
    let sent = |report: &Option<Report>| report.as_ref().map_or(0, |report| report.sent);
    assert_eq!(sent(&ann) + sent(&bob), 1_000, "{ann:?} {bob:?}");
    for (report, rival) in [(&ann, "bob"), (&bob, "ann")] {
        let Some(report) = report.as_ref().filter(|report| report.sent < 1_000) else {
            continue;
        };
        assert_eq!(report.lost, 1_000 - report.sent, "{report:?}");
        assert!(!report.rivals.is_empty(), "{ann:?} {bob:?}");
        let told = &report.rivals[0];
        assert_eq!(told.asked_by.as_deref(), Some(rival), "the loser is told who");
        assert!(told.run.is_some() && told.began_at.is_some());
    }
    assert!(
        [&ann, &bob].iter().any(|r| r.as_ref().is_none_or(|r| r.lost > 0)),
        "somebody has lost"
    );
    let taken = stage.take(1_000).await;
    assert_eq!(taken.len(), 1_000, "none went out twice");
    let ids: BTreeSet<String> = taken
        .iter()
        .map(|d| header(d, headers::REPLAY_OF).unwrap())
        .collect();
    assert_eq!(ids, letters.iter().map(|letter| letter.id.to_string()).collect());
    let by = |who: &str| -> u64 {
        let mark = format!("\"currency\":\"{who}\"");
        taken
            .iter()
            .filter(|d| {
                String::from_utf8_lossy(&d.data)
                    .replace(": ", ":")
                    .contains(&mark)
            })
            .count() as u64
    };
    assert_eq!(
        (by("ann"), by("bob")),
        (sent(&ann), sent(&bob)),
        "all of them edited"
    );
    assert_eq!(stage.states().await, states([("REPLAYED", 1_000)]));
    let audited: i64 = stage
        .db
        .one("SELECT count(DISTINCT subject) FROM tidegate.audit_log WHERE what = 'dead_letter.edit'")
        .await;
    assert_eq!(audited, 1_000);
}

#[tokio::test]
async fn a_double_click_sends_nothing_and_says_who_did() {
    let stage = Stage::create().await;
    stage.dead(20).await;
    let first = stage.replays().begin(&asked_by("ann")).await.unwrap().unwrap();
    // The second one begins while the first has claimed nothing yet, and works after it.
    let second = stage.replays().begin(&asked_by("ann")).await.unwrap().unwrap();
    assert_eq!(stage.execute(&stage.replays(), &first).await.unwrap().sent, 20);
    let report = stage.execute(&stage.replays(), &second).await.unwrap();
    assert_eq!((report.sent, report.lost), (0, 20));
    assert_eq!(report.rivals[0].run, Some(first.run));
    assert!(stage.replays().begin(&asked_by("ann")).await.unwrap().is_none());
    let wanted = asked_by("ann").filter;
    let dealt = stage
        .db
        .store
        .dead_letters()
        .dealt_with(&wanted.in_any_state())
        .await
        .unwrap();
    assert_eq!((dealt[0].count, dealt[0].run), (20, Some(first.run)));
    assert_eq!(stage.take(20).await.len(), 20);
}

#[tokio::test]
async fn a_dead_letter_is_replayed_or_discarded_and_never_both() {
    let stage = Stage::create().await;
    stage.dead(2_000).await;
    let reason = Reason::new("bob", "refunded").unwrap();
    let other = stage.db.another_store();
    let wanted = request(["type=order.close"]).filter;
    // The discard begins once the replay is under way.
    let under_way = tokio::sync::Notify::new();
    let replays = stage.replays();
    let hold = replays
        .begin(&request(["type=order.close"]))
        .await
        .unwrap()
        .unwrap();
    let told = |event: &Event<'_>| {
        if matches!(event, Event::Progress(_)) {
            under_way.notify_one();
        }
    };
    let ending = Ending::default();
    let (report, discarded) = tokio::join!(replays.execute(&hold, &ending, &told), async {
        under_way.notified().await;
        discard(&other, &wanted, &reason, |_| {}).await.unwrap()
    });
    let report = report.unwrap();
    assert_eq!(
        report.sent + discarded.discarded,
        2_000,
        "{report:?} {discarded:?}"
    );
    let sent = usize::try_from(report.sent).unwrap();
    let taken = stage.take(sent).await;
    assert_eq!(taken.len(), sent);
    let now = stage.states().await;
    assert_eq!(
        now.get("REPLAYED").copied().unwrap_or_default(),
        i64::try_from(sent).unwrap()
    );
    assert_eq!(now.values().sum::<i64>(), 2_000);
    assert!(
        !now.contains_key("OPEN") && !now.contains_key("REPLAYING"),
        "{now:?}"
    );
}
