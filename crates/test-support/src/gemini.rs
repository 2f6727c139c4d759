//! The real Gemini CLI: a home in which it asks no questions, and settings without network access.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::model::Model;
use crate::{files, tools};

/// Returns Node and the script of the pinned Gemini CLI, or the reason why they are missing.
pub fn program() -> Result<[PathBuf; 2], String> {
    let package = tools::installed("npm/@google/gemini-cli")?;
    Ok([tools::node()?, package.join("node_modules/.bin/gemini")])
}

/// Returns the variables that make the Gemini CLI use this home and only this model.
pub fn environment(model: &Model, home: &Path) -> [(&'static str, String); 3] {
    [
        ("HOME", home.display().to_string()),
        ("GOOGLE_GEMINI_BASE_URL", model.origin()),
        ("GEMINI_API_KEY", "dummy".into()),
    ]
}

/// Prepares a home in which the Gemini CLI starts without questions. Settings that are already in the home stay.
pub fn prepare_home(home: &Path) {
    let path = home.join(".gemini/settings.json");
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let text = std::fs::read_to_string(&path).unwrap_or_else(|_| "{}".into());
    let mut settings: Value = serde_json::from_str(&text).unwrap();
    settings["security"] = json!({ "auth": { "selectedType": "gemini-api-key" } });
    settings["general"] = json!({ "enableAutoUpdate": false, "disableUpdateNag": true });
    settings["privacy"] = json!({ "usageStatisticsEnabled": false });
    files::put(path, settings.to_string());
}
