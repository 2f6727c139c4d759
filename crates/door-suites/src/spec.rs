//! Fully resolved description of a child, built from the child's file and the settings.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A child MCP server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChildSpec {
    /// Name of the child, unique in a workspace.
    pub name: String,
    /// Description from its file.
    pub description: Option<String>,
    /// Description for models, if its owner wrote one.
    pub switchboard_description: Option<String>,
    /// File that describes the child.
    pub file: PathBuf,
    /// How to start or reach the child.
    pub launch: Launch,
    /// Reason why it cannot be started: a required variable is not set.
    pub unready: Option<String>,
    /// Timeouts and concurrency.
    pub limits: Limits,
    /// How its tools are exposed.
    pub expose: Expose,
    /// Launch settings exactly as written in the file: what its owner sees and trusts.
    pub template: LaunchTemplate,
}

/// Launch settings exactly as written in the file, with variables unexpanded.
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
    /// Its environment variables.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Its working directory; by default the file's folder, relative to the workspace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Framing of messages to it, if the file sets one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub framing: Option<Framing>,
    /// Its URL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Headers of every request.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
}

/// Launch settings with all variables expanded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Launch {
    /// A program, started by Switchboard, that speaks MCP on its standard streams.
    Stdio {
        /// The program.
        command: String,
        /// Its arguments.
        args: Vec<String>,
        /// Environment variables beside the inherited allow-list, expanded.
        env: BTreeMap<String, String>,
        /// Working directory.
        cwd: PathBuf,
        /// Framing of messages to it.
        framing: Framing,
    },
    /// Streamable HTTP.
    Http {
        /// Endpoint URL.
        url: String,
        /// Headers of every request, expanded.
        headers: BTreeMap<String, String>,
    },
    /// The legacy pair of an SSE stream and POST requests.
    Sse {
        /// URL of the stream.
        url: String,
        /// Headers of every request, expanded.
        headers: BTreeMap<String, String>,
    },
    /// A WebSocket.
    Ws {
        /// URL of the socket.
        url: String,
        /// Headers of the opening request, expanded.
        headers: BTreeMap<String, String>,
    },
}

/// Framing of messages to a child. Messages from a child are accepted in either framing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Framing {
    /// Lines at first; header blocks if the child does not answer to lines.
    #[default]
    Auto,
    /// One message per line.
    Newline,
    /// A `Content-Length` header block before each message.
    ContentLength,
}

/// Timeouts and concurrency of a child.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Start until the answer to `initialize`.
    pub spawn: Duration,
    /// The same for a program that may have to download first.
    pub fetch: Duration,
    /// One request.
    pub rpc: Duration,
    /// Idle time after which the child is stopped; `None` means never.
    pub idle: Option<Duration>,
    /// Most concurrent requests; others are queued.
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

/// How a child's tools are exposed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Expose {
    /// One suite tool.
    #[default]
    Suite,
    /// Each tool separately, as `child__tool`; under its own name if `bare` is set and the name is unique.
    Flat {
        /// True if tools keep their own names where possible.
        bare: bool,
    },
}
