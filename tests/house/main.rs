//! What holds for the repository itself: who imports whom, how files are laid out, and that the documents are true.
//! Needs no services.

// A test whose set-up fails has failed.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod commands;
mod documents;
mod features;
mod imports;
mod layout;
mod purity;
mod readme;
mod repository;
mod rust_text;
