//! The verb `switchboard mcp`.

use clap::Args;
use door_suites::Suites;
use door_workspace::{FOLDER, Workspace};
use switchboard_mcp::{
    Attachment, Hello, InProcessServer, ToolTraits, attach, random_id, serve_stdio_attached,
};
use switchboard_sys::service_lease::LeaseKey;
use switchboard_sys::socket::socket_path;
use switchboard_tools::{ToolConfig, ToolServer};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

use crate::cli::help::examples;
use crate::commands::who::load_presence;
use crate::config::Settings;
use crate::context::{Context, Open, WATCHER_POLL_INTERVAL};
use crate::failure::{Exit, Failure};
use crate::front::{Front, RawBypass};

/// Version of this program. Sessions are relayed only to the same version, because another may have other tools.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Serve MCP on stdin and stdout, for an agent's client.
///
/// Where `switchboard serve` runs in the workspace, the session is relayed to it, so that many agents share one set of
/// servers behind suites. When `serve` ends, the session continues in this process.
///
/// The session speaks for the agent of --from or SWITCHBOARD_AGENT_NAME; without either, for the first agent that it
/// registers.
#[derive(Debug, Args)]
#[command(after_long_help = examples![
    "switchboard mcp",
    "switchboard --from codex mcp",
])]
pub(crate) struct Mcp {
    /// Serve in this process even where `switchboard serve` runs
    #[arg(long)]
    alone: bool,
}

/// Name of the socket on which `serve` accepts relayed sessions of other processes.
pub(crate) const SOCKET: &str = "mcp.sock";

/// Tools whose calls may be replayed or retried when the session moves to another server.
const TOOL_TRAITS: ToolTraits = ToolTraits {
    is_session_state: switchboard_tools::registers_agent,
    is_retryable: switchboard_tools::is_idempotent,
    idempotency_key: switchboard_tools::idempotency_argument,
};

pub(crate) async fn run(args: Mcp, context: Context) -> Result<(), Failure> {
    let agent = context.session_identity()?;
    if agent.as_ref().is_some_and(switchboard_core::AgentId::is_human) {
        return Err(Failure::new("reserved_name", Exit::NotAllowed, "'human' is the person, not an agent")
            .hint("give the agent a name of its own with SWITCHBOARD_AGENT_NAME"));
    }
    let settings = context.settings()?;
    let shutdown = CancellationToken::new();
    stop_at_signals(shutdown.clone())?;
    let lease_key: LeaseKey = random_id()?.parse().map_err(anyhow::Error::from)?;
    let config = ToolConfig {
        profile: settings.profile,
        agent,
        lease_key: Some(lease_key.clone()),
        ..ToolConfig::default()
    };
    let attached = if args.alone || runs_inside_suite() {
        None
    } else {
        relay_session(&context, &config, lease_key).await?
    };
    let Some(attached) = attached else {
        let local = LocalServer::open(&context, &settings, config, shutdown.clone()).await?;
        let (server, bypass) = local.session();
        let result = Box::pin(switchboard_mcp::serve_stdio(server, bypass, shutdown)).await;
        local.close().await;
        return Ok(result?);
    };
    let local = OnceCell::new();
    let alone = async || {
        let opened = LocalServer::open(&context, &settings, config, shutdown.clone()).await?;
        let (server, bypass) = local.get_or_init(|| async { opened }).await.session();
        Ok::<_, Failure>(InProcessServer::start(server, bypass, shutdown.clone()))
    };
    let result = Box::pin(serve_stdio_attached(attached, TOOL_TRAITS, alone, shutdown.clone())).await;
    if let Some(local) = local.into_inner() {
        local.close().await;
    }
    result
}

/// Returns true if this process itself runs behind a suite. Relaying to `serve` would then form a cycle, which `serve`
/// would not detect.
fn runs_inside_suite() -> bool {
    std::env::var_os(door_suites::PROXY_CHAIN_VARIABLE).is_some_and(|via| !via.is_empty())
}

/// Relays the session to the workspace's `serve`, if one of the same version runs.
async fn relay_session(
    context: &Context,
    config: &ToolConfig,
    lease_key: LeaseKey,
) -> Result<Option<Attachment>, Failure> {
    let folder = context.workspace_folder()?.join(FOLDER);
    let hello = Hello {
        version: VERSION.to_owned(),
        agent: config.agent.as_ref().map(ToString::to_string),
        profile: config.profile.name().to_owned(),
        lease_key,
    };
    Ok(attach(&socket_path(&folder, SOCKET), &hello).await)
}

/// The workspace as opened by this process.
struct LocalServer {
    open: Open,
    suites: Suites,
    front: Front,
}

impl LocalServer {
    async fn open(
        context: &Context,
        settings: &Settings,
        config: ToolConfig,
        shutdown: CancellationToken,
    ) -> Result<Self, Failure> {
        let open = context.open_running().await?;
        tokio::spawn(follow_presence(open.workspace.clone(), shutdown.clone()));
        tokio::spawn(context.clone().follow_watchers(open.workspace.clone(), shutdown.clone()));
        let suites = context.suites(settings, shutdown).await?;
        let swarm = context.swarm_tools(&open.workspace).await;
        let front = Front::new(ToolServer::new(open.workspace.clone(), config), suites.clone(), swarm);
        Ok(Self { open, suites, front })
    }

    /// Creates the handlers of the only session.
    fn session(&self) -> (Front, RawBypass) {
        let server = self.front.for_new_session();
        let bypass = server.raw_bypass();
        (server, bypass)
    }

    async fn close(self) {
        self.suites.close().await;
        self.open.close().await;
    }
}

/// Polls the presence of the router's nodes and of other hubs' agents, which other processes record, until `shutdown`.
async fn follow_presence(workspace: Workspace, shutdown: CancellationToken) {
    loop {
        let result = load_presence(workspace.hub()).await;
        if let Err(failure) = result {
            tracing::debug!("not all signs of life can be read: {}", failure.message);
        }
        tokio::select! {
            () = tokio::time::sleep(WATCHER_POLL_INTERVAL) => {}
            () = shutdown.cancelled() => return,
        }
    }
}

/// Cancels `shutdown` on SIGTERM and SIGINT, and on SIGHUP unless this process is meant to outlive its terminal.
pub(crate) fn stop_at_signals(shutdown: CancellationToken) -> Result<(), Failure> {
    let mut kinds = vec![SignalKind::terminate(), SignalKind::interrupt()];
    if !switchboard_sys::platform::ignores_hangup() {
        kinds.push(SignalKind::hangup());
    }
    for kind in kinds {
        let (mut signal, shutdown) = (signal(kind).map_err(anyhow::Error::from)?, shutdown.clone());
        tokio::spawn(async move {
            signal.recv().await;
            shutdown.cancel();
        });
    }
    Ok(())
}
