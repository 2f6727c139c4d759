//! The verb `switchboard completions`.

use clap::Args;
use clap_complete::Shell;

use crate::cli::help::{self, examples};
use crate::context::Context;
use crate::failure::Failure;

/// Print a completion script for your shell.
#[derive(Debug, Args)]
#[command(after_long_help = examples![
    "switchboard completions bash > ~/.local/share/bash-completion/completions/switchboard",
    "switchboard completions fish > ~/.config/fish/completions/switchboard.fish",
])]
pub(crate) struct Completions {
    /// The shell
    shell: Shell,
}

#[expect(clippy::unnecessary_wraps, reason = "every verb returns the same")]
pub(crate) fn run(args: &Completions, context: &Context) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut help::command(), "switchboard", &mut script);
    context.printer.line(String::from_utf8_lossy(&script).trim_end());
    Ok(())
}
