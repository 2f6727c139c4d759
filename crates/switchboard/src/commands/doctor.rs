//! The verb `switchboard doctor`.

mod disk;
mod doors;
mod files;
mod journal;

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use clap::Args;
use door_suites::{Issue, SuitePaths, TrustStore, discover};
use door_workspace::{Tree, Workspace};
use serde::Serialize;
use switchboard_hub::{Database, DatabaseState, Extent, ForeignDatabase, HubKey};

use crate::cli::help::examples;
use crate::commands::hook::Client;
use crate::commands::inbox::count;
use crate::commands::install;
use crate::commands::suite::typed;
use crate::config;
use crate::context::Context;
use crate::failure::{Exit, Failure};
use crate::ownership;

/// Check files, database, permissions and locks, and repair them with --fix.
///
/// Without options it checks the newest 1,000 messages and their files, which takes about as long for any number of
/// messages. `--full` and `--fix` compare every message with its file and verify the whole journal.
#[derive(Debug, Args)]
#[command(after_long_help = examples![
    "switchboard doctor",
    "switchboard doctor --fix",
])]
pub(crate) struct Doctor {
    /// Repair what can be repaired; no message is removed, whatever the retention settings say
    #[arg(long)]
    fix: bool,

    /// Compare every file with every message, and verify the whole journal
    #[arg(long)]
    full: bool,
}

/// Result of one check.
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
    // This check comes first: a server that was stopped within a transaction keeps the database locked.
    if let Some(check) = doors::silent_server(&folder).await {
        print(&context, &check);
    }
    let progress = Progress { bar: context.printer.working("looking") };
    let extent = if args.full || args.fix { Extent::Everything } else { Extent::Newest };
    let checks = examine(&folder, args.fix, extent, &context, &progress).await;
    progress.finish();
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

/// Spinner on stderr that names the current check, if a person is watching.
struct Progress {
    bar: Option<indicatif::ProgressBar>,
}

impl Progress {
    fn step(&self, what: impl Into<Cow<'static, str>>) {
        if let Some(bar) = &self.bar {
            bar.set_message(what);
        }
    }

    fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
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
    // A file name may contain a line break, and the text after it must not look like a line of the report.
    let message = crate::show::plain(&check.message).replace('\n', "\n    ");
    context.printer.line(format_args!("{mark} {}: {message}", check.subject));
    if let Some(hint) = &check.hint {
        context.printer.line(format_args!("      hint: {hint}"));
    }
}

async fn examine(
    folder: &Path,
    fix: bool,
    extent: Extent,
    context: &Context,
    progress: &Progress,
) -> Result<Vec<Check>, Failure> {
    let tree = Tree::open(folder)?;
    let mut checks = disk::check_disk(&tree);
    let is_writable = checks.is_empty();
    let settings = config::load(folder)?;
    checks.extend(settings.ignored.iter().map(|ignored| {
        Check::new("settings", Status::Warn, ignored.clone())
            .hint("docs/configuration.md lists what a workspace's file may set")
    }));
    let key = ownership::hub_key(folder)?;
    progress.step("checking the database");
    let database = Database::check(tree.root().clone(), key.clone(), extent).await?;
    checks.extend(quarantined(&tree, key.clone()).await?);
    match &database {
        DatabaseState::Foreign if !fix => {
            checks.push(
                Check::new("database", Status::Fail, "hub.db came from elsewhere: it is not bound to you and this machine")
                    .hint("`switchboard adopt` shows whose messages it holds; `switchboard doctor --fix` moves it aside"),
            );
            checks.extend(repository(folder).await);
            return Ok(checks);
        }
        DatabaseState::PlantedFile { name } if !fix => {
            let message =
                format!("{name} is not the file that belongs to hub.db: it may have come with a repository");
            checks.push(Check::new("database", Status::Fail, message).hint(
                "the next command moves it aside and continues with hub.db; remove .switchboard/ from the repository",
            ));
            checks.extend(repository(folder).await);
            return Ok(checks);
        }
        DatabaseState::Damaged { problem } if !fix => {
            checks.push(
                Check::new("database", Status::Fail, format!("hub.db is damaged: {problem}"))
                    .hint("`switchboard doctor --fix` moves it aside and rebuilds it from its readable part and the files"),
            );
            checks.extend(repository(folder).await);
            return Ok(checks);
        }
        DatabaseState::Older { schema } if !fix => {
            let message = format!("hub.db is of an earlier version (schema {schema})");
            checks
                .push(Check::new("database", Status::Warn, message).hint(
                    "the next command that needs messages upgrades it and keeps a copy of the old one",
                ));
            checks.extend(repository(folder).await);
            return Ok(checks);
        }
        DatabaseState::Missing if !fix => {
            checks.push(
                Check::new("database", Status::Warn, "there is no hub.db")
                    .hint("the next command that needs messages creates it from the files"),
            );
            checks.extend(repository(folder).await);
            return Ok(checks);
        }
        // Opening the database does not detect every kind of damage.
        DatabaseState::Damaged { .. } => Database::mark_suspect(tree.root()),
        DatabaseState::Older { .. }
        | DatabaseState::Missing
        | DatabaseState::Sound
        | DatabaseState::PlantedFile { .. }
        | DatabaseState::Foreign => {}
    }
    let workspace = if fix {
        context.open().await?
    } else {
        Workspace::attach(folder, settings.workspace.clone(), |hub| settings.apply_to(hub, key)).await?
    };
    let done = match database {
        DatabaseState::Damaged { .. } | DatabaseState::Missing => {
            Some("hub.db was rebuilt; its readable part was kept")
        }
        DatabaseState::Older { .. } => Some("hub.db was upgraded; a copy of the old one is beside it"),
        DatabaseState::Foreign => {
            Some("hub.db came from elsewhere and was moved aside; `switchboard adopt` brings it back")
        }
        DatabaseState::PlantedFile { .. } => Some(
            "a file beside hub.db did not belong to it and was moved aside; its messages are read from their files",
        ),
        DatabaseState::Sound => None,
    };
    checks.extend(done.map(|done| Check::new("database", Status::Fixed, done)));
    checks.extend(doors::server(&workspace, fix)?);
    // Lost deliveries are restored first, so that they are then delivered with all others.
    progress.step("searching for lost deliveries");
    let deliveries = journal::deliveries(&workspace, fix, extent).await?;
    if fix {
        workspace.drain_deliveries().await?;
    }
    let waiting = disk::waiting(&workspace, is_writable).await?;
    let is_writable = is_writable && waiting.is_none();
    checks.extend(waiting);
    progress.step("comparing the rows of the journal with their checksums");
    checks.extend(journal::check_rows(&workspace, fix, extent).await?);
    checks.extend(deliveries);
    checks.extend(files::check_files(&workspace, fix, extent, is_writable, progress).await?);
    progress.step("checking the other doors");
    checks.extend(doors::channels(&settings, &workspace, extent).await?);
    checks.extend(doors::nats(&settings, &workspace).await?);
    checks.extend(doors::swarm(context, &workspace).await?);
    checks.extend(doors::links(&workspace).await?);
    if let Ok(places) = context.suite_folders() {
        let suites = context.quiet_suites(&settings).await?;
        checks.extend(servers(&settings, &places, &suites.issues()));
        suites.close().await;
    }
    checks.extend(clients(context));
    checks.extend(repository(folder).await);
    workspace.close().await;
    Ok(checks)
}

/// Reports quarantined databases, and side files from another machine. Returns no check if there are none.
async fn quarantined(tree: &Tree, key: Option<HubKey>) -> Result<Vec<Check>, Failure> {
    let Some(key) = key else { return Ok(Vec::new()) };
    let names = ForeignDatabase::list(tree.root().clone(), key).await?;
    let planted = Database::planted_side_files(tree.root().clone()).await?;
    let check = |name: &String, hint: String| {
        Check::new("database", Status::Warn, format!("{name} came from elsewhere and is not used")).hint(hint)
    };
    let databases = names.iter().filter(|name| *name != "hub.db").map(|name| {
        check(
            name,
            format!("`switchboard adopt {name}` shows whose messages it holds; remove it if no messages of yours are in it"),
        )
    });
    let planted = planted.iter().map(|name| {
        check(name, "delete it; remove .switchboard/ from the repository if it came with one".to_owned())
    });
    Ok(databases.chain(planted).collect())
}

/// Reports entries that `install` wrote into clients' settings and whose program no longer exists.
fn clients(context: &Context) -> Vec<Check> {
    let check = |(client, user, file, program): (Client, bool, PathBuf, String)| {
        let word = client.cli_name();
        let message = format!("{} starts {program}, which does not exist", file.display());
        let user = if user { " --user" } else { "" };
        Check::new("clients", Status::Warn, message)
            .hint(format!("`switchboard install {word}{user}` writes the program's current path"))
    };
    install::find_missing_programs(context).into_iter().map(check).collect()
}

/// Checks the MCP servers of the workspace. Returns no check if there are none.
fn servers(settings: &config::Settings, places: &SuitePaths, problems: &[Issue]) -> Vec<Check> {
    let (found, trust) = (discover(&settings.suites, places), TrustStore::load(places));
    let problem = |problem: &Issue| {
        let file = problem.file.strip_prefix(&places.workspace).unwrap_or(&problem.file);
        format!("{}: {}", file.display(), problem.message)
    };
    let mut checks: Vec<Check> =
        found.issues.iter().map(|broken| Check::new("servers", Status::Fail, problem(broken))).collect();
    // Colliding names and invalid rules are only warnings: the server exists, but not as configured.
    let odd = problems.iter().filter(|problem| !found.issues.contains(problem)).chain(&found.warnings);
    checks.extend(odd.map(|odd| Check::new("servers", Status::Warn, problem(odd))));
    for child in &found.children {
        if let Some(reason) = &child.unready {
            let hint = "set it where Switchboard is started, or in its entry in the client's settings";
            let message = format!("{} cannot be started: {reason}", child.name);
            checks.push(Check::new("servers", Status::Warn, message).hint(hint));
        }
        if !trust.state(child).is_trusted() {
            checks.push(
                Check::new(
                    "servers",
                    Status::Warn,
                    format!("{} is not trusted and does not run", child.name),
                )
                .hint(format!(
                    "`switchboard suite trust {}` shows it and then trusts it",
                    typed(&child.name)
                )),
            );
        }
    }
    if checks.is_empty() && !found.children.is_empty() {
        let described = count(found.children.len(), "server");
        checks.push(Check::new("servers", Status::Ok, format!("{described}, all trusted")));
    }
    checks
}

/// Warns if Git tracks files of `.switchboard/`, because every clone would contain their messages and secrets.
async fn repository(folder: &Path) -> Option<Check> {
    let mut git = switchboard_sys::git::command(folder)
        .args(["ls-files", "--", ".switchboard"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .ok()?;
    let mut listed = String::new();
    tokio::io::AsyncReadExt::read_to_string(&mut git.stdout_reader()?, &mut listed).await.ok()?;
    if !git.wait().await.ok()?.success() {
        return None;
    }
    let is_unexpected = |path: &&str| {
        ![".gitignore", "mcps/", "workflows/"]
            .iter()
            .any(|fine| path.starts_with(&format!(".switchboard/{fine}")))
    };
    let committed: Vec<&str> = listed.lines().filter(is_unexpected).collect();
    let first = committed.first()?;
    Some(
        Check::new("repository", Status::Warn, format!("git has {} of .switchboard/, for example {first}", count(committed.len(), "file")))
            .hint("`git rm -r --cached .switchboard && git add .switchboard/.gitignore` removes them from git and keeps the files"),
    )
}
