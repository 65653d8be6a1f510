//! B07: a destination that goes while its tasks are delayed takes nobody else's delay with it.

use std::time::Duration;

use chrono::Utc;
use lapin::options::QueueDeleteOptions;

use crate::platform::{Platform, envelope};

const TOPOLOGY: &str = r#"
[[queue]]
name = "order.close.queue"
bind = ["order.close.#"]
owner = "test"
task_types = ["order.close.timeout"]

[[queue]]
name = "gone.queue"
bind = ["gone.#"]
owner = "test"
"#;

/// A delay queue passes 32 dead letters on at a time: more than that could hold up a level for good.
const DOOMED: usize = 80;

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_destination_holds_up_no_other_and_its_tasks_are_kept() {
    let platform = Platform::with(TOPOLOGY).await;
    let seen = platform.listening();
    let delay = Duration::from_secs(3);
    for n in 0..DOOMED {
        let body = envelope(&format!("gone-{n}"), "gone.task", "");
        platform.send(&body, delay).await.unwrap();
    }
    let sent = Utc::now();
    platform
        .send(&envelope("alive", "order.close.timeout", ""), delay)
        .await
        .unwrap();
    let channel = platform.channel().await;
    channel
        .queue_delete("gone.queue".into(), QueueDeleteOptions::default())
        .await
        .unwrap();

    let starts = seen.wait(1).await;
    let late = (starts[0].at - sent).num_milliseconds() - 3_000;
    assert!((0..5_000).contains(&late), "{late} ms late");
    let kept = platform.take("task.unrouted.queue", DOOMED).await;
    assert!(
        kept.iter()
            .all(|task| String::from_utf8_lossy(&task.body).contains("gone-"))
    );
    platform.close().await;
}
