//! The steps. Each is one change on the broker, safe to repeat.

use std::fmt;

use super::{SUFFIX, scene::Link};
use crate::topology::objects::{Exchange, ExchangeKind, Queue};

/// `x-delivery-limit` of the shelter: a message in it must never die of being looked at.
const DELIVERY_LIMIT: i64 = 1_000_000;

/// What a migration makes beside the queue and takes away again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Temporary {
    /// The queue that takes what arrives meanwhile.
    Shelter,
    /// The fanout exchange that the queue's bindings are moved to.
    In,
    /// Its alternate: a fanout exchange bound to the shelter.
    Next,
    /// The shelter's dead-letter exchange, a fanout bound to the queue while the shelter is emptied.
    Back,
}

impl Temporary {
    /// Its name for the queue `queue`.
    pub fn of(self, queue: &str) -> String {
        let end = match self {
            Self::Shelter => "",
            Self::In => ".in",
            Self::Next => ".next",
            Self::Back => ".back",
        };
        format!("{queue}{SUFFIX}{end}")
    }

    /// What to declare for the queue `queue`.
    pub fn object(self, queue: &str) -> Made {
        let name = self.of(queue);
        let alternate = match self {
            Self::Shelter => {
                let back = Self::Back.of(queue);
                return Made::Queue(Queue::dead_lettering(&name, back, DELIVERY_LIMIT));
            }
            Self::In => Some(Self::Next.of(queue)),
            Self::Next | Self::Back => None,
        };
        Made::Exchange(Exchange {
            name,
            kind: ExchangeKind::Fanout,
            alternate,
        })
    }

    /// Name of the exclusive queue by which one migration of `queue` keeps others out; it goes with its connection.
    pub fn lock(queue: &str) -> String {
        format!("{queue}{SUFFIX}.lock")
    }
}

/// A temporary object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Made {
    /// The shelter: its dead letters reach `back` at least once, with the routing key they came with.
    Queue(Queue),
    /// One of the exchanges.
    Exchange(Exchange),
}

/// One change on the broker, or one wait for it.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Declare a temporary queue or exchange.
    Make(Temporary),
    /// Bind `next` to the shelter.
    Catch,
    /// Bind `in` to the queue: what arrives reaches it.
    SetLever,
    /// Bind a source to `in`.
    Route(Link),
    /// Unbind a source from the queue.
    Cut(Link),
    /// Unbind `in` from the queue: from now on the shelter takes everything.
    PullLever,
    /// Wait until the queue is empty; where nobody consumes it, move its messages to the shelter.
    Drain,
    /// Delete the empty queue.
    Delete,
    /// Declare the queue as wanted.
    Declare,
    /// Bind a source to the queue.
    Join(Link),
    /// Unbind a source from `in`.
    Leave(Link),
    /// Bind `back` to the queue.
    OpenReturn,
    /// Let the broker pass everything in the shelter on to the queue, and wait until it is empty.
    Return,
    /// Delete a temporary queue or exchange.
    Remove(Temporary),
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Make(Temporary::Shelter) => f.write_str("made the temporary queue"),
            Self::Make(_) => f.write_str("made a temporary exchange"),
            Self::Catch => f.write_str("connected the temporary queue"),
            Self::SetLever => f.write_str("set the lever: what arrives reaches the queue"),
            Self::Route(link) => write!(f, "routed {link} through the lever"),
            Self::Cut(link) => write!(f, "took away the direct binding {link}"),
            Self::PullLever => f.write_str("pulled the lever: what arrives waits in the temporary queue"),
            Self::Drain => f.write_str("the queue is empty"),
            Self::Delete => f.write_str("deleted the queue"),
            Self::Declare => f.write_str("declared the queue as wanted"),
            Self::Join(link) => write!(f, "bound {link} directly again"),
            Self::Leave(link) => write!(f, "took {link} away from the lever"),
            Self::OpenReturn => f.write_str("opened the way back"),
            Self::Return => f.write_str("the temporary queue is empty"),
            Self::Remove(Temporary::Shelter) => f.write_str("deleted the temporary queue"),
            Self::Remove(_) => f.write_str("deleted a temporary exchange"),
        }
    }
}
