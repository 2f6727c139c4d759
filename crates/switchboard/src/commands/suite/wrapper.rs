//! `switchboard suite wrapper`

use clap::Args;
use switchboard_mcp::NoRawCalls;
use tokio_util::sync::CancellationToken;

use super::Workspace;
use crate::commands::mcp::stop_at_signals;
use crate::commands::sentinel::guard;
use crate::context::Context;
use crate::failure::Failure;

/// Serve MCP on stdin and stdout in a wrapped server's place: what its file starts.
#[derive(Debug, Args)]
pub(super) struct Wrapper {
    /// Which
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
