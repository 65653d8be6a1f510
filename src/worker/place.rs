//! Where a delivery stands in its worker: the slot it runs in, a spot to wait without one, and the leave to be here.
//!
//! May import: nothing of ours. Slots and spots belong to one queue; the leave ([`Pass`]) to the whole process.

use std::{sync::Arc, time::Duration};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::isolation::{Alone, Pass};

/// What the deliveries of one queue share.
pub(super) struct Room {
    slots: Arc<Semaphore>,
    spots: Arc<Semaphore>,
    /// For those that were put off often: newcomers can't take these.
    senior_spots: Arc<Semaphore>,
}

impl Room {
    /// A room with `slots` to run in. Of the `held` deliveries at most three quarters of what exceeds the slots may
    /// wait, so that the next ones still arrive.
    pub(super) fn new(slots: usize, held: usize) -> Self {
        let spare = held.saturating_sub(slots);
        let semaphore = |size| Arc::new(Semaphore::new(size));
        Self {
            slots: semaphore(slots),
            spots: semaphore(spare / 2),
            senior_spots: semaphore(spare / 4),
        }
    }

    /// Waits for a slot.
    pub(super) async fn slot(&self) -> Option<OwnedSemaphorePermit> {
        // Nobody closes it.
        self.slots.clone().acquire_owned().await.ok()
    }
}

/// One delivery's.
pub(super) struct Place {
    leave: Leave,
    slot: Option<OwnedSemaphorePermit>,
    room: Arc<Room>,
}

enum Leave {
    Shared(Pass),
    Alone(#[expect(dead_code, reason = "held for its drop")] Alone),
    /// The worker stops.
    None,
}

/// What came of waiting.
pub(super) enum Waited<T> {
    Got(T),
    /// Not in time, or all spots are taken.
    Full,
    /// Nothing may start any more: give it back.
    Closed,
}

impl Place {
    pub(super) fn new(pass: Pass, slot: OwnedSemaphorePermit, room: Arc<Room>) -> Self {
        Self {
            leave: Leave::Shared(pass),
            slot: Some(slot),
            room,
        }
    }

    /// Whether nothing may start here any more.
    pub(super) fn is_closed(&self) -> bool {
        match &self.leave {
            Leave::Shared(pass) => pass.closed().is_cancelled(),
            Leave::Alone(_) => false,
            Leave::None => true,
        }
    }

    /// Whether nothing else is here.
    pub(super) fn is_alone(&self) -> bool {
        matches!(self.leave, Leave::Alone(_))
    }

    /// Whether another delivery may start here.
    pub(super) fn may_go_on(&self) -> bool {
        let shared = matches!(self.leave, Leave::Shared(_));
        shared && self.slot.is_some() && !self.is_closed()
    }

    /// Waits to be alone; returns whether that came about.
    pub(super) async fn be_alone(&mut self) -> bool {
        let Leave::Shared(pass) = std::mem::replace(&mut self.leave, Leave::None) else {
            return self.is_alone();
        };
        match pass.alone().await {
            Ok(alone) => self.leave = Leave::Alone(alone),
            Err(Some(pass)) => self.leave = Leave::Shared(pass),
            Err(None) => {}
        }
        self.is_alone()
    }

    /// Leaves its slot to others.
    pub(super) fn leave_slot(&mut self) {
        self.slot = None;
    }

    /// Waits for a slot again.
    pub(super) async fn take_slot(&mut self) {
        if self.slot.is_none() {
            self.slot = self.room.slot().await;
        }
    }

    /// Waits for `what` without keeping the slot from others, at most for `patience`; has a slot again when it ends with it.
    pub(super) async fn wait<T>(
        &mut self,
        what: impl Future<Output = T>,
        patience: Duration,
        senior: bool,
    ) -> Waited<T> {
        let closed = match &self.leave {
            Leave::Shared(pass) => pass.closed().clone(),
            Leave::Alone(_) => return Waited::Got(what.await),
            Leave::None => return Waited::Closed,
        };
        let senior = senior
            .then(|| self.room.senior_spots.clone().try_acquire_owned().ok())
            .flatten();
        let Some(_spot) = senior.or_else(|| self.room.spots.clone().try_acquire_owned().ok()) else {
            return Waited::Full;
        };
        self.slot = None;
        let got = tokio::select! {
            biased;
            () = closed.cancelled() => return Waited::Closed,
            got = what => got,
            () = tokio::time::sleep(patience) => return Waited::Full,
        };
        tokio::select! {
            biased;
            () = closed.cancelled() => Waited::Closed,
            slot = self.room.slot() => {
                self.slot = slot;
                Waited::Got(got)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio_util::sync::CancellationToken;

    use super::{super::isolation::Isolation, *};

    const SECOND: Duration = Duration::from_secs(1);

    async fn place(room: &Arc<Room>, isolation: &Isolation) -> Place {
        Place::new(isolation.pass().await, room.slot().await.unwrap(), room.clone())
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_leaves_its_slot_and_newcomers_leave_spots_to_those_put_off_often() {
        let isolation = Isolation::new(CancellationToken::new());
        let room = Arc::new(Room::new(1, 5));
        let never = || std::future::pending::<()>();
        let mut waiting = Vec::new();
        for _ in 0..2 {
            let mut place = place(&room, &isolation).await;
            waiting.push(tokio::spawn(async move {
                place.wait(never(), SECOND * 9, false).await
            }));
            tokio::task::yield_now().await;
        }
        let mut newcomer = place(&room, &isolation).await;
        assert!(matches!(
            newcomer.wait(never(), SECOND, false).await,
            Waited::Full
        ));
        assert!(newcomer.slot.is_some(), "it didn't even leave its slot");
        let began = tokio::time::Instant::now();
        assert!(matches!(
            newcomer.wait(never(), SECOND * 3, true).await,
            Waited::Full
        ));
        assert_eq!(began.elapsed(), SECOND * 3, "a spot was kept for it");
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_ends_with_a_slot_or_with_the_pass() {
        let isolation = Isolation::new(CancellationToken::new());
        let room = Arc::new(Room::new(1, 9));
        let mut first = place(&room, &isolation).await;
        let got = first.wait(tokio::time::sleep(SECOND), SECOND * 2, false).await;
        assert!(matches!(got, Waited::Got(())) && first.slot.is_some());
        drop(first);
        let (mut second, suspect) = (place(&room, &isolation).await, isolation.pass().await);
        let asked = tokio::spawn(async move {
            second
                .wait(std::future::pending::<()>(), SECOND * 900, false)
                .await
        });
        tokio::task::yield_now().await;
        assert!(suspect.alone().await.is_ok(), "nobody else asked");
        assert!(matches!(asked.await.unwrap(), Waited::Closed));
    }
}
