//! Wrapper: a model in front of a child, for questions in plain language.
//!
//! `switchboard suite wrap` ([`wrap_child`]) replaces a child with a program of ours. That program, [`Wrapper`], is an
//! MCP server with one tool, `natural_language`: a model of the user's choice gets the question and the tools of the
//! original child and uses them within bounds. The result is its answer, with every call that it made. The layout on
//! disk follows the suite proxy's architecture (section "Claude Intelligent Wrapper Architecture"), with this program
//! instead of one script per child.
//!
//! The authors of workspace files decide neither where a key is sent, nor which program is started, nor whether
//! destructive tools are allowed: see [`WrapperSettings::USER_ONLY`]. The original is started only as its owner trusted
//! it.

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
