//! Checks of the doors that can be made from outside their process.

use std::path::Path;

use door_channels::{ChannelError, Channels};
use door_nats::LinkState;
use door_workspace::{FOLDER, Workspace};
use switchboard_core::error_chain;
use switchboard_hub::Extent;
use switchboard_mcp::{Liveness, ServerInfo, probe};
use switchboard_sys::files::Dir;
use switchboard_sys::platform::{self, Filesystem, OpenFiles};
use switchboard_sys::socket::socket_path;

use super::{Check, Status};
use crate::commands::inbox::count;
use crate::commands::mcp::SOCKET;
use crate::commands::suite::typed;
use crate::config;
use crate::context::{BROKEN_LINK, Context, channel_config, find_broken_rules};
use crate::failure::{ANOTHER_FOLDER, Failure};

/// Number of files in a channel's folder from which listing it takes noticeable time.
const LONG: usize = 10_000;

/// Reports files that a killed server left behind: they lead clients to an address at which no process listens.
pub(super) fn server(workspace: &Workspace, fix: bool) -> Result<Option<Check>, Failure> {
    let folder = workspace.tree().root();
    let info = match ServerInfo::read(folder) {
        Ok(Some(info)) => info,
        Ok(None) => return Ok(None),
        Err(error) => {
            return Ok(Some(
                Check::new("server", Status::Warn, error_chain(&error))
                    .hint("the next `switchboard serve` rewrites it"),
            ));
        }
    };
    // Another process may have the server's pid by now, so the server's lock decides: a running server holds it.
    if !info.is_stale() && workspace.hub().services().holder("serve")?.is_some() {
        return Ok(open_files(info.pid));
    }
    let message = format!("server_info.json names process {}, which has ended", info.pid);
    if fix && info.remove(folder)? {
        return Ok(Some(Check::new("server", Status::Fixed, message)));
    }
    Ok(Some(
        Check::new("server", Status::Warn, message)
            .hint("`--fix` removes it, and so does the next `switchboard serve`"),
    ))
}

/// Reports that `serve` runs out of file descriptors; returns `None` while some are free.
fn open_files(pid: u32) -> Option<Check> {
    let OpenFiles { used, limit } = platform::open_files(pid)?;
    let status = if used >= limit {
        Status::Fail
    } else if used >= limit - limit / 16 {
        Status::Warn
    } else {
        return None;
    };
    let message = format!(
        "`serve` (process {pid}) uses {used} of {limit} open files; without a free one it accepts no client and delivers nothing"
    );
    let hint = "end unneeded clients, or restart it with a higher limit (`ulimit -n`)";
    Some(Check::new("server", status, message).hint(hint))
}

/// Reports a `serve` that does not respond, because a signal, a debugger or its container stopped it.
pub(super) async fn silent_server(folder: &Path) -> Option<Check> {
    let folder = folder.join(FOLDER);
    if probe(&socket_path(&folder, SOCKET)).await != Liveness::Silent {
        return None;
    }
    let info = Dir::open_root(&folder).ok().and_then(|folder| ServerInfo::read(&folder).ok().flatten());
    let pid = info.filter(|info| !info.is_stale()).map(|info| info.pid);
    let process = pid.map_or_else(String::new, |pid| format!(" (process {pid})"));
    let state = match pid.and_then(platform::is_process_stopped) {
        Some(true) => "is stopped",
        Some(false) | None => "does not answer; its process may be stopped or its container frozen",
    };
    let signal =
        pid.map_or_else(|| "`kill -CONT` its process".to_owned(), |pid| format!("`kill -CONT {pid}`"));
    Some(
        Check::new("server", Status::Warn, format!("`switchboard serve`{process} {state}"))
            .hint(format!("`fg` in its terminal or {signal} continues it; sessions work without it")),
    )
}

/// Checks the swarms. Returns no check if no agent is a member of one.
pub(super) async fn swarm(context: &Context, workspace: &Workspace) -> Result<Vec<Check>, Failure> {
    let Ok(swarms) = context.swarms(workspace).await else { return Ok(Vec::new()) };
    let check = |issue: door_swarm::HealthIssue| {
        let status = if issue.is_error { Status::Fail } else { Status::Warn };
        Check::new("swarm", status, issue.message).hint(issue.hint)
    };
    let mut checks: Vec<Check> = swarms.health_issues().await?.into_iter().map(check).collect();
    let root = workspace.tree().root().path().parent().and_then(|root| root.canonicalize().ok());
    for identity in swarms.identities() {
        let home = identity.home.canonicalize().unwrap_or_else(|_| identity.home.clone());
        // A key inside the repository would be shared with every person who clones it.
        if root.as_ref().is_some_and(|root| home.starts_with(root)) {
            let message =
                format!("the key of '{}' is inside the workspace, in {}", identity.agent, home.display());
            let hint = "move the folder out of the workspace, and set SWARM_HOME to it";
            checks.push(Check::new("swarm", Status::Warn, message).hint(hint));
        }
    }
    let (agents, active) =
        (swarms.identities().len(), swarms.swarms().iter().filter(|(_, s)| s.is_active()).count());
    if checks.is_empty() && agents > 0 {
        let described = format!("{} in {}", count(agents, "agent"), count(active, "swarm"));
        checks.push(Check::new("swarm", Status::Ok, described));
    }
    Ok(checks)
}

/// Reports aliases and forwards (`links`) to an unknown agent, swarm or hub.
pub(super) async fn links(workspace: &Workspace) -> Result<Vec<Check>, Failure> {
    let broken = find_broken_rules(workspace).await?.into_iter();
    Ok(broken.map(|message| Check::new("links", Status::Fail, message).hint(BROKEN_LINK)).collect())
}

/// Checks the shared folder of the channels. Returns no check if there is none.
pub(super) async fn channels(
    settings: &config::Settings,
    workspace: &Workspace,
    extent: Extent,
) -> Result<Vec<Check>, Failure> {
    let is_whole = workspace.hub().database().is_covered_by(extent).await?;
    let config = channel_config(settings, workspace);
    let (root, watchers) = (config.root.clone(), config.watchers.clone());
    let channels = match Channels::open(config, workspace.hub().clone()).await {
        Ok(channels) => channels,
        Err(error @ ChannelError::IdentityMismatch { .. }) => {
            return Ok(vec![Check::new("channels", Status::Fail, error_chain(&error)).hint(ANOTHER_FOLDER)]);
        }
        Err(error @ ChannelError::Root { .. }) => {
            return Ok(vec![
                Check::new("channels", Status::Fail, error_chain(&error))
                    .hint("create the folder, mount it, or correct channels.root in your settings"),
            ]);
        }
        Err(error) => return Err(error.into()),
    };
    let mut checks = Vec::new();
    if let Err(error @ ChannelError::NoIdentity { .. }) = channels.check_writable().await {
        checks.push(
            Check::new("channels", Status::Fail, error_chain(&error))
                .hint("make the folder writable; until then posts cannot be written"),
        );
    }
    for (file, reason) in channels.rejected_files().await? {
        checks.push(
            Check::new("channels", Status::Warn, format!("{file} was not ingested: {reason}"))
                .hint("correct the file, or move it out of the channel"),
        );
    }
    let tampering = if is_whole { channels.find_tampering().await? } else { Vec::new() };
    for tampering in tampering {
        checks.push(
            Check::new("channels", Status::Fail, tampering.to_string())
                .hint(format!("`switchboard thread {}` shows what was accepted", tampering.id())),
        );
    }
    for spellings in channels.find_case_conflicts().await? {
        let names: Vec<_> = spellings.iter().map(|name| format!("channels/{name}")).collect();
        checks.push(
            Check::new("channels", Status::Warn, format!("{} are the same channel", names.join(" and ")))
                .hint("stop all writers, move the files of one into the other, and remove the empty folder"),
        );
    }
    for watcher in &watchers {
        if let Some(problem) = watcher.program_error() {
            let hint = format!("{}, or correct channels.watchers in your settings", problem.next_step());
            let message = format!("the watcher of {} cannot start: {problem}", watcher.agent);
            checks.push(Check::new("channels", Status::Fail, message).hint(hint));
        }
        for missing in watcher.missing_files() {
            let problem = format!("the watcher of {} has no file {}", watcher.agent, missing.display());
            checks.push(
                Check::new("channels", Status::Warn, problem)
                    .hint("correct channels.watchers in your settings; until then prompts omit that file"),
            );
        }
    }
    let list = channels.list().await?;
    if checks.is_empty() && !list.is_empty() {
        let messages = list.iter().map(|channel| channel.messages + channel.archived).sum();
        let found = format!("{}, {}", count(list.len(), "channel"), count(messages, "message"));
        let agree = if is_whole { "; files and journal agree" } else { "" };
        checks.push(Check::new("channels", Status::Ok, format!("{found}{agree}")));
    }
    if let Some(long) = list.iter().find(|channel| channel.messages > LONG) {
        checks.push(
            Check::new("channels", Status::Warn, format!("{} has {} files", long.channel, long.messages))
                .hint(format!(
                    "`switchboard channel archive {}` moves the old ones",
                    typed(long.channel.as_str())
                )),
        );
    }
    if !list.is_empty() && platform::filesystem(&root) == Filesystem::Network {
        checks.push(
            Check::new("channels", Status::Warn, format!("{} lies on a network mount", root.display()))
                .hint("it works, but posts of other machines are found every two seconds only"),
        );
    }
    Ok(checks)
}

/// Checks the NATS link, if one is configured. Queries the NATS server, because the status file of the link may be
/// outdated.
pub(super) async fn nats(settings: &config::Settings, workspace: &Workspace) -> Result<Vec<Check>, Failure> {
    let Some(config) = &settings.nats else { return Ok(Vec::new()) };
    let servers = config.redacted_servers();
    let mut checks = vec![match door_nats::probe(config).await {
        Ok(server) if server.jetstream => {
            Check::new("nats", Status::Ok, format!("{servers} answers, version {}", server.version))
        }
        Ok(server) => Check::new(
            "nats",
            Status::Fail,
            format!("{servers} answers, version {}, but cannot store messages", server.version),
        )
        .hint("start nats-server with --jetstream, or with a section `jetstream` in its configuration"),
        Err(error) => {
            Check::new("nats", Status::Warn, format!("{}; messages for other hubs wait", error_chain(&error)))
                .hint("local delivery continues; waiting messages are sent when NATS is back")
        }
    }];
    let status = door_nats::Status::read(workspace.hub()).await?;
    if workspace.hub().services().holder("serve")?.is_none() {
        checks.push(
            Check::new("nats", Status::Warn, "the link is down, because no `switchboard serve` runs here")
                .hint("`switchboard serve` keeps it up"),
        );
    } else if let Some(status) = status {
        let hubs = status.hubs.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        checks.push(match status.state {
            LinkState::Linked => {
                let known = if hubs.is_empty() {
                    "no other hub found yet".to_owned()
                } else {
                    format!("knows {hubs}")
                };
                Check::new(
                    "nats",
                    Status::Ok,
                    format!("linked as '{}' since {}; {known}", status.hub, status.since),
                )
            }
            LinkState::Away => {
                let reason = status.error.unwrap_or_else(|| "no reason is known".to_owned());
                Check::new("nats", Status::Warn, format!("not linked since {}: {reason}", status.since))
            }
        });
    }
    Ok(checks)
}
