//! The ledger's figures, measured on real services: `cargo bench --bench ledger [-- PART...]`.
//!
//! Parts: `claim`, `relay`, `lateness`, `idle` (with the bytes of a pending task), `outage`, `replay`; without any, all. The services come
//! from the environment (`./dev up`, then `set -a; . .dev/env; set +a`), and should have nothing else to do.
//!
//! `TIDEGATE_BENCH_RUNS` (3) is how often each figure is taken; the median counts. `TIDEGATE_BENCH_SCALE` (1.0) scales all counts
//! and times, for a look whether it works. What each part measures, and what came out: `docs/benchmarks.md`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "whatever fails here ends the bench, and it prints what it measured"
)]

mod claim;
mod ground;
mod idle;
mod lateness;
mod outage;
mod relay;
mod replay;

use tidegate_testkit::figures::{Figures, Scale, machine};

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    // `cargo bench` adds an option of its own.
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| !a.starts_with("--"))
        .collect();
    if let [role, url] = &arguments[..]
        && role == claim::CHILD
    {
        return claim::child(url).await;
    }
    let scale = Scale::from_environment();
    let parts = ["claim", "relay", "lateness", "idle", "outage", "replay"];
    if let Some(unknown) = arguments.iter().find(|part| !parts.contains(&part.as_str())) {
        eprintln!("there is no part {unknown:?}; parts are {parts:?}");
        std::process::exit(2);
    }
    let mut figures = Figures::of("ledger");
    for part in parts {
        if !arguments.is_empty() && !arguments.iter().any(|wanted| wanted == part) {
            continue;
        }
        eprintln!("{part} ...");
        match part {
            "claim" => claim::measure(&scale, &mut figures).await,
            "relay" => relay::measure(&scale, &mut figures).await,
            "lateness" => lateness::measure(&scale, &mut figures).await,
            "idle" => idle::measure(&scale, &mut figures).await,
            "outage" => outage::measure(&scale, &mut figures).await,
            _ => replay::measure(&scale, &mut figures).await,
        }
    }
    println!("{}", machine().await);
    println!("{figures}");
}
