//! What the handlers of one worker process did: 16 bytes per task, so that thousands a second cost next to nothing.
//!
//! Each mark is one write to a file that is opened for appending: a process that is killed leaves whole marks behind, and what it
//! wrote is there although nothing was synced, as the machine lives on.

use std::{
    fs::{File, OpenOptions},
    io::Write,
    path::{Path, PathBuf},
};

use chrono::Utc;

const SIZE: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// The effect of a type that has it outside of the database.
    Effect = 1,
    /// An effect was written in the ledger's transaction, which may still be undone.
    Written = 2,
    /// The last failure of a task that is given up.
    Failed = 3,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    pub(super) what: What,
    /// Key of an effect; number of a task that failed.
    pub(super) key: u32,
    /// Microseconds of Unix time.
    pub(super) at: i64,
}

/// The file of the `number`th process in `slot`.
pub(super) fn path(dir: &Path, slot: usize, number: usize) -> PathBuf {
    dir.join(format!("marks-{slot}-{number}"))
}

#[derive(Debug)]
pub(super) struct Pen(File);

impl Pen {
    pub(super) fn open(path: &Path) -> Self {
        Self(OpenOptions::new().create(true).append(true).open(path).unwrap())
    }

    pub(super) fn mark(&self, what: What, key: u32) -> std::io::Result<()> {
        let mut bytes = [0; SIZE];
        bytes[..4].copy_from_slice(&(what as u32).to_le_bytes());
        bytes[4..8].copy_from_slice(&key.to_le_bytes());
        bytes[8..].copy_from_slice(&Utc::now().timestamp_micros().to_le_bytes());
        (&self.0).write_all(&bytes)
    }
}

/// How many marks a process has made.
pub(super) fn count(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |file| file.len() / SIZE as u64)
}

pub(super) fn read(path: &Path) -> Vec<Mark> {
    let bytes = std::fs::read(path).unwrap_or_default();
    let number = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap());
    bytes
        .chunks_exact(SIZE)
        .map(|mark| Mark {
            what: match number(&mark[..4]) {
                1 => What::Effect,
                2 => What::Written,
                3 => What::Failed,
                other => panic!("{}: a mark of kind {other}", path.display()),
            },
            key: number(&mark[4..8]),
            at: i64::from_le_bytes(mark[8..].try_into().unwrap()),
        })
        .collect()
}
