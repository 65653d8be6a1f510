//! Dead letters as a service: archived and kept for as long as the setting says, looked at, discarded, exported, replayed.
//!
//! May import: `core`, `broker`, `publish`, `store`, `supervisor`, `telemetry`, `topology`. No SQL and no header is written here, and nothing prints:
//! the command line and an API are faces of this.
//!
//! | module | what |
//! |---|---|
//! | [`archivist`] | from `task.dead.queue` into the archive, acknowledged after the commit |
//! | [`letter`] | a message as a row; pure |
//! | [`keeping`] | the days of the archive: made ahead, dropped when they are old enough, their open ones counted |
//! | [`body`] | the bytes of a body for people |
//! | [`look`] | one dead letter with its story |
//! | [`discard`] | what shall not run |
//! | [`export`] | a day as NDJSON |
//! | [`replay`] | out again, unchanged or edited |
//! | [`digest`] | what is new, told to a webhook now and then |

pub mod archivist;
pub mod body;
pub mod digest;
pub mod discard;
pub mod export;
pub mod keeping;
pub mod letter;
pub mod look;
pub mod replay;
