//! Servers that are killed, frozen, stopped, and started with wrong clocks.

use std::{
    fmt,
    ops::Add,
    sync::Arc,
    time::{Duration, SystemTime},
};

use chrono::{DateTime, Utc};
use rand::{Rng, SeedableRng, rngs::StdRng};
use tidegate_testkit::set_clock;
use tokio::time::{Instant, sleep};

use crate::{
    installation::{Installation, PATIENCE},
    server::Server,
};

const ROLES: [&str; 2] = ["--roles", "scheduler,relay"];

/// Clocks that the three begin with, in seconds ahead of the truth.
pub(super) const FIRST_CLOCKS: [i64; 3] = [90, -90, 0];

/// What was done to servers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Deeds {
    kills: usize,
    freezes: usize,
    stops: usize,
    wrong_clocks: usize,
}

impl Add for Deeds {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            kills: self.kills + other.kills,
            freezes: self.freezes + other.freezes,
            stops: self.stops + other.stops,
            wrong_clocks: self.wrong_clocks + other.wrong_clocks,
        }
    }
}

impl fmt::Display for Deeds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "servers killed {}, frozen {}, stopped {} times; {} starts with a wrong clock",
            self.kills, self.freezes, self.stops, self.wrong_clocks
        )
    }
}

impl Deeds {
    /// A run in which too little happened proves nothing.
    pub(super) fn assert_thorough(&self) {
        assert!(
            self.kills > 0 && self.freezes > 0 && self.wrong_clocks > 1,
            "{self}"
        );
    }
}

/// What is done to a server.
#[derive(Clone, Copy)]
pub(super) enum Deed {
    Kill,
    Freeze,
    Stop,
}

impl Deed {
    /// What each of the three suffers first, so that nothing is left to chance.
    pub(super) const FIRST: [Self; 3] = [Self::Freeze, Self::Kill, Self::Stop];

    fn any(random: &mut StdRng) -> Self {
        match random.random_range(0..10) {
            0..5 => Self::Kill,
            5..8 => Self::Freeze,
            _ => Self::Stop,
        }
    }
}

/// One of the servers.
pub(super) struct Tormented {
    installation: Arc<Installation>,
    server: Server,
    deeds: Deeds,
}

impl Tormented {
    /// Starts one and waits until it works.
    pub(super) async fn start(installation: &Arc<Installation>, clock: i64) -> Self {
        let server = serve(installation, clock).await;
        server.wait_ready().await;
        Self {
            installation: Arc::clone(installation),
            server,
            deeds: Deeds {
                wrong_clocks: usize::from(clock != 0),
                ..Deeds::default()
            },
        }
    }

    /// Does `first`, then what it wants, until `until`; leaves a server running.
    pub(super) async fn torment(&mut self, seed: u64, first: Deed, until: Instant) -> Deeds {
        let mut random = StdRng::seed_from_u64(seed);
        let mut deed = first;
        loop {
            let pause = random.random_range(1_500..7_000);
            sleep(Duration::from_millis(pause)).await;
            if Instant::now() >= until {
                return self.deeds;
            }
            match std::mem::replace(&mut deed, Deed::any(&mut random)) {
                Deed::Kill => {
                    self.server.process.kill();
                    self.deeds.kills += 1;
                    sleep(Duration::from_millis(random.random_range(0..2_000))).await;
                    self.start_again(&mut random).await;
                }
                Deed::Freeze => {
                    self.server.process.freeze();
                    self.deeds.freezes += 1;
                    // Beyond the age at which a decision is refused and what the watch waits for; now and then beyond all
                    // time-outs, where there is time for it.
                    let longest = (until - Instant::now()).as_secs() > 120;
                    let frozen = if longest && random.random_ratio(1, 12) {
                        70_000
                    } else {
                        random.random_range(300..12_000)
                    };
                    sleep(Duration::from_millis(frozen)).await;
                    self.server.process.thaw();
                }
                Deed::Stop => {
                    self.server.process.terminate();
                    // What it does to stop in order is not the subject here, nor is how long it takes.
                    sleep(Duration::from_millis(random.random_range(100..3_000))).await;
                    self.server.process.kill();
                    self.deeds.stops += 1;
                    self.start_again(&mut random).await;
                }
            }
        }
    }

    async fn start_again(&mut self, random: &mut StdRng) {
        let clock = match random.random_range(0..4) {
            0 => 0,
            1 => 90,
            2 => -90,
            _ => random.random_range(-90..=90),
        };
        self.deeds.wrong_clocks += usize::from(clock != 0);
        self.server = serve(&self.installation, clock).await;
    }

    /// Stops it in order.
    pub(super) async fn stop(mut self) {
        self.server.process.terminate();
        let status = self.server.process.wait(PATIENCE).await;
        assert!(status.success(), "{status}:\n{}", self.server.process.output());
    }
}

/// Starts a server whose clock is so many seconds fast, and sees that it is.
async fn serve(installation: &Installation, clock: i64) -> Server {
    let mut command = installation.tidegate(&Server::arguments(&ROLES));
    if clock != 0 {
        set_clock(&mut command, clock);
    }
    let server = Server::start(command).await;
    let log = server.process.output();
    let first: serde_json::Value = serde_json::from_str(log.lines().next().unwrap()).unwrap();
    let told: DateTime<Utc> = first["timestamp"].as_str().unwrap().parse().unwrap();
    let ahead = (told - DateTime::<Utc>::from(SystemTime::now())).as_seconds_f64();
    // It may have taken some time to start.
    assert!(
        (-45.0..2.0).contains(&(ahead - clock as f64)),
        "its clock is {ahead} s ahead, not {clock}"
    );
    server
}
