//! `switchboard mcp`

use clap::Args;
use door_workspace::{ToolConfig, ToolServer};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::context::Context;
use crate::failure::{Exit, Failure};
use crate::front::Front;

/// Serve MCP on stdin and stdout: what an agent's client starts. Needs no `serve`.
///
/// The agent is the one of --from or SWITCHBOARD_AGENT_NAME; without it, the first that the session
/// registers.
#[derive(Debug, Args)]
pub(crate) struct Mcp {}

pub(crate) async fn run(_: Mcp, context: Context) -> Result<(), Failure> {
    let agent = context.named()?;
    if agent.as_ref().is_some_and(switchboard_core::AgentId::is_human) {
        return Err(Failure::new("reserved_name", Exit::NotAllowed, "'human' is the person, not an agent")
            .hint("give the agent a name of its own with SWITCHBOARD_AGENT_NAME"));
    }
    let settings = context.settings()?;
    let open = context.open_running().await?;
    let shutdown = CancellationToken::new();
    stop_at_signals(shutdown.clone())?;
    let tools = ToolServer::new(open.workspace.clone(), ToolConfig { profile: settings.profile, agent });
    let suites = context.suites(&settings, shutdown.clone()).await?;
    let swarm = context.swarm_tools(&open.workspace).await;
    let server = Front::new(tools, suites.clone(), swarm);
    let passed = server.passed();
    let result = Box::pin(switchboard_mcp::serve_stdio(server, passed, shutdown)).await;
    suites.close().await;
    open.close().await;
    Ok(result?)
}

/// Ends what runs when somebody asks politely.
pub(crate) fn stop_at_signals(shutdown: CancellationToken) -> Result<(), Failure> {
    let mut terminate = signal(SignalKind::terminate()).map_err(anyhow::Error::from)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(anyhow::Error::from)?;
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        shutdown.cancel();
    });
    Ok(())
}
