//! `switchboard sentinel`

use std::os::fd::AsFd;
use std::sync::OnceLock;

use clap::Args;
use switchboard_sys::guard::Guard;
use switchboard_sys::{platform, reaper};

use crate::failure::Failure;

/// Kill what another process of ours has started, when that process or the program has ended.
///
/// A reaper: the process that starts it tells it on a socket what to do. It is not for typing.
#[derive(Debug, Args)]
pub(crate) struct Sentinel {}

pub(crate) async fn run(_: Sentinel) -> Result<(), Failure> {
    let stdin = std::io::stdin().as_fd().try_clone_to_owned();
    Ok(reaper::run(stdin.map_err(anyhow::Error::from)?).await.map_err(anyhow::Error::from)?)
}

/// The reapers of this process, which are this program again.
pub(crate) fn guard() -> Option<Guard> {
    static GUARD: OnceLock<Option<Guard>> = OnceLock::new();
    GUARD.get_or_init(|| Some(Guard::new(platform::own_program().ok()?, ["sentinel"]))).clone()
}
