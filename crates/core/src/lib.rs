//! The pure heart of Tidegate: what a task is, and what is decided about it.
//!
//! Everything here is a function of values and, where time matters, of a `now` that the caller hands in. The
//! crate knows no clock, no environment, no socket: no tokio, lapin or sqlx. That is what lets tables and
//! property tests prove the decisions without a broker.
//!
//! | module | question it answers |
//! |---|---|
//! | [`task`] | is this text a task id, a task type? |
//! | [`envelope`] | are these bytes a task, and if not, which rule do they break and where? |
//! | [`ladder`] | which exchange and routing key delay a message by this long? |
//! | [`names`] | what is each object on the broker called? |
//! | [`headers`] | which headers are ours, which must never be republished? |
//! | [`policy`] | how long to wait before the next attempt? |
//! | [`dispose`] | acknowledge, retry, dead-letter or give back? |
//! | [`topic`] | does this binding pattern match this routing key? |
//! | [`cron`] | when does this schedule fire next? |
//! | [`lifecycle`] | which states has a task, and how is its cancellation answered? |

pub mod cron;
pub mod dispose;
pub mod envelope;
pub mod headers;
pub mod ladder;
pub mod lifecycle;
pub mod names;
pub mod policy;
pub mod task;
pub mod topic;
