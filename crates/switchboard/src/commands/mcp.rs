//! `switchboard mcp`

use clap::Args;
use door_suites::Suites;
use door_workspace::{FOLDER, ToolConfig, ToolServer, Workspace};
use switchboard_mcp::{
    Attachment, Hello, InProcessServer, ToolTraits, attach, random_id, serve_stdio_attached,
};
use switchboard_sys::service_lease::LeaseKey;
use switchboard_sys::socket::place;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

use crate::cli::help::examples;
use crate::commands::who::hear_all;
use crate::config::Settings;
use crate::context::{Context, HEAR_EVERY, Open};
use crate::failure::{Exit, Failure};
use crate::front::{Front, Passed};

/// The version of this program. Another one may have other tools.
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

/// The socket on which `serve` answers the sessions of other processes.
pub(crate) const SOCKET: &str = "mcp.sock";

/// What may be said again to another server.
const TOOL_TRAITS: ToolTraits = ToolTraits {
    is_session_state: door_workspace::registers_agent,
    is_retryable: door_workspace::is_idempotent,
    idempotency_key: door_workspace::idempotency_argument,
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
    let attached =
        if args.alone || is_behind_suites() { None } else { join(&context, &config, lease_key).await? };
    let Some(attached) = attached else {
        let here = Here::open(&context, &settings, config, shutdown.clone()).await?;
        let (server, passed) = here.session();
        let result = Box::pin(switchboard_mcp::serve_stdio(server, passed, shutdown)).await;
        here.close().await;
        return Ok(result?);
    };
    let here = OnceCell::new();
    let alone = async || {
        let opened = Here::open(&context, &settings, config, shutdown.clone()).await?;
        let (server, passed) = here.get_or_init(|| async { opened }).await.session();
        Ok::<_, Failure>(InProcessServer::start(server, passed, shutdown.clone()))
    };
    let result = Box::pin(serve_stdio_attached(attached, TOOL_TRAITS, alone, shutdown.clone())).await;
    if let Some(here) = here.into_inner() {
        here.close().await;
    }
    result
}

/// Whether this process stands behind a suite itself. `serve` does not know the way to it, and would not notice that
/// it leads in a circle.
fn is_behind_suites() -> bool {
    std::env::var_os(door_suites::PROXY_CHAIN_VARIABLE).is_some_and(|via| !via.is_empty())
}

/// Has the `serve` of the workspace answer, where one runs that is the same program.
async fn join(
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
    Ok(attach(&place(&folder, SOCKET), &hello).await)
}

/// The workspace as this process has it open.
struct Here {
    open: Open,
    suites: Suites,
    front: Front,
}

impl Here {
    async fn open(
        context: &Context,
        settings: &Settings,
        config: ToolConfig,
        shutdown: CancellationToken,
    ) -> Result<Self, Failure> {
        let open = context.open_running().await?;
        tokio::spawn(hear(open.workspace.clone(), shutdown.clone()));
        tokio::spawn(context.clone().follow_watchers(open.workspace.clone(), shutdown.clone()));
        let suites = context.suites(settings, shutdown).await?;
        let swarm = context.swarm_tools(&open.workspace).await;
        let front = Front::new(ToolServer::new(open.workspace.clone(), config), suites.clone(), swarm);
        Ok(Self { open, suites, front })
    }

    /// The handler of the one session there is.
    fn session(&self) -> (Front, Passed) {
        let server = self.front.another();
        let passed = server.passed();
        (server, passed)
    }

    async fn close(self) {
        self.suites.close().await;
        self.open.close().await;
    }
}

/// Keeps this process told of the nodes of the router and of the agents of other hubs, as far as that is written down.
async fn hear(workspace: Workspace, shutdown: CancellationToken) {
    loop {
        let heard = hear_all(workspace.hub()).await;
        if let Err(failure) = heard {
            tracing::debug!("not all signs of life can be read: {}", failure.message);
        }
        tokio::select! {
            () = tokio::time::sleep(HEAR_EVERY) => {}
            () = shutdown.cancelled() => return,
        }
    }
}

/// Ends what runs when somebody asks politely, or closes the terminal that it runs in.
pub(crate) fn stop_at_signals(shutdown: CancellationToken) -> Result<(), Failure> {
    let mut kinds = vec![SignalKind::terminate(), SignalKind::interrupt()];
    if !switchboard_sys::platform::outlives_its_terminal() {
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
