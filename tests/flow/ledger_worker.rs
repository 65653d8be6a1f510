//! A worker with the ledger: it starts nothing that was cancelled, and the row says what became of each task.

mod away;
mod canceled;
mod installation;
mod life_cycle;
mod load;
mod races;
