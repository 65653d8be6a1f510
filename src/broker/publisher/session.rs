//! One confirm channel's life: write, await confirms, tell returned messages apart.
//!
//! Messages are handed to lapin one after the other without waiting for each to be written: lapin takes its place in the order
//! when the publish is first polled, and the socket then gets many of them at once.
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
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use deadpool_lapin::{Connection, Pool};
use futures::{FutureExt, StreamExt, stream::FuturesUnordered};
use lapin::{Channel, Confirmation, message::BasicReturnMessage, options::ConfirmSelectOptions};
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::{Instant, sleep, sleep_until, timeout},
};

use super::{
    PublishOutcome, Request, State,
    confirm::{Confirm, Ended, Memory},
    first::{self, First, Verdict},
    key::{MessageKey, key_of, key_of_returned},
};
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

/// A lost channel, and the requests of which no byte was written: the next session takes them first.
pub(super) struct Lost {
    pub(super) why: String,
    pub(super) unwritten: Vec<Request>,
}

impl From<String> for Lost {
    fn from(why: String) -> Self {
        Self {
            why,
            unwritten: Vec::new(),
        }
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

/// What is known of an exchange.
enum Exchange {
    /// Its messages may share the session's channel.
    Open,
    /// The first message to it is on its way, over a channel of its own; these wait for what becomes of it.
    Trying(Vec<Request>),
}

struct Waiting {
    key: MessageKey,
    deadline: Instant,
    reply: oneshot::Sender<PublishOutcome>,
}

pub(super) struct Session {
    settings: BrokerSettings,
    channel: Arc<Channel>,
    /// Keeps the connection out of the pool while its channel lives here.
    connection: Connection,
    confirms: FuturesUnordered<Confirm>,
    memory: Memory,
    /// By sequence, which is also the order of deadlines.
    waiting: BTreeMap<u64, Waiting>,
    returned: HashMap<MessageKey, BasicReturnMessage>,
    exchanges: HashMap<String, Exchange>,
    firsts: FuturesUnordered<First>,
    /// How many requests wait for a verdict on their exchange.
    held: usize,
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
                channel: Arc::new(channel),
                connection,
                confirms: FuturesUnordered::new(),
                memory: Memory::default(),
                waiting: BTreeMap::new(),
                returned: HashMap::new(),
                exchanges: HashMap::new(),
                firsts: FuturesUnordered::new(),
                held: 0,
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
        let mut shown = None;
        let mut batch = Vec::new();
        while more || !self.waiting.is_empty() || !self.firsts.is_empty() {
            let blocked = *self.blocked.borrow_and_update();
            if shown != Some(blocked) {
                state.set(blocked.then_some(ALARM));
                shown = Some(blocked);
            }
            let free = self
                .settings
                .in_flight
                .saturating_sub(self.waiting.len() + self.held);
            let overdue = self.waiting.first_key_value().map(|(_, w)| w.deadline);
            tokio::select! {
                biased;
                Some(first) = self.confirms.next(), if !self.confirms.is_empty() => {
                    if let Err(why) = self.settle(first) {
                        return End::Lost(Box::new(why.into()));
                    }
                }
                Some((exchange, verdict)) = self.firsts.next(), if !self.firsts.is_empty() => {
                    if let Err(lost) = self.judged(exchange, verdict).await {
                        return End::Lost(Box::new(lost));
                    }
                }
                // Noticed here, an idle session is replaced at once and not only when somebody wants to publish.
                changed = self.blocked.changed() => {
                    if changed.is_err() {
                        return End::Lost(Box::new("the connection is gone".to_owned().into()));
                    }
                }
                count = requests.recv_many(&mut batch, free), if more && !blocked && free > 0 => {
                    more = count > 0;
                    if let Err(lost) = self.write_all(std::mem::take(&mut batch)).await {
                        return End::Lost(Box::new(lost));
                    }
                }
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

    /// Writes messages in order. An error means that the channel is lost; it carries those that were not written.
    pub(super) async fn write_all(&mut self, requests: Vec<Request>) -> Result<(), Lost> {
        let mut requests = requests.into_iter();
        while let Some(request) = requests.next() {
            if let Err(mut lost) = self.write(request).await {
                lost.unwritten.extend(requests);
                return Err(lost);
            }
        }
        Ok(())
    }

    /// Writes one message. An error means that the channel is lost.
    async fn write(&mut self, request: Request) -> Result<(), Lost> {
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
        match self.exchanges.get_mut(&request.message.exchange) {
            Some(Exchange::Open) => {}
            Some(Exchange::Trying(others)) => {
                others.push(request);
                self.held += 1;
                return Ok(());
            }
            None => return self.send_first(key, request).await,
        }
        if !self.channel.status().connected() {
            return Err(Lost {
                why: "the channel is closed".to_owned(),
                unwritten: vec![request],
            });
        }
        let Request {
            message,
            deadline,
            reply,
        } = request;
        let sequence = self.sequence;
        let mut publish = self.memory.publish(self.channel.clone(), sequence, &key, message);
        self.sequence += 1;
        // The first poll gives the message its place; polled later, messages could overtake each other.
        match (&mut publish).now_or_never() {
            None => self.confirms.push(publish),
            Some(Ended {
                result: Err(error), ..
            }) => {
                let why = error.to_string();
                let _ = reply.send(PublishOutcome::TimedOut { why: why.clone() });
                return Err(why.into());
            }
            Some(ended) => self.confirms.push(Confirm::Ended(Box::new(ended))),
        }
        self.waiting.insert(sequence, Waiting { key, deadline, reply });
        Ok(())
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
    fn settle(&mut self, first: Ended) -> Result<(), String> {
        // Passing lapin's lock once means that the frame which completed `first` has been completed whole. The
        // future is polled once for that and dropped; it waits for nothing of ours.
        let _ = self.channel.wait_for_confirms().now_or_never();
        let mut ready = vec![first];
        while let Some(Some(next)) = self.confirms.next().now_or_never() {
            ready.push(next);
        }
        let mut confirmed = Vec::with_capacity(ready.len());
        for ended in ready {
            let (sequence, result) = self.memory.keep(ended);
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
            // Nearly always empty, and hashing three names costs more than to look.
            let any = !self.returned.is_empty();
            let outcome = match any.then(|| self.returned.remove(&waiting.key)).flatten() {
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
            self.returned.insert(key_of_returned(&message), message);
        }
    }

    /// A publish to an exchange that is missing or closed to this user closes the channel for everybody on it: the first
    /// message to each goes over a channel of its own.
    async fn send_first(&mut self, key: MessageKey, request: Request) -> Result<(), Lost> {
        match within(self.settings.connect_timeout, self.connection.create_channel()).await {
            Ok(channel) => {
                let exchange = request.message.exchange.clone();
                self.exchanges.insert(exchange, Exchange::Trying(Vec::new()));
                self.firsts.push(first::send(channel, key, request));
                Ok(())
            }
            Err(error) => Err(Lost {
                why: error.to_string(),
                unwritten: vec![request],
            }),
        }
    }

    /// Goes on with the messages that waited for the first one to `exchange`.
    async fn judged(&mut self, exchange: String, verdict: Verdict) -> Result<(), Lost> {
        let Some(Exchange::Trying(held)) = self.exchanges.remove(&exchange) else {
            return Ok(());
        };
        self.held -= held.len();
        if let Verdict::Shut(outcome) = verdict {
            for request in held {
                let _ = request.reply.send(outcome.clone());
            }
            return Ok(());
        }
        if matches!(verdict, Verdict::Open) {
            self.exchanges.insert(exchange, Exchange::Open);
        }
        self.write_all(held).await
    }

    /// Closes the channel in order; everything on it is settled.
    pub(super) async fn close(self) {
        let limit = self.settings.connect_timeout;
        let _ = timeout(limit, self.channel.close(200, "done".into())).await;
        let _ = timeout(limit, Connection::take(self.connection).close(200, "done".into())).await;
    }

    /// Answers everything in flight as unknown and gives the connection up: after a lost confirm nothing on it is
    /// trusted, and unresolved confirms would pile up inside lapin. Returns what had not been written yet.
    pub(super) fn abandon(self, why: &str) -> Vec<Request> {
        for waiting in self.waiting.into_values() {
            let _ = waiting
                .reply
                .send(PublishOutcome::TimedOut { why: why.to_owned() });
        }
        drop(Connection::take(self.connection));
        self.exchanges
            .into_values()
            .flat_map(|exchange| match exchange {
                Exchange::Open => Vec::new(),
                Exchange::Trying(held) => held,
            })
            .collect()
    }
}
