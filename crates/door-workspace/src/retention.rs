//! Retention: removes files and journal entries that have ended and are older than the settings allow.
//!
//! A run reads the journal once a day, in bounded rounds: `serve` and sessions do a round each minute, and a plain
//! command does one at its end if none was done for a minute. A lease lets one process do it. Files and entries of
//! waiting messages stay. The daily comparison of `serve` and sessions removes old files that belong to no message of
//! the journal: see `housekeeping`.

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

/// Topic of notes: the progress of a run (`seq`), when it `began`, and when the last `round` was.
const RETENTION: &str = "retention";

/// Messages per round of a long-running process: some 20 ms, ten times that if all of them are removed.
const ROUND: usize = 2000;

/// Messages per round of a plain command: a few milliseconds.
const SMALL_ROUND: usize = 200;

/// Interval of runs; shorter if a setting retains something for less than that.
const PASS_EVERY: SignedDuration = SignedDuration::from_hours(24);

/// Minimum interval of rounds by plain commands.
const ROUND_EVERY: SignedDuration = SignedDuration::from_mins(1);

/// Cutoff times: anything older is removed.
#[derive(Debug, Clone, Copy)]
struct Limits {
    archive: Option<Timestamp>,
    receipts: Option<Timestamp>,
    journal: Option<Timestamp>,
}

impl Limits {
    /// Returns the latest cutoff: a message accepted after it is not too old for any setting.
    fn latest(&self) -> Option<Timestamp> {
        [self.archive, self.receipts, self.journal].into_iter().flatten().max()
    }
}

impl Workspace {
    /// Does a small round if one is due and no other process runs housekeeping.
    pub(crate) async fn retention_after_command(&self) {
        if let Err(error) = self.small_round().await {
            // The next command retries.
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

    /// True if the first message of the journal is older than the latest cutoff.
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

    /// Does a round if one is due, and returns free pages of the database to the file system.
    pub(crate) async fn retention_round(&self) -> Result<(), WorkspaceError> {
        if self.is_run_due().await? {
            self.round(ROUND).await?;
        }
        self.hub().database().shrink().await?;
        Ok(())
    }

    /// True if a run is in progress, or the last one started an interval ago.
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
        // The journal is ordered by acceptance: all messages after the first one that is too young are too young as
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

/// Removes files that are too old; returns their number, and the journal entries to remove.
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

/// Cache of agents' folders, each opened once per round.
struct Folders<'t> {
    tree: &'t Tree,
    open: HashMap<(Section, Name), Option<Dir>>,
}

impl Folders<'_> {
    /// Removes a file that is older than the cutoff; returns the number removed.
    fn remove(
        &mut self,
        section: Section,
        agent: &Name,
        name: &str,
        before: Option<Timestamp>,
    ) -> Result<usize, WorkspaceError> {
        let Some(before) = before else { return Ok(0) };
        let tree = self.tree;
        // A fault in one folder must not stop the others; `doctor` reports it.
        let open = || tree.folder(section, agent.as_str()).unwrap_or(None);
        let Some(folder) = self.open.entry((section, agent.clone())).or_insert_with(open) else {
            return Ok(0);
        };
        Ok(usize::from(is_older(folder, name, before) && folder.remove(name)?))
    }
}

/// True if a file was put into its folder before the cutoff. The time of its first write does not count.
fn is_older(folder: &Dir, name: &str, before: Timestamp) -> bool {
    let Ok(found) = std::fs::symlink_metadata(folder.path().join(name)) else { return false };
    found.is_file() && found.mtime().max(found.ctime()) < before.as_second()
}

impl Workspace {
    /// Removes a folder's old files that belong to no message of the journal, which the rounds do not find.
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

    /// True if the message that a file name refers to is in the journal.
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
