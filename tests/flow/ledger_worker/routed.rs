//! Tasks of the ledger at consumers that tell it nothing: the router does.

use std::{sync::Arc, time::Duration};

use tidegate::ledger::PostgresLedger;

use super::installation::{Installation, QUEUE, TASK};
use crate::platform::{PATIENCE, Platform, envelope};

#[tokio::test(flavor = "multi_thread")]
async fn the_row_says_what_became_of_a_task_that_a_plain_client_refuses() {
    let installation = Installation::new().await;
    let platform = &installation.platform;
    platform.run_router_with(Some(Arc::new(installation.ledger())));
    platform.run_router_with(Some(Arc::new(installation.ledger())));
    let refused = platform.refusing(QUEUE).await;
    // A task that the ledger has no row of is none of its business.
    platform
        .publish_plain("task.exchange", TASK, envelope("amqp", TASK, "").as_bytes())
        .await;
    let ids: Vec<String> = (0..50).map(|n| format!("t{n}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    installation.insert(&ids).await;
    let row = installation.reaches("t0", "RETRYING").await;
    let why = format!("refused: a consumer of {QUEUE} refused it");
    assert_eq!(
        (row.last_error.as_deref(), row.finished_at),
        (Some(why.as_str()), None)
    );
    installation.all_reach("FAILED", 50).await;
    let row = installation.row("t49").await;
    let why = format!("retries_exhausted: {why}");
    assert_eq!(row.last_error.as_deref(), Some(why.as_str()));
    assert!(row.finished_at.is_some());
    platform.dead_letters(51).await;
    assert_eq!(refused.all().len(), 4 * 51);
    assert!(installation.store.tasks().get("amqp").await.unwrap().is_none());
    installation.close().await;
}

/// Nobody waits for a ledger that is away: the router routes, and stops in time.
#[tokio::test(flavor = "multi_thread")]
async fn the_router_runs_without_the_ledger() {
    let platform = Platform::new().await;
    let away = PostgresLedger::connect(&"postgres://nobody@127.0.0.1:1/none".to_owned().into()).unwrap();
    platform.run_router_with(Some(Arc::new(away)));
    platform.nacking(QUEUE).await;
    for n in 0..20 {
        let mut task = crate::platform::task(&envelope(&format!("t{n}"), TASK, r#","maxRetries":0"#));
        task.origin = tidegate_core::headers::Origin::Sql;
        platform.tasks.send(task, Duration::ZERO).await.unwrap();
    }
    platform.dead_letters(20).await;
    let stopped = tokio::time::timeout(PATIENCE, platform.close()).await;
    assert!(stopped.is_ok(), "the router waits for the ledger");
}
