//! Keys that bind the databases of the workspaces that this process creates.

use std::path::{Path, PathBuf};

use anyhow::Context;
use switchboard_hub::HubKey;

/// Returns the hub key of the user with this home folder.
pub(crate) fn key_of(home: &Path) -> anyhow::Result<HubKey> {
    Ok(HubKey::load_or_create(&home.join(".config/switchboard"))?)
}

/// Returns the hub key of the user who runs the benchmark, for programs without their own home.
pub(crate) fn own_key() -> anyhow::Result<HubKey> {
    key_of(&own_home()?)
}

fn own_home() -> anyhow::Result<PathBuf> {
    std::env::home_dir().context("no home")
}
