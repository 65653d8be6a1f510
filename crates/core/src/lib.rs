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
//! | [`contract`] | may this payload be of this type and version, and whom would another version break? |
//! | [`dead_letter`] | what is a dead letter's id, and how far is its repair? |
//! | [`dead_letter_filter`] | which dead letters are meant? |
//! | [`fingerprint`] | which dead letters are alike? |
//! | [`replay`] | how is a dead letter brought back, alone or with thousands, edited or not? |
//! | [`json_text`] | how is a JSON text edited or shown without touching what isn't edited? |
//! | [`json_patch`] | what do these operations of RFC 6902 make of this text? |
//! | [`printable`] | how is a stranger's text shown on a terminal? |
//! | [`ladder`] | which exchange and routing key delay a message by this long? |
//! | [`names`] | what is each object on the broker called? |
//! | [`headers`] | which headers are ours, which must never be republished? |
//! | [`policy`] | how long to wait before the next attempt? |
//! | [`dispose`] | acknowledge, retry, dead-letter or give back? |
//! | [`quick`] | is a failed try repeated at once? |
//! | [`consumer_timeout`] | how long may a handler run before the broker takes its delivery back? |
//! | [`crash`] | may a task be started that worker processes died with? |
//! | [`admission`] | how long does a task stay away that its type's limits don't admit now? |
//! | [`idempotency`] | under which key is a task processed once, and how long does a duplicate wait? |
//! | [`topic`] | does this binding pattern match this routing key? |
//! | [`cron`] | when does this schedule fire next? |
//! | [`capacity`] | how many handlers does this load need? |
//! | [`doctor`] | what do these facts say is wrong with an installation, and what to do? |
//! | [`lifecycle`] | which states has a task, and how is its cancellation answered? |
//! | [`acks`] | which frames settle the deliveries that are finished? |
//! | [`prefetch`] | how many deliveries does a worker hold? |
//! | [`lanes`] | is it the high lane's turn, or the normal one's? |

pub mod acks;
pub mod admission;
pub mod capacity;
pub mod consumer_timeout;
pub mod contract;
pub mod crash;
pub mod cron;
pub mod dead_letter;
pub mod dead_letter_filter;
pub mod dispose;
pub mod doctor;
pub mod envelope;
pub mod fingerprint;
pub mod headers;
pub mod idempotency;
pub mod json_patch;
pub mod json_text;
pub mod ladder;
pub mod lanes;
pub mod lifecycle;
pub mod names;
pub mod policy;
pub mod prefetch;
pub mod printable;
pub mod quick;
pub mod replay;
pub mod task;
pub mod topic;
