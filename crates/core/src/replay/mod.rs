//! How dead letters are brought back without making it worse.
//!
//! - [`plan`]: options, counts, steps and ends of a run.
//! - [`run`]: which batch goes next, what the canary says, and what a run that was killed does next.
//! - [`link`]: which dead letters belong to a run, who loses where two want one, and how often a task has died.
//! - [`choice`]: what is chosen for a replay, and what each choice means.
//! - [`edit`]: the exact bytes and headers that go out, or why they don't.
//! - [`header`]: which headers a replay keeps.
//!
//! Order of a batch: claim its rows (`REPLAYING`, with the run's id), publish, wait for the confirms, mark them
//! `REPLAYED`. A run that dies after the claim finds its own claims again and publishes them again: a duplicate with the same
//! task id at worst, never a loss.
//!
//! May import: `dead_letter`, `dispose`, `envelope`, `headers`, `json_patch`, `json_text`, `ladder`, `task`, chrono.

pub mod choice;
pub mod edit;
pub mod header;
pub mod link;
pub mod plan;
pub mod run;
