//! The key that binds the databases of workspaces which are made within this process.

use std::path::{Path, PathBuf};

use anyhow::Context;
use switchboard_hub::HubKey;

/// The key of the user whose home this is.
pub(crate) fn key_of(home: &Path) -> anyhow::Result<HubKey> {
    Ok(HubKey::load_or_create(&home.join(".config/switchboard"))?)
}

/// The key of the user who runs the benchmark, which programs without a home of their own have.
pub(crate) fn own_key() -> anyhow::Result<HubKey> {
    key_of(&own_home()?)
}

fn own_home() -> anyhow::Result<PathBuf> {
    std::env::home_dir().context("no home")
}
