//! Context of a verb: the workspace, the acting agent, and the printer.

mod watchers;

use std::path::{Path, PathBuf};

use door_channels::Channels;
use door_suites::{SuitePaths, Suites};
use door_swarm::Swarms;
use door_workspace::{FOLDER, Workspace};
use switchboard_core::{AgentId, Directory};
use switchboard_hub::{HUB_NAME, Hub, HubError, Outbound, WorkTree};
use switchboard_sys::lineage::AGENT_NAME;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::cli::Global;
use crate::commands::reap::guard;
use crate::config;
use crate::failure::{Exit, Failure};
use crate::front::SwarmTools;
use crate::ownership;
use crate::person::{self, agent_evidence, lineage};
use crate::printer::Printer;
use crate::show::Reader;
use crate::threads::Threads;

pub(crate) use self::watchers::WATCHER_POLL_INTERVAL;

/// Execution context of a verb.
#[derive(Debug, Clone)]
pub(crate) struct Context {
    global: Global,
    /// Folder that `SWITCHBOARD_WORKSPACE_ROOT` names, unless `--workspace` overrides it.
    environment_root: Option<PathBuf>,
    pub(crate) printer: Printer,
}

/// Failure code: an agent's process has no agent name.
pub(crate) const UNNAMED: &str = "unnamed_agent";

/// Environment variable that names the folder of the workspace.
const WORKSPACE_ROOT: &str = "SWITCHBOARD_WORKSPACE_ROOT";

impl Context {
    pub(crate) fn new(global: Global, printer: Printer) -> Self {
        let set = || std::env::var_os(WORKSPACE_ROOT).filter(|folder| !folder.is_empty());
        let environment_root = if global.workspace.is_some() { None } else { set().map(PathBuf::from) };
        Self { global, environment_root, printer }
    }

    /// Returns the acting agent: the named agent, or else the agent whose client started this process, or else the
    /// person.
    ///
    /// An agent's process without any name gets an error, because it never acts as the person.
    pub(crate) fn identity(&self) -> Result<AgentId, Failure> {
        if let Some(agent) = self.named()? {
            return Ok(agent);
        }
        let Some(evidence) = agent_evidence() else { return Ok(AgentId::human()) };
        if let Some(name) = lineage().session_agent() {
            return Self::identity_of(&name);
        }
        let message = format!("this process is an agent's and has no name: {evidence}");
        Err(Failure::new(UNNAMED, Exit::NotAllowed, message)
            .hint("name yourself with --from NAME or SWITCHBOARD_AGENT_NAME"))
    }

    /// Returns the acting agent if it is named: by `--from`, the launcher of this process, or
    /// `SWITCHBOARD_AGENT_NAME`.
    pub(crate) fn named(&self) -> Result<Option<AgentId>, Failure> {
        let launched = || lineage().launch().map(|launch| launch.agent);
        let name = self.global.from.clone().filter(|name| !name.is_empty());
        let name = name.or_else(launched).or_else(|| std::env::var(AGENT_NAME).ok());
        name.filter(|name| !name.is_empty()).map(|name| Self::identity_of(&name)).transpose()
    }

    /// Returns the agent of a client's session, like [`Self::named`], but ignores the environment of another session.
    ///
    /// A daemon that several sessions share has the environment of the session that started it.
    pub(crate) fn session_identity(&self) -> Result<Option<AgentId>, Failure> {
        let is_said = self.global.from.as_ref().is_some_and(|name| !name.is_empty());
        let foreign = if is_said { None } else { lineage().foreign_launch() };
        match foreign.filter(|launch| std::env::var(AGENT_NAME).is_ok_and(|name| name == launch.agent)) {
            Some(launch) if lineage().launch().is_none() => {
                let (name, pid) = (&launch.agent, launch.launcher().pid());
                let message = format!(
                    "{AGENT_NAME} is '{name}', which process {pid} gave to a session that this process does not belong to"
                );
                Err(Failure::new("foreign_environment", Exit::NotAllowed, message).hint(
                    "name the agent with --from, or keep the client from sharing a daemon between sessions (Codex: --disable daemon_auto_start)",
                ))
            }
            _ => self.named(),
        }
    }

    /// Parses the name of an agent of this hub. In an agent's process the person's name is rejected.
    pub(crate) fn identity_of(name: &str) -> Result<AgentId, Failure> {
        let agent: AgentId = name
            .parse()
            .map_err(|error| Failure::from(error).hint("check --from and SWITCHBOARD_AGENT_NAME"))?;
        if agent.realm.is_some() {
            return Err(Failure::new(
                "not_local",
                Exit::NotAllowed,
                format!("{agent} is not an agent of this hub"),
            ));
        }
        if agent.name.as_str().eq_ignore_ascii_case(HUB_NAME) {
            let reserved = HubError::ReservedName { name: agent.name, reserved_for: "the hub" };
            return Err(Failure::from(reserved).hint("check --from and SWITCHBOARD_AGENT_NAME"));
        }
        // Check only the person's name, because the check scans all processes of the machine.
        if agent.is_human()
            && let Some(evidence) = agent_evidence()
        {
            return Err(person::refusal("speak as 'human'", evidence));
        }
        Ok(agent)
    }

    /// Returns the reader of the output: a model if an agent is named or an agent's process runs the command, otherwise
    /// a person.
    pub(crate) fn reader(&self) -> Result<Reader, Failure> {
        let is_agent = match self.named()? {
            Some(agent) => !agent.is_human(),
            None => agent_evidence().is_some(),
        };
        Ok(if is_agent { Reader::Model } else { Reader::Person })
    }

    /// Returns the folder that contains `.switchboard/`. A workspace of another user is rejected, unless the user's own
    /// settings trust it.
    pub(crate) fn workspace_folder(&self) -> Result<PathBuf, Failure> {
        let folder = self.find_workspace()?;
        ownership::check(&folder)?;
        Ok(folder)
    }

    fn find_workspace(&self) -> Result<PathBuf, Failure> {
        if let Some(folder) = &self.global.workspace {
            if !folder.is_dir() {
                let message = format!("the folder {} does not exist", folder.display());
                return Err(Failure::new("no_workspace", Exit::NotFound, message)
                    .hint("check --workspace and SWITCHBOARD_WORKSPACE_ROOT"));
            }
            return Ok(folder.clone());
        }
        let current_folder = std::env::current_dir().map_err(anyhow::Error::from)?;
        self.workspace_at(&current_folder)?.ok_or_else(|| {
            Failure::new(
                "no_workspace",
                Exit::NotFound,
                format!("no workspace in {} or above it", current_folder.display()),
            )
            .hint("create one with `switchboard init`")
        })
    }

    /// Returns the workspace that the environment names, or that of a folder. If both exist and differ, the choice is
    /// ambiguous, which is an error.
    fn workspace_at(&self, folder: &Path) -> Result<Option<PathBuf>, Failure> {
        let found = workspace_of(folder);
        let Some(root) = &self.environment_root else { return Ok(found) };
        if !root.is_dir() {
            let message = format!("the folder {} does not exist", root.display());
            return Err(Failure::new("no_workspace", Exit::NotFound, message)
                .hint("check --workspace and SWITCHBOARD_WORKSPACE_ROOT"));
        }
        let is_same = |found: &PathBuf| found.canonicalize().ok() == root.canonicalize().ok();
        match found.filter(|found| !is_same(found)) {
            None => Ok(Some(root.clone())),
            Some(other) => {
                let message = format!(
                    "{WORKSPACE_ROOT} names the workspace {}, but the folder {} is in the workspace {}",
                    root.display(),
                    folder.display(),
                    other.display()
                );
                Err(Failure::new("workspace_conflict", Exit::Usage, message)
                    .hint("choose one with --workspace; an environment like this belongs to another session"))
            }
        }
    }

    /// Returns the current folder, and the Git working tree that contains it.
    pub(crate) fn working_tree(&self) -> Result<(PathBuf, WorkTree), Failure> {
        let current_folder = std::env::current_dir().map_err(anyhow::Error::from)?;
        Ok(WorkTree::locate(&current_folder, &self.workspace_folder()?)?)
    }

    /// Returns this context for the requested workspace, or else for that of a folder; `None` if there is no workspace.
    pub(crate) fn at(&self, folder: Option<&Path>) -> Result<Option<Self>, Failure> {
        let mut context = self.clone();
        if let (None, Some(folder)) = (&self.global.workspace, folder) {
            let Some(found) = self.workspace_at(folder)? else { return Ok(None) };
            context.global.workspace = Some(found);
        }
        let is_there = match context.workspace_folder() {
            Ok(folder) => folder.join(FOLDER).is_dir(),
            Err(failure) if failure.exit == Exit::NotFound => false,
            Err(failure) => return Err(failure),
        };
        Ok(is_there.then_some(context))
    }

    /// Returns the folder in which to create a workspace: the requested one, or else the current folder.
    pub(crate) fn new_workspace_folder(&self) -> Result<PathBuf, Failure> {
        match &self.global.workspace {
            Some(folder) if !folder.is_dir() => {
                let message = format!("the folder {} does not exist", folder.display());
                Err(Failure::new("no_folder", Exit::NotFound, message).hint("make it first"))
            }
            Some(folder) => {
                ownership::check(folder)?;
                Ok(folder.clone())
            }
            None => {
                let current_folder = std::env::current_dir().map_err(anyhow::Error::from)?;
                let is_named = self.environment_root.is_some();
                let folder = if is_named {
                    self.workspace_at(&current_folder)?.unwrap_or(current_folder)
                } else {
                    current_folder
                };
                ownership::check(&folder)?;
                Ok(folder)
            }
        }
    }

    /// Returns the folders of the workspace's suites.
    pub(crate) fn suite_folders(&self) -> Result<door_suites::SuitePaths, Failure> {
        config::suite_folders(&self.workspace_folder()?)
    }

    /// Reads the settings of the workspace.
    pub(crate) fn settings(&self) -> Result<config::Settings, Failure> {
        config::load(&self.workspace_folder()?)
    }

    /// Opens the suites of the workspace, which reload changed files until `shutdown`.
    pub(crate) async fn suites(
        &self,
        settings: &config::Settings,
        shutdown: CancellationToken,
    ) -> Result<Suites, Failure> {
        let suites = self.quiet_suites(settings).await?;
        let folder = self.workspace_folder()?;
        let load = move || match config::load(&folder) {
            Ok(settings) => Some(settings.suites),
            Err(failure) => {
                tracing::warn!("{}; going on with the settings from before", failure.message);
                None
            }
        };
        tokio::spawn(door_suites::watch(suites.clone(), load, shutdown));
        Ok(suites)
    }

    /// Opens the suites of the workspace as a snapshot: later changes of their files are ignored.
    pub(crate) async fn quiet_suites(&self, settings: &config::Settings) -> Result<Suites, Failure> {
        // Messages work without a home folder; only trust decisions are unknown then.
        let places = match self.suite_folders() {
            Ok(places) => places,
            Err(_) => SuitePaths::without_home(self.workspace_folder()?),
        };
        let suites = Suites::open(settings.suites.clone(), places, guard()).await?;
        let of_swarms = door_swarm::tools().into_iter().map(|tool| tool.name.to_owned());
        suites.reserve(switchboard_tools::tool_names().chain(of_swarms));
        Ok(suites)
    }

    /// Opens the workspace.
    pub(crate) async fn open(&self) -> Result<Workspace, Failure> {
        let folder = self.workspace_folder()?;
        let settings = config::load(&folder)?;
        let key = ownership::hub_key(&folder)?;
        let workspace =
            Workspace::open(&folder, settings.workspace.clone(), |hub| settings.apply_to(hub, key)).await?;
        if let Some(aside) = workspace.hub().database().moved_aside() {
            self.printer.note(format_args!(
                "The journal was damaged. It was moved to {} and rebuilt from what could be read.",
                aside.display()
            ));
        }
        self.note_quarantine(&workspace);
        if let Some(trouble) = workspace.hub().database().disk_trouble() {
            self.printer.degraded(&trouble);
        }
        Ok(workspace)
    }

    /// Prints a note about a quarantined database.
    pub(crate) fn note_quarantine(&self, workspace: &Workspace) {
        for aside in workspace.hub().database().planted_files() {
            self.printer.note(format_args!(
                "A file beside the journal hub.db was not ours and is not used. It was moved to {}; delete it, and do not \
                 track .switchboard/ in Git.",
                aside.display()
            ));
        }
        if let Some(aside) = workspace.hub().database().quarantined() {
            self.printer.note(format_args!(
                "The journal hub.db came from elsewhere and is not used. It was moved to {}; `switchboard adopt` shows \
                 whose messages it holds.",
                aside.display()
            ));
        }
    }

    /// Opens the workspace with its door, so that this process also delivers messages that others left undelivered.
    pub(crate) async fn open_door(&self) -> Result<Open, Failure> {
        let workspace = self.open().await?;
        let outbound = workspace.hub().deliveries().open_door(switchboard_core::Door::Workspace).await?;
        Ok(Open::start(workspace, outbound))
    }

    /// Opens the workspace with a running door, so that this process also ingests files dropped into mailboxes.
    pub(crate) async fn open_running(&self) -> Result<Open, Failure> {
        let workspace = self.open().await?;
        let outbound = workspace.hub().deliveries().open_door(switchboard_core::Door::Workspace).await?;
        Ok(Open::start_running(workspace, outbound))
    }

    /// Opens the channels of an open workspace.
    pub(crate) async fn channels(&self, workspace: &Workspace) -> Result<Channels, Failure> {
        let config = channel_config(&self.settings()?, workspace);
        Ok(Channels::open(config, workspace.hub().clone()).await?)
    }

    /// Opens the swarms of an open workspace.
    pub(crate) async fn swarms(&self, workspace: &Workspace) -> Result<Swarms, Failure> {
        let config = self.settings()?.swarm()?.ok_or_else(|| {
            Failure::new("swarm_off", Exit::NotAllowed, "the swarms are switched off")
                .hint("set swarm.enabled to true in ~/.config/switchboard/config.json")
        })?;
        Ok(Swarms::open(config, workspace.hub().clone()).await?)
    }

    /// Opens the tools of the swarms. An error is logged, and the session continues without the tools.
    pub(crate) async fn swarm_tools(&self, workspace: &Workspace) -> SwarmTools {
        match self.swarms(workspace).await {
            Ok(swarms) => SwarmTools::new(swarms),
            Err(failure) => {
                tracing::debug!("no tools for swarms: {}", failure.message);
                SwarmTools::default()
            }
        }
    }

    /// Returns the owner of the requested mailbox: the given agent, or else the acting one.
    pub(crate) fn mailbox_owner(
        &self,
        named: Option<&str>,
        directory: &Directory,
    ) -> Result<AgentId, Failure> {
        let agent = match named {
            Some(name) => name.parse::<AgentId>()?,
            None => self.identity()?,
        };
        Ok(directory.canonical(&agent))
    }

    /// Returns true if the reader of a mailbox is its owner, so that shown messages count as seen.
    pub(crate) fn reads_own(&self, owner: &AgentId, directory: &Directory) -> Result<bool, Failure> {
        match self.identity() {
            Ok(agent) => Ok(directory.canonical(&agent) == *owner),
            // An agent without a name may read mailboxes, but owns none.
            Err(failure) if failure.code == UNNAMED => Ok(false),
            Err(failure) => Err(failure),
        }
    }
}

/// Returns the workspace of a folder: that of its nearest ancestor. A linked Git working tree has the workspace of the
/// main tree.
fn workspace_of(folder: &Path) -> Option<PathBuf> {
    let above =
        |folder: &Path| folder.ancestors().find(|folder| folder.join(FOLDER).is_dir()).map(Path::to_path_buf);
    above(folder).or_else(|| above(&WorkTree::of(folder).ok()?.main_tree()?))
}

/// Hint for an alias or a forward that leads to an unknown agent.
pub(crate) const BROKEN_LINK: &str =
    "`switchboard agents` lists who is known; put it right in ~/.config/switchboard/config.json";

/// Lists the `links` settings that lead to an unknown agent, swarm or hub.
pub(crate) async fn find_broken_rules(workspace: &Workspace) -> Result<Vec<String>, Failure> {
    let directory = workspace.hub().directory().await?;
    let problems = switchboard_core::find_broken_rules(&directory);
    Ok(problems.iter().map(ToString::to_string).collect())
}

/// Returns the settings of the channels of an open workspace.
pub(crate) fn channel_config(settings: &config::Settings, workspace: &Workspace) -> door_channels::Config {
    settings.channels(workspace.tree().root().path())
}

/// Runs the channels door until `shutdown`.
pub(crate) async fn run_channels(
    config: door_channels::Config,
    hub: Hub,
    shutdown: CancellationToken,
) -> Result<JoinHandle<()>, Failure> {
    let outbound = hub.deliveries().open_door(switchboard_core::Door::Channels).await?;
    let config = door_channels::Config { guard: guard(), ..config };
    Ok(tokio::spawn(async move {
        if let Err(error) = door_channels::run(config, hub, outbound, shutdown).await {
            tracing::warn!(error = %error, "the door to the channels closed");
        }
    }))
}

/// Runs the swarm door until `shutdown`. It is an error if a configured listener, or anything else that peers rely on,
/// cannot start.
pub(crate) async fn run_swarm(
    config: Option<door_swarm::Config>,
    hub: Hub,
    shutdown: CancellationToken,
) -> Result<JoinHandle<()>, Failure> {
    let Some(config) = config else { return Ok(tokio::spawn(async {})) };
    let outbound = hub.deliveries().open_door(switchboard_core::Door::Swarm).await?;
    // The listener gets its own threads, so that handshakes and signature checks of strangers do not delay local
    // clients.
    let threads = match &config.listen {
        Some(_) => Some(Threads::start("switchboard-swarm").map_err(anyhow::Error::from)?),
        None => None,
    };
    let place = threads.as_ref().map_or_else(Handle::current, Threads::handle);
    let starting = place.spawn(door_swarm::start(config, hub, outbound, shutdown.clone()));
    let running = place.spawn(starting.await.map_err(anyhow::Error::from)??);
    Ok(tokio::spawn(async move {
        let problem = match running.await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(error) => Some(error.to_string()),
        };
        if let Some(problem) = problem {
            tracing::error!(problem, "the door to the swarms closed");
            // `serve` stops with an error if its listener fails.
            shutdown.cancel();
        }
        if let Some(threads) = threads {
            threads.end().await;
        }
    }))
}

/// An open workspace with its door, so that this process delivers its messages.
pub(crate) struct Open {
    pub(crate) workspace: Workspace,
    door: JoinHandle<()>,
    channels: Option<JoinHandle<()>>,
    stop: CancellationToken,
}

impl Open {
    fn start(workspace: Workspace, outbound: Outbound) -> Self {
        let (working, stop) = (workspace.clone(), CancellationToken::new());
        let stopped = stop.clone();
        let door =
            tokio::spawn(async move { door_workspace::run_deliveries(&working, outbound, stopped).await });
        Self { workspace, door, channels: None, stop }
    }

    fn start_running(workspace: Workspace, outbound: Outbound) -> Self {
        let (working, stop) = (workspace.clone(), CancellationToken::new());
        let stopped = stop.clone();
        let door = tokio::spawn(async move {
            if let Err(error) = door_workspace::run(working, outbound, stopped).await {
                tracing::warn!(error = %error, "the workspace door closed");
            }
        });
        Self { workspace, door, channels: None, stop }
    }

    /// Opens the channels door too, so that this process delivers to channels. Few commands need that, so it is not
    /// opened by default.
    pub(crate) async fn deliver_to_channels(&mut self, context: &Context) -> Result<(), Failure> {
        let config = channel_config(&context.settings()?, &self.workspace);
        let hub = self.workspace.hub().clone();
        let channels = Channels::open(config, hub.clone()).await?;
        // An agent that watches a channel counts as awake, and the sender's output shows that.
        channels.report_presence().await?;
        let outbound = hub.deliveries().open_door(switchboard_core::Door::Channels).await?;
        let stop = self.stop.clone();
        self.channels = Some(tokio::spawn(async move {
            let deliveries = Box::pin(door_channels::run_deliveries(&channels, outbound));
            hub.deliveries().run_door(switchboard_core::Door::Channels, deliveries, stop).await;
        }));
        Ok(())
    }

    /// Delivers the accepted messages, then closes the workspace.
    pub(crate) async fn close(self) {
        self.stop.cancel();
        let _ = self.door.await;
        if let Some(channels) = self.channels {
            let _ = channels.await;
        }
        self.workspace.close().await;
    }
}
