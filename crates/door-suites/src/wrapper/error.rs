//! Errors of wrappers and of the models behind them.

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
    /// The child's file is outside the only folder in which wrappers can be created.
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
    /// The wrapper folder already contains the original of another child.
    #[error("{} already exists and belongs to another server; move it aside", .file.display())]
    OtherOriginal {
        /// Path of the other original.
        file: PathBuf,
    },
    /// The child is not trusted.
    #[error("the server '{child}' is not trusted yet: run `switchboard suite trust {child}` first")]
    NotTrusted {
        /// Name of the child.
        child: String,
    },
    /// The launch settings of the wrapped server are not the trusted ones, or were never trusted.
    #[error(
        "the original of '{child}' differs from what was trusted when it was wrapped{diff}; if that is intended, a person must run \
         `switchboard suite unwrap {child}`, `switchboard suite trust {child}` and `switchboard suite wrap {child}`"
    )]
    OriginalChanged {
        /// Name of the child.
        child: String,
        /// Line diff of the launch settings; empty if nothing was ever trusted.
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
        /// The missing setting, and the place where it can be set.
        needs: String,
    },
    /// Listing the tools of the original failed.
    #[error(transparent)]
    Child(#[from] ChildError),
    /// An error of the suites: settings, names, trust or files.
    #[error(transparent)]
    Suite(#[from] SuiteError),
    /// Reading or writing a file failed.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Error of a model provider. Error texts never contain keys.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ModelError {
    /// The endpoint cannot be reached.
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
        /// HTTP status of the response.
        status: u16,
        /// Environment variable that holds the key.
        variable: &'static str,
        /// Error message of the server.
        detail: String,
    },
    /// The key contains characters that are invalid in a header.
    #[error("the key in {variable} has invalid characters; set it again")]
    BadKey {
        /// Environment variable that holds the key.
        variable: &'static str,
    },
    /// The endpoint does not know the model, or there is no such API at the URL.
    #[error(
        "{url} has no model '{model}' (HTTP 404); set 'model' or 'baseUrl' of the wrapper{}",
        quoted(.detail)
    )]
    NotFound {
        /// URL of the endpoint.
        url: String,
        /// Name of the model.
        model: String,
        /// Error message of the server.
        detail: String,
    },
    /// The endpoint is overloaded or failing, even after retries.
    #[error("{url} answered HTTP {status} to {attempts} attempts; try again later{}", quoted(.detail))]
    Overloaded {
        /// URL of the endpoint.
        url: String,
        /// HTTP status of the last attempt.
        status: u16,
        /// Number of attempts.
        attempts: u32,
        /// Error message of the server.
        detail: String,
    },
    /// The endpoint rejected the request.
    #[error("{url} refused the request (HTTP {status}){}", quoted(.detail))]
    Refused {
        /// URL of the endpoint.
        url: String,
        /// HTTP status of the response.
        status: u16,
        /// Error message of the server.
        detail: String,
    },
    /// The response is invalid.
    #[error("the answer of {from} is invalid: {problem}")]
    Unreadable {
        /// URL of the endpoint that sent the response.
        from: String,
        /// Description of what is invalid.
        problem: String,
    },
    /// The command could not be started, or it failed.
    #[error("the command `{command}` {problem}{}", quoted(.detail))]
    Command {
        /// Name of the program.
        command: String,
        /// Description of the failure, and the next step.
        problem: String,
        /// Last line that the program wrote to stderr.
        detail: String,
    },
}

fn quoted(detail: &str) -> String {
    if detail.is_empty() { String::new() } else { format!("; it said: {detail}") }
}
