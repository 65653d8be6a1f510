//! Whether each route delivers: a bench with a whole topology, for runs and for each kind of break made by hand.

mod hops;
mod runs;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use lapin::{
    BasicProperties, Channel, Connection,
    options::{
        BasicGetOptions, BasicPublishOptions, ConfirmSelectOptions, ExchangeDeleteOptions, QueueBindOptions,
    },
    types::FieldTable,
};
use tidegate::{
    broker::{BrokerSettings, verify},
    topology::{Topology, verify::Report},
};
use tidegate_testkit::{Vhost, eventually};
use tokio_util::sync::CancellationToken;

use crate::{
    declare::{apply, connect},
    management::management,
};

const TOPOLOGY: &str = r#"
[[queue]]
name = "order.close.queue"
bind = ["order.close.#", "order.cancel"]
owner = "test"
task_types = ["order.close.timeout"]
high_lane = { threshold = 200 }

[[queue]]
name = "order.audit.queue"
bind = ["order.*.audit"]
owner = "test"
max_length = 1000
"#;
const PLATFORM: &str = r#"
[[fixed_delay]]
name = "30m"
ttl = "30m"
"#;
const PATIENCE: Duration = Duration::from_secs(30);

struct Bench {
    vhost: Vhost,
    topology: Arc<Topology>,
    connection: Connection,
    channel: Channel,
}

impl Bench {
    /// A vhost with the whole topology.
    async fn new() -> Self {
        let vhost = Vhost::create().await;
        let topology = Topology::parse(&[("platform.toml", PLATFORM), ("test.toml", TOPOLOGY)]).unwrap();
        let connection = connect(vhost.amqp_url()).await;
        apply(&connection, &topology.objects()).await.unwrap();
        let channel = connection.create_channel().await.unwrap();
        Self {
            vhost,
            topology: Arc::new(topology),
            connection,
            channel,
        }
    }

    fn settings(&self) -> BrokerSettings {
        BrokerSettings::new(self.vhost.amqp_url().to_owned().into())
    }

    async fn verify(&self) -> Report {
        let (management, cancel) = (management(&self.vhost), CancellationToken::new());
        verify::run(&self.settings(), &management, &self.topology, &cancel, |_| ())
            .await
            .unwrap()
    }

    async fn unbind(&self, exchange: &str, queue: &str, pattern: &str) {
        let unbound = self.channel.queue_unbind(
            queue.into(),
            exchange.into(),
            pattern.into(),
            FieldTable::default(),
        );
        unbound.await.unwrap();
    }

    async fn bind(&self, exchange: &str, queue: &str, pattern: &str) {
        let options = QueueBindOptions::default();
        let bound = self.channel.queue_bind(
            queue.into(),
            exchange.into(),
            pattern.into(),
            options,
            FieldTable::default(),
        );
        bound.await.unwrap();
    }

    async fn delete_exchange(&self, exchange: &str) {
        self.channel
            .exchange_delete(exchange.into(), ExchangeDeleteOptions::default())
            .await
            .unwrap();
    }

    /// Publishes a task that must be taken.
    async fn publish(&self, exchange: &str, key: &str, id: &str) {
        let channel = self.connection.create_channel().await.unwrap();
        channel
            .confirm_select(ConfirmSelectOptions::default())
            .await
            .unwrap();
        let body = format!(r#"{{"taskId":"{id}","taskType":"order.close.timeout","payload":{{}}}}"#);
        let properties = BasicProperties::default()
            .with_message_id(id.into())
            .with_delivery_mode(2);
        let options = BasicPublishOptions {
            mandatory: true,
            ..BasicPublishOptions::default()
        };
        let confirm = channel
            .basic_publish(exchange.into(), key.into(), options, body.as_bytes(), properties)
            .await
            .unwrap();
        assert!(matches!(confirm.await.unwrap(), lapin::Confirmation::Ack(None)));
    }

    /// Waits until the queue hands out the message with this id, and takes it.
    async fn take(&self, queue: &str, id: &str) {
        eventually(PATIENCE, &format!("{id} in {queue}"), async || {
            let got = self
                .channel
                .basic_get(queue.into(), BasicGetOptions { no_ack: true })
                .await
                .unwrap()?;
            assert_eq!(
                got.delivery.properties.message_id().as_ref().unwrap().as_str(),
                id
            );
            Some(())
        })
        .await;
    }

    async fn messages(&self, queue: &str) -> u64 {
        let queue = self.vhost.management().queue(queue).await;
        queue.map_or(0, |queue| queue.messages)
    }

    async fn close(self) {
        let _ = self.connection.close(200, "done".into()).await;
        self.vhost.close().await;
    }
}

/// The broken hops with their reasons.
fn broken(report: &Report) -> BTreeSet<String> {
    let texts = report.broken.iter().map(|b| format!("{}: {}", b.hop, b.why));
    texts.collect()
}

fn set<const N: usize>(expected: [&str; N]) -> BTreeSet<String> {
    expected.map(str::to_owned).into()
}

#[track_caller]
fn assert_healthy(report: &Report) {
    assert_eq!(broken(report), set([]), "{report:#?}");
    assert_eq!(report.notes, Vec::<String>::new());
    assert_eq!(report.delivered, report.tried);
}
