//! What is done to the platform amid the load: workers killed, connections closed, the broker restarted in order and killed.
//!
//! Which deeds there are is planned, so that none is left out whatever the seed; when, and on whom, is random.

use std::{fmt, sync::Arc, time::Duration};

use rand::{Rng, SeedableRng, rngs::StdRng, seq::IndexedRandom};
use tidegate_testkit::{PrivateServices, eventually};
use tokio::time::{Instant, sleep_until};

use super::staff::{SLOTS, STEADY, Staff};
use crate::{
    installation::{Installation, PATIENCE},
    killer::{Habit, harass},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    /// A connection whose client calls itself so.
    Close(&'static str),
    /// All connections of the worker that is never killed, so that its buffers for them begin anew.
    CloseSteady,
    /// In order.
    Restart,
    /// `kill -9`.
    Kill,
}

/// Something that was done, from when to when since the load began.
#[derive(Clone, Debug)]
pub(super) struct Done {
    deed: Deed,
    pub(super) from: Duration,
    pub(super) to: Duration,
    whose: String,
}

impl Done {
    pub(super) fn is_restart(&self) -> bool {
        matches!(self.deed, Deed::Restart | Deed::Kill)
    }
}

impl fmt::Display for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.deed {
            Deed::Close(_) | Deed::CloseSteady => write!(f, "connection {:?} closed", self.whose),
            Deed::Restart => f.write_str("broker restarted in order"),
            Deed::Kill => f.write_str("broker killed and started"),
        }
    }
}

/// What is to be done to the broker.
#[derive(Clone, Copy, Debug)]
pub(super) struct Order {
    pub(super) span: Duration,
    /// How many connections are closed, and between which parts of the span.
    pub(super) closes: usize,
    pub(super) between: (f64, f64),
    /// When all of the steady worker's are, as parts of the span.
    pub(super) afresh: &'static [f64],
}

impl Order {
    /// Both restarts, and connections closed: of a worker that is killed, the steady one, the generator, and anybody.
    fn plan(&self, random: &mut StdRng) -> Vec<(Duration, Deed)> {
        let mut restarts = [Deed::Restart, Deed::Kill];
        if random.random() {
            restarts.reverse();
        }
        let [first, second] = restarts;
        let mut at = |from, to| self.span.mul_f64(random.random_range(from..to));
        let mut deeds = vec![(at(0.3, 0.4), first), (at(0.55, 0.7), second)];
        let whose = ["soak worker 0", "soak worker 1", "soak generator"];
        let (from, to) = self.between;
        for n in 0..self.closes {
            let whose = whose.get(n).copied().unwrap_or("");
            deeds.push((at(from, to), Deed::Close(whose)));
        }
        let afresh = self.afresh.iter();
        deeds.extend(afresh.map(|part| (self.span.mul_f64(*part), Deed::CloseSteady)));
        deeds.sort_by_key(|(at, _)| *at);
        deeds
    }
}

/// Closes connections and restarts the broker, one after the other: a broker that is down closes none.
pub(super) async fn to_the_broker(
    services: &PrivateServices,
    installation: &Installation,
    staff: &Staff,
    seed: u64,
    order: Order,
) -> Vec<Done> {
    let (began, mut random) = (Instant::now(), StdRng::seed_from_u64(seed));
    let mut done = Vec::new();
    for (at, deed) in order.plan(&mut random) {
        sleep_until(began + at).await;
        let from = began.elapsed();
        let mut whose = String::new();
        match deed {
            Deed::Close(client) => whose = close(installation, client, &mut random).await,
            Deed::CloseSteady => whose = close_all(installation, &format!("soak worker {STEADY}-")).await,
            Deed::Restart => services.restart_broker().await,
            Deed::Kill => {
                services.kill_broker().await;
                services.start_broker().await;
            }
        }
        let before = staff.marks();
        let done_now = Done {
            deed,
            from,
            to: began.elapsed(),
            whose,
        };
        if done_now.is_restart() {
            // Or the next one would hide how soon it went on.
            let resumed = "consumption to resume after a restart";
            eventually(PATIENCE, resumed, async || staff.marks() > before).await;
        }
        done.push(done_now);
    }
    done
}

/// Closes a connection of a client whose name begins so, once there is one.
async fn close(installation: &Installation, client: &str, random: &mut StdRng) -> String {
    let management = installation.vhost.management();
    eventually(PATIENCE, "a connection to close", async || {
        let clients = management.clients().await;
        let such: Vec<_> = clients
            .iter()
            .filter(|(name, _)| name.starts_with(client))
            .collect();
        let (name, connection) = such.choose(random)?;
        // The list may be some seconds old.
        management.close(connection).await.then(|| name.clone())
    })
    .await
}

/// Closes every connection of a client whose name begins so.
async fn close_all(installation: &Installation, client: &str) -> String {
    let management = installation.vhost.management();
    for (name, connection) in management.clients().await {
        if name.starts_with(client) {
            management.close(&connection).await;
        }
    }
    format!("{client}*")
}

/// Kills the processes of every slot but the steady one, each at least twice; how many kills.
pub(super) async fn to_workers(staff: &Arc<Staff>, seed: u64, habit: &Habit, until: Instant) -> usize {
    let mut random = StdRng::seed_from_u64(seed);
    let victims = (0..SLOTS).filter(|slot| *slot != STEADY).map(|slot| {
        harass(
            random.random(),
            habit.clone(),
            until,
            async move || staff.kill(slot),
            async move || staff.employ(slot),
        )
    });
    futures::future::join_all(victims).await.into_iter().sum()
}
