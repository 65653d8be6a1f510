//! One confirm channel's life: write, await confirms, tell returned messages apart.
//!
//! While the broker blocks the connection (memory or disk alarm) nothing is wrong with it: nothing more is written, what is
//! overdue is answered as unknown, and the session goes on once the alarm is over. A new connection would only be blocked
//! as well.
//!
//! lapin hands a returned message to whichever confirm completes next, which under a `multiple` acknowledgement
//! can be another publish's. Two facts make the association exact again: the broker sends the return before the
//! confirm of the same message, and lapin completes all confirms of one frame under one lock. So the session
//! collects every confirm that is ready after passing that lock once, and only then matches returns by id.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    future::Future,
    pin::Pin,
    time::Duration,
};

use deadpool_lapin::{Connection, Pool};
use futures::{FutureExt, StreamExt, stream::FuturesUnordered};
use lapin::{
    Channel, Confirmation, ExchangeKind,
    message::BasicReturnMessage,
    options::{BasicPublishOptions, ConfirmSelectOptions, ExchangeDeclareOptions},
    types::{FieldTable, ShortString},
};
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::{Instant, sleep, sleep_until, timeout, timeout_at},
};

use super::{Outgoing, PublishOutcome, Request, State};
use crate::broker::{
    BrokerSettings,
    connection::{self, LinkError, within},
};

/// What a caller is told whose message could not be sent because of an alarm.
pub(super) const ALARM: &str = "the broker blocks publishers (memory or disk alarm)";

/// How often a blocked session looks whether anybody still needs it.
const BLOCKED_CHECK: Duration = Duration::from_secs(1);

/// How a session ended.
pub(super) enum End {
    /// All handles are gone and everything is settled.
    NoMoreRequests,
    /// The channel can't be trusted any more.
    Lost(Box<Lost>),
}

/// A lost channel, and the request that it was lost over before a byte of it was written: the next session takes
/// that one first.
pub(super) struct Lost {
    pub(super) why: String,
    pub(super) unwritten: Option<Request>,
}

impl From<String> for Lost {
    fn from(why: String) -> Self {
        Self { why, unwritten: None }
    }
}

/// Why no session could be opened.
#[derive(Debug, thiserror::Error)]
pub(super) enum OpenError {
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error("publish connection: {0}")]
    Pool(#[from] deadpool_lapin::PoolError),
}

/// Identifies a publish among those in flight, as a returned message shows it.
#[derive(Clone, PartialEq, Eq, Hash)]
struct MessageKey {
    message_id: ShortString,
    exchange: ShortString,
    routing_key: ShortString,
}

struct Waiting {
    key: MessageKey,
    deadline: Instant,
    reply: oneshot::Sender<PublishOutcome>,
}

type Confirm = Pin<Box<dyn Future<Output = (u64, lapin::Result<Confirmation>)> + Send>>;

pub(super) struct Session {
    settings: BrokerSettings,
    channel: Channel,
    /// Keeps the connection out of the pool while its channel lives here.
    connection: Connection,
    confirms: FuturesUnordered<Confirm>,
    /// By sequence, which is also the order of deadlines.
    waiting: BTreeMap<u64, Waiting>,
    returned: HashMap<MessageKey, BasicReturnMessage>,
    known_exchanges: HashSet<String>,
    sequence: u64,
    /// Whether the broker blocks the connection.
    blocked: watch::Receiver<bool>,
}

/// Opens a confirm channel on a connection of the pool.
pub(super) async fn open(pool: &Pool, settings: &BrokerSettings) -> Result<Session, OpenError> {
    let connection = pool.get().await?;
    let opened = async {
        let channel = within(settings.connect_timeout, connection.create_channel()).await?;
        within(
            settings.connect_timeout,
            channel.confirm_select(ConfirmSelectOptions::default()),
        )
        .await?;
        Ok::<_, LinkError>(channel)
    };
    match opened.await {
        Ok(channel) => {
            let blocked = connection::watch(&connection, "publish");
            Ok(Session {
                settings: settings.clone(),
                channel,
                connection,
                confirms: FuturesUnordered::new(),
                waiting: BTreeMap::new(),
                returned: HashMap::new(),
                known_exchanges: HashSet::new(),
                sequence: 0,
                blocked,
            })
        }
        Err(error) => {
            // A connection that gives no channel is no use to the next attempt either.
            drop(Connection::take(connection));
            Err(error.into())
        }
    }
}

impl Session {
    /// Works until the handles are gone or the channel is lost. Whether it is blocked is shown in `state`.
    pub(super) async fn run(&mut self, requests: &mut mpsc::Receiver<Request>, state: &State) -> End {
        let mut more = true;
        while more || !self.waiting.is_empty() {
            let blocked = *self.blocked.borrow_and_update();
            state.set(blocked.then_some(ALARM));
            let overdue = self.waiting.first_key_value().map(|(_, w)| w.deadline);
            tokio::select! {
                biased;
                Some(first) = self.confirms.next(), if !self.confirms.is_empty() => {
                    if let Err(why) = self.settle(first) {
                        return End::Lost(Box::new(why.into()));
                    }
                }
                // Noticed here, an idle session is replaced at once and not only when somebody wants to publish.
                changed = self.blocked.changed() => {
                    if changed.is_err() {
                        return End::Lost(Box::new("the connection is gone".to_owned().into()));
                    }
                }
                request = requests.recv(), if more && !blocked && self.waiting.len() < self.settings.in_flight => match request {
                    Some(request) => {
                        if let Err(lost) = self.write(request).await {
                            return End::Lost(Box::new(lost));
                        }
                    }
                    None => more = false,
                },
                () = sleep(BLOCKED_CHECK), if blocked && overdue.is_none() => {
                    more = !(requests.is_closed() && requests.is_empty());
                }
                () = sleep_until(overdue.unwrap_or_else(Instant::now)), if overdue.is_some() => {
                    if blocked {
                        self.expire();
                        continue;
                    }
                    return End::Lost(Box::new(format!("no confirm within {:?}", self.settings.confirm_timeout).into()));
                }
            }
        }
        End::NoMoreRequests
    }

    /// Writes one message. An error means that the channel is lost.
    pub(super) async fn write(&mut self, request: Request) -> Result<(), Lost> {
        if request.reply.is_closed() || request.deadline <= Instant::now() {
            return Ok(());
        }
        let key = match key_of(&request.message) {
            Ok(key) => key,
            Err(why) => {
                let _ = request.reply.send(PublishOutcome::Invalid { why });
                return Ok(());
            }
        };
        // A publish to a missing exchange closes the channel for everybody on it, so look first.
        match self.exchange_exists(&request.message.exchange).await {
            Ok(true) => {}
            Ok(false) => {
                let _ = request.reply.send(PublishOutcome::NoExchange);
                return Ok(());
            }
            Err(why) => {
                return Err(Lost {
                    why,
                    unwritten: Some(request),
                });
            }
        }
        if !self.channel.status().connected() {
            let why = "the channel is closed".to_owned();
            return Err(Lost {
                why,
                unwritten: Some(request),
            });
        }
        let Request {
            message,
            deadline,
            reply,
        } = request;
        let options = BasicPublishOptions {
            mandatory: true,
            ..BasicPublishOptions::default()
        };
        let publish = self.channel.basic_publish(
            key.exchange.clone(),
            key.routing_key.clone(),
            options,
            &message.body,
            message.properties,
        );
        let why = match timeout_at(deadline, publish).await {
            Ok(Ok(confirm)) => {
                let sequence = self.sequence;
                self.sequence += 1;
                self.confirms
                    .push(Box::pin(confirm.map(move |result| (sequence, result))));
                self.waiting.insert(sequence, Waiting { key, deadline, reply });
                return Ok(());
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) if self.connection.status().blocked() => {
                let why = ALARM.to_owned();
                let _ = reply.send(PublishOutcome::TimedOut { why });
                return Ok(());
            }
            Err(_) => "the message could not be written in time".to_owned(),
        };
        let _ = reply.send(PublishOutcome::TimedOut { why: why.clone() });
        Err(why.into())
    }

    /// Answers what is overdue as unknown. Its confirms may still come; nobody waits for them.
    fn expire(&mut self) {
        let now = Instant::now();
        while let Some(first) = self.waiting.first_entry()
            && first.get().deadline <= now
        {
            let why = ALARM.to_owned();
            let _ = first.remove().reply.send(PublishOutcome::TimedOut { why });
        }
    }

    /// Answers the publish whose confirm came first, and all others that are ready by now.
    fn settle(&mut self, first: (u64, lapin::Result<Confirmation>)) -> Result<(), String> {
        // Passing lapin's lock once means that the frame which completed `first` has been completed whole. The
        // future is polled once for that and dropped; it waits for nothing of ours.
        let _ = self.channel.wait_for_confirms().now_or_never();
        let mut ready = vec![first];
        while let Some(Some(next)) = self.confirms.next().now_or_never() {
            ready.push(next);
        }
        let mut confirmed = Vec::with_capacity(ready.len());
        for (sequence, result) in ready {
            let acked = match result {
                Ok(Confirmation::Ack(message)) => {
                    self.note_returned(message);
                    true
                }
                Ok(Confirmation::Nack(message)) => {
                    self.note_returned(message);
                    false
                }
                Ok(Confirmation::NotRequested) => return Err("the channel is not in confirm mode".to_owned()),
                Err(error) => return Err(error.to_string()),
            };
            confirmed.push((sequence, acked));
        }
        for (sequence, acked) in confirmed {
            let Some(waiting) = self.waiting.remove(&sequence) else {
                continue;
            };
            let outcome = match self.returned.remove(&waiting.key) {
                Some(message) => PublishOutcome::Returned {
                    code: message.reply_code,
                    text: message.reply_text.to_string(),
                },
                None if acked => PublishOutcome::Confirmed,
                None => PublishOutcome::Nacked,
            };
            let _ = waiting.reply.send(outcome);
        }
        Ok(())
    }

    fn note_returned(&mut self, message: Option<BasicReturnMessage>) {
        if let Some(message) = message {
            let delivery = &message.delivery;
            let key = MessageKey {
                message_id: delivery.properties.message_id().clone().unwrap_or_default(),
                exchange: delivery.exchange.clone(),
                routing_key: delivery.routing_key.clone(),
            };
            self.returned.insert(key, message);
        }
    }

    async fn exchange_exists(&mut self, exchange: &str) -> Result<bool, String> {
        if exchange.is_empty() || self.known_exchanges.contains(exchange) {
            return Ok(true);
        }
        let Ok(name) = ShortString::try_new(exchange) else {
            return Ok(false);
        };
        let limit = self.settings.connect_timeout;
        let probe = within(limit, self.connection.create_channel())
            .await
            .map_err(|e| e.to_string())?;
        let passive = ExchangeDeclareOptions {
            passive: true,
            ..ExchangeDeclareOptions::default()
        };
        let found = within(
            limit,
            probe.exchange_declare(name, ExchangeKind::Topic, passive, FieldTable::default()),
        )
        .await;
        match found {
            Ok(()) => {
                self.known_exchanges.insert(exchange.to_owned());
                let _ = timeout(limit, probe.close(200, "found".into())).await;
                Ok(true)
            }
            Err(LinkError::Broker(error)) if error.is_amqp_soft_error() => Ok(false),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Closes the channel in order; everything on it is settled.
    pub(super) async fn close(self) {
        let limit = self.settings.connect_timeout;
        let _ = timeout(limit, self.channel.close(200, "done".into())).await;
        let _ = timeout(limit, Connection::take(self.connection).close(200, "done".into())).await;
    }

    /// Answers everything in flight as unknown and gives the connection up: after a lost confirm nothing on it is
    /// trusted, and unresolved confirms would pile up inside lapin.
    pub(super) fn abandon(self, why: &str) {
        for waiting in self.waiting.into_values() {
            let _ = waiting
                .reply
                .send(PublishOutcome::TimedOut { why: why.to_owned() });
        }
        drop(Connection::take(self.connection));
    }
}

fn key_of(message: &Outgoing) -> Result<MessageKey, String> {
    let short = |what: &str, text: &str| {
        ShortString::try_new(text)
            .map_err(|_| format!("{what} has {} bytes; AMQP carries at most 255", text.len()))
    };
    Ok(MessageKey {
        message_id: message.properties.message_id().clone().ok_or("no message id")?,
        exchange: short("exchange", &message.exchange)?,
        routing_key: short("routing key", &message.routing_key)?,
    })
}
