//! B29: a connection that stands and says nothing more, as after a cable was cut, is given up and replaced.

use std::{sync::Arc, time::Duration};

use tidegate::{
    broker::{BrokerSettings, publisher::Publisher},
    publish::TaskPublisher,
    telemetry::health::Health,
    worker::{Context, TaskError, Worker},
};
use tidegate_testkit::{Proxy, eventually};
use tokio::{sync::Semaphore, time::Instant};

use crate::platform::{PATIENCE, Platform, Seen, envelope, task};

const QUEUE: &str = "order.close.queue";
/// As the URL asks for them.
const HEARTBEAT: Duration = Duration::from_secs(2);
/// Two or three heartbeats, and room for a machine that is busy.
const NOTICED: Duration = Duration::from_millis(7_500);

/// Silence in the middle of a task and of a publish: both sides notice it by the heartbeats, readiness shows it, and work goes
/// on over new connections, the task that ran included.
#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_falls_silent_is_noticed_within_three_heartbeats() {
    let platform = Platform::new().await;
    let url = platform.vhost.amqp_url();
    let proxy = Proxy::before(url).await;
    let url = format!("{}?heartbeat={}", proxy.url(url), HEARTBEAT.as_secs());
    let mut settings = BrokerSettings::new(url.into());
    // While the silence lasts, a new connection is not answered either.
    settings.connect_timeout = Duration::from_secs(1);
    let tasks = TaskPublisher::new(Publisher::start(&settings).unwrap(), platform.topology.clone());
    let (seen, health, gate) = (Seen::default(), Health::default(), Arc::new(Semaphore::new(0)));
    let handler = {
        let (seen, gate) = (seen.clone(), gate.clone());
        move |context: Context| {
            seen.note(&context);
            let gate = gate.clone();
            async move {
                if context.envelope.task_id.as_str() == "running" {
                    gate.acquire().await?.forget();
                }
                Ok::<(), TaskError>(())
            }
        }
    };
    let worker = Worker::builder(settings, platform.topology.clone());
    platform.run(
        worker
            .queue(QUEUE)
            .health(health.clone())
            .handle("order.close.timeout", handler),
    );
    let send = async |id: &str| {
        let body = envelope(id, "order.close.timeout", "");
        tasks.send(task(&body), Duration::ZERO).await
    };
    for id in ["before", "running"] {
        send(id).await.unwrap();
    }
    seen.wait(2).await;
    assert!(health.is_ready());
    proxy.silence();
    let silent = Instant::now();
    let (sent, ()) = tokio::join!(send("during"), async {
        eventually(NOTICED, "readiness to turn red", async || !health.is_ready()).await;
    });
    let noticed = silent.elapsed();
    assert!(
        sent.is_err() && noticed < NOTICED,
        "the publish ended as {sent:?} after {noticed:?}"
    );
    // What stood is never heard of again, on either side; a new connection works.
    proxy.forget_connections();
    proxy.resume();
    send("after").await.unwrap();
    eventually(PATIENCE, "the new one", async || {
        seen.ids().contains(&"after".to_owned())
    })
    .await;
    assert!(health.is_ready());
    gate.add_permits(2);
    platform.drained(QUEUE).await;
    let running = seen.ids().into_iter().filter(|id| id == "running").count();
    assert_eq!(
        running, 1,
        "delivered again beside its run, and not started for that"
    );
    assert!(platform.dead_letters(0).await.is_empty());
    platform.close().await;
}
