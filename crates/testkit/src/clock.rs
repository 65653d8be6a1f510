//! Programs with a wrong clock.

use std::{path::PathBuf, process::Command};

/// Lets `command` see the wall clock `seconds` fast, or slow if negative, by libfaketime. Time-outs and sleeps, which go by the
/// monotonic clock, are left alone, as on a machine whose clock is wrong.
///
/// # Panics
/// If libfaketime is missing; `./dev test` installs it.
pub fn set_clock(command: &mut Command, seconds: i64) {
    command
        .env("LD_PRELOAD", library())
        .env("FAKETIME", format!("{seconds:+}"))
        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
        .env("DONT_FAKE_MONOTONIC", "1")
        // Of a process that is killed nothing stays behind in /dev/shm.
        .env("FAKETIME_DISABLE_SHM", "1");
}

/// The one for programs with several threads.
fn library() -> PathBuf {
    let mut places: Vec<PathBuf> = std::fs::read_dir("/usr/lib")
        .into_iter()
        .flatten()
        .flatten()
        .map(|architecture| architecture.path().join("faketime/libfaketimeMT.so.1"))
        .collect();
    places.push("/usr/lib/faketime/libfaketimeMT.so.1".into());
    let found = places.into_iter().find(|place| place.exists());
    found.expect("libfaketime is installed: on Debian, apt-get install libfaketime")
}
