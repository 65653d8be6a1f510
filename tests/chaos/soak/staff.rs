//! The worker processes: one that lives through everything, and others that are killed.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use tidegate_testkit::Process;
use tokio::time::{Instant, sleep};
use tokio_util::task::AbortOnDropHandle;

use super::{marks, worker};
use crate::installation::{Installation, PATIENCE};

/// The first slot's process is never killed: its memory is watched over the whole time.
pub(super) const STEADY: usize = 0;
pub(super) const SLOTS: usize = 3;

/// Memory and open files of a process at one time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) at: Instant,
    pub(super) rss_kib: u64,
    pub(super) files: usize,
}

/// One worker process, from its start.
#[derive(Clone, Debug)]
pub(super) struct Life {
    pub(super) slot: usize,
    number: usize,
    pub(super) was_killed: bool,
    pub(super) marks: PathBuf,
    pub(super) samples: Vec<Sample>,
    /// Its id, while it lives.
    process: Option<u32>,
}

impl Life {
    pub(super) fn name(&self) -> String {
        format!("worker {}-{}", self.slot, self.number)
    }
}

pub(super) struct Staff {
    installation: Arc<Installation>,
    processes: [Mutex<Option<Process>>; SLOTS],
    lives: Mutex<Vec<Life>>,
}

impl Staff {
    pub(super) fn start(installation: &Arc<Installation>) -> Arc<Self> {
        let staff = Self {
            installation: Arc::clone(installation),
            processes: Default::default(),
            lives: Mutex::default(),
        };
        for slot in 0..SLOTS {
            staff.employ(slot);
        }
        Arc::new(staff)
    }

    /// Starts a process in `slot`, which must be empty.
    pub(super) fn employ(&self, slot: usize) {
        let mut lives = self.lives.lock().unwrap();
        let number = lives.iter().filter(|life| life.slot == slot).count();
        let process = worker::start(&self.installation, slot, number);
        lives.push(Life {
            slot,
            number,
            was_killed: false,
            marks: marks::path(self.installation.path(), slot, number),
            samples: Vec::new(),
            process: Some(process.id()),
        });
        *self.processes[slot].lock().unwrap() = Some(process);
    }

    /// Kills the process in `slot` (`kill -9`).
    pub(super) fn kill(&self, slot: usize) {
        let mut lives = self.lives.lock().unwrap();
        let life = lives.iter_mut().rfind(|life| life.slot == slot).unwrap();
        life.was_killed = true;
        life.process = None;
        let mut process = self.processes[slot].lock().unwrap().take().unwrap();
        assert!(
            process.is_running(),
            "a worker ended by itself:\n{}",
            process.output()
        );
        process.kill();
    }

    /// All processes that ever were.
    pub(super) fn lives(&self) -> Vec<Life> {
        self.lives.lock().unwrap().clone()
    }

    /// Marks that were made so far.
    pub(super) fn marks(&self) -> u64 {
        let lives = self.lives.lock().unwrap();
        lives.iter().map(|life| marks::count(&life.marks)).sum()
    }

    /// Whether each process has done something.
    pub(super) fn is_at_work(&self) -> bool {
        let lives = self.lives.lock().unwrap();
        lives.iter().all(|life| marks::count(&life.marks) > 0)
    }

    /// Looks at every process from time to time, until dropped.
    pub(super) fn watch(self: &Arc<Self>, every: Duration) -> AbortOnDropHandle<()> {
        let staff = Arc::clone(self);
        AbortOnDropHandle::new(tokio::spawn(async move {
            loop {
                for life in &mut *staff.lives.lock().unwrap() {
                    life.samples.extend(life.process.and_then(sample));
                }
                sleep(every).await;
            }
        }))
    }

    /// Stops them in order.
    pub(super) async fn dismiss(&self) {
        for slot in &self.processes {
            let mut process = slot.lock().unwrap().take().unwrap();
            process.terminate();
            let status = process.wait(PATIENCE).await;
            assert!(status.success(), "{status}:\n{}", process.output());
        }
    }
}

/// Nothing, if it is gone.
pub(super) fn sample(process: u32) -> Option<Sample> {
    let dir = Path::new("/proc").join(process.to_string());
    let status = std::fs::read_to_string(dir.join("status")).ok()?;
    let rss = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(Sample {
        at: Instant::now(),
        rss_kib: rss.trim().strip_suffix(" kB")?.parse().ok()?,
        files: std::fs::read_dir(dir.join("fd")).ok()?.count(),
    })
}
