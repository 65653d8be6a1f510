//! Dead letters replayed: what goes out, what stays, who has it where two want it.

mod canary;
mod ends;
mod killed;
mod rivals;
mod sending;
mod stage;
