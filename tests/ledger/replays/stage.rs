//! An archive, a broker with one business queue, and replays between them.

use std::{collections::BTreeMap, time::Duration};

use chrono::{TimeDelta, Utc};
use futures::StreamExt;
use lapin::{
    BasicProperties,
    message::Delivery,
    options::{BasicConsumeOptions, BasicGetOptions},
    types::{AMQPValue, FieldTable},
};
use tidegate::{
    broker::{connection::Link, record::record},
    core::{dead_letter_filter::Filter, envelope::Limits, headers},
    deadletter::replay::{
        Replays,
        execute::Ending,
        request::{BodyText, EditText, Request, options},
        told::{ReplayError, Report},
    },
    store::{Store, dead_letters::runs::Hold},
};

use crate::{
    broker::{Broker, QUEUE},
    letters::{Letter, archive},
    support::Database,
};

pub(super) const PATCH: &str = r#"[{"op":"add","path":"/payload/currency","value":"EUR"}]"#;

pub(super) struct Stage {
    pub(super) db: Database,
    pub(super) broker: Broker,
}

impl Stage {
    pub(super) async fn create() -> Self {
        Self {
            db: Database::create().await,
            broker: Broker::create().await,
        }
    }

    /// Replays as another process has them.
    pub(super) fn replays(&self) -> Replays {
        self.replays_on(self.db.store.clone(), "test")
    }

    pub(super) fn replays_on(&self, store: Store, owner: &str) -> Replays {
        let link = Link::new(self.broker.settings.clone(), "replay");
        Replays::new(store, self.broker.tasks.clone(), link, Limits::standard(), owner)
    }

    /// Dead letters that died an hour ago, each with a task id of its own.
    pub(super) async fn dead(&self, count: usize) -> Vec<Letter> {
        let letters: Vec<Letter> = (0..count).map(letter).collect();
        self.archive(&letters).await;
        letters
    }

    pub(super) async fn archive(&self, letters: &[Letter]) {
        for some in letters.chunks(1_000) {
            archive(&self.db, some).await;
        }
    }

    /// Begins and executes; panics if nothing is open.
    pub(super) async fn replay(&self, request: &Request) -> Report {
        let replays = self.replays();
        let hold = replays.begin(request).await.unwrap().unwrap();
        self.execute(&replays, &hold).await.unwrap()
    }

    pub(super) async fn execute(&self, replays: &Replays, hold: &Hold) -> Result<Report, ReplayError> {
        replays.execute(hold, &Ending::default(), &|_| {}).await
    }

    /// What `queue` holds, taken from it: at least `count`, and all there is.
    pub(super) async fn take_from(&self, queue: &str, count: usize) -> Vec<Delivery> {
        let options = BasicConsumeOptions {
            no_ack: true,
            ..BasicConsumeOptions::default()
        };
        let channel = &self.broker.channel;
        let mut taken = Vec::new();
        if count > 0 {
            let consume = channel.basic_consume(queue.into(), "stage".into(), options, FieldTable::default());
            let mut deliveries = consume.await.unwrap();
            while taken.len() < count {
                let next = tokio::time::timeout(Duration::from_secs(20), deliveries.next()).await;
                taken.push(next.expect("another message").unwrap().unwrap());
            }
            channel
                .basic_cancel("stage".into(), lapin::options::BasicCancelOptions::default())
                .await
                .unwrap();
            while let Some(more) = deliveries.next().await {
                taken.push(more.unwrap());
            }
        }
        let get = BasicGetOptions { no_ack: true };
        while let Some(got) = channel.basic_get(queue.into(), get).await.unwrap() {
            taken.push(got.delivery);
        }
        taken
    }

    pub(super) async fn take(&self, count: usize) -> Vec<Delivery> {
        self.take_from(QUEUE, count).await
    }

    /// How many dead letters are in each state, by the rows and by the counts beside them, which must agree.
    pub(super) async fn states(&self) -> BTreeMap<String, i64> {
        // At one moment: what a process sent before it was killed may be committed after it.
        let all: Vec<(bool, String, i64)> = sqlx::query_as(
            "SELECT true, state, count(*) FROM tidegate.dead_letters GROUP BY state \
             UNION ALL SELECT false, s.state, s.n FROM (SELECT sum(open), sum(replaying), sum(replayed), sum(discarded) \
               FROM tidegate.dead_letter_counts) AS c (o, g, r, d), \
               LATERAL (VALUES ('OPEN', o::bigint), ('REPLAYING', g::bigint), ('REPLAYED', r::bigint), \
                 ('DISCARDED', d::bigint)) AS s (state, n) WHERE s.n <> 0",
        )
        .fetch_all(&self.db.sql)
        .await
        .unwrap();
        let of = |wanted: bool| -> BTreeMap<String, i64> {
            let some = all.iter().filter(|(is_row, ..)| *is_row == wanted);
            some.map(|(_, state, n)| (state.clone(), *n)).collect()
        };
        let rows = of(true);
        assert_eq!(rows, of(false), "rows and counts agree");
        rows
    }
}

pub(super) fn states<const N: usize>(expected: [(&str, i64); N]) -> BTreeMap<String, i64> {
    expected
        .into_iter()
        .map(|(state, n)| (state.to_owned(), n))
        .collect()
}

/// One with a valid body.
pub(super) fn letter(n: usize) -> Letter {
    let task_id = format!("task-{n:05}");
    Letter {
        body: format!(
            r#"{{ "taskId": "{task_id}","taskType":"order.close", "payload":{{"n":{n},"big":9007199254740991,"price":1.10}} }}"#
        )
        .into_bytes(),
        task_id: Some(task_id),
        properties: record(&properties()),
        ..Letter::at(Utc::now() - TimeDelta::hours(1) + TimeDelta::milliseconds(i64::try_from(n).unwrap()))
    }
}

/// As a worker's dead letter has them.
pub(super) fn properties() -> BasicProperties {
    let mut table = FieldTable::default();
    let text = |text: &str| AMQPValue::LongString(text.as_bytes().into());
    table.insert("tenant".into(), AMQPValue::ByteArray(vec![0, 159, 255].into()));
    table.insert(
        "traceparent".into(),
        text("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    );
    table.insert("weight".into(), AMQPValue::Double(0.1));
    table.insert(headers::TASK_TYPE.into(), text("order.close"));
    table.insert(headers::ROUTING_KEY.into(), text("order.close.timeout"));
    table.insert(headers::ATTEMPT.into(), AMQPValue::LongLongInt(4));
    table.insert(headers::ERROR.into(), text("card declined"));
    table.insert(headers::DEAD_REASON.into(), text("rejected"));
    table.insert(headers::CRASHES.into(), AMQPValue::LongLongInt(1));
    table.insert(
        headers::DEAD_LETTER_ID.into(),
        text("0196a5e0-7f20-7f1b-ae7d-00000000000f"),
    );
    BasicProperties::default()
        .with_delivery_mode(2)
        .with_content_type("application/json".into())
        .with_correlation_id("trace-1".into())
        .with_reply_to("answers".into())
        .with_app_id("shop".into())
        .with_type("order.close".into())
        .with_message_id("as-sent".into())
        .with_timestamp(1_743_595_200)
        .with_headers(table)
}

pub(super) fn request<'w>(words: impl IntoIterator<Item = &'w str>) -> Request {
    Request {
        filter: Filter::parse_words(words, Utc::now()).unwrap(),
        edit: EditText::default(),
        options: options(),
        who: "ann".to_owned(),
        why: "mended".to_owned(),
    }
}

pub(super) fn patched(patch: &str) -> EditText {
    EditText {
        body: BodyText::Patch(patch.to_owned()),
        ..EditText::default()
    }
}

/// A header as text, or as the number it is.
pub(super) fn header(delivery: &Delivery, name: &str) -> Option<String> {
    let table = delivery.properties.headers().as_ref()?;
    Some(match table.inner().get(name)? {
        AMQPValue::LongString(text) => String::from_utf8_lossy(text.as_bytes()).into_owned(),
        AMQPValue::LongLongInt(n) => n.to_string(),
        other => format!("{other:?}"),
    })
}
