//! Errors of wrappers.

use std::path::PathBuf;

use switchboard_sys::files::FileError;

use crate::child::ChildError;
use crate::error::SuiteError;

/// Error of wrapping, unwrapping or opening a wrapper.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WrapperError {
    /// The child is already wrapped.
    #[error(
        "the server '{child}' is already wrapped; `switchboard suite unwrap {child}` removes the wrapper"
    )]
    AlreadyWrapped {
        /// Name of the child.
        child: String,
    },
    /// The child is not wrapped.
    #[error("the server '{child}' is not wrapped; `switchboard suite wrap {child}` wraps it")]
    NotWrapped {
        /// Name of the child.
        child: String,
    },
    /// The child's file is outside the folder in which wrappers are created.
    #[error(
        "the server '{child}' is described in {}, but only servers below .switchboard/mcps can be wrapped; `switchboard suite add` adds one there",
        .file.display()
    )]
    Elsewhere {
        /// Name of the child.
        child: String,
        /// File that describes the child.
        file: PathBuf,
    },
    /// The folder contains the original of another child.
    #[error("{} already exists and belongs to another server; move it aside", .file.display())]
    OtherOriginal {
        /// Path of that original.
        file: PathBuf,
    },
    /// The child is not trusted.
    #[error("the server '{child}' is not trusted yet: run `switchboard suite trust {child}` first")]
    NotTrusted {
        /// Name of the child.
        child: String,
    },
    /// The original differs from what was trusted when it was wrapped.
    #[error(
        "the original of '{child}' differs from what was trusted when it was wrapped{diff}; if that is intended, a person must run \
         `switchboard suite unwrap {child}`, `switchboard suite trust {child}` and `switchboard suite wrap {child}`"
    )]
    OriginalChanged {
        /// Name of the child.
        child: String,
        /// Line diff; empty if nothing was ever trusted.
        diff: String,
    },
    /// No model provider is available.
    #[error(
        "no model is configured: set ANTHROPIC_API_KEY or OPENAI_API_KEY, install `claude` or `codex`, or set \
         'suites.{child}.wrapper.command' in ~/.config/switchboard/config.json"
    )]
    NoProvider {
        /// Name of the child.
        child: String,
    },
    /// The selected provider lacks a setting.
    #[error("the provider '{provider}' needs {needs}")]
    Incomplete {
        /// Name of the provider.
        provider: &'static str,
        /// The missing setting, and where to set it.
        needs: String,
    },
    /// Listing the original's tools failed.
    #[error(transparent)]
    Child(#[from] ChildError),
    /// An error of the suites: settings, names, trust or files.
    #[error(transparent)]
    Suite(#[from] SuiteError),
    /// Reading or writing a file failed.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Error of a model. Never contains keys.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ModelError {
    /// The endpoint is unreachable.
    #[error("{url} cannot be reached: {cause}")]
    Unreachable {
        /// URL of the endpoint.
        url: String,
        /// Cause of the failure.
        cause: String,
    },
    /// The endpoint rejected the key.
    #[error("{url} does not accept the key (HTTP {status}); check {variable}{}", quoted(.detail))]
    KeyRefused {
        /// URL of the endpoint.
        url: String,
        /// HTTP status.
        status: u16,
        /// Variable that holds the key.
        variable: &'static str,
        /// Message of the server.
        detail: String,
    },
    /// The key contains invalid characters.
    #[error("the key in {variable} has invalid characters; set it again")]
    BadKey {
        /// Variable that holds the key.
        variable: &'static str,
    },
    /// The endpoint does not know the model, or there is no such API.
    #[error(
        "{url} has no model '{model}' (HTTP 404); set 'model' or 'baseUrl' of the wrapper{}",
        quoted(.detail)
    )]
    NotFound {
        /// URL of the endpoint.
        url: String,
        /// Name of the model.
        model: String,
        /// Message of the server.
        detail: String,
    },
    /// The endpoint is overloaded or failing, also after retries.
    #[error("{url} answered HTTP {status} to {attempts} attempts; try again later{}", quoted(.detail))]
    Overloaded {
        /// URL of the endpoint.
        url: String,
        /// Last HTTP status.
        status: u16,
        /// Number of attempts.
        attempts: u32,
        /// Message of the server.
        detail: String,
    },
    /// The endpoint rejected the request.
    #[error("{url} refused the request (HTTP {status}){}", quoted(.detail))]
    Refused {
        /// URL of the endpoint.
        url: String,
        /// HTTP status.
        status: u16,
        /// Message of the server.
        detail: String,
    },
    /// The response is invalid.
    #[error("the answer of {from} is invalid: {problem}")]
    Unreadable {
        /// Sender of the response.
        from: String,
        /// The violation.
        problem: String,
    },
    /// The command did not run or failed.
    #[error("the command `{command}` {problem}{}", quoted(.detail))]
    Command {
        /// Program of the command.
        command: String,
        /// The failure and the next step.
        problem: String,
        /// Last line of its stderr.
        detail: String,
    },
}

fn quoted(detail: &str) -> String {
    if detail.is_empty() { String::new() } else { format!("; it said: {detail}") }
}
