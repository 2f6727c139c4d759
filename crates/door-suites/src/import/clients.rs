//! Settings files of MCP clients, and the keys under which they list servers.

use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::error::SuiteError;
use crate::expand::Lookup;

/// Maximum size of a settings file, in bytes. Some files contain the history of many projects.
const LIMIT: u64 = 64 << 20;

/// An MCP client whose settings can be imported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Client {
    /// Claude Code.
    ClaudeCode,
    /// Claude Desktop.
    ClaudeDesktop,
    /// Cursor.
    Cursor,
    /// VS Code.
    VsCode,
    /// Codex.
    Codex,
    /// Gemini CLI.
    Gemini,
    /// Windsurf.
    Windsurf,
    /// Zed.
    Zed,
}

impl Client {
    /// All supported clients.
    pub const ALL: [Self; 8] = [
        Self::ClaudeCode,
        Self::ClaudeDesktop,
        Self::Cursor,
        Self::VsCode,
        Self::Codex,
        Self::Gemini,
        Self::Windsurf,
        Self::Zed,
    ];

    /// Returns the client's name as used on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude-code",
            Self::ClaudeDesktop => "claude-desktop",
            Self::Cursor => "cursor",
            Self::VsCode => "vscode",
            Self::Codex => "codex",
            Self::Gemini => "gemini",
            Self::Windsurf => "windsurf",
            Self::Zed => "zed",
        }
    }

    /// Returns the client's display name.
    pub fn title(self) -> &'static str {
        match self {
            Self::ClaudeCode => "Claude Code",
            Self::ClaudeDesktop => "Claude Desktop",
            Self::Cursor => "Cursor",
            Self::VsCode => "VS Code",
            Self::Codex => "Codex",
            Self::Gemini => "Gemini CLI",
            Self::Windsurf => "Windsurf",
            Self::Zed => "Zed",
        }
    }

    /// Returns the paths where settings may be on Linux and macOS: first the user's files, then the workspace's.
    pub(super) fn files(self, lookup: Lookup<'_>, workspace: &Path) -> Vec<PathBuf> {
        let set = |name: &str| lookup(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let Some(home) = set("HOME") else { return Vec::new() };
        let config = set("XDG_CONFIG_HOME").unwrap_or_else(|| home.join(".config"));
        let support = home.join("Library/Application Support");
        match self {
            Self::ClaudeCode => vec![set("CLAUDE_CONFIG_DIR").unwrap_or(home).join(".claude.json")],
            Self::ClaudeDesktop => {
                let name = "claude_desktop_config.json";
                let folders = [config.join("Claude"), config.join("claude"), support.join("Claude")];
                folders.map(|folder| folder.join(name)).to_vec()
            }
            Self::Cursor => vec![home.join(".cursor/mcp.json"), workspace.join(".cursor/mcp.json")],
            Self::VsCode => vec![
                config.join("Code/User/mcp.json"),
                support.join("Code/User/mcp.json"),
                workspace.join(".vscode/mcp.json"),
            ],
            Self::Codex => vec![set("CODEX_HOME").unwrap_or_else(|| home.join(".codex")).join("config.toml")],
            Self::Gemini => {
                vec![home.join(".gemini/settings.json"), workspace.join(".gemini/settings.json")]
            }
            Self::Windsurf => vec![home.join(".codeium/windsurf/mcp_config.json")],
            Self::Zed => vec![config.join("zed/settings.json"), workspace.join(".zed/settings.json")],
        }
    }

    /// Reads a settings file; returns `None` if it does not exist.
    pub(super) fn read(self, path: &Path) -> Result<Option<Value>, SuiteError> {
        let bad = |problem: String| SuiteError::BadFile { file: path.to_owned(), problem };
        // Follow symbolic links here, since the user's settings may be a link into a dotfiles folder.
        let found = match std::fs::metadata(path) {
            Ok(found) => found,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(bad(format!("cannot be read: {error}"))),
        };
        if !found.is_file() {
            return Err(bad("is not a file".to_owned()));
        }
        let mut text = String::new();
        let file = std::fs::File::open(path).map_err(|error| bad(format!("cannot be read: {error}")))?;
        let read = file.take(LIMIT).read_to_string(&mut text);
        read.map_err(|error| bad(format!("cannot be read: {error}")))?;
        if self == Self::Codex {
            return toml_edit::de::from_str(&text)
                .map(Some)
                .map_err(|error| bad(format!("is not TOML: {error}")));
        }
        // Treat an empty file as no settings, since some editors create one.
        if text.trim().is_empty() {
            return Ok(Some(Value::Object(Map::new())));
        }
        let parsed = jsonc_parser::parse_to_serde_value(&text, &jsonc_parser::ParseOptions::default());
        parsed.map(Some).map_err(|error| bad(format!("is not JSON: {error}")))
    }

    /// Returns the objects in the settings that contain server entries.
    pub(super) fn servers<'s>(self, settings: &'s Value, workspace: &Path) -> Vec<&'s Map<String, Value>> {
        let object = |value: &'s Value, key: &str| value.get(key).and_then(Value::as_object);
        let found = match self {
            Self::VsCode => vec![object(settings, "servers")],
            Self::Codex => vec![object(settings, "mcp_servers")],
            Self::Zed => vec![object(settings, "context_servers")],
            // Servers of this project take precedence over global servers.
            Self::ClaudeCode => {
                let project = settings.get("projects").and_then(|all| all.get(workspace.to_str()?));
                vec![
                    project.and_then(|project| object(project, "mcpServers")),
                    object(settings, "mcpServers"),
                ]
            }
            _ => vec![object(settings, "mcpServers")],
        };
        found.into_iter().flatten().collect()
    }
}
