//! A child that is asked in plain language.
//!
//! `switchboard suite wrap` ([`wrap_child`]) puts a program of ours in a child's place. That program, [`Wrapper`],
//! is an MCP server with the one tool `natural_language`: a model of the user's choice is given the tools of the
//! original child and the question, uses them within bounds, and its answer is the tool's result, together with
//! every call that was made for it. The layout on disk is that of the suite proxy's architecture (section "Claude
//! Intelligent Wrapper Architecture"), with this program instead of a script for each child.
//!
//! Whoever wrote the workspace's files decides neither where a key is sent, nor which program is started, nor that
//! something may be destroyed: see [`WrapperSettings::USER_ONLY`], and the original is started only as its owner
//! trusted it.

mod anthropic;
mod command;
mod content;
mod conversation;
mod destructive;
mod endpoint;
mod error;
mod layout;
mod manifest;
mod model;
mod openai;
mod original;
mod provider;
mod role;
mod server;
mod settings;
mod toolbox;

pub use self::error::WrapperError;
pub use self::layout::{UnwrapOutcome, WrapOutcome, is_wrapper, unwrap_child, wrap_child};
pub use self::original::original_name;
pub use self::provider::ProviderKind;
pub use self::server::Wrapper;
pub use self::settings::WrapperSettings;

#[cfg(test)]
mod tests;
