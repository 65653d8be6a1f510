//! Migrations that can't go on: everything is put back, and says why.

use std::{sync::Arc, time::Duration};

use tidegate::{
    topology::live::Live,
    worker::{Context, TaskError, Worker},
};
use tidegate_testkit::eventually;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::platform::{FILES, PATIENCE, Platform, QUEUE, Taken, task};

fn body(id: &str) -> String {
    format!(r#"{{"taskId":"{id}","taskType":"order.close.timeout","payload":{{}}}}"#)
}

/// Bindings and queues without their counts.
async fn picture(platform: &Platform) -> Live {
    let mut live = platform.management().read_live().await.unwrap();
    for queue in &mut live.queues {
        (queue.messages, queue.consumers, queue.state) = (None, None, None);
    }
    live.bindings.sort_by_key(|b| {
        (
            b.source.clone(),
            format!("{:?}", b.destination),
            b.pattern.clone(),
        )
    });
    live
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_that_holds_a_task_gets_everything_put_back() {
    let (platform, topology) = Platform::from_files(FILES, &[QUEUE]).await;
    let before = picture(&platform).await;
    let (held, release, stop) = (
        Arc::new(Notify::new()),
        Arc::new(Notify::new()),
        CancellationToken::new(),
    );
    let starts = Taken::default();
    let worker = Worker::builder(platform.settings.clone(), topology.clone())
        .queue(QUEUE)
        .handle("order.close.timeout", {
            let (starts, held, release) = (starts.clone(), held.clone(), release.clone());
            move |context: Context| {
                let (starts, held, release) = (starts.clone(), held.clone(), release.clone());
                async move {
                    starts.push(context.envelope.task_id.to_string());
                    if context.envelope.task_id.as_str() == "slow" {
                        held.notify_one();
                        release.notified().await;
                    }
                    Ok::<(), TaskError>(())
                }
            }
        });
    let worker = tokio::spawn(worker.build().unwrap().run(stop.clone()));
    let tasks = platform.tasks(&topology);
    tasks.send(task(&body("slow")), Duration::ZERO).await.unwrap();
    held.notified().await;

    // Told to stop, it does so where it can be taken up again.
    let mut program = platform.migrate(&[QUEUE]);
    program.printed(PATIENCE, "waiting for 1 consumer to empty").await;
    program.terminate();
    let status = program.wait(PATIENCE).await;
    assert_eq!(status.code(), Some(1), "{}", program.output());
    assert!(
        program.output().contains("run the same command again"),
        "{}",
        program.output()
    );

    let mut program = platform.migrate(&[QUEUE, "--patience", "5s"]);
    program.printed(PATIENCE, "waiting for 1 consumer to empty").await;
    tasks
        .send(task(&body("meanwhile")), Duration::ZERO)
        .await
        .unwrap();
    let status = program.wait(PATIENCE).await;
    assert_eq!(status.code(), Some(5), "{}", program.output());
    assert!(
        program
            .output()
            .contains("1 message left in \"order.close.queue\", and none leaves it"),
        "{}",
        program.output()
    );
    assert_eq!(picture(&platform).await, before, "everything is as it was");
    eventually(PATIENCE, "what arrived meanwhile", async || starts.len() == 2).await;

    // Once the consumer lets go, the same command goes through.
    release.notify_one();
    let mut program = platform.migrate(&[QUEUE]);
    assert!(program.wait(PATIENCE).await.success(), "{}", program.output());
    platform.is_as_wanted().await;
    tasks.send(task(&body("after")), Duration::ZERO).await.unwrap();
    eventually(PATIENCE, "the worker to follow", async || starts.len() == 3).await;
    let mut program = platform.migrate(&[QUEUE]);
    assert!(program.wait(PATIENCE).await.success(), "{}", program.output());
    assert!(program.output().contains("nothing to do"), "{}", program.output());
    stop.cancel();
    worker.await.unwrap();
    platform.vhost.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_could_drop_messages_is_seen_before_anything_is_moved() {
    let (platform, _) = Platform::from_files(FILES, &[QUEUE]).await;
    let before = picture(&platform).await;
    let body = serde_json::json!({"pattern": "^order\\.", "apply-to": "queues", "priority": 1,
        "definition": {"overflow": "drop-head", "max-length": 10}});
    platform.vhost.management().put_policy("short", &body).await;
    let mut program = platform.migrate(&[QUEUE]);
    let status = program.wait(PATIENCE).await;
    assert_eq!(status.code(), Some(5), "{}", program.output());
    assert!(
        program.output().contains("policy \"short\""),
        "{}",
        program.output()
    );
    let after = picture(&platform).await;
    assert_eq!(
        (after.bindings, after.exchanges),
        (before.bindings, before.exchanges)
    );
    assert_eq!(after.queues.len(), before.queues.len());
    platform.vhost.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cant_be_migrated_is_refused_before_anything_changes() {
    let (platform, _) = Platform::from_files(FILES, &[]).await;
    let before = picture(&platform).await;
    for (queue, code, why) in [
        ("no.such.queue", 4, "in no topology file"),
        ("task.delay.v1.3.a", 5, "start anew"),
        (QUEUE, 0, "nothing to do"),
    ] {
        let mut program = platform.migrate(&[queue]);
        let status = program.wait(PATIENCE).await;
        assert_eq!(status.code(), Some(code), "{queue}: {}", program.output());
        assert!(program.output().contains(why), "{queue}: {}", program.output());
    }
    assert_eq!(picture(&platform).await, before);
    platform.vhost.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_virtual_host_that_lacks_other_objects_is_told_and_the_queue_migrated() {
    let (platform, _) = Platform::from_files(FILES, &[QUEUE]).await;
    let text = |n: &str| {
        format!("warning: this virtual host lacks {n} of the topology: run `tidegate topology plan`")
    };
    for (queues, lacks) in [
        (["task.delay.v1.6.f"].as_slice(), "1 other object"),
        (&["task.delay.v1.6.e", "task.delay.v1.6.d"], "3 other objects"),
    ] {
        for queue in queues {
            let path = format!("/api/queues/{}/{queue}", platform.vhost.name());
            platform.vhost.management().delete(&path).await;
        }
        let mut program = platform.migrate(&[QUEUE]);
        assert!(program.wait(PATIENCE).await.success(), "{}", program.output());
        let output = program.output();
        assert_eq!(output.matches("warning:").count(), 1, "{output}");
        assert!(output.starts_with(&text(lacks)), "{output}");
        assert!(output.contains("is as described"), "{output}");
    }
    platform.vhost.close().await;
}
