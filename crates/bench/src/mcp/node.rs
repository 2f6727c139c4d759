//! The baseline: the least that a Node program has to be to serve MCP over stdio.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, ensure};
use switchboard_hub::files::{Dir, Durability};
use switchboard_hub::process::Spawn;
use tokio::io::AsyncReadExt;

use super::pipe::Server;
use crate::place::Place;

/// The program, whose imports are found in `node_modules` beside it.
const PROGRAM: &str = include_str!("../../baselines/server.mjs");

/// Where `tools/install.sh` puts the SDK, below the folder that it names.
const SDK: &str = "npm/@modelcontextprotocol/sdk/node_modules";

/// Puts the program into a folder of its own, beside the installed SDK.
pub(super) async fn server(place: &Place) -> anyhow::Result<Server> {
    let modules = tools().await?.join(SDK);
    ensure!(modules.is_dir(), "{} is missing: run tools/install.sh", modules.display());
    let folder = place.fresh()?;
    Dir::open_root(&folder)?.create_new("server.mjs", PROGRAM.as_bytes(), Durability::Later)?;
    std::os::unix::fs::symlink(modules, folder.join("node_modules"))?;
    Ok(Server::Node { folder })
}

/// The folder of the installed tools, as the script that installs them says.
pub(crate) async fn tools() -> anyhow::Result<PathBuf> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/install.sh");
    let mut child = Spawn::new(&script)
        .args(["--where"])
        .env_allow(&["SWITCHBOARD_TOOLS"])
        .stdout(Stdio::piped())
        .spawn()?;
    let mut said = String::new();
    child.take_stdout().context("no stdout")?.read_to_string(&mut said).await?;
    ensure!(child.wait().await?.success(), "{} failed", script.display());
    Ok(PathBuf::from(said.trim()))
}
