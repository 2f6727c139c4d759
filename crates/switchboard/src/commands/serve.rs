//! The verb `switchboard serve`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use axum::http::HeaderName;
use clap::Args;
use door_suites::Suites;
use door_workspace::Workspace;
use serde_json::json;
use switchboard_https::Mode;
use switchboard_hub::Hub;
use switchboard_mcp::{
    Connection, Hello, Listener, PortChoice, ServerInfo, Token, read_token, serve_attached, serve_http,
    write_token,
};
use switchboard_sys::files::Dir;
use switchboard_sys::socket::{SameUserListener, socket_path};
use switchboard_tools::{Profile, ToolConfig, ToolServer};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::cli::help::examples;
use crate::cli::values::{header_name, port, socket_address};
use crate::commands::mcp::{SOCKET, VERSION, stop_at_signals};
use crate::commands::router::Running;
use crate::config::Settings;
use crate::context::{BROKEN_LINK, Context, channel_config, find_broken_rules, run_channels, run_swarm};
use crate::failure::{Exit, Failure};
use crate::front::{Front, SwarmTools};
use crate::notify::NotifyConfig;
use crate::telemetry;

/// Run the workspace's server: MCP over HTTP, deliveries, retries and repair.
///
/// Until you stop it, it serves MCP to agents, ingests dropped files at once, delivers what other processes left,
/// retries, repairs, and archives expired messages.
#[derive(Debug, Args)]
#[command(after_long_help = examples![
    "switchboard serve",
    "switchboard serve --port 3100 --keep-token",
    "switchboard serve --behind-proxy x-forwarded-for --swarm-listen 127.0.0.1:8443",
])]
pub(crate) struct Serve {
    /// Listen on this port; 0 takes any free one [default: the first free one of 3100 to 3104, then any]
    #[arg(long, value_name = "PORT", env = "SWITCHBOARD_PORT", hide_env_values = true, value_parser = port)]
    port: Option<u16>,

    /// Reuse the token of the last start instead of generating a new one
    #[arg(long)]
    keep_token: bool,

    /// Receive other owners' messages from a reverse proxy on this machine: plain HTTP on a loopback address, with the
    /// client's address last in this header, such as x-forwarded-for
    #[arg(long, value_name = "HEADER", value_parser = header_name)]
    behind_proxy: Option<HeaderName>,

    /// Listen for the proxy on this address [default: swarm.listen of your settings, or 127.0.0.1:8443]
    #[arg(long, value_name = "ADDRESS:PORT", requires = "behind_proxy", value_parser = socket_address)]
    swarm_listen: Option<SocketAddr>,
}

impl Serve {
    /// Returns the settings of the swarms. Listener options of the command line override the settings file.
    fn swarm(&self, settings: &Settings) -> Result<Option<door_swarm::Config>, Failure> {
        let Some(header) = self.behind_proxy.clone() else { return settings.swarm() };
        let mut config = settings.swarm()?.ok_or_else(|| {
            Failure::new("swarm_off", Exit::Usage, "--behind-proxy is for the swarm, which is switched off")
                .hint("set swarm.enabled to true in your settings")
        })?;
        let known = config.listen.map(|listen| listen.address);
        let address = self.swarm_listen.or(known).unwrap_or(BEHIND_PROXY);
        config.listen = Some(switchboard_https::Settings::new(address, Mode::BehindProxy { header }));
        Ok(Some(config))
    }
}

/// Default listen address behind a reverse proxy, as docs/proxy.md describes it.
const BEHIND_PROXY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8443);

/// Limit of open files to request: enough for the maximum number of sessions and connections, with files to spare.
const OPEN_FILES: u64 = 16_384;

pub(crate) async fn run(args: Serve, context: Context) -> Result<(), Failure> {
    switchboard_sys::platform::raise_file_limit(OPEN_FILES);
    let settings = context.settings()?;
    let swarms = args.swarm(&settings)?;
    let workspace = context.open().await?;
    let service = workspace.hub().services().lease("serve")?;
    for problem in find_broken_rules(&workspace).await? {
        tracing::error!("{problem}; {BROKEN_LINK}");
    }
    let shutdown = CancellationToken::new();
    stop_at_signals(shutdown.clone())?;
    let suites = context.suites(&settings, shutdown.clone()).await?;
    let tools = context.swarm_tools(&workspace).await;
    let listening =
        Listening::start(&workspace, suites.clone(), tools, &settings, &args, shutdown.clone()).await?;
    let outbound = workspace.hub().deliveries().open_door(switchboard_core::Door::Workspace).await?;
    let terminals = door_workspace::run_terminals(workspace.clone(), shutdown.clone());
    let terminals = tokio::spawn(async move {
        if let Err(error) = terminals.await {
            tracing::warn!(error = %error, "no terminals are served");
        }
    });
    // The doors run until the last client is answered, so that they deliver its messages too.
    let doors = CancellationToken::new();
    let channels = channel_config(&settings, &workspace);
    let channels = run_channels(channels, workspace.hub().clone(), doors.clone()).await?;
    let public = swarms.as_ref().and_then(|config| config.listen.as_ref()).map(|listen| listen.address);
    let swarm = run_swarm(swarms, workspace.hub().clone(), doors.clone()).await?;
    let link = tokio::spawn(link(settings.nats.clone(), workspace.hub().clone(), doors.clone()));
    tokio::spawn(context.clone().follow_watchers(workspace.clone(), shutdown.clone()));
    let notified = tokio::spawn(notify(settings.notify.clone(), workspace.clone(), shutdown.clone()));
    let workers =
        Running::start_in_serve(&workspace, context.workspace_folder()?, settings.legacy_router).await?;
    announce(&context, &workspace, &listening.info, public);
    let answered = tokio::spawn({
        let (shutdown, doors) = (shutdown.clone(), doors.clone());
        async move {
            shutdown.cancelled().await;
            listening.finish().await;
            doors.cancel();
        }
    });
    let result = door_workspace::run(workspace.clone(), outbound, doors).await;
    shutdown.cancel();
    if let Some(workers) = &workers {
        workers.close().await;
    }
    let _ = tokio::join!(answered, terminals, channels, link, notified, swarm);
    suites.close().await;
    workspace.close().await;
    // Workers are dropped only after the hub has closed: deliveries that wait for a worker are left to the next
    // `serve`.
    drop(workers);
    drop(service);
    Ok(result?)
}

/// Runs the NATS link until `shutdown`, if one is configured.
async fn link(config: Option<door_nats::Config>, hub: Hub, shutdown: CancellationToken) {
    let Some(config) = config else { return };
    if let Err(error) = door_nats::run(config, hub, shutdown).await {
        tracing::warn!(error = %error, "no longer linked with other hubs");
    }
}

/// Notifies the person of new messages until `shutdown`, if configured.
async fn notify(config: Option<NotifyConfig>, workspace: Workspace, shutdown: CancellationToken) {
    if let Some(config) = config {
        crate::notify::run(config, workspace, shutdown).await;
    }
}

fn announce(context: &Context, workspace: &Workspace, info: &ServerInfo, public: Option<SocketAddr>) {
    let folder = workspace.tree().root().path().display().to_string();
    let url = format!("http://{}:{}/mcp", info.host, info.port);
    if context.printer.is_json() {
        let mut line = json!({ "serving": folder, "url": url, "port": info.port, "pid": std::process::id() });
        if let Some(address) = public {
            line["swarm"] = address.to_string().into();
        }
        context.printer.object(&line);
    } else {
        context.printer.line(format_args!(
            "Serving {folder}; MCP at {url} with the token in {folder}/auth_token. Stop with Ctrl-C."
        ));
        if let Some(address) = public {
            context.printer.line(format_args!("Messages of other owners come in at {address}."));
        }
    }
}

/// Serves `GET /metrics`: the counters in the Prometheus text format.
fn metrics() -> axum::Router {
    let Some(counts) = telemetry::install_metrics() else { return axum::Router::new() };
    let show = move || {
        let shown = counts.render();
        async move { ([(axum::http::header::CONTENT_TYPE, "text/plain; version=0.0.4")], shown) }
    };
    axum::Router::new().route("/metrics", axum::routing::get(show))
}

/// The running listener, and the files that lead clients to it.
struct Listening {
    server: JoinHandle<()>,
    attached: JoinHandle<()>,
    info: ServerInfo,
    folder: Dir,
}

impl Listening {
    async fn start(
        workspace: &Workspace,
        suites: Suites,
        swarm: SwarmTools,
        settings: &Settings,
        args: &Serve,
        shutdown: CancellationToken,
    ) -> Result<Self, Failure> {
        let mut config = settings.http.clone();
        if let Some(port) = args.port {
            config.port = PortChoice::Exactly(port);
        }
        let folder = workspace.tree().root().clone();
        let listener = Listener::bind(config.port).await?;
        let token = match args.keep_token.then(|| read_token(&folder)).transpose()?.flatten() {
            Some(token) => token,
            None => Token::generate()?,
        };
        write_token(&folder, &token)?;
        let info = ServerInfo::new(listener.port(), workspace.hub().now());
        info.write(&folder)?;
        let tools = ToolServer::new(
            workspace.clone(),
            ToolConfig { profile: settings.profile, ..ToolConfig::default() },
        );
        let first = Arc::new(Front::new(tools, suites, swarm));
        let attached = Self::answer_others(&folder, first.clone(), shutdown.clone()).await;
        let factory = move || first.for_new_session();
        let serving = serve_http(listener, config, token, || json!({}), metrics(), factory, shutdown.clone());
        let server = tokio::spawn(async move {
            if let Err(error) = serving.await {
                tracing::error!(error = %error, "no longer listening");
                // `serve` stops with an error if its listener fails.
                shutdown.cancel();
            }
        });
        Ok(Self { server, attached, info, folder })
    }

    /// Serves the relayed stdio sessions of other processes. If the socket cannot be opened, those processes serve
    /// their sessions themselves.
    async fn answer_others(folder: &Dir, first: Arc<Front>, shutdown: CancellationToken) -> JoinHandle<()> {
        let listener = match SameUserListener::bind(socket_path(folder.path(), SOCKET)).await {
            Ok(listener) => listener,
            Err(error) => {
                tracing::warn!(%error, "sessions over stdio answer for themselves");
                return tokio::spawn(async {});
            }
        };
        let session = move |hello: &Hello, connection: Connection| {
            let agent = hello.agent.as_deref().map(str::parse).transpose().ok()?;
            let profile = Profile::from_name(&hello.profile).filter(|_| hello.version == VERSION)?;
            let front = first.another_for(ToolConfig {
                profile,
                agent,
                lease_key: Some(hello.lease_key.clone()),
                connection,
            });
            let bypass = front.raw_bypass();
            Some((front, bypass))
        };
        tokio::spawn(serve_attached(listener, session, shutdown))
    }

    /// Waits until the connections are closed and removes `server_info.json`.
    async fn finish(self) {
        let _ = tokio::join!(self.server, self.attached);
        if let Err(error) = self.info.remove(&self.folder) {
            tracing::warn!(error = %error, "server_info.json could not be removed");
        }
    }
}
