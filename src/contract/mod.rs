//! Contracts as files: read from a directory, checked against our rules and against what is published, and shown to people,
//! pipelines and code hosts. What a contract means is `tidegate_core::contract`.
//!
//! May import: `core`. It reads files, asks `git`, and reaches neither broker nor database.

mod check;
mod docs;
mod files;
pub mod generated;
mod git;
mod golden;
mod render;

pub use check::{Item, Report, check};
pub use docs::{asyncapi, html, markdown};
pub use files::{DirError, Service, Set, Stored, read_dir, read_service};
pub use git::{GitError, read_git};
pub use golden::{NotGolden, snapshot};
pub use render::{github, json, junit, text};
