//! Real worker processes, killed and frozen.

use std::time::Duration;

use tidegate_testkit::{eventually, report};
use tokio::time::Instant;

use super::stage::{BY_KEY, DATABASE, LEASE, Stage, handling};
use crate::platform::PATIENCE;

/// B73, B35: a key was held for ever after a kill, and its task stuck.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_owner_is_taken_over_after_its_lease() {
    let stage = Stage::new().await;
    for task_type in [BY_KEY, DATABASE] {
        let mut owner = stage.process();
        stage
            .send(task_type, &format!("t.{task_type}"), task_type, r#","ms":1500"#)
            .await;
        stage.reaches(task_type, "start", 1).await;
        let killed = Instant::now();
        owner.kill();
        let next = stage.process();
        stage.done(task_type).await;
        let took = killed.elapsed();
        assert!(took >= LEASE / 2, "it was the owner's for its lease: {took:?}");
        report(&format!(
            "{task_type}: done {took:.1?} after its owner was killed; its lease is {LEASE:?}"
        ));
        stage.settled().await;
        assert_eq!(stage.count(task_type, "start").await, 2);
        assert_eq!(stage.count(task_type, "effect").await, 1);
        drop(next);
    }
    stage.close().await;
}

/// B32: the owner is frozen for longer than its lease, wakes and goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_owners_late_result_is_refused() {
    let stage = Stage::new().await;
    for task_type in [BY_KEY, DATABASE] {
        let owner = stage.process();
        stage
            .send(task_type, &format!("t.{task_type}"), task_type, r#","ms":1500"#)
            .await;
        stage.reaches(task_type, "start", 1).await;
        let (_, first) = stage.key(task_type).await.unwrap();
        owner.freeze();
        // The broker believes that it lives: its delivery stays with it, and its prefetch takes some of the duplicates.
        let other = stage.platform.run(handling(stage.worker(), &stage.sql));
        let mut duplicates = 0;
        eventually(PATIENCE * 3, "somebody else to be done", async || {
            duplicates += 1;
            stage
                .send(task_type, &format!("d{duplicates}.{task_type}"), task_type, "")
                .await;
            tokio::time::sleep(Duration::from_millis(200)).await;
            stage
                .key(task_type)
                .await
                .is_some_and(|(state, _)| state == "DONE")
        })
        .await;
        let (_, second) = stage.key(task_type).await.unwrap();
        assert!(second > first, "taken over");
        owner.thaw();
        owner.printed(PATIENCE * 3, "late result is refused").await;
        stage.settled().await;
        assert_eq!(
            stage.key(task_type).await.unwrap(),
            ("DONE".to_owned(), second),
            "one state"
        );
        assert_eq!(
            stage.count(task_type, "start").await,
            2,
            "the late one was acknowledged without running again"
        );
        other.cancel();
    }
    assert_eq!(stage.count(DATABASE, "effect").await, 1, "counted once");
    assert_eq!(
        stage.count(BY_KEY, "effect").await,
        2,
        "by key there is a window, as documented"
    );
    stage.close().await;
}

/// The process dies after the effect and before the commit: neither it nor the record exists.
#[tokio::test(flavor = "multi_thread")]
async fn a_death_between_effect_and_commit_leaves_neither() {
    let stage = Stage::new().await;
    for task_type in [BY_KEY, DATABASE] {
        let mut owner = stage.process();
        stage
            .send(task_type, &format!("t.{task_type}"), task_type, r#","dies":true"#)
            .await;
        owner.wait(PATIENCE * 3).await;
        assert_eq!(stage.key(task_type).await.unwrap().0, "RUNNING");
        let effects = i64::from(task_type == BY_KEY);
        assert_eq!(stage.count(task_type, "effect").await, effects, "{task_type}");
        let next = stage.process();
        stage.done(task_type).await;
        assert_eq!(stage.count(task_type, "effect").await, effects + 1, "{task_type}");
        drop(next);
    }
    stage.close().await;
}
