//! The verb `switchboard suite logs`.

use clap::Args;
use door_suites::{ChildSpec, Secrets, SuiteError, log_name, original_name, redact};

use super::Workspace;
use crate::cli::help::examples;
use crate::cli::options::Limit;
use crate::context::Context;
use crate::failure::Failure;
use crate::show::plain;

/// Maximum bytes to read. The logs of servers are bounded to less.
const LIMIT: u64 = 16 << 20;

/// Show the newest lines that a server wrote to stderr.
#[derive(Debug, Args)]
#[command(after_long_help = examples!["switchboard suite logs git -n 100"])]
pub(super) struct Logs {
    /// The server
    name: String,
    #[command(flatten)]
    limit: Limit<50>,
}

pub(super) fn run(args: &Logs, workspace: &Workspace, context: &Context) -> Result<(), Failure> {
    let found = workspace.discover();
    // A name may refer to the original server behind a wrapper, which has a log of its own.
    let behind = |child: &&ChildSpec| {
        original_name(child).is_some_and(|original| original.eq_ignore_ascii_case(&args.name))
    };
    let (child, name) = match found.children.iter().find(behind) {
        Some(child) => (child, args.name.clone()),
        None => found.find_child(&args.name).map(|child| (child, child.name.clone()))?,
    };
    let text = read(workspace, &log_name(&name), args.limit.limit)?;
    if text.is_empty() {
        context.printer.note(format_args!("{name} has written nothing yet."));
        return Ok(());
    }
    let secrets = Secrets::of(child);
    let lines: Vec<&str> = text.lines().collect();
    for line in &lines[lines.len().saturating_sub(args.limit.limit)..] {
        let line = redact(line, &secrets);
        if context.printer.is_json() {
            context.printer.object(&serde_json::json!({ "name": name, "line": line }));
        } else {
            context.printer.line(plain(&line));
        }
    }
    Ok(())
}

/// Reads the end of a log. If the log has fewer lines than requested, the rotated log before it is included.
fn read(workspace: &Workspace, file: &str, lines: usize) -> Result<String, SuiteError> {
    let Some(folder) = workspace.places.logs()? else { return Ok(String::new()) };
    let text = |file: &str| -> Result<String, SuiteError> {
        let found = folder.read(file, LIMIT)?;
        Ok(found.map(|found| String::from_utf8_lossy(&found.bytes).into_owned()).unwrap_or_default())
    };
    let newest = text(file)?;
    if newest.lines().count() >= lines {
        return Ok(newest);
    }
    Ok(text(&format!("{file}.1"))? + &newest)
}
