//! What can go wrong with a wrapper.

use std::path::PathBuf;

use switchboard_sys::files::FileError;

use crate::child::ChildError;
use crate::error::SuiteError;

/// Why a wrapper was not made, not taken away, or did not answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WrapperError {
    /// The child is wrapped already.
    #[error("the server '{child}' is wrapped already; `switchboard suite unwrap {child}` takes that back")]
    AlreadyWrapped {
        /// Its name.
        child: String,
    },
    /// The child is not wrapped.
    #[error("the server '{child}' is not wrapped; `switchboard suite wrap {child}` wraps it")]
    NotWrapped {
        /// Its name.
        child: String,
    },
    /// The child's file is not where wrappers are made.
    #[error(
        "the server '{child}' is described in {}, and only servers below .switchboard/mcps can be wrapped; \
         `switchboard suite add` puts one there",
        .file.display()
    )]
    Elsewhere {
        /// Its name.
        child: String,
        /// The file that describes it.
        file: PathBuf,
    },
    /// The folder holds an original that is not this child's.
    #[error("{} is there already and is another server's; move it aside", .file.display())]
    OtherOriginal {
        /// The file.
        file: PathBuf,
    },
    /// The owner has not agreed to start the child.
    #[error("the server '{child}' is not trusted yet: run `switchboard suite trust {child}` first")]
    NotTrusted {
        /// Its name.
        child: String,
    },
    /// The original is not what its owner agreed to when it was wrapped.
    #[error(
        "the original of '{child}' is not what was trusted when it was wrapped{diff}; if that is meant, a person has to run \
         `switchboard suite unwrap {child}`, `switchboard suite trust {child}` and `switchboard suite wrap {child}`"
    )]
    OriginalChanged {
        /// Its name.
        child: String,
        /// What differs, line by line; nothing where nothing was ever trusted.
        diff: String,
    },
    /// Nobody is there to answer.
    #[error(
        "no model is configured: set ANTHROPIC_API_KEY or OPENAI_API_KEY, install `claude` or `codex`, or set \
         'suites.{child}.wrapper.command' in ~/.config/switchboard/config.json"
    )]
    NoProvider {
        /// The child.
        child: String,
    },
    /// A provider was chosen that lacks something.
    #[error("the provider '{provider}' needs {needs}")]
    Incomplete {
        /// Which.
        provider: &'static str,
        /// What it lacks, and where that is set.
        needs: String,
    },
    /// The original could not be asked for its tools.
    #[error(transparent)]
    Child(#[from] ChildError),
    /// Settings, names, trust or files of the suites.
    #[error(transparent)]
    Suite(#[from] SuiteError),
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Why a model did not answer. Keys are never part of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ModelError {
    /// It could not be reached.
    #[error("{url} cannot be reached: {cause}")]
    Unreachable {
        /// Where.
        url: String,
        /// Why.
        cause: String,
    },
    /// It does not take the key.
    #[error("{url} does not accept the key (HTTP {status}); check {variable}{}", quoted(.said))]
    KeyRefused {
        /// Where.
        url: String,
        /// What it answered.
        status: u16,
        /// Where the key came from.
        variable: &'static str,
        /// What it said.
        said: String,
    },
    /// The key cannot be one.
    #[error("the key in {variable} holds characters that no key has; set it again")]
    BadKey {
        /// Where the key came from.
        variable: &'static str,
    },
    /// It knows no such model, or there is no such API.
    #[error(
        "{url} knows no model '{model}' (HTTP 404); set 'model' or 'baseUrl' of the wrapper{}",
        quoted(.said)
    )]
    NotFound {
        /// Where.
        url: String,
        /// Which.
        model: String,
        /// What it said.
        said: String,
    },
    /// It has too much to do, or is broken, also after some waiting.
    #[error("{url} answered HTTP {status} to {attempts} attempts; try again later{}", quoted(.said))]
    Overloaded {
        /// Where.
        url: String,
        /// What it answered last.
        status: u16,
        /// How often it was asked.
        attempts: u32,
        /// What it said.
        said: String,
    },
    /// It refused the request.
    #[error("{url} refused the request (HTTP {status}){}", quoted(.said))]
    Refused {
        /// Where.
        url: String,
        /// What it answered.
        status: u16,
        /// What it said.
        said: String,
    },
    /// Its answer is none.
    #[error("{from} answered something that is no answer: {problem}")]
    Unreadable {
        /// Who.
        from: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The command did not run or failed.
    #[error("the command `{command}` {problem}{}", quoted(.said))]
    Command {
        /// Its program.
        command: String,
        /// What went wrong, and what to do.
        problem: String,
        /// The last thing it wrote to stderr.
        said: String,
    },
}

fn quoted(said: &str) -> String {
    if said.is_empty() { String::new() } else { format!("; it said: {said}") }
}
