//! An archive with archivists, and what is in it.

use std::{sync::Mutex, time::Duration};

use chrono::{DateTime, Utc};
use lapin::{
    BasicProperties, Channel,
    options::{BasicPublishOptions, ConfirmSelectOptions},
    types::{AMQPValue, FieldTable},
};
use secrecy::SecretString;
use sqlx::{FromRow, PgPool};
use tidegate::{
    broker::{BrokerSettings, connection::Link, message, record},
    core::headers,
    deadletter::archivist::{Archivist, ArchivistSettings, ROLE},
    store::{Store, StoreSettings},
    supervisor::supervise,
    telemetry::health::Health,
};
use tidegate_testkit::{Database, eventually};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::platform::{PATIENCE, Platform};

/// A row.
#[derive(Clone, FromRow)]
pub(crate) struct Letter {
    pub(crate) id: Uuid,
    pub(crate) archived_at: DateTime<Utc>,
    pub(crate) died_at: DateTime<Utc>,
    pub(crate) first_failed_at: Option<DateTime<Utc>>,
    pub(crate) task_id: Option<String>,
    pub(crate) task_type: Option<String>,
    pub(crate) queue: String,
    pub(crate) routing_key: Option<String>,
    pub(crate) reason: String,
    pub(crate) error_kind: String,
    pub(crate) error: String,
    pub(crate) attempts: i32,
    pub(crate) body: Vec<u8>,
    properties: String,
}

impl Letter {
    pub(crate) fn properties(&self) -> BasicProperties {
        record::restore(&self.properties).unwrap()
    }
}

pub(crate) struct Archive {
    broker: BrokerSettings,
    /// For the archivists; may lead through a proxy.
    database_url: String,
    pub(crate) health: Health,
    /// For the test's own statements.
    pub(crate) sql: PgPool,
    names: tidegate::core::names::Names,
    stop: CancellationToken,
    running: Mutex<Vec<JoinHandle<()>>>,
    database: Database,
}

impl Archive {
    /// An empty one, without archivists.
    pub(crate) async fn of(platform: &Platform) -> Self {
        let database = Database::create().await;
        let url = database.url().to_owned();
        Self::through(platform, database, platform.settings.clone(), url).await
    }

    /// The same, whose archivists reach broker and database by other addresses.
    pub(crate) async fn through(
        platform: &Platform,
        database: Database,
        broker: BrokerSettings,
        database_url: String,
    ) -> Self {
        let archive = Self {
            broker,
            database_url,
            health: Health::default(),
            sql: PgPool::connect(database.url()).await.unwrap(),
            names: platform.topology.names.clone(),
            stop: CancellationToken::new(),
            running: Mutex::default(),
            database,
        };
        let url = SecretString::from(archive.database.url().to_owned());
        let store = Store::connect(&url, &StoreSettings::default()).unwrap();
        store.migrate().await.unwrap();
        store.close().await;
        archive
    }

    /// Runs an archivist as `serve` does, until the returned token is cancelled or the archive closed.
    pub(crate) fn start(&self) -> CancellationToken {
        self.start_with(ArchivistSettings {
            batch: 50,
            ..ArchivistSettings::default()
        })
    }

    pub(crate) fn start_with(&self, settings: ArchivistSettings) -> CancellationToken {
        let stop = self.stop.child_token();
        let store_settings = StoreSettings {
            acquire_timeout: Duration::from_secs(2),
            ..StoreSettings::default()
        };
        let store = Store::connect(&self.database_url.clone().into(), &store_settings).unwrap();
        let link = Link::new(self.broker.clone(), "consume");
        let archivist = Archivist::new(link, store.clone(), &self.names, settings);
        let (health, cancel) = (self.health.clone(), stop.clone());
        self.running.lock().unwrap().push(tokio::spawn(async move {
            let watch = store.watch(|_| ());
            let run = supervise(ROLE, health.clone(), cancel.clone(), || {
                Box::pin(archivist.run(health.clone(), cancel.clone()))
            });
            tokio::select! {
                () = run => {}
                never = watch => match never {},
            }
        }));
        stop
    }

    pub(crate) async fn count(&self) -> usize {
        let count: i64 = sqlx::query_scalar("SELECT count(*) FROM tidegate.dead_letters")
            .fetch_one(&self.sql)
            .await
            .unwrap();
        usize::try_from(count).unwrap()
    }

    /// Waits for `count` rows; more of them fail the test.
    pub(crate) async fn letters(&self, count: usize) -> Vec<Letter> {
        eventually(
            PATIENCE,
            &format!("{count} dead letters in the archive"),
            async || self.count().await >= count,
        )
        .await;
        let letters: Vec<Letter> =
            sqlx::query_as("SELECT * FROM tidegate.dead_letters JOIN tidegate.dead_letter_messages USING (day, id) ORDER BY archived_at, id")
                .fetch_all(&self.sql)
                .await
                .unwrap();
        assert_eq!(letters.len(), count);
        letters
    }

    /// Stops all archivists, which must end by themselves.
    pub(crate) async fn close(self) {
        self.stop.cancel();
        let running = std::mem::take(&mut *self.running.lock().unwrap());
        for task in running {
            tokio::time::timeout(PATIENCE, task)
                .await
                .expect("stops in time")
                .unwrap();
        }
        self.sql.close().await;
        self.database.close().await;
    }
}

pub(crate) fn header(properties: &BasicProperties, name: &str) -> Option<String> {
    message::text(properties, name).map(ToOwned::to_owned)
}

pub(crate) fn text_header(name: &str, value: &str) -> BasicProperties {
    let mut table = FieldTable::default();
    table.insert(name.into(), AMQPValue::LongString(value.into()));
    BasicProperties::default()
        .with_headers(table)
        .with_delivery_mode(2)
}

/// Publishes a message to `task.dead` as a worker does, and waits for the confirm.
pub(crate) async fn die(channel: &Channel, body: &[u8]) {
    let mut headers_of_ours = FieldTable::default();
    for (name, value) in [
        (headers::DEAD_LETTER_ID, Uuid::now_v7().to_string()),
        (headers::FAILED_QUEUE, "order.close.queue".to_owned()),
        (headers::DEAD_REASON, "rejected".to_owned()),
    ] {
        headers_of_ours.insert(name.into(), AMQPValue::LongString(value.into()));
    }
    channel
        .confirm_select(ConfirmSelectOptions::default())
        .await
        .unwrap();
    let properties = BasicProperties::default()
        .with_headers(headers_of_ours)
        .with_delivery_mode(2);
    let publish = channel.basic_publish(
        "task.dead".into(),
        "order.close.queue".into(),
        BasicPublishOptions::default(),
        body,
        properties,
    );
    publish.await.unwrap().await.unwrap();
}
