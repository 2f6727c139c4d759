//! Wrapper: an MCP server with a model in front of a child, for questions in plain language.
//!
//! `switchboard suite wrap` ([`wrap_child`]) replaces a child with Switchboard's own program, [`Wrapper`]. This program
//! is an MCP server with one tool, `natural_language`. A model of the user's choice receives the question and uses the
//! tools of the original child, within bounds. The result contains the model's answer and every call that the model
//! made. The layout on disk follows the suite proxy's architecture (section "Claude Intelligent Wrapper Architecture"),
//! but uses this program instead of one script per child.
//!
//! Workspace files cannot decide where a key is sent, which program is started, or whether destructive tools are
//! allowed: the `switchboard` crate accepts these settings only from the user's own file. The original child is started
//! only with the launch settings that its owner trusted.

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
