//! The catalogue in forms that others read: a page of a wiki, a page of the web, a description for AsyncAPI's tools.
//!
//! Each form is a pure function to a text that depends on nothing but the contracts: the same contracts give the same bytes.
//! Texts come from contracts that anybody may propose: nothing in them is taken for markup or steers who shows it.
//!
//! May import: `core`.

mod asyncapi;
mod html;
mod markdown;
mod page;

pub use asyncapi::asyncapi;
pub use html::html;
pub use markdown::markdown;

#[cfg(test)]
mod tests;
