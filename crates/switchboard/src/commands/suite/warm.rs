//! The verb `switchboard suite warm`.

use clap::Args;
use door_suites::Caller;
use serde_json::json;

use crate::cli::help::examples;
use crate::context::Context;
use crate::failure::{Exit, Failure};

/// Cache the tools of every trusted server, so that listing them starts none.
#[derive(Debug, Args)]
#[command(after_long_help = examples!["switchboard suite warm"])]
pub(crate) struct Warm {}

pub(crate) async fn run(_: Warm, context: Context) -> Result<(), Failure> {
    let suites = super::open(&context).await?;
    let working = context.printer.working("Starting MCP servers…");
    let warmed = suites.warm(&Caller::default()).await;
    suites.close().await;
    if let Some(working) = working {
        working.finish_and_clear();
    }
    for child in &warmed {
        let took = child.took.as_millis();
        if context.printer.is_json() {
            let (tools, error) = (child.tools.as_ref().ok(), child.tools.as_ref().err());
            context
                .printer
                .object(&json!({ "child": child.child, "tools": tools, "ms": took, "error": error }));
            continue;
        }
        match &child.tools {
            Ok(1) => context.printer.line(format_args!("{}: 1 tool ({took} ms)", child.child)),
            Ok(tools) => context.printer.line(format_args!("{}: {tools} tools ({took} ms)", child.child)),
            Err(reason) => context.printer.line(format_args!("{}: {reason}", child.child)),
        }
    }
    if warmed.is_empty() {
        context.printer.note("No MCP servers yet; `switchboard suite add NAME -- COMMAND` adds one.");
    }
    match warmed.iter().filter(|child| child.tools.is_err()).count() {
        0 => Ok(()),
        failed => Err(Failure::new(
            "not_warmed",
            Exit::Failed,
            format!("{failed} of {} servers could not be asked", warmed.len()),
        )
        .hint("`switchboard suite list` shows what is wrong with each")),
    }
}
