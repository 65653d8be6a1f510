//! Model → objects: every exchange, queue and binding with its exact arguments. Pure.
//!
//! Arguments are forever, so each is written here once and nowhere else. Nothing that a producer publishes to is
//! ever without a way out: every exchange but the three that end a route has `task.unrouted` as alternate
//! exchange, and [`Objects::steps`] declares those three first, so a publish during the first `apply` is parked
//! there instead of falling between an exchange and its binding.

use std::collections::BTreeMap;

use tidegate_core::{ladder::Destination, names::Names};

use super::model::{BusinessQueue, Topology};

/// `x-delivery-limit` of the platform's queues that still have somewhere to dead-letter to.
const PLATFORM_DELIVERY_LIMIT: i64 = 100;
/// `x-delivery-limit` of `task.dead.queue`. It has no dead-letter exchange, and the default 20 of newer brokers
/// would drop a dead letter that was looked at 20 times.
const DEAD_DELIVERY_LIMIT: i64 = 1_000_000;

/// All objects of a topology, in an order in which they can be declared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Objects {
    /// Exchanges.
    pub exchanges: Vec<Exchange>,
    /// Queues; all durable quorum queues.
    pub queues: Vec<Queue>,
    /// Bindings.
    pub bindings: Vec<Binding>,
    /// Policies; AMQP can't set them, so they are not among the [`steps`](Self::steps).
    pub policies: Vec<Policy>,
}

/// A durable exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// Name.
    pub name: String,
    /// Type.
    pub kind: ExchangeKind,
    /// `alternate-exchange`.
    pub alternate: Option<String>,
}

/// Type of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExchangeKind {
    /// Routes by pattern.
    Topic,
    /// Routes to everything bound.
    Fanout,
}

/// A durable queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Name.
    pub name: String,
    /// All arguments, `x-queue-type` among them.
    pub arguments: BTreeMap<&'static str, Value>,
}

/// A binding; its source is always an exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// Exchange bound from.
    pub source: String,
    /// What is bound.
    pub destination: Destination,
    /// Pattern; empty on a fanout exchange.
    pub pattern: String,
}

/// A policy of the platform's own: what AMQP arguments can't say on every version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Name.
    pub name: String,
    /// Regular expression of the names it is for.
    pub pattern: String,
    /// `queues` or `exchanges`.
    pub apply_to: &'static str,
    /// Of several that match, the highest is in force.
    pub priority: i64,
    /// What it sets.
    pub definition: BTreeMap<&'static str, Value>,
}

/// Value of an argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A text.
    Text(String),
    /// A whole number.
    Int(i64),
    /// True or false.
    Bool(bool),
}

/// One object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Object<'a> {
    /// An exchange.
    Exchange(&'a Exchange),
    /// A queue.
    Queue(&'a Queue),
    /// A binding.
    Binding(&'a Binding),
}

/// Which kind of object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectKind {
    /// An exchange.
    Exchange,
    /// A queue.
    Queue,
    /// A binding.
    Binding,
    /// A policy.
    Policy,
}

/// An object by kind and name, for reports.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectName {
    /// Its kind.
    pub kind: ObjectKind,
    /// Its name; of a binding `source → destination (pattern)`.
    pub name: String,
}

impl Topology {
    /// Everything that must exist on the broker.
    pub fn objects(&self) -> Objects {
        let mut out = Objects::default();
        out.ends(&self.names);
        out.entries(&self.names);
        out.ladder(&self.names);
        for delay in &self.fixed_delays {
            let name = self.names.fixed_delay(&delay.name);
            out.exchange(name.clone(), ExchangeKind::Fanout, Some(self.names.unrouted()));
            out.queues.push(Queue::delay(
                &name,
                delay.ttl.as_millis() as i64,
                self.names.exchange(),
            ));
            out.bind(&name, &name, String::new());
        }
        for queue in &self.queues {
            out.business(&self.names, queue);
        }
        out
    }
}

impl Objects {
    /// The objects in groups: each group needs only what the groups before it declare, and the objects of one
    /// group may be declared at the same time.
    pub fn steps(&self) -> Vec<Vec<Object<'_>>> {
        let end = |name: &str| {
            self.exchanges
                .iter()
                .any(|e| e.name == name && e.alternate.is_none())
        };
        let net: Vec<&str> = self
            .bindings
            .iter()
            .filter(|b| end(&b.source))
            .map(|b| b.destination_name())
            .collect();
        let (exchanges_first, exchanges): (Vec<_>, Vec<_>) =
            self.exchanges.iter().partition(|e| e.alternate.is_none());
        let (queues_first, queues): (Vec<_>, Vec<_>) =
            self.queues.iter().partition(|q| net.contains(&q.name.as_str()));
        let (bindings_first, bindings): (Vec<_>, Vec<_>) = self.bindings.iter().partition(|b| end(&b.source));
        vec![
            exchanges_first.into_iter().map(Object::Exchange).collect(),
            queues_first.into_iter().map(Object::Queue).collect(),
            bindings_first.into_iter().map(Object::Binding).collect(),
            exchanges.into_iter().map(Object::Exchange).collect(),
            queues.into_iter().map(Object::Queue).collect(),
            bindings.into_iter().map(Object::Binding).collect(),
        ]
    }

    /// How many objects can be declared: all but the policies.
    pub fn len(&self) -> usize {
        self.exchanges.len() + self.queues.len() + self.bindings.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where every route ends that ends nowhere else.
    fn ends(&mut self, names: &Names) {
        for (exchange, kind, pattern) in [
            (names.dead(), ExchangeKind::Topic, "#"),
            (names.unrouted(), ExchangeKind::Fanout, ""),
            (names.failed(), ExchangeKind::Fanout, ""),
        ] {
            let queue = Names::queue_of(&exchange);
            if exchange == names.dead() {
                let mut arguments = quorum();
                arguments.insert("x-delivery-limit", Value::Int(DEAD_DELIVERY_LIMIT));
                arguments.insert("x-overflow", text("reject-publish"));
                self.queues.push(Queue {
                    name: queue.clone(),
                    arguments,
                });
            } else {
                self.queues.push(Queue::dead_lettering(
                    &queue,
                    names.dead(),
                    PLATFORM_DELIVERY_LIMIT,
                ));
            }
            self.bind(&exchange, &queue, pattern.to_owned());
            self.exchange(exchange, kind, None);
        }
    }

    /// Where producers publish.
    fn entries(&mut self, names: &Names) {
        for exchange in [names.exchange(), names.exchange_high()] {
            self.exchange(exchange, ExchangeKind::Topic, Some(names.unrouted()));
        }
        let ingress = names.ingress();
        let queue = Names::queue_of(&ingress);
        self.queues.push(Queue::dead_lettering(
            &queue,
            names.dead(),
            PLATFORM_DELIVERY_LIMIT,
        ));
        self.bind(&ingress, &queue, String::new());
        self.exchange(ingress, ExchangeKind::Fanout, Some(names.unrouted()));
    }

    fn business(&mut self, names: &Names, queue: &BusinessQueue) {
        let lane = queue.high_lane.map(|_| Names::high_lane(&queue.name));
        for name in std::iter::once(&queue.name).chain(&lane) {
            let mut declared = Queue::dead_lettering(name, names.failed(), queue.delivery_limit.into());
            // The failed queue serves all; this key is how the router knows whose policy applies.
            declared.arguments.insert("x-dead-letter-routing-key", text(name));
            if let Some(max) = queue.max_length {
                declared
                    .arguments
                    .insert("x-max-length", Value::Int(i64::try_from(max).unwrap_or(i64::MAX)));
            }
            if queue.single_active_consumer {
                declared
                    .arguments
                    .insert("x-single-active-consumer", Value::Bool(true));
            }
            self.queues.push(declared);
        }
        // A queue without a high lane takes high-priority tasks itself: every subscriber must be reached.
        let high = lane.as_ref().unwrap_or(&queue.name);
        for pattern in &queue.bind {
            let pattern = pattern.as_str();
            self.bind(&names.exchange(), &queue.name, pattern.to_owned());
            self.bind(&names.exchange_high(), high, pattern.to_owned());
        }
        self.due(names, queue);
        self.policies.extend(Policy::consumer_timeout(names, queue));
    }

    pub(super) fn exchange(&mut self, name: String, kind: ExchangeKind, alternate: Option<String>) {
        self.exchanges.push(Exchange {
            name,
            kind,
            alternate,
        });
    }

    pub(super) fn bind(&mut self, source: &str, queue: &str, pattern: String) {
        let destination = Destination::Queue(queue.to_owned());
        self.bindings.push(Binding {
            source: source.to_owned(),
            destination,
            pattern,
        });
    }
}

impl Queue {
    /// A queue whose dead letters reach `exchange` at least once, and which refuses what it can't hold.
    pub(super) fn dead_lettering(name: &str, exchange: String, delivery_limit: i64) -> Self {
        let mut arguments = at_least_once(exchange);
        arguments.insert("x-delivery-limit", Value::Int(delivery_limit));
        Self {
            name: name.to_owned(),
            arguments,
        }
    }

    /// A queue that holds each message for `ttl_ms` and hands it to `exchange` with its key unchanged. No
    /// `x-expires`: that would delete the queue with the messages in it.
    pub(super) fn delay(name: &str, ttl_ms: i64, exchange: String) -> Self {
        let mut arguments = at_least_once(exchange);
        arguments.insert("x-message-ttl", Value::Int(ttl_ms));
        Self {
            name: name.to_owned(),
            arguments,
        }
    }
}

impl Binding {
    /// Name of the queue or exchange that is bound.
    pub fn destination_name(&self) -> &str {
        match &self.destination {
            Destination::Queue(name) | Destination::Exchange(name) => name,
        }
    }
}

fn quorum() -> BTreeMap<&'static str, Value> {
    BTreeMap::from([("x-queue-type", text("quorum"))])
}

/// At-least-once needs `reject-publish`; with any other overflow the broker falls back to at-most-once, silently.
fn at_least_once(exchange: String) -> BTreeMap<&'static str, Value> {
    let mut arguments = quorum();
    arguments.insert("x-dead-letter-exchange", Value::Text(exchange));
    arguments.insert("x-dead-letter-strategy", text("at-least-once"));
    arguments.insert("x-overflow", text("reject-publish"));
    arguments
}

fn text(value: &str) -> Value {
    Value::Text(value.to_owned())
}
