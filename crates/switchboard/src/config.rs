//! Settings: the workspace's `switchboard.config.json` and the user's own file, merged and resolved.

mod authority;
mod channels;
mod file;
mod hidden;
mod links;
mod nats;
mod notify;
mod source;
mod swarm;

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use door_suites::SuitePaths;
use jiff::SignedDuration;
use parking_lot::Mutex;
use serde_json::{Map, Value};
use switchboard_core::{
    Budget, Budgets, LoopLimits, Name, RoutingRules, describe_field_error, describe_json_error, error_chain,
    suggest_similar,
};
use switchboard_hub::{HubConfig, HubKey};
use switchboard_mcp::PortChoice;
use switchboard_sys::files::Dir;
use switchboard_tools::Profile;

use self::file::ConfigFile;
use self::source::{Source, refusal};
use crate::failure::{Exit, Failure};
use crate::notify::NotifyConfig;

/// File name of the workspace's settings, beside `.switchboard/`.
const NAME: &str = "switchboard.config.json";

/// File name of the user's own settings, in `~/.config/switchboard/`.
const USER_NAME: &str = "config.json";

/// Path of the user's own settings file, as messages show it.
const USER_PATH: &str = "~/.config/switchboard/config.json";

/// Maximum size of a settings file, larger than any that a person writes.
const LIMIT: u64 = 1 << 20;

/// Default time after which a sender is notified that its message is unread: longer than most turns of a model.
const UNSEEN: Duration = Duration::from_mins(1);

/// Default port on which clients of the older router expect it.
const LEGACY_PORT: u16 = 8765;

/// The merged and resolved settings of the hub and its doors.
#[derive(Debug, Clone, Default)]
pub(crate) struct Settings {
    pub(crate) workspace: door_workspace::Config,
    pub(crate) http: switchboard_mcp::HttpConfig,
    /// Address on which clients of the older router are served without a token; `None` to disable.
    pub(crate) legacy_router: Option<SocketAddr>,
    pub(crate) profile: Profile,
    pub(crate) suites: door_suites::Config,
    /// Settings of the NATS link, if configured.
    pub(crate) nats: Option<door_nats::Config>,
    /// Settings of the notification of the person, if configured.
    pub(crate) notify: Option<NotifyConfig>,
    channels: channels::ChannelSettings,
    links: Arc<RoutingRules>,
    unread_reminder_after: Option<Duration>,
    swarm: swarm::SwarmSettings,
    body_limit: Option<usize>,
    loops: LoopLimits,
    budgets: Budgets,
    /// Settings of the workspace's file that were ignored, as messages for the person.
    pub(crate) ignored: Vec<String>,
}

impl Settings {
    /// Applies the hub's settings, and the key to which its database is bound.
    pub(crate) fn apply_to(&self, hub: &mut HubConfig, key: Option<HubKey>) {
        hub.key = key;
        hub.body_limit = self.body_limit.unwrap_or(hub.body_limit);
        hub.loops = self.loops;
        hub.budgets = self.budgets.clone();
        hub.links = self.links.clone();
        hub.unread_reminder_after = self.unread_reminder_after;
    }

    /// Returns the settings of the channels. `folder` is their default folder.
    pub(crate) fn channels(&self, folder: &Path) -> door_channels::Config {
        door_channels::Config { linked: self.nats.is_some(), ..self.channels.config(folder) }
    }

    /// Returns the settings of the swarms; `None` if swarms are disabled.
    pub(crate) fn swarm(&self) -> Result<Option<door_swarm::Config>, Failure> {
        if !self.swarm.enabled {
            return Ok(None);
        }
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let home = set("SWARM_HOME").or_else(|| Some(set("HOME")?.join(".swarm")));
        let home = home.ok_or_else(|| {
            Failure::new(
                "no_home",
                Exit::Failed,
                "there is no place for keys: neither SWARM_HOME nor HOME is set",
            )
            .hint("set SWARM_HOME to a folder of your own")
        })?;
        Ok(Some(self.swarm.config(home)))
    }
}

/// Loads the user's own settings and merges the workspace's file into them.
///
/// Defaults apply if neither file exists. Logs a warning for unknown keys, and for settings that [`authority`] does not
/// allow a workspace.
pub(crate) fn load(workspace: &Path) -> Result<Settings, Failure> {
    let user = read_user_settings()?;
    let mut value = user.as_ref().map_or_else(|| Value::Object(Map::new()), |user| user.value.clone());
    let mut ignored = Vec::new();
    let own = read(workspace, NAME)?;
    if let Some(own) = &own {
        ignored = authority::merge(&mut value, own.value.clone())
            .into_iter()
            .map(|ignored| format!("{NAME}: '{}' {}", ignored.path, ignored.reason))
            .collect();
    }
    ignored.iter().cloned().for_each(warn_once);
    let refuse = |problem: &str| refuse(user.as_ref(), own.as_ref(), problem);
    let suites = door_suites::Config::from_file(&value).map_err(|error| refuse(&error.to_string()))?;
    let file = parse(&value).map_err(|problem| refuse(&problem))?;
    let settings = resolve(file).map_err(|problem| refuse(&problem))?;
    Ok(Settings { suites, ignored, ..settings })
}

/// Builds the failure for a problem of the merged settings. It names the user's file if that file alone has the
/// problem.
fn refuse(user: Option<&Source>, workspace: Option<&Source>, problem: &str) -> Failure {
    let has_it = |user: &&Source| parse(&user.value).and_then(resolve).err().as_deref() == Some(problem);
    match user.filter(has_it).or(workspace).or(user) {
        Some(source) => source.refuse(problem),
        None => refusal(NAME, problem),
    }
}

/// Returns the folder of the user's own settings, if the home folder is known.
fn user_folder() -> Option<PathBuf> {
    home_folder("XDG_CONFIG_HOME", ".config")
}

/// Returns the folder of the hub's key: that of the user's settings, found even if the environment names no home.
pub(crate) fn key_folder() -> Option<PathBuf> {
    user_folder().or_else(|| Some(std::env::home_dir()?.join(".config/switchboard")))
}

/// Returns true if the user's own settings trust this workspace of another user.
pub(crate) fn is_trusted_workspace(folder: &Path) -> Result<bool, Failure> {
    let Some(own) = read_user_settings()? else { return Ok(false) };
    let trusted = parse(&own.value).map_err(|problem| own.refuse(&problem))?.trusted_workspaces;
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let names =
        |path: &PathBuf| path.as_os_str() == "*" || path.canonicalize().is_ok_and(|path| path == folder);
    Ok(trusted.unwrap_or_default().iter().any(names))
}

/// Returns our folder inside a base folder that an environment variable names, or else inside one below home.
fn home_folder(variable: &str, below_home: &str) -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let folder = set(variable).or_else(|| Some(set("HOME")?.join(below_home)))?;
    Some(folder.join("switchboard"))
}

/// Rejects relative home folders: keys and trust decisions would be written into the current folder, and those of a
/// cloned repository would apply.
pub(crate) fn check_home() -> Result<(), Failure> {
    for name in ["HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"] {
        let set = std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        if let Some(relative) = set.filter(|folder| !folder.is_absolute()) {
            let message = format!("{name} is '{}', which is not an absolute path", relative.display());
            return Err(Failure::new("relative_home", Exit::Failed, message)
                .hint(format!("set {name} to a folder of your own, as a whole path")));
        }
    }
    Ok(())
}

/// Returns the folders that the suites of a workspace use.
pub(crate) fn suite_folders(workspace: &Path) -> Result<SuitePaths, Failure> {
    let homeless = || {
        Failure::new("no_home", Exit::Failed, "there is no place for what you trust: HOME is not set")
            .hint("set HOME, or XDG_CONFIG_HOME and XDG_CACHE_HOME")
    };
    Ok(SuitePaths {
        workspace: workspace.canonicalize().unwrap_or_else(|_| workspace.to_owned()),
        config: user_folder().ok_or_else(homeless)?,
        cache: home_folder("XDG_CACHE_HOME", ".cache").ok_or_else(homeless)?,
    })
}

/// Reads the user's own settings file.
///
/// The file may be a symbolic link, because many users keep their settings elsewhere, and the folder belongs to the
/// user.
fn read_user_settings() -> Result<Option<Source>, Failure> {
    let Some(folder) = user_folder().filter(|folder| folder.is_dir()) else { return Ok(None) };
    let path = folder.join(USER_NAME);
    if !path.is_symlink() {
        return read(&folder, USER_NAME);
    }
    let refuse = |problem: &str| refusal(&path.display().to_string(), problem);
    let target = path
        .canonicalize()
        .map_err(|error| refuse(&format!("the symbolic link cannot be followed: {error}")))?;
    match (target.parent(), target.file_name().and_then(|name| name.to_str())) {
        (Some(folder), Some(name)) => read(folder, name),
        _ => Err(refuse("the symbolic link leads to no file")),
    }
}

/// Reads and checks one settings file.
fn read(folder: &Path, name: &str) -> Result<Option<Source>, Failure> {
    let root = Dir::open_root(folder).map_err(door_workspace::WorkspaceError::from)?;
    let path = folder.join(name);
    let found =
        root.read(name, LIMIT).map_err(|error| refusal(&path.display().to_string(), &error_chain(&error)))?;
    let Some(found) = found else { return Ok(None) };
    let source = Source::parse(path, found.bytes)?;
    for unknown in file::unknown_keys(&source.value) {
        let near = suggest_similar(&unknown.key, unknown.known.iter().copied());
        let hint = near.first().map(|near| format!("; did you mean '{near}'?")).unwrap_or_default();
        warn_once(format!("{name}: the key '{}' is not known{hint}", unknown.path));
    }
    parse(&source.value).map_err(|problem| source.refuse(&problem))?;
    if let Err(error) = door_suites::Config::from_file(&source.value) {
        return Err(source.refuse(&error.to_string()));
    }
    Ok(Some(source))
}

/// Deserializes the settings, or describes the problem with its path.
fn parse(value: &Value) -> Result<ConfigFile, String> {
    if !value.is_object() {
        return Err("it must be an object, as in { \"hub\": {} }".to_owned());
    }
    if let Some(path) = file::misshapen(value) {
        return Err(format!("'{path}' must be an object"));
    }
    serde_path_to_error::deserialize(value).map_err(|error| match error.path().to_string().as_str() {
        "." => describe_json_error(error.inner()),
        path => format!("'{path}' {}", describe_field_error(error.inner())),
    })
}

/// Logs a warning once per process, because a process may read the settings many times.
fn warn_once(text: String) {
    static TOLD: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let mut warned = TOLD.lock();
    if !warned.contains(&text) {
        tracing::warn!("{text}");
        warned.insert(text);
    }
}

/// Resolves the settings, or describes the problem of a value.
fn resolve(file: ConfigFile) -> Result<Settings, String> {
    let days = |days: Option<u32>| days.map(|days| SignedDuration::from_hours(i64::from(days) * 24));
    let mut settings = Settings::default();
    let hub = file.hub.unwrap_or_default();
    settings.body_limit = hub.body_limit_bytes;
    // Escaped as JSON, a body can take six times its size, and a file contains more than the body.
    let file_limit = hub.body_limit_bytes.and_then(|body| u64::try_from(body).ok()?.checked_mul(8));
    settings.workspace.file_limit = settings.workspace.file_limit.max(file_limit.unwrap_or(0));
    settings.loops.hops = hub.reply_hops.unwrap_or(settings.loops.hops);
    settings.loops.pair_per_minute = hub.replies_per_minute.unwrap_or(settings.loops.pair_per_minute);
    settings.loops.thread = hub.replies_per_thread.unwrap_or(settings.loops.thread);
    settings.budgets = budgets(file.budgets.unwrap_or_default())?;
    settings.unread_reminder_after = match hub.unseen_seconds {
        Some(0) => None,
        seconds => Some(seconds.map_or(UNSEEN, Duration::from_secs)),
    };
    settings.links = links::resolve(file.links.unwrap_or_default())?.into();
    settings.notify = notify::resolve(file.notify.unwrap_or_default())?;
    let workspace = file.workspace.unwrap_or_default();
    let retention = workspace.retention.unwrap_or_default();
    let default = door_workspace::Retention::default();
    settings.workspace.retention = door_workspace::Retention {
        archive: days(retention.archive).or(default.archive),
        receipts: days(retention.receipts).or(default.receipts),
        journal: days(retention.journal).or(default.journal),
    };
    let millis = std::time::Duration::from_millis;
    settings.workspace.settle = workspace.settle_ms.map_or(settings.workspace.settle, millis);
    settings.workspace.rescan = workspace.rescan_ms.map_or(settings.workspace.rescan, millis);
    let terminals = file.terminals.unwrap_or_default();
    let default = door_workspace::TerminalConfig::default();
    settings.workspace.terminals = door_workspace::TerminalConfig {
        execute_from_files: terminals.execute_from_files.unwrap_or(default.execute_from_files),
        notify_mail: terminals.notify_mail.unwrap_or(default.notify_mail),
        idle: terminals.idle_ms.map_or(default.idle, millis),
        tmux: terminals.tmux.unwrap_or(default.tmux),
        bridge: terminals.bridge.unwrap_or(default.bridge),
    };
    if let Some(name) = file.tools.unwrap_or_default().profile {
        settings.profile = Profile::from_name(&name).ok_or_else(|| {
            let known = Profile::ALL.map(|(name, _)| name).join(", ");
            format!("'tools.profile' is '{}', but must be one of {known}", name.escape_debug())
        })?;
    }
    let http = file.http.unwrap_or_default();
    if let Some(port) = http.port {
        settings.http.port = PortChoice::Exactly(port);
    }
    let router = file.router.unwrap_or_default();
    let port = router.legacy_port.unwrap_or(LEGACY_PORT);
    let is_legacy = router.legacy_clients.unwrap_or_default();
    settings.legacy_router = is_legacy.then_some(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    settings.nats = nats::resolve(file.nats.unwrap_or_default())?;
    settings.swarm = swarm::resolve(file.swarm.unwrap_or_default())?;
    settings.channels = channels::resolve(file.channels.unwrap_or_default())?;
    settings.http.allowed_hosts.extend(http.allowed_hosts.unwrap_or_default());
    settings.http.allowed_origins.extend(http.allowed_origins.unwrap_or_default());
    Ok(settings)
}

/// Resolves the budgets.
fn budgets(section: file::BudgetsSection) -> Result<Budgets, String> {
    let everyone =
        Budget { messages_per_hour: section.messages_per_hour, tokens_per_day: section.tokens_per_day };
    let mut budgets = Budgets { everyone, ..Budgets::default() };
    for (name, own) in section.agents.unwrap_or_default() {
        let agent = Name::parse(&name).map_err(|error| format!("'budgets.agents': {error}"))?;
        let own = Budget { messages_per_hour: own.messages_per_hour, tokens_per_day: own.tokens_per_day };
        budgets.agents.insert(agent, own);
    }
    Ok(budgets)
}
