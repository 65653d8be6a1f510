//! B22: the broker goes away under a running task.

use std::time::Duration;

use tidegate::core::{
    envelope::{Envelope, Limits},
    headers::Origin,
};
use tidegate::publish::{Task, TaskPublisher};
use tidegate_testkit::{PrivateServices, eventually};
use tokio::time::Instant;

use crate::installation::{Installation, PATIENCE, WORK};

/// Longest time from the broker's return to consumption, on an idle machine: back-off ends at 5 s, and a connection takes one.
const RESUMES_WITHIN: Duration = Duration::from_secs(15);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consumption_resumes_after_the_broker_was_restarted_under_a_running_task() {
    let began = Instant::now();
    let services = PrivateServices::start().await;
    let installation = Installation::on(services.services()).await;
    let publisher = installation.publisher(&installation.broker());
    let worker = installation.worker();
    let mut lines = Vec::new();
    let rounds = if crate::is_long() { 5 } else { 1 };
    for round in 0..rounds {
        let long = format!("long-{round}");
        send(&publisher, &long, 10_000).await;
        eventually(PATIENCE, "the long task to start", async || {
            installation.journal().starts(&long) == 1
        })
        .await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        if round % 2 == 1 {
            // First it only falls silent, as behind a cut cable.
            services.pause_broker().await;
            tokio::time::sleep(Duration::from_secs(3)).await;
        }
        services.kill_broker().await;
        services.start_broker().await;
        let back = Instant::now();
        let mut sent_again = 0;
        for n in 0..10 {
            sent_again += send(&publisher, &format!("after-{round}-{n}"), 10).await;
        }
        let id = |n: usize| format!("after-{round}-{n}");
        eventually(PATIENCE, "consumption to resume", async || {
            let journal = installation.journal();
            (0..10).any(|n| journal.effects(&id(n)) > 0)
        })
        .await;
        let resumed = back.elapsed();
        assert!(resumed < RESUMES_WITHIN, "consumption took {resumed:?} to resume");
        eventually(PATIENCE, "everything to be done", async || {
            let journal = installation.journal();
            journal.effects(&long) > 0 && (0..10).all(|n| journal.effects(&id(n)) > 0)
        })
        .await;
        // The broker took the long task back when it died, so it runs again; the first run is not cut short.
        eventually(PATIENCE, "the queues to be empty", async || {
            let queues = installation.vhost.management().queues().await;
            queues.len() > 100 && queues.iter().all(|queue| queue.messages == 0)
        })
        .await;
        let journal = installation.journal();
        let doubled = (0..10).filter(|n| journal.effects(&id(*n)) > 1).count();
        assert!(
            doubled <= sent_again,
            "{doubled} were done twice, {sent_again} sent twice"
        );
        let effects = journal.effects(&long);
        assert!(
            (1..=2).contains(&effects),
            "the running task had {effects} effects"
        );
        lines.push(format!("  round {round}: resumed {resumed:.1?} after the broker's return; the running task had {effects} effects, 10 of 10 new ones done, {doubled} twice"));
    }
    drop(worker);
    tidegate_testkit::report(&format!(
        "broker restart under a running task:\n{}\n  took {:.1?}",
        lines.join("\n"),
        began.elapsed()
    ));
}

/// Sends until it is confirmed; returns how often the outcome was not known before that.
async fn send(publisher: &TaskPublisher, id: &str, ms: u64) -> usize {
    let body = format!(r#"{{"taskId":"{id}","taskType":"{WORK}","payload":{{"ms":{ms}}}}}"#);
    let envelope = Envelope::parse(body.as_bytes(), &Limits::standard(), chrono::Utc::now()).unwrap();
    let task = Task::new(body, &envelope, Origin::Amqp);
    let mut unknown = 0;
    eventually(PATIENCE, "a confirmed publish", async || {
        let sent = publisher.send(task.clone(), Duration::ZERO).await.is_ok();
        unknown += usize::from(!sent);
        sent
    })
    .await;
    unknown
}
