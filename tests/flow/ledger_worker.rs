//! A worker with the ledger: it starts nothing that was cancelled, and the row says what became of each task.

pub(crate) mod away;
mod canceled;
pub(crate) mod installation;
mod life_cycle;
mod load;
mod races;
mod routed;
