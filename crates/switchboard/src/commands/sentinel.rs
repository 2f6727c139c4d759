//! `switchboard sentinel`

use clap::Args;

use crate::failure::Failure;

/// Watch over the programs that another process of ours has started, and end them when it is gone.
///
/// It is told of them on stdin, by the process that started it. Nobody types it.
#[derive(Debug, Args)]
pub(crate) struct Sentinel {}

pub(crate) fn run(_: Sentinel) -> Result<(), Failure> {
    Ok(switchboard_hub::guard::run(std::io::stdin().lock()).map_err(anyhow::Error::from)?)
}

/// A guard over what this process starts: this program again, as above.
pub(crate) fn guard() -> Option<switchboard_hub::guard::Guard> {
    let program = std::env::current_exe().ok()?;
    Some(switchboard_hub::guard::Guard::new(program, ["sentinel"]))
}
