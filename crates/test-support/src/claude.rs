//! The real Claude Code: its program, a home in which it asks no questions, and settings without network access.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::model::Model;
use crate::{files, tools};

/// API key that clients send to the model stub.
const KEY: &str = "dummy";

/// Returns the program of the pinned Claude Code, or the reason why there is none.
pub fn program() -> Result<PathBuf, String> {
    // The program is in a platform-specific package, installed next to the pinned package.
    let folder = tools::installed("npm/@anthropic-ai/claude-code")?.join("node_modules/@anthropic-ai");
    let packages = std::fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut programs = packages.filter_map(Result::ok).map(|package| package.path().join("claude"));
    let found = programs.find(|program| program.is_file());
    found.ok_or_else(|| format!("{} has no claude for this machine: run tools/install.sh", folder.display()))
}

/// Returns the variables that make Claude Code use this home and this model.
///
/// With them, Claude Code contacts nothing else on the network.
pub fn environment(model: &Model, home: &Path) -> Vec<(&'static str, String)> {
    vec![
        ("HOME", home.display().to_string()),
        ("ANTHROPIC_BASE_URL", model.origin()),
        ("ANTHROPIC_API_KEY", KEY.into()),
        ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1".into()),
        ("DISABLE_AUTOUPDATER", "1".into()),
    ]
}

/// Prepares a home in which Claude Code starts without questions.
///
/// Claude Code then trusts this folder and our MCP server in it. Settings that are already in the home stay.
pub fn prepare_home(home: &Path, folder: &Path) {
    std::fs::create_dir_all(home).unwrap();
    let path = home.join(".claude.json");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|_| "{}".into());
    let mut settings: Value = serde_json::from_str(&text).unwrap();
    settings["hasCompletedOnboarding"] = true.into();
    settings["theme"] = "dark".into();
    settings["customApiKeyResponses"] = json!({ "approved": [KEY], "rejected": [] });
    let project = &mut settings["projects"][folder.to_str().unwrap()];
    project["hasTrustDialogAccepted"] = true.into();
    project["hasCompletedProjectOnboarding"] = true.into();
    project["enabledMcpjsonServers"] = json!(["switchboard"]);
    files::put(path, settings.to_string());
}
