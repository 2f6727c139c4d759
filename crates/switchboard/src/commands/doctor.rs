//! `switchboard doctor`

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use clap::Args;
use door_channels::{ChannelError, Channels};
use door_nats::LinkState;
use door_suites::{Places, Problem, Trust, discover};
use door_workspace::{Finding, Tree, Workspace, inspect};
use serde::Serialize;
use switchboard_core::{Door, Name};
use switchboard_hub::platform::{self, Filesystem};
use switchboard_hub::process::Spawn;
use switchboard_hub::{DatabaseState, Hub};
use switchboard_mcp::ServerInfo;

use crate::commands::hook::Client;
use crate::commands::inbox::count;
use crate::commands::install;
use crate::commands::suite::typed;
use crate::config;
use crate::context::{Context, channel_config};
use crate::failure::{Exit, Failure, chain};

/// From this many files on it takes time to list a channel.
const LONG: usize = 10_000;

/// Up to this many entries the chain is verified as well, which takes about a second.
const AUDITED: u64 = 100_000;

/// Check files, database, permissions and locks. Changes nothing without --fix.
#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Repair what can be repaired; no mail is removed, whatever the settings say of its age
    #[arg(long)]
    fix: bool,
}

/// One thing that was looked at.
#[derive(Debug, Serialize)]
struct Check {
    #[serde(rename = "check")]
    subject: &'static str,
    status: Status,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Status {
    Ok,
    Fixed,
    Warn,
    Fail,
}

impl Check {
    fn new(subject: &'static str, status: Status, message: impl Into<String>) -> Self {
        Self { subject, status, message: message.into(), hint: None }
    }

    fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }
}

pub(crate) async fn run(args: Doctor, context: Context) -> Result<(), Failure> {
    let folder = context.workspace_folder()?;
    let working = context.printer.working("looking at everything");
    let checks = examine(&folder, args.fix, &context).await;
    if let Some(bar) = working {
        bar.finish_and_clear();
    }
    let checks = checks?;
    for check in &checks {
        print(&context, check);
    }
    let failed = checks.iter().filter(|check| check.status == Status::Fail).count();
    if failed > 0 {
        let failure =
            Failure::new("unhealthy", Exit::Failed, format!("{failed} of {} checks failed", checks.len()));
        return Err(if args.fix {
            failure
        } else {
            failure.hint("`switchboard doctor --fix` repairs what can be repaired")
        });
    }
    Ok(())
}

fn print(context: &Context, check: &Check) {
    if context.printer.is_json() {
        context.printer.object(check);
        return;
    }
    let mark = match check.status {
        Status::Ok => "ok   ",
        Status::Fixed => "fixed",
        Status::Warn => "warn ",
        Status::Fail => "FAIL ",
    };
    context.printer.line(format_args!("{mark} {}: {}", check.subject, crate::show::plain(&check.message)));
    if let Some(hint) = &check.hint {
        context.printer.line(format_args!("      hint: {hint}"));
    }
}

async fn examine(folder: &Path, fix: bool, context: &Context) -> Result<Vec<Check>, Failure> {
    let mut checks = Vec::new();
    let tree = Tree::open(folder)?;
    let settings = config::load(folder)?;
    let database = Hub::check(tree.root().clone()).await?;
    match &database {
        DatabaseState::Damaged { problem } if !fix => {
            checks.push(
                Check::new("database", Status::Fail, format!("hub.db is damaged: {problem}"))
                    .hint("`switchboard doctor --fix` moves it aside and rebuilds it from what can be read and from the files"),
            );
            checks.extend(repository(folder).await);
            return Ok(checks);
        }
        DatabaseState::Older { schema } if !fix => {
            let message = format!("hub.db is of an earlier version (schema {schema})");
            checks.push(Check::new("database", Status::Warn, message).hint(
                "the next command that works with messages upgrades it, and keeps the old one beside it",
            ));
            checks.extend(repository(folder).await);
            return Ok(checks);
        }
        DatabaseState::Missing if !fix => {
            checks.push(
                Check::new("database", Status::Warn, "there is no hub.db")
                    .hint("the next command that works with messages makes it and reads the files back"),
            );
            checks.extend(repository(folder).await);
            return Ok(checks);
        }
        // Not every damage is met by whoever opens it.
        DatabaseState::Damaged { .. } => Hub::suspect(tree.root()),
        DatabaseState::Older { .. } | DatabaseState::Missing | DatabaseState::Sound => {}
    }
    let workspace = if fix {
        context.open().await?
    } else {
        Workspace::attach(folder, settings.workspace.clone(), |hub| settings.apply_to(hub)).await?
    };
    let done = match database {
        DatabaseState::Damaged { .. } | DatabaseState::Missing => {
            Some("hub.db was made anew; what could be read was taken over")
        }
        DatabaseState::Older { .. } => Some("hub.db was upgraded, and the old one is kept beside it"),
        DatabaseState::Sound => None,
    };
    checks.extend(done.map(|done| Check::new("database", Status::Fixed, done)));
    checks.extend(server(&workspace, fix)?);
    if fix {
        workspace.finish_deliveries().await?;
    }
    checks.extend(journal(&workspace, fix).await?);
    checks.extend(files(&workspace, fix).await?);
    checks.extend(channels(&settings, &workspace).await?);
    checks.extend(nats(&settings, &workspace).await?);
    checks.extend(swarm(context, &workspace).await?);
    checks.extend(links(&workspace).await?);
    if let Ok(places) = context.places() {
        let suites = context.quiet_suites(&settings).await?;
        checks.extend(servers(&settings, &places, &suites.problems()));
        suites.close().await;
    }
    checks.extend(clients(context));
    checks.extend(repository(folder).await);
    workspace.close().await;
    Ok(checks)
}

/// What a server left that was killed: clients would look for it where nobody listens.
fn server(workspace: &Workspace, fix: bool) -> Result<Option<Check>, Failure> {
    let folder = workspace.tree().root();
    let info = match ServerInfo::read(folder) {
        Ok(Some(info)) => info,
        Ok(None) => return Ok(None),
        Err(error) => {
            return Ok(Some(
                Check::new("server", Status::Warn, chain(&error))
                    .hint("the next `switchboard serve` writes it anew"),
            ));
        }
    };
    // Its number may be another process's by now; who serves holds a lock.
    if !info.is_stale() && workspace.hub().service_holder("serve")?.is_some() {
        return Ok(None);
    }
    let message = format!("server_info.json is of process {}, which serves no more", info.pid);
    if fix && info.remove(folder)? {
        return Ok(Some(Check::new("server", Status::Fixed, message)));
    }
    Ok(Some(
        Check::new("server", Status::Warn, message)
            .hint("`--fix` removes it, and so does the next `switchboard serve`"),
    ))
}

/// The swarms: nothing is said where no agent takes part in any.
async fn swarm(context: &Context, workspace: &Workspace) -> Result<Vec<Check>, Failure> {
    let Ok(swarms) = context.swarms(workspace).await else { return Ok(Vec::new()) };
    let check = |ailment: door_swarm::Ailment| {
        let status = if ailment.is_grave { Status::Fail } else { Status::Warn };
        Check::new("swarm", status, ailment.message).hint(ailment.hint)
    };
    let mut checks: Vec<Check> = swarms.ailments().await?.into_iter().map(check).collect();
    let root = workspace.tree().root().path().parent().and_then(|root| root.canonicalize().ok());
    for identity in swarms.identities() {
        let home = identity.home.canonicalize().unwrap_or_else(|_| identity.home.clone());
        // Whoever gets the repository gets the key.
        if root.as_ref().is_some_and(|root| home.starts_with(root)) {
            let message =
                format!("the key of '{}' is in the workspace, in {}", identity.agent, home.display());
            let hint = "move the folder out of it, and name it with SWARM_HOME";
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

/// The links that lead to a swarm or a hub of which nobody is known: nothing is said of the others.
async fn links(workspace: &Workspace) -> Result<Vec<Check>, Failure> {
    let directory = workspace.hub().directory().await?;
    let is_known = |realm: &Name| directory.of_realm(realm).next().is_some();
    let check = |(link, realm): (String, &Name)| {
        let message =
            format!("{link} leads to '{realm}', and nobody of a swarm or hub of that name is known");
        Check::new("links", Status::Warn, message).hint(
            "`switchboard swarm list` names your swarms; put it right in ~/.config/switchboard/config.json",
        )
    };
    Ok(directory.links().leads().filter(|(_, realm)| !is_known(realm)).map(check).collect())
}

/// What `install` wrote into the settings of clients: nothing is said where it still leads to a program.
fn clients(context: &Context) -> Vec<Check> {
    let check = |(client, user, file, program): (Client, bool, PathBuf, String)| {
        let word = client.word();
        let message = format!("{} starts {program}, which is not there", file.display());
        let user = if user { " --user" } else { "" };
        Check::new("clients", Status::Warn, message)
            .hint(format!("`switchboard install {word}{user}` writes where the program is now"))
    };
    install::gone(context).into_iter().map(check).collect()
}

/// The MCP servers of the workspace: nothing is said where there are none.
fn servers(settings: &config::Settings, places: &Places, problems: &[Problem]) -> Vec<Check> {
    let (found, trust) = (discover(&settings.suites, places), Trust::load(places));
    let problem = |problem: &Problem| {
        let file = problem.file.strip_prefix(&places.workspace).unwrap_or(&problem.file);
        format!("{}: {}", file.display(), problem.message)
    };
    let mut checks: Vec<Check> =
        found.problems.iter().map(|broken| Check::new("servers", Status::Fail, problem(broken))).collect();
    // Names that collide and rules that are none: the server is there, but not as it was meant.
    let odd = problems.iter().filter(|problem| !found.problems.contains(problem)).chain(&found.warnings);
    checks.extend(odd.map(|odd| Check::new("servers", Status::Warn, problem(odd))));
    for child in &found.children {
        if !trust.is_trusted(child).is_trusted() {
            checks.push(
                Check::new(
                    "servers",
                    Status::Warn,
                    format!("{} is not trusted and does not run", child.name),
                )
                .hint(format!("`switchboard suite trust {}` shows it and agrees to it", typed(&child.name))),
            );
        }
    }
    if checks.is_empty() && !found.children.is_empty() {
        let described = count(found.children.len(), "server");
        checks.push(Check::new("servers", Status::Ok, format!("{described}, all trusted")));
    }
    checks
}

/// The shared folder of the channels: nothing is said where there are none.
async fn channels(settings: &config::Settings, workspace: &Workspace) -> Result<Vec<Check>, Failure> {
    let config = channel_config(settings, workspace);
    let (root, watchers) = (config.root.clone(), config.watchers.clone());
    let channels = match Channels::open(config, workspace.hub().clone()).await {
        Ok(channels) => channels,
        Err(error @ ChannelError::Root { .. }) => {
            return Ok(vec![
                Check::new("channels", Status::Fail, chain(&error))
                    .hint("make the folder, mount it, or correct channels.root in your settings"),
            ]);
        }
        Err(error) => return Err(error.into()),
    };
    let mut checks = Vec::new();
    for (file, reason) in channels.problems().await? {
        checks.push(
            Check::new("channels", Status::Warn, format!("{file} was not taken in: {reason}"))
                .hint("mend it where it is, or take it out of the channel"),
        );
    }
    for altered in channels.altered().await? {
        checks.push(
            Check::new("channels", Status::Fail, altered.to_string())
                .hint(format!("`switchboard thread {}` shows what was accepted", altered.id())),
        );
    }
    for spellings in channels.twins().await? {
        let names: Vec<_> = spellings.iter().map(|name| format!("channels/{name}")).collect();
        checks.push(
            Check::new("channels", Status::Warn, format!("{} are one channel", names.join(" and "))).hint(
                "move the files of one into the other while nobody writes, and remove the empty folder",
            ),
        );
    }
    for watcher in &watchers {
        for missing in watcher.missing_files() {
            let problem = format!("the watcher of {} has no file {}", watcher.agent, missing.display());
            checks.push(
                Check::new("channels", Status::Warn, problem)
                    .hint("correct channels.watchers in your settings; its prompts go without it"),
            );
        }
    }
    let list = channels.list().await?;
    if checks.is_empty() && !list.is_empty() {
        let messages = list.iter().map(|channel| channel.messages + channel.archived).sum();
        let found = format!("{}, {}", count(list.len(), "channel"), count(messages, "message"));
        checks.push(Check::new("channels", Status::Ok, format!("{found}; files and journal agree")));
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
                .hint("it works, but posts of other machines are noticed every two seconds only"),
        );
    }
    Ok(checks)
}

async fn journal(workspace: &Workspace, fix: bool) -> Result<Vec<Check>, Failure> {
    let mut checks = Vec::new();
    let health = workspace.hub().health().await?;
    if health.complaints.is_empty() {
        let messages = usize::try_from(health.messages).unwrap_or(usize::MAX);
        checks.push(Check::new("database", Status::Ok, format!("sound, {}", count(messages, "message"))));
    }
    for complaint in &health.complaints {
        checks.push(Check::new("database", Status::Fail, complaint.clone()));
    }
    for row in &health.damaged {
        let name = row.native.as_ref().map_or_else(|| format!("#{}", row.seq), |native| native.id.clone());
        if fix && workspace.restore_damaged(row).await? {
            checks.push(Check::new(
                "message",
                Status::Fixed,
                format!("{name} was damaged and is restored from its file"),
            ));
        } else {
            checks.push(
                Check::new(
                    "message",
                    Status::Fail,
                    format!("{name} is damaged in the journal; its neighbours are not"),
                )
                .hint("`--fix` restores it where an intact mailbox or archive file is left"),
            );
        }
    }
    // A damaged row is told of by itself.
    if health.damaged.is_empty() {
        checks.extend(chained(workspace, health.messages).await?);
    }
    for (door, waiting) in &health.pending {
        let wait = if *waiting == 1 { "1 delivery waits" } else { &format!("{waiting} deliveries wait") };
        let check = Check::new("outbox", Status::Warn, format!("{wait} for the {door} door"));
        checks.push(match door {
            Door::Workspace => {
                check.hint("they are retried by the next `switchboard send` or `switchboard serve`")
            }
            _ => check.hint("they are worked off while `switchboard serve` runs"),
        });
    }
    Ok(checks)
}

/// The chain of hashes: nothing is said where it holds.
async fn chained(workspace: &Workspace, messages: u64) -> Result<Option<Check>, Failure> {
    if messages > AUDITED {
        let told = format!("{messages} entries are too many to verify here");
        return Ok(Some(Check::new("journal", Status::Ok, told).hint("`switchboard audit verify` does")));
    }
    let found = workspace.hub().audit(None).await?;
    Ok(found.first_bad.map(|bad| {
        let told = format!("entry {} is not what was written: {}", bad.seq, bad.fault);
        Check::new("journal", Status::Fail, told)
            .hint("`switchboard audit verify` and docs/audit.md say more")
    }))
}

async fn files(workspace: &Workspace, fix: bool) -> Result<Vec<Check>, Failure> {
    let found = inspect(workspace).await?;
    if fix {
        repair(workspace, &found).await?;
    }
    let left = if fix { inspect(workspace).await? } else { found.clone() };
    let mut checks: Vec<Check> = found
        .iter()
        .filter(|finding| !left.iter().any(|left| left.is_about_the_same(finding)))
        .map(|finding| Check { status: Status::Fixed, hint: None, ..describe(finding) })
        .collect();
    checks.extend(left.iter().map(describe));
    if checks.is_empty() {
        checks.push(Check::new(
            "files",
            Status::Ok,
            "mailboxes and journal agree; nobody else can write here",
        ));
    }
    Ok(checks)
}

fn describe(finding: &Finding) -> Check {
    use Status::{Fail, Warn};
    match finding {
        Finding::MissingFile { path } => {
            Check::new("files", Fail, format!("{path} is missing although the message waits"))
        }
        Finding::ChangedFile { path } => {
            Check::new("files", Fail, format!("{path} is not what was accepted"))
                .hint("`--fix` keeps what is there beside it and writes the message again")
        }
        Finding::NotTakenIn { path, reason } => {
            let reason = reason.as_deref().unwrap_or("it has not been looked at yet");
            Check::new("files", Warn, format!("{path} was not taken in: {reason}"))
        }
        Finding::Unusable { path, problem } => {
            Check::new("files", Fail, format!("{path} cannot be used: {problem}"))
                .hint("move what is there out of the way")
        }
        Finding::StaleTemp { path } => {
            Check::new("files", Warn, format!("{path} is a file that was never finished"))
        }
        Finding::Exposed { path, problem } => Check::new("permissions", Fail, format!("{path} {problem}"))
            .hint("`--fix` makes it private to its owner"),
        Finding::Readable { path, problem } => Check::new("permissions", Warn, format!("{path} {problem}"))
            .hint("`--fix` makes it private to its owner"),
        Finding::DamagedState { problem } => {
            Check::new("state", Fail, format!("state.json cannot be read: {problem}"))
                .hint("`--fix` moves it aside and writes a new one from what the hub knows")
        }
        Finding::StaleLock { path } => {
            Check::new("locks", Warn, format!("{path} is held by nobody any more"))
        }
        Finding::NetworkMount => Check::new("files", Warn, "the workspace lies on a network mount")
            .hint("it works, but changes made on other machines are noticed every few seconds only"),
    }
}

async fn repair(workspace: &Workspace, found: &[Finding]) -> Result<(), Failure> {
    workspace.verify().await?;
    workspace.tidy_up().await?;
    for finding in found {
        match finding {
            // A lock is let go by taking it: stale ones are taken over on the way.
            Finding::DamagedState { .. } | Finding::StaleLock { .. } => workspace.rewrite_state().await?,
            Finding::Exposed { path, .. } | Finding::Readable { path, .. } => make_private(workspace, path),
            _ => {}
        }
    }
    Ok(())
}

fn make_private(workspace: &Workspace, path: &str) {
    let root = workspace.tree().root().path();
    let path = if path == ".switchboard" { root.to_owned() } else { root.join(path) };
    // A link would have the permissions of its target changed.
    let Ok(found) = std::fs::symlink_metadata(&path) else { return };
    let mode = if found.is_dir() { 0o700 } else { 0o600 };
    if !found.file_type().is_symlink()
        && let Err(error) = std::fs::set_permissions(&path, PermissionsExt::from_mode(mode))
    {
        tracing::warn!(path = %path.display(), error = %error, "the permissions could not be changed");
    }
}

/// Whether the link with other hubs works, where there is to be one. Asked of the server and not of the file that the
/// link writes: that one may be of yesterday.
async fn nats(settings: &config::Settings, workspace: &Workspace) -> Result<Vec<Check>, Failure> {
    let Some(config) = &settings.nats else { return Ok(Vec::new()) };
    let servers = config.shown();
    let mut checks = vec![match door_nats::probe(config).await {
        Ok(server) if server.jetstream => {
            Check::new("nats", Status::Ok, format!("{servers} answers, version {}", server.version))
        }
        Ok(server) => Check::new(
            "nats",
            Status::Fail,
            format!("{servers} answers, version {}, but keeps no messages", server.version),
        )
        .hint("start nats-server with --jetstream, or with a section `jetstream` in its configuration"),
        Err(error) => {
            Check::new("nats", Status::Warn, format!("{}; what is for other hubs waits", chain(&error)))
                .hint("everything within this hub goes on; nothing is lost, and it is sent when NATS is back")
        }
    }];
    let status = door_nats::Status::read(workspace.hub()).await?;
    if workspace.hub().service_holder("serve")?.is_none() {
        checks.push(
            Check::new("nats", Status::Warn, "the link is down, because nobody serves this workspace")
                .hint("`switchboard serve` keeps it up"),
        );
    } else if let Some(status) = status {
        let hubs = status.hubs.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        checks.push(match status.state {
            LinkState::Linked => {
                let known = if hubs.is_empty() {
                    "no other hub was heard yet".to_owned()
                } else {
                    format!("heard of {hubs}")
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

/// Mail and secrets in a repository are read by everyone who clones it.
async fn repository(folder: &Path) -> Option<Check> {
    let mut git = Spawn::new("git")
        .args(["ls-files", "--", ".switchboard"])
        .cwd(folder)
        .stdout(std::process::Stdio::piped())
        .spawn()
        .ok()?;
    let mut listed = String::new();
    tokio::io::AsyncReadExt::read_to_string(&mut git.take_stdout()?, &mut listed).await.ok()?;
    if !git.wait().await.ok()?.success() {
        return None;
    }
    let meant = |path: &&str| {
        ![".gitignore", "mcps/", "workflows/"]
            .iter()
            .any(|fine| path.starts_with(&format!(".switchboard/{fine}")))
    };
    let committed: Vec<&str> = listed.lines().filter(meant).collect();
    let first = committed.first()?;
    Some(
        Check::new("repository", Status::Warn, format!("git has {} of .switchboard/, for example {first}", count(committed.len(), "file")))
            .hint("`git rm -r --cached .switchboard && git add .switchboard/.gitignore` takes them out and keeps them here"),
    )
}
