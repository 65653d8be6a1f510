//! What a queue's two lanes have delivered and nobody has started: whose turn it is, `core::lanes` decides.
//!
//! May import: `core`, `broker`. Whoever has a slot takes from here; a delivery is taken by one.

use std::sync::{Arc, Mutex, PoisonError};

use async_channel::Receiver;
use tidegate_core::lanes::Turns;

use super::delivery::Station;
use crate::broker::consumer::Incoming;

/// One lane's.
pub(super) struct Feed {
    pub(super) station: Arc<Station>,
    pub(super) deliveries: Receiver<Incoming>,
}

/// Which lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    Normal,
    High,
}

/// A delivery that was taken.
pub(super) struct Next {
    pub(super) lane: Lane,
    pub(super) incoming: Incoming,
}

/// Both lanes.
pub(super) struct Feeds {
    normal: Feed,
    high: Option<(Feed, Mutex<Turns>)>,
}

impl Feeds {
    pub(super) fn new(normal: Feed, high: Option<Feed>) -> Self {
        let high = high.map(|feed| (feed, Mutex::default()));
        Self { normal, high }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Feed> {
        let high = self.high.as_ref().map(|(feed, _)| feed);
        std::iter::once(&self.normal).chain(high)
    }

    pub(super) fn feed(&self, lane: Lane) -> &Feed {
        match (lane, &self.high) {
            (Lane::High, Some((feed, _))) => feed,
            (Lane::High, None) | (Lane::Normal, _) => &self.normal,
        }
    }

    /// What is there already.
    pub(super) fn try_next(&self) -> Option<Next> {
        let normal = || take(&self.normal, Lane::Normal);
        let Some((high, turns)) = &self.high else {
            return normal();
        };
        // Nothing in here panics.
        let mut turns = turns.lock().unwrap_or_else(PoisonError::into_inner);
        let high = || take(high, Lane::High);
        let next = if turns.normal_first() {
            normal().or_else(high)
        } else {
            high().or_else(normal)
        }?;
        turns.took(next.lane == Lane::High);
        Some(next)
    }

    /// The next delivery; `None` once the normal lane has ended. Cancelled, it has taken none.
    pub(super) async fn next(&self) -> Option<Next> {
        if let Some(next) = self.try_next() {
            return Some(next);
        }
        let Some((high, turns)) = &self.high else {
            return received(&self.normal, Lane::Normal).await;
        };
        let next = tokio::select! {
            biased;
            Some(next) = received(high, Lane::High) => Some(next),
            next = received(&self.normal, Lane::Normal) => next,
        }?;
        let mut turns = turns.lock().unwrap_or_else(PoisonError::into_inner);
        turns.took(next.lane == Lane::High);
        Some(next)
    }
}

fn take(feed: &Feed, lane: Lane) -> Option<Next> {
    let incoming = feed.deliveries.try_recv().ok()?;
    Some(Next { lane, incoming })
}

async fn received(feed: &Feed, lane: Lane) -> Option<Next> {
    let incoming = feed.deliveries.recv().await.ok()?;
    Some(Next { lane, incoming })
}
