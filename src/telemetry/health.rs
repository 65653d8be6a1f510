//! Which parts of the process work right now, as `/readyz` tells it.
//!
//! A part is registered as expected and red until it reports itself up, so a loop that never started can't be
//! mistaken for a healthy one.

use std::{
    collections::BTreeMap,
    sync::{Arc, RwLock},
};

/// The state of one part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Works.
    Up,
    /// Does not work, and why. The reason holds no secret and no payload.
    Down(String),
}

/// A shared register of parts; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Health {
    parts: Arc<RwLock<BTreeMap<String, Part>>>,
}

impl Health {
    /// Registers a part that must come up before the process is ready.
    pub fn expect(&self, part: &str) {
        self.write()
            .entry(part.to_owned())
            .or_insert_with(|| Part::Down("not started".to_owned()));
    }

    /// The part works.
    pub fn up(&self, part: &str) {
        self.write().insert(part.to_owned(), Part::Up);
    }

    /// The part doesn't work.
    pub fn down(&self, part: &str, why: &str) {
        self.write().insert(part.to_owned(), Part::Down(why.to_owned()));
    }

    /// Whether every registered part works.
    pub fn is_ready(&self) -> bool {
        self.read().values().all(|part| *part == Part::Up)
    }

    /// All parts with their states, by name.
    pub fn parts(&self) -> BTreeMap<String, Part> {
        self.read().clone()
    }

    // A poisoned lock only means that another thread panicked while holding it; the map is still whole.
    fn write(&self) -> std::sync::RwLockWriteGuard<'_, BTreeMap<String, Part>> {
        self.parts
            .write()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, BTreeMap<String, Part>> {
        self.parts
            .read()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_means_every_expected_part_is_up() {
        let health = Health::default();
        health.expect("relay");
        assert!(!health.is_ready());
        health.up("relay");
        assert!(health.is_ready());
        health.down("relay", "no database");
        health.expect("relay");
        assert_eq!(health.parts()["relay"], Part::Down("no database".to_owned()));
    }
}
