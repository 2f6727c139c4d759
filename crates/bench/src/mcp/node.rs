//! Baseline: a minimal Node MCP server over stdio.

use switchboard_sys::files::{Dir, Durability};
use test_support::tools::installed;

use super::pipe::Server;
use crate::run_folder::RunFolder;

/// Source of the server, which imports from `node_modules` in its folder.
const PROGRAM: &str = include_str!("../../baselines/server.mjs");

/// Path at which `tools/install.sh` installs the SDK, relative to the script's install folder.
const SDK: &str = "npm/@modelcontextprotocol/sdk/node_modules";

/// Copies the program to a new folder that links to the installed SDK.
pub(super) fn server(place: &RunFolder) -> anyhow::Result<Server> {
    let modules = installed(SDK).map_err(anyhow::Error::msg)?;
    let folder = place.fresh()?;
    Dir::open_root(&folder)?.create_new("server.mjs", PROGRAM.as_bytes(), Durability::Unsynced)?;
    std::os::unix::fs::symlink(modules, folder.join("node_modules"))?;
    Ok(Server::Node { folder })
}
