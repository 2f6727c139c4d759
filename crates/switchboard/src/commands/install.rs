//! The verbs `switchboard install` and `switchboard uninstall`.
//!
//! A client's settings belong to their owner. They are changed in as few places as possible, with comments and order
//! retained, and written atomically with a backup of the old file. `entries` contains the entries that we write, `json`
//! and `toml` edit the text, and `settings` reads and writes the file.

mod entries;
mod json;
mod settings;
mod toml;

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Map, json as object};
use switchboard_core::Name;
use switchboard_sys::clock::Clock;

use self::entries::Entries;
use self::settings::{Settings, SettingsPath, Written};
use crate::cli::help::examples;
use crate::commands::hook::Client;
use crate::context::Context;
use crate::failure::{Exit, Failure};

/// Add Switchboard's MCP server and hooks to the settings of clients.
///
/// Existing entries stay as they are. Each changed file is first copied beside itself.
#[derive(Debug, Args)]
#[command(after_long_help = examples![
    "switchboard install claude codex",
    "switchboard install claude --agent reviewer --dry-run",
])]
pub(crate) struct Install {
    #[command(flatten)]
    targets: Targets,

    /// Set the agent's name [default: the client's]
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
}

/// Remove from clients' settings what `install` added.
#[derive(Debug, Args)]
#[command(after_long_help = examples!["switchboard uninstall claude"])]
pub(crate) struct Uninstall {
    #[command(flatten)]
    targets: Targets,
}

/// The settings files to edit.
#[derive(Debug, Args)]
struct Targets {
    /// The clients
    #[arg(required = true, value_enum)]
    clients: Vec<Client>,

    /// Edit your own settings, for all projects, instead of those of this workspace
    #[arg(long)]
    user: bool,

    /// Show what would change without changing it
    #[arg(long)]
    dry_run: bool,
}

/// The two settings files of a client.
struct Files {
    /// File of its MCP servers.
    servers: SettingsPath,
    /// File of its hooks.
    hooks: SettingsPath,
}

pub(crate) fn install(args: &Install, context: &Context) -> Result<(), Failure> {
    let named = args.agent.as_deref().map(Name::parse).transpose()?;
    if named.as_ref().is_some_and(Name::is_human) {
        return Err(Failure::new("reserved_name", Exit::NotAllowed, "'human' is the person, not an agent"));
    }
    // The settings of a project are shared with the team, so they name the program without its path where possible.
    let program =
        if args.targets.user { crate::program::own_path()? } else { crate::program::shared_name()? };
    for client in &args.targets.clients {
        let files = files(*client, args.targets.user, context)?;
        let (mut servers, mut hooks) = (Settings::read(files.servers)?, Settings::read(files.hooks)?);
        // An existing server entry keeps its agent's name: the hooks and the server must refer to the same agent.
        let named_agent = servers.edit(|text| agent_in(*client, text).map(|agent| (None, agent)))?;
        let agent = match named.as_ref().map(ToString::to_string).or(named_agent) {
            Some(agent) => Some(agent),
            // User settings apply to all projects, so the agent is determined when the client runs.
            None if args.targets.user => None,
            None => Some(client.cli_name().to_owned()),
        };
        let entries = Entries { client: *client, program: program.clone(), agent, renames: named.is_some() };
        servers.edit(|text| entries.add_server(text).map(|text| (text, ())))?;
        hooks.edit(|text| json::add_hooks(text, &entries).map(|text| (text, ())))?;
        write([servers, hooks], *client, &args.targets, context)?;
        if !args.targets.dry_run {
            context.printer.note(next_step(*client, args.targets.user));
        }
    }
    Ok(())
}

pub(crate) fn uninstall(args: &Uninstall, context: &Context) -> Result<(), Failure> {
    for client in &args.targets.clients {
        let files = files(*client, args.targets.user, context)?;
        let (mut servers, mut hooks) = (Settings::read(files.servers)?, Settings::read(files.hooks)?);
        servers.edit(|text| remove_server(*client, text).map(|text| (text, ())))?;
        hooks.edit(|text| json::remove_hooks(text, *client).map(|text| (text, ())))?;
        write([servers, hooks], *client, &args.targets, context)?;
    }
    Ok(())
}

/// Lists our entries whose program no longer exists, with the settings file and the program. Skips files that cannot be
/// read or parsed.
pub(crate) fn find_missing_programs(context: &Context) -> Vec<(Client, bool, PathBuf, String)> {
    let mut gone = Vec::new();
    for (client, user) in
        [Client::Claude, Client::Codex].into_iter().flat_map(|one| [(one, false), (one, true)])
    {
        let Ok(Files { servers, hooks }) = files(client, user, context) else { continue };
        for place in [servers, hooks] {
            let Ok(settings) = Settings::read(place) else { continue };
            let is_toml = settings.path().extension().is_some_and(|extension| extension == "toml");
            let programs = if is_toml {
                toml::program(settings.text()).map(|program| program.into_iter().collect())
            } else {
                json::programs(settings.text(), client)
            };
            let missing =
                programs.unwrap_or_default().into_iter().find(|program| entries::is_missing(program));
            gone.extend(missing.map(|program| (client, user, settings.path().to_owned(), program)));
        }
    }
    gone
}

fn agent_in(client: Client, text: &str) -> Result<Option<String>, String> {
    match client {
        Client::Claude => json::agent(text),
        Client::Codex => toml::agent(text),
    }
}

fn remove_server(client: Client, text: &str) -> Result<Option<String>, String> {
    match client {
        Client::Claude => json::remove_server(text),
        Client::Codex => toml::remove_server(text),
    }
}

/// Returns the paths of a client's settings.
fn files(client: Client, user: bool, context: &Context) -> Result<Files, Failure> {
    if user {
        let own = |variable: &str, below_home: &str| home(variable, below_home).ok_or_else(homeless);
        return Ok(match client {
            Client::Claude => {
                let folder = own("CLAUDE_CONFIG_DIR", ".claude")?;
                // The file is in the home folder, unless `CLAUDE_CONFIG_DIR` moves it too.
                let servers = own("CLAUDE_CONFIG_DIR", "")?.join(".claude.json");
                Files {
                    servers: SettingsPath::in_user_folder(servers),
                    hooks: SettingsPath::in_user_folder(folder.join("settings.json")),
                }
            }
            Client::Codex => {
                let folder = own("CODEX_HOME", ".codex")?;
                let servers = SettingsPath::in_user_folder(folder.join("config.toml"));
                Files { servers, hooks: SettingsPath::in_user_folder(folder.join("hooks.json")) }
            }
        });
    }
    let folder = context.workspace_folder()?;
    let within = |below: &str| SettingsPath::in_workspace(&folder, below);
    Ok(match client {
        Client::Claude => {
            Files { servers: within(".mcp.json"), hooks: within(".claude/settings.local.json") }
        }
        Client::Codex => Files { servers: within(".codex/config.toml"), hooks: within(".codex/hooks.json") },
    })
}

/// Returns the folder that an environment variable names, or else a folder below home.
fn home(variable: &str, below_home: &str) -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set(variable).or_else(|| Some(set("HOME")?.join(Path::new(below_home))))
}

fn homeless() -> Failure {
    Failure::new("no_home", Exit::Failed, "there is no place for your settings: HOME is not set")
        .hint("set HOME")
}

fn write(files: [Settings; 2], client: Client, targets: &Targets, context: &Context) -> Result<(), Failure> {
    for settings in &files {
        settings.check_writable()?;
    }
    for settings in files {
        let path = settings.path().display().to_string();
        if targets.dry_run && !context.printer.is_json() {
            match settings.diff() {
                Some(diff) => context.printer.line(diff.trim_end()),
                None => context.printer.line(format_args!("{path}: nothing would change")),
            }
            continue;
        }
        let is_changed = settings.is_changed();
        let written =
            if targets.dry_run { Written::default() } else { settings.write(Clock::system().now())? };
        let backup = written.backup.map(|backup| backup.display().to_string());
        if context.printer.is_json() {
            let mut line = Map::new();
            line.insert("client".to_owned(), client.cli_name().into());
            line.insert("file".to_owned(), path.into());
            line.insert("changed".to_owned(), is_changed.into());
            line.insert("backup".to_owned(), object!(backup));
            context.printer.object(&line);
        } else if !is_changed {
            context.printer.line(format_args!("{path}: nothing to change"));
        } else {
            let kept = backup.map(|backup| format!("; what was there is in {backup}")).unwrap_or_default();
            context.printer.line(format_args!("{path}: written{kept}"));
        }
    }
    Ok(())
}

/// Describes the next step that the owner of the settings has to take.
fn next_step(client: Client, user: bool) -> &'static str {
    match (client, user) {
        (Client::Claude, false) => {
            "Claude Code asks once whether to use the server of .mcp.json. Restart it in this folder."
        }
        (Client::Claude, true) => "Restart Claude Code.",
        (Client::Codex, _) => {
            "Codex runs hooks that you have reviewed, and no others: start it here, trust the folder, and look at them with /hooks."
        }
    }
}
