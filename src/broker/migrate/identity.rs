//! Which message a message is: by its id and its bytes, because clients that set the same id on everything exist.

use std::{
    collections::HashSet,
    hash::{DefaultHasher, Hash, Hasher},
};

use lapin::BasicProperties;

/// 128 bits of what tells a message from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Identity(u64, u64);

impl Identity {
    pub(super) fn of(routing_key: &str, properties: &BasicProperties, body: &[u8]) -> Self {
        let id = properties.message_id().as_ref().map(|id| id.as_str());
        let half = |seed: u8| {
            let mut hasher = DefaultHasher::new();
            (seed, id, routing_key, body).hash(&mut hasher);
            hasher.finish()
        };
        Self(half(0), half(1))
    }
}

/// Messages and how many different ones there were.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    pub(super) messages: u64,
    pub(super) different: HashSet<Identity>,
}

impl Seen {
    pub(super) fn note(&mut self, identity: Identity) {
        self.messages += 1;
        self.different.insert(identity);
    }
}
