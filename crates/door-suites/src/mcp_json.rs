//! `.mcp.json`: the file that describes one child, as the suite proxy's architecture has it (section "Child
//! MCP Discovery"), and as people write it.

mod command;
mod resolve;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use switchboard_core::{in_json_words, nearest};

pub use self::command::CommandLine;
pub(crate) use self::resolve::{Surroundings, launch_template_of, spec_of};
use crate::error::SuiteError;
use crate::spec::{Framing, LaunchTemplate};

/// One MCP server. Everything is optional but how it is reached: `command` or `url`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(title = "One MCP server of a Switchboard workspace")]
pub struct McpFile {
    /// What it is called; without it, the name of its folder
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What it is
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// What a model is told of it
    #[serde(skip_serializing_if = "Option::is_none")]
    pub switchboard_description: Option<String>,
    /// How it is spoken to; without it `stdio` for a command, `http` for an address
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub transport: Option<TransportKind>,
    /// The program that is started
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<CommandLine>,
    /// Its arguments, where `command` is a text
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Variables it is given, where `command` is a text
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// The folder it starts in, relative to this file; without it this file's own
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// The address of a server that runs
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Headers of every request to it
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// How messages to a program are framed
    #[serde(skip_serializing_if = "Option::is_none")]
    pub framing: Option<Framing>,
    /// From its start to its first answer, in milliseconds
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub spawn_timeout_ms: Option<u64>,
    /// One request, in milliseconds
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub rpc_timeout_ms: Option<u64>,
    /// Stop it when nobody called it for so many milliseconds; 0 means never
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_ms: Option<u64>,
}

/// How a server is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TransportKind {
    /// On the standard streams of a program.
    Stdio,
    /// Streamable HTTP.
    #[serde(alias = "streamable-http", alias = "streamableHttp", alias = "streamable_http")]
    Http,
    /// The older pair of an event stream and posts.
    Sse,
    /// A WebSocket.
    #[serde(alias = "websocket")]
    Ws,
}

impl TransportKind {
    /// The word that the file has for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stdio => "stdio",
            Self::Http => "http",
            Self::Sse => "sse",
            Self::Ws => "ws",
        }
    }
}

/// What some editors write before the text.
pub(crate) const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

const KNOWN: [&str; 15] = [
    "$schema",
    "name",
    "description",
    "switchboardDescription",
    "type",
    "command",
    "args",
    "env",
    "cwd",
    "url",
    "headers",
    "framing",
    "spawnTimeoutMs",
    "rpcTimeoutMs",
    "idleMs",
];

const KNOWN_IN_COMMAND: [&str; 3] = ["cmd", "args", "env"];

impl McpFile {
    /// Reads a file: what it says, and a warning for every key that nobody knows.
    pub fn parse(bytes: &[u8]) -> Result<(Self, Vec<String>), String> {
        if bytes.starts_with(BYTE_ORDER_MARK) {
            return Err("begins with a byte order mark; save it as UTF-8 without one".to_owned());
        }
        let value: Value = serde_json::from_slice(bytes).map_err(|error| format!("is not JSON: {error}"))?;
        let Value::Object(object) = &value else { return Err("is not a JSON object".to_owned()) };
        for wrapper in ["mcpServers", "mcps", "servers"] {
            if object.contains_key(wrapper) {
                return Err(format!(
                    "describes several servers under '{wrapper}', but has to describe one; \
                     `switchboard init` imports such a file from beside .switchboard"
                ));
            }
        }
        let mut warnings = Vec::new();
        let mut look = |keys: &serde_json::Map<String, Value>, path: &str, known: &[&'static str]| {
            for key in keys.keys().filter(|key| !known.contains(&key.as_str())) {
                let near = nearest(key, known.iter().copied());
                let hint = near.first().map(|near| format!("; did you mean '{near}'?")).unwrap_or_default();
                warnings.push(format!("the key '{path}{}' is not known{hint}", key.escape_debug()));
            }
        };
        look(object, "", &KNOWN);
        if let Some(Value::Object(command)) = object.get("command") {
            look(command, "command.", &KNOWN_IN_COMMAND);
        }
        let file = serde_path_to_error::deserialize(value).map_err(|error| {
            let path = error.path().to_string();
            format!("the field '{path}': {}", in_json_words(&error.into_inner().to_string()))
        })?;
        Ok((file, warnings))
    }

    /// How the child is reached, exactly as this file says once it is put into the workspace under a name.
    pub fn launch_template(&self, name: &str) -> Result<LaunchTemplate, SuiteError> {
        launch_template_of(self, &format!(".switchboard/mcps/{name}"))
    }

    /// The file as it is written, in the form of the architecture.
    pub fn to_json(&self) -> String {
        let mut file = self.clone();
        if let Some(command) = &mut file.command {
            command.args.append(&mut file.args);
            command.env.append(&mut file.env);
        }
        // A struct of texts and numbers always serialises.
        serde_json::to_string_pretty(&file).map(|text| text + "\n").unwrap_or_default()
    }
}

#[cfg(test)]
#[path = "mcp_json_tests.rs"]
mod tests;
