//! A child as its file and the settings describe it, resolved: nothing here needs looking up again.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A child MCP server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChildSpec {
    /// What the child is called everywhere; unique in a workspace.
    pub name: String,
    /// What its file says of it.
    pub description: Option<String>,
    /// What a model is to be told of it, where its owner wrote that down.
    pub switchboard_description: Option<String>,
    /// The file that describes it.
    pub file: PathBuf,
    /// How it is reached.
    pub launch: Launch,
    /// Why it cannot be started as things are: a variable that it needs is not set.
    pub unready: Option<String>,
    /// How long things may take, and how many there may be.
    pub limits: Limits,
    /// How its tools are offered.
    pub expose: Expose,
    /// How it is reached, exactly as its file says: what its owner is shown, and trusts.
    pub template: LaunchTemplate,
}

/// How a child is reached, exactly as its file says: no variable in it is replaced.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LaunchTemplate {
    /// `stdio`, `http`, `sse` or `ws`.
    #[serde(rename = "type")]
    pub transport: String,
    /// The program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Its arguments.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// The variables it is given.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// The folder it starts in; where its file does not say, the file's own, relative to the workspace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// How what is written to it is framed, where its file says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub framing: Option<Framing>,
    /// Where it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Headers of every request.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
}

/// How a child is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Launch {
    /// A program that is started, spoken to on its standard streams.
    Stdio {
        /// The program.
        command: String,
        /// Its arguments.
        args: Vec<String>,
        /// The variables it is given beside the allowed ones, expanded.
        env: BTreeMap<String, String>,
        /// The folder it starts in.
        cwd: PathBuf,
        /// How what is written to it is framed.
        framing: Framing,
    },
    /// Streamable HTTP.
    Http {
        /// The endpoint.
        url: String,
        /// Headers of every request, expanded.
        headers: BTreeMap<String, String>,
    },
    /// The legacy pair of an event stream and posts.
    Sse {
        /// The address of the stream.
        url: String,
        /// Headers of every request, expanded.
        headers: BTreeMap<String, String>,
    },
    /// A WebSocket.
    Ws {
        /// The address.
        url: String,
        /// Headers of the opening request, expanded.
        headers: BTreeMap<String, String>,
    },
}

/// How messages to a child are framed. What comes from it is read in either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Framing {
    /// Lines; header blocks for a child that did not answer to lines.
    #[default]
    Auto,
    /// One line a message.
    Newline,
    /// A `Content-Length` header block before each message.
    ContentLength,
}

/// How long things may take, and how many there may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// From the start to the answer to `initialize`.
    pub spawn: Duration,
    /// The same for a program that may first have to download what it runs.
    pub fetch: Duration,
    /// One request.
    pub rpc: Duration,
    /// A child that nobody called for so long is stopped. `None`: never.
    pub idle: Option<Duration>,
    /// How many requests it may have at once; more wait.
    pub concurrency: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            spawn: Duration::from_secs(8),
            fetch: Duration::from_mins(1),
            rpc: Duration::from_mins(1),
            idle: Some(Duration::from_mins(10)),
            concurrency: 32,
        }
    }
}

/// How a child's tools are offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Expose {
    /// As one tool.
    #[default]
    Suite,
    /// Each by itself, as `child__tool`; with its own name where `bare` is set and the name is unique.
    Flat {
        /// Whether the tools keep their own names.
        bare: bool,
    },
}
