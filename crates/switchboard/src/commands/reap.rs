//! The verb `switchboard reap`.

use std::os::fd::AsFd;
use std::sync::OnceLock;

use clap::Args;
use switchboard_sys::reaper::ReaperClient;
use switchboard_sys::{platform, reaper};

use crate::cli::help::examples;
use crate::failure::Failure;

/// Kill child processes of a switchboard process that died.
///
/// Switchboard starts it by itself and sends it its orders on a socket; it is not for typing.
#[derive(Debug, Args)]
#[command(after_long_help = examples!["switchboard reap"])]
pub(crate) struct Reap {}

pub(crate) async fn run(_: Reap) -> Result<(), Failure> {
    let stdin = std::io::stdin().as_fd().try_clone_to_owned();
    Ok(reaper::run(stdin.map_err(anyhow::Error::from)?).await.map_err(anyhow::Error::from)?)
}

/// Returns the client that runs this program as a reaper of child processes; `None` if the program's path is unknown.
pub(crate) fn guard() -> Option<ReaperClient> {
    static GUARD: OnceLock<Option<ReaperClient>> = OnceLock::new();
    GUARD.get_or_init(|| Some(ReaperClient::new(platform::own_program().ok()?, ["reap"]))).clone()
}
