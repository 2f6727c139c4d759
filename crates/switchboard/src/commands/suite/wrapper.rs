//! The verb `switchboard suite wrapper`.

use clap::Args;
use switchboard_mcp::NoRawCalls;
use tokio_util::sync::CancellationToken;

use super::Workspace;
use crate::cli::help::examples;
use crate::commands::mcp::stop_at_signals;
use crate::commands::reap::guard;
use crate::context::Context;
use crate::failure::Failure;

/// Serve MCP on stdin and stdout in place of a wrapped server.
#[derive(Debug, Args)]
#[command(after_long_help = examples!["switchboard suite wrapper notes"])]
pub(super) struct Wrapper {
    /// The server
    name: String,
}

pub(super) async fn run(args: &Wrapper, context: &Context) -> Result<(), Failure> {
    let workspace = Workspace::open(context)?;
    let lookup = |name: &str| std::env::var(name).ok();
    let (suites, places) = (&workspace.settings.suites, &workspace.places);
    let wrapper = door_suites::Wrapper::open(&args.name, suites, places, guard(), &lookup)?;
    let shutdown = CancellationToken::new();
    stop_at_signals(shutdown.clone())?;
    let result = Box::pin(switchboard_mcp::serve_stdio(wrapper.clone(), NoRawCalls, shutdown)).await;
    wrapper.close().await;
    Ok(result?)
}
