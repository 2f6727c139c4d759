//! The real Codex: its program, and a home in which it starts without questions.

use std::path::Path;

use crate::{files, tools};

/// Returns the program of the pinned Codex, or the reason why there is none.
pub fn program() -> Result<String, String> {
    let folder = tools::installed("npm/@openai/codex")?;
    Ok(folder.join("node_modules/.bin/codex").display().to_string())
}

/// Prepares a folder for `CODEX_HOME`, with settings that make Codex trust the other folder.
pub fn prepare_home(home: &Path, folder: &Path) {
    std::fs::create_dir_all(home).unwrap();
    files::put(
        home.join("config.toml"),
        format!("[projects.'{}']\ntrust_level = \"trusted\"\n", folder.display()),
    );
}
