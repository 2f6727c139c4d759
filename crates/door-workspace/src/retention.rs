//! Retention: removes completed files and journal entries that are older than the settings allow.
//!
//! Once a day, a run reads the journal in bounded rounds. `serve` and sessions execute a round each minute; a plain
//! command executes a small round at its end, unless a round took place within the last minute. A lease ensures that
//! only one process does so. Files and entries of waiting messages are retained. Old files that belong to no message in
//! the journal are removed by the daily comparison of `serve` and sessions: see `housekeeping`.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;

use jiff::{SignedDuration, Timestamp};
use switchboard_core::{Door, Name};
use switchboard_hub::{NotesTransaction, RetentionCandidate};
use switchboard_sys::files::Dir;

use crate::error::WorkspaceError;
use crate::ids;
use crate::receipts;
use crate::tree::{Section, Tree};
use crate::workspace::{Workspace, blocking};

/// Notes topic: the progress of retention runs.
///
/// The keys are `seq` (position in the journal), `began` (start of the run) and `round` (time of the last round).
const RETENTION: &str = "retention";

/// Maximum number of messages per round of a long-running process.
///
/// A round takes some 20 ms, and ten times as long if all of the messages are removed.
const ROUND: usize = 2000;

/// Maximum number of messages per round of a plain command, which takes a few milliseconds.
const SMALL_ROUND: usize = 200;

/// Interval between the starts of two runs; shorter if a retention time is shorter.
const PASS_EVERY: SignedDuration = SignedDuration::from_hours(24);

/// Minimum interval between rounds by plain commands.
const ROUND_EVERY: SignedDuration = SignedDuration::from_mins(1);

/// Cutoff times: files and entries that are older are removed.
#[derive(Debug, Clone, Copy)]
struct Limits {
    archive: Option<Timestamp>,
    receipts: Option<Timestamp>,
    journal: Option<Timestamp>,
}

impl Limits {
    /// Returns the latest cutoff.
    ///
    /// A message accepted after this time is not too old for any setting.
    fn latest(&self) -> Option<Timestamp> {
        [self.archive, self.receipts, self.journal].into_iter().flatten().max()
    }
}

impl Workspace {
    /// Executes a small retention round if one is due and no other process runs housekeeping.
    pub(crate) async fn retention_after_command(&self) {
        if let Err(error) = self.small_round().await {
            // Ignore the error; the next command retries.
            tracing::debug!(%error, "nothing old was removed");
        }
    }

    async fn small_round(&self) -> Result<(), WorkspaceError> {
        if !self.hub().has_changed_mail() || !self.has_old_entries().await? || !self.is_run_due().await? {
            return Ok(());
        }
        let last = self.retention_time("round").await?;
        if last.is_some_and(|last| self.hub().now().duration_since(last).abs() < ROUND_EVERY) {
            return Ok(());
        }
        let Some(_lease) = self.housekeeping_lease().await? else { return Ok(()) };
        self.round(SMALL_ROUND).await
    }

    /// Returns true if the first message in the journal is older than the latest cutoff.
    async fn has_old_entries(&self) -> Result<bool, WorkspaceError> {
        let Some(latest) = self.limits().latest() else { return Ok(false) };
        Ok(self
            .hub()
            .journal()
            .retention_candidates(0, 1)
            .await?
            .first()
            .is_some_and(|first| first.accepted_at < latest))
    }

    fn limits(&self) -> Limits {
        let (now, keep) = (self.hub().now(), self.config().retention);
        let before = |keep: Option<SignedDuration>| keep.and_then(|keep| now.checked_sub(keep).ok());
        Limits {
            archive: before(keep.archive),
            receipts: before(keep.receipts),
            journal: before(keep.journal),
        }
    }

    /// Executes a retention round if one is due.
    ///
    /// Also returns free pages of the database to the file system.
    pub(crate) async fn retention_round(&self) -> Result<(), WorkspaceError> {
        if self.is_run_due().await? {
            self.round(ROUND).await?;
        }
        self.hub().database().shrink().await?;
        Ok(())
    }

    /// Returns true if a run is in progress or due.
    ///
    /// A run is due if the last run started at least one interval ago.
    async fn is_run_due(&self) -> Result<bool, WorkspaceError> {
        if self.retention_seq().await? > 0 {
            return Ok(true);
        }
        let keep = self.config().retention;
        let shortest = [keep.archive, keep.receipts, keep.journal].into_iter().flatten().min();
        let Some(every) = shortest.map(|shortest| shortest.min(PASS_EVERY)) else { return Ok(false) };
        let began = self.retention_time("began").await?;
        Ok(began.is_none_or(|began| self.hub().now().duration_since(began).abs() >= every))
    }

    async fn round(&self, most: usize) -> Result<(), WorkspaceError> {
        let (now, limits) = (self.hub().now(), self.limits());
        let after = self.retention_seq().await?;
        let Some(latest) = limits.latest() else { return Ok(()) };
        let mut page = self.hub().journal().retention_candidates(after, most).await?;
        let is_full = page.len() == most;
        let last = page.last().map_or(after, |aged| aged.seq);
        page.retain(|aged| aged.accepted_at < latest);
        // The journal is in order of acceptance, so all messages after the first one that is too young are too young as
        // well.
        let is_over = !is_full || page.last().is_none_or(|aged| aged.seq < last);
        let tree = self.tree().clone();
        let (files, expired) = blocking(move || remove_old(&tree, &page, limits)).await?;
        let entries =
            if expired.is_empty() { 0 } else { self.hub().journal().remove_entries(expired).await? };
        if files + entries > 0 {
            tracing::info!(files, entries, "removed what was older than the retention settings allow");
            self.hub().database().shrink().await?;
        }
        let next = if is_over { 0 } else { last };
        let noting = move |notes: &mut NotesTransaction<'_, '_>| {
            if after == 0 {
                notes.put(RETENTION, "began", Some(&now.to_string()))?;
            }
            notes.put(RETENTION, "round", Some(&now.to_string()))?;
            notes.put(RETENTION, "seq", Some(&next.to_string()))
        };
        Ok(self.hub().notes(Door::Workspace).edit(noting).await?)
    }

    async fn retention_seq(&self) -> Result<i64, WorkspaceError> {
        let noted = self.hub().notes(Door::Workspace).get(RETENTION, "seq").await?;
        Ok(noted.and_then(|seq| seq.parse().ok()).unwrap_or(0))
    }

    async fn retention_time(&self, key: &str) -> Result<Option<Timestamp>, WorkspaceError> {
        let noted = self.hub().notes(Door::Workspace).get(RETENTION, key).await?;
        Ok(noted.and_then(|at| at.parse().ok()))
    }
}

/// Removes files that are too old.
///
/// Returns the number of removed files, and the journal entries to remove.
fn remove_old(
    tree: &Tree,
    page: &[RetentionCandidate],
    limits: Limits,
) -> Result<(usize, Vec<i64>), WorkspaceError> {
    let mut folders = Folders { tree, open: HashMap::new() };
    let (mut removed, mut expired) = (0, Vec::new());
    for aged in page {
        let native = ids::native_id_of_waiting(&aged.message);
        let file = ids::file_name(&native);
        for agent in &aged.done {
            for name in [file.clone(), format!("{file}.superseded.meta")] {
                removed += folders.remove(Section::Archive, &agent.name, &name, limits.archive)?;
            }
        }
        if aged.is_done && aged.from.realm.is_none() {
            for name in receipts::all_names(&native) {
                removed += folders.remove(Section::Outbox, &aged.from.name, &name, limits.receipts)?;
            }
        }
        let is_old = limits.journal.is_some_and(|before| aged.accepted_at < before);
        if is_old && aged.is_done {
            expired.push(aged.seq);
        }
    }
    Ok((removed, expired))
}

/// Cache of agents' folders, so that each is opened once per round.
struct Folders<'t> {
    tree: &'t Tree,
    open: HashMap<(Section, Name), Option<Dir>>,
}

impl Folders<'_> {
    /// Removes a file if it is older than the cutoff.
    ///
    /// Returns the number of removed files, which is 0 or 1.
    fn remove(
        &mut self,
        section: Section,
        agent: &Name,
        name: &str,
        before: Option<Timestamp>,
    ) -> Result<usize, WorkspaceError> {
        let Some(before) = before else { return Ok(0) };
        let tree = self.tree;
        // An error in one folder must not stop the cleanup of the others; `doctor` reports it.
        let open = || tree.folder(section, agent.as_str()).unwrap_or(None);
        let Some(folder) = self.open.entry((section, agent.clone())).or_insert_with(open) else {
            return Ok(0);
        };
        Ok(usize::from(is_older(folder, name, before) && folder.remove(name)?))
    }
}

/// Returns true if a file was put into its folder before the cutoff.
///
/// Uses the later of modification and change time, because a file may have been written long before it was moved into
/// the folder.
fn is_older(folder: &Dir, name: &str, before: Timestamp) -> bool {
    let Ok(found) = std::fs::symlink_metadata(folder.path().join(name)) else { return false };
    found.is_file() && found.mtime().max(found.ctime()) < before.as_second()
}

impl Workspace {
    /// Removes a folder's old files that belong to no message in the journal.
    ///
    /// Retention rounds do not find these files, because a round reads the journal.
    pub(crate) async fn remove_leftovers(
        &self,
        section: Section,
        folder: &str,
    ) -> Result<(), WorkspaceError> {
        let keep = match section {
            Section::Inbox => None,
            Section::Archive => self.config().retention.archive,
            Section::Outbox => self.config().retention.receipts,
        };
        let before = keep.and_then(|keep| self.hub().now().checked_sub(keep).ok());
        let Some(before) = before else { return Ok(()) };
        let (tree, folder) = (self.tree().clone(), folder.to_owned());
        let found = blocking(move || {
            let Ok(Some(dir)) = tree.folder(section, &folder) else { return Ok(None) };
            let mut old = Vec::new();
            dir.visit_names(|name| old.extend(is_older(&dir, name, before).then(|| name.to_owned())))?;
            Ok(Some((dir, old)))
        });
        let Some((dir, old)) = found.await? else { return Ok(()) };
        let mut leftovers = Vec::new();
        for name in old {
            if !self.is_in_journal(&name).await? {
                leftovers.push(name);
            }
        }
        blocking(move || {
            for name in &leftovers {
                dir.remove(name)?;
            }
            Ok(())
        })
        .await
    }

    /// Returns true if the message that a file name refers to is in the journal.
    async fn is_in_journal(&self, file: &str) -> Result<bool, WorkspaceError> {
        let name = file.strip_suffix(".superseded.meta").unwrap_or(file);
        let native = match name.strip_suffix(".receipt.json") {
            Some(native) => {
                let result = ["executed", "failed", "refused"]
                    .iter()
                    .find_map(|status| native.strip_suffix(status)?.strip_suffix('.'));
                result.unwrap_or(native)
            }
            None => name.strip_suffix(".json").unwrap_or(name),
        };
        Ok(match ids::from_native(native) {
            Some(id) => self.hub().journal().message(id).await.map_or(true, |found| found.is_some()),
            None => !self.hub().native_ids().find(Some(Door::Workspace), native).await?.is_empty(),
        })
    }
}

#[cfg(test)]
#[path = "retention_tests.rs"]
mod tests;
