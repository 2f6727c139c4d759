//! Read-only checks of the workspace's files, reported by `switchboard doctor`.

use std::collections::{BTreeMap, BTreeSet};

use switchboard_core::{AgentId, Door, Name, error_chain};
use switchboard_hub::{Extent, NEWEST};
use switchboard_sys::files::{self, Dir, FileError};
use switchboard_sys::platform;

use crate::delivery::{Expected, is_conflict_name};
use crate::error::WorkspaceError;
use crate::ids;
use crate::tree::{Section, Tree};
use crate::workspace::{Workspace, blocking};

/// A problem that a check found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// A waiting message has no file in its mailbox.
    MissingFile {
        /// Expected path of the file, relative to `.switchboard/`.
        path: String,
    },
    /// The file of a waiting message differs from the message in the journal.
    ChangedFile {
        /// The path.
        path: String,
    },
    /// A file was not ingested, or a folder belongs to no agent.
    NotIngested {
        /// The path.
        path: String,
        /// The reason, if known.
        reason: Option<String>,
    },
    /// A path that should be a folder is something else.
    Unusable {
        /// The path.
        path: String,
        /// Description of the object at the path.
        problem: String,
    },
    /// A temporary file was left by a killed program.
    StaleTemp {
        /// The path.
        path: String,
    },
    /// A Switchboard file is exposed to other users.
    ///
    /// Other users can write it, or read it although it is a secret, or another user owns it.
    Exposed {
        /// The path.
        path: String,
        /// The owner or mode that is wrong.
        problem: String,
    },
    /// Other users can read a file or folder of Switchboard.
    Readable {
        /// The path.
        path: String,
        /// The mode that is wrong.
        problem: String,
    },
    /// `state.json` cannot be read.
    DamagedState {
        /// The parser's error.
        problem: String,
    },
    /// `state.json` has a stale lock, left by a process that no longer runs.
    StaleLock {
        /// The path.
        path: String,
    },
    /// The folder is on a network mount.
    NetworkMount,
}

impl Finding {
    /// Returns true if both findings describe the same issue.
    ///
    /// Two [`Finding::NotIngested`] findings match if their paths are equal, whatever the reasons; all others must be
    /// equal.
    pub fn is_same_issue(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::NotIngested { path, .. }, Self::NotIngested { path: other, .. }) => path == other,
            _ => self == other,
        }
    }
}

/// Age in seconds from which a lock counts as stale: the default of proper-lockfile.
const STALE_LOCK_SECONDS: i64 = 10;

/// Checks all files of the workspace. Changes nothing.
pub async fn inspect(workspace: &Workspace) -> Result<Vec<Finding>, WorkspaceError> {
    let mut findings = mailbox_files(workspace, &|_| {}).await?;
    findings.extend(surroundings(workspace).await?);
    Ok(findings)
}

/// Checks the files of the whole workspace, or of the newest messages only. Changes nothing.
///
/// Only the newest messages are checked if `extent` does not cover the whole journal. Otherwise, `progress` receives
/// the number of mailboxes and messages examined so far.
pub async fn inspect_extent(
    workspace: &Workspace,
    extent: Extent,
    progress: &(dyn Fn(usize) + Sync),
) -> Result<Vec<Finding>, WorkspaceError> {
    let mut findings = if workspace.hub().database().is_covered_by(extent).await? {
        mailbox_files(workspace, progress).await?
    } else {
        newest_files(workspace).await?
    };
    findings.extend(surroundings(workspace).await?);
    Ok(findings)
}

/// Checks the files of the newest messages and lists the known rejected files.
///
/// Does not list the mailboxes, so the cost does not depend on their size.
async fn newest_files(workspace: &Workspace) -> Result<Vec<Finding>, WorkspaceError> {
    let mut findings = Vec::new();
    let (hub, limit) = (workspace.hub(), workspace.config().file_limit);
    let directory = hub.directory().await?;
    for stored in hub.journal().newest(NEWEST).await?.items {
        let Some((stored, receipt)) = hub.journal().receipt(stored.message.id).await.ok().flatten() else {
            continue;
        };
        let reply_to = workspace.reply_name(&stored.message).await?;
        for delivery in receipt.deliveries {
            let is_file = delivery.route.door() == Door::Workspace && delivery.state.is_waiting();
            if !is_file || delivery.agent.realm.is_some() {
                continue;
            }
            let agent = &delivery.agent;
            let expected = Expected::new(&stored.message, agent, reply_to.clone(), directory.clone());
            let (tree, owner) = (workspace.tree().clone(), agent.name.clone());
            let name = ids::file_name(&expected.file.id);
            let path = format!("inbox/{owner}/{name}");
            let found = blocking(move || {
                let Ok(Some(mailbox)) = tree.own_folder(Section::Inbox, owner.as_str()) else {
                    return Ok(None);
                };
                let found = mailbox.read(&name, limit);
                Ok(match found {
                    Ok(None) => None,
                    found => {
                        Some(found.is_ok_and(|found| found.is_some_and(|it| expected.matches(&it.bytes))))
                    }
                })
            });
            findings.extend(match found.await? {
                None => Some(Finding::MissingFile { path }),
                Some(false) => Some(Finding::ChangedFile { path }),
                Some(true) => None,
            });
        }
    }
    let problems = workspace.rejected_files().await?.into_iter();
    findings.extend(problems.map(|it| Finding::NotIngested { path: it.path, reason: Some(it.reason) }));
    Ok(findings)
}

/// Compares every mailbox folder with the journal.
async fn mailbox_files(
    workspace: &Workspace,
    progress: &(dyn Fn(usize) + Sync),
) -> Result<Vec<Finding>, WorkspaceError> {
    let mut findings = Vec::new();
    let mut examined = 0;
    let problems = workspace.rejected_files().await?;
    let (directory, limit) = (workspace.hub().directory().await?, workspace.config().file_limit);
    for (name, agent) in mailboxes(workspace, &mut findings).await? {
        let (tree, folder) = (workspace.tree().clone(), format!("inbox/{name}"));
        // A folder under a former name or another spelling should contain no files.
        let is_own = agent.name.as_str() == name;
        let dir = match blocking(move || Ok(tree.own_folder(Section::Inbox, &name)?)).await {
            Ok(dir) => dir,
            // The agent's mailbox is at this path, so no message can be delivered to the agent.
            Err(error) if is_own && directory.agent(&agent).is_some() => {
                findings.push(Finding::Unusable { path: folder, problem: error.to_string() });
                continue;
            }
            Err(error) => {
                findings.push(Finding::NotIngested { path: folder, reason: Some(error.to_string()) });
                continue;
            }
        };
        let waiting = if is_own {
            workspace.hub().mailboxes().expected_files(agent.clone()).await?
        } else {
            Vec::new()
        };
        let names: BTreeSet<String> = match dir.clone() {
            Some(dir) => blocking(move || Ok(dir.names()?)).await?.into_iter().collect(),
            None => BTreeSet::new(),
        };
        let expected: BTreeSet<String> = waiting.iter().map(ids::file_of).collect();
        for missing in expected.difference(&names) {
            findings.push(Finding::MissingFile { path: format!("{folder}/{missing}") });
        }
        for name in names.difference(&expected) {
            let path = format!("{folder}/{name}");
            if files::is_temp(name) {
                findings.push(Finding::StaleTemp { path });
            } else if ids::of_file(name).is_some() || is_conflict_name(name) {
                let reason = problems.iter().find(|problem| problem.path == path).map(|p| p.reason.clone());
                findings.push(Finding::NotIngested { path, reason });
            }
        }
        let Some(dir) = dir else { continue };
        for waiting in waiting.iter().filter(|waiting| names.contains(&ids::file_of(waiting))) {
            examined += 1;
            progress(examined);
            let Some(stored) = workspace.hub().journal().message(waiting.id).await.ok().flatten() else {
                continue;
            };
            let reply_to = workspace.reply_name(&stored.message).await?;
            let expected = Expected::new(&stored.message, &agent, reply_to, directory.clone());
            let (dir, name) = (dir.clone(), ids::file_of(waiting));
            let path = format!("{folder}/{name}");
            let same = blocking(move || {
                let found = dir.read(&name, limit);
                Ok(found.is_ok_and(|found| found.is_none_or(|found| expected.matches(&found.bytes))))
            });
            if !same.await? {
                findings.push(Finding::ChangedFile { path });
            }
        }
    }
    Ok(findings)
}

/// Checks the folders other than mailboxes, the permissions, `state.json` and the mount.
async fn surroundings(workspace: &Workspace) -> Result<Vec<Finding>, WorkspaceError> {
    let mut findings = Vec::new();
    let tree = workspace.tree().clone();
    findings.extend(blocking(move || Ok(unusable(&tree)?)).await?);
    let root = workspace.tree().root().clone();
    let now = workspace.hub().now();
    findings.extend(blocking(move || Ok(check_root(&root, now.as_second()))).await?);
    let state = workspace.state().clone();
    match blocking(move || state.invalid_names()).await {
        Ok(invalid_names) => findings.extend(invalid_names.into_iter().map(|(name, error)| {
            let path = format!("'{}' in state.json", name.escape_debug());
            Finding::NotIngested { path, reason: Some(error.to_string()) }
        })),
        Err(WorkspaceError::DamagedState { problem }) => findings.push(Finding::DamagedState { problem }),
        Err(other) => findings.push(Finding::DamagedState { problem: other.to_string() }),
    }
    if platform::is_network_filesystem(workspace.tree().root().path()) {
        findings.push(Finding::NetworkMount);
    }
    Ok(findings)
}

/// Lists the mailbox folders and their owners.
///
/// A folder that belongs to no agent becomes a finding.
async fn mailboxes(
    workspace: &Workspace,
    findings: &mut Vec<Finding>,
) -> Result<BTreeMap<String, AgentId>, WorkspaceError> {
    let directory = workspace.hub().directory().await?;
    let tree = workspace.tree().clone();
    let folders = blocking(move || Ok(tree.folders(Section::Inbox)?)).await?;
    let known = directory.agents().map(|agent| agent.id.clone()).filter(|id| id.realm.is_none());
    let mut mailboxes: BTreeMap<String, AgentId> =
        known.chain([AgentId::human()]).map(|agent| (agent.name.to_string(), agent)).collect();
    for folder in folders {
        match Name::parse(&folder) {
            Ok(name) => {
                let owner = workspace.owner_of(&directory, name).await?;
                mailboxes.insert(folder, owner);
            }
            Err(error) => {
                let (path, reason) = (format!("inbox/{folder}"), Some(error.to_string()));
                findings.push(Finding::NotIngested { path, reason });
            }
        }
    }
    Ok(mailboxes)
}

/// Finds archive and outbox paths that should be folders but are something else.
fn unusable(tree: &Tree) -> Result<Vec<Finding>, FileError> {
    let mut findings = Vec::new();
    for section in [Section::Archive, Section::Outbox] {
        for folder in tree.folders(section)? {
            // Skip other files in these folders; they do no harm.
            if Name::parse(&folder).is_err() {
                continue;
            }
            if let Err(error) = tree.own_folder(section, &folder) {
                let path = format!("{}/{folder}", section.as_str());
                findings.push(Finding::Unusable { path, problem: error_chain(&error) });
            }
        }
    }
    Ok(findings)
}

fn check_root(root: &Dir, now: i64) -> Vec<Finding> {
    use std::os::unix::fs::MetadataExt;
    let mut findings = Vec::new();
    let own = std::fs::symlink_metadata(root.path()).map(|found| found.uid());
    let secret = ["", "hub.db", "hub.db-wal", "state.json", "auth_token", "inbox", "archive", "outbox"];
    // If others cannot enter the folder, they cannot read its files either.
    let enterable = std::fs::symlink_metadata(root.path()).is_ok_and(|found| found.mode() & 0o011 != 0);
    for name in secret {
        let path = if name.is_empty() { root.path().to_owned() } else { root.path().join(name) };
        let Ok(found) = std::fs::symlink_metadata(&path) else { continue };
        let shown = if name.is_empty() { ".switchboard".to_owned() } else { name.to_owned() };
        if own.as_ref().is_ok_and(|own| *own != found.uid()) {
            let problem = format!("belongs to user {}", found.uid());
            findings.push(Finding::Exposed { path: shown, problem });
        } else if found.mode() & 0o022 != 0 || (name == "auth_token" && found.mode() & 0o077 != 0) {
            let problem = format!("has mode {:o}", found.mode() & 0o777);
            findings.push(Finding::Exposed { path: shown, problem });
        } else if enterable && !name.is_empty() && found.mode() & 0o077 != 0 {
            let problem = format!("has mode {:o}: other users can read it", found.mode() & 0o777);
            findings.push(Finding::Readable { path: shown, problem });
        }
    }
    if let Ok(lock) = std::fs::symlink_metadata(root.path().join("state.json.lock"))
        && now - lock.mtime() > STALE_LOCK_SECONDS
    {
        findings.push(Finding::StaleLock { path: "state.json.lock".into() });
    }
    findings
}

#[cfg(test)]
#[path = "inspect_tests.rs"]
mod tests;
