//! `.mcp.json`: the file that describes one child.
//!
//! The format follows the suite proxy's architecture (section "Child MCP Discovery"), and also accepts common variants.

mod command;
mod resolve;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use switchboard_core::{describe_field_error, describe_json_error, suggest_similar};

pub use self::command::CommandLine;
pub(crate) use self::resolve::{ResolveContext, launch_template_of, resolve_spec};
use crate::error::SuiteError;
use crate::spec::{Framing, LaunchTemplate};

/// One MCP server. Only `command` or `url` is required.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(title = "One MCP server of a Switchboard workspace")]
pub struct McpFile {
    /// Name of the server; by default the name of its folder
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Description for people
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Description for models
    #[serde(skip_serializing_if = "Option::is_none")]
    pub switchboard_description: Option<String>,
    /// Transport; by default `stdio` for a command, `http` for a URL
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub transport: Option<TransportKind>,
    /// Program to start
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<CommandLine>,
    /// Arguments, if `command` is a string
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Environment variables, if `command` is a string
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Working directory, relative to this file; by default this file's folder
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// URL of a running server
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Headers of every request to it
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// Framing of messages to a program
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
    /// Idle time after which it is stopped, in milliseconds; 0 means never
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_ms: Option<u64>,
}

/// Transport of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TransportKind {
    /// Standard input and output of a program.
    Stdio,
    /// Streamable HTTP.
    #[serde(alias = "streamable-http", alias = "streamableHttp", alias = "streamable_http")]
    Http,
    /// The older transport: an SSE stream plus POST requests.
    Sse,
    /// A WebSocket.
    #[serde(alias = "websocket")]
    Ws,
}

impl TransportKind {
    /// Returns the transport's name in the file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stdio => "stdio",
            Self::Http => "http",
            Self::Sse => "sse",
            Self::Ws => "ws",
        }
    }
}

/// UTF-8 byte order mark, which some editors write at the start of a file.
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
    /// Parses a file; also returns a warning for every unknown key.
    pub fn parse(bytes: &[u8]) -> Result<(Self, Vec<String>), String> {
        if bytes.starts_with(BYTE_ORDER_MARK) {
            return Err("begins with a byte order mark; save it as UTF-8 without one".to_owned());
        }
        let value: Value = serde_json::from_slice(bytes)
            .map_err(|error| format!("is not JSON: {}", describe_json_error(&error)))?;
        let Value::Object(object) = &value else { return Err("is not a JSON object".to_owned()) };
        for wrapper in ["mcpServers", "mcps", "servers"] {
            if object.contains_key(wrapper) {
                return Err(format!(
                    "describes several servers under '{wrapper}', but must describe one; \
                     `switchboard init` imports such a file from beside .switchboard"
                ));
            }
        }
        let mut warnings = Vec::new();
        let mut look = |keys: &serde_json::Map<String, Value>, path: &str, known: &[&'static str]| {
            for key in keys.keys().filter(|key| !known.contains(&key.as_str())) {
                let near = suggest_similar(key, known.iter().copied());
                let hint = near.first().map(|near| format!("; did you mean '{near}'?")).unwrap_or_default();
                warnings.push(format!("the key '{path}{}' is not known{hint}", key.escape_debug()));
            }
        };
        look(object, "", &KNOWN);
        if let Some(Value::Object(command)) = object.get("command") {
            look(command, "command.", &KNOWN_IN_COMMAND);
        }
        let file = serde_path_to_error::deserialize(value).map_err(|error| {
            format!("the field '{}' {}", error.path(), describe_field_error(error.inner()))
        })?;
        Ok((file, warnings))
    }

    /// Returns the launch template that results if this file is added to the workspace under `name`.
    pub fn launch_template(&self, name: &str) -> Result<LaunchTemplate, SuiteError> {
        launch_template_of(self, &format!(".switchboard/mcps/{name}"))
    }

    /// Renders the file in the format of the suite proxy's architecture.
    pub fn to_json(&self) -> String {
        let mut file = self.clone();
        if let Some(command) = &mut file.command {
            command.args.append(&mut file.args);
            command.env.append(&mut file.env);
        }
        // Serializing a struct of strings and numbers cannot fail.
        serde_json::to_string_pretty(&file).map(|text| text + "\n").unwrap_or_default()
    }
}

#[cfg(test)]
#[path = "mcp_json_tests.rs"]
mod tests;
