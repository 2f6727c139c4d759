//! `switchboard completions`

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::cli::Cli;
use crate::context::Context;
use crate::failure::Failure;

/// Print a completion script.
#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// For which shell
    shell: Shell,
}

#[expect(clippy::unnecessary_wraps, reason = "every verb returns the same")]
pub(crate) fn run(args: &Completions, context: &Context) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "switchboard", &mut script);
    context.printer.line(String::from_utf8_lossy(&script).trim_end());
    Ok(())
}
