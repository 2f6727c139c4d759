//! `switchboard suite logs`

use clap::Args;
use door_suites::{Secrets, redact};

use super::Workspace;
use crate::context::Context;
use crate::failure::Failure;
use crate::show::plain;

/// The logs of children are bounded to less than this.
const LIMIT: u64 = 16 << 20;

/// Show the newest lines that a server wrote to its stderr.
#[derive(Debug, Args)]
pub(super) struct Logs {
    /// Which
    name: String,
    /// How many lines
    #[arg(short = 'n', long, default_value_t = 50)]
    lines: usize,
}

pub(super) fn run(args: &Logs, workspace: &Workspace, context: &Context) -> Result<(), Failure> {
    let found = workspace.discover();
    let child = found.known(&args.name)?;
    let log = match workspace.places.logs().map_err(door_suites::SuiteError::from)? {
        Some(folder) => {
            folder.read(&format!("{}.log", child.name), LIMIT).map_err(door_suites::SuiteError::from)?
        }
        None => None,
    };
    let Some(log) = log else {
        context.printer.note(format_args!("{} has written nothing yet.", child.name));
        return Ok(());
    };
    let text = String::from_utf8_lossy(&log.bytes);
    let secrets = Secrets::of(child);
    let lines: Vec<&str> = text.lines().collect();
    for line in &lines[lines.len().saturating_sub(args.lines)..] {
        let line = redact(line, &secrets);
        if context.printer.is_json() {
            context.printer.object(&serde_json::json!({ "name": child.name, "line": line }));
        } else {
            context.printer.line(plain(&line));
        }
    }
    Ok(())
}
