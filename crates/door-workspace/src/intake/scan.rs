//! Mailbox scans: which folders are read, how often and how thoroughly.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use switchboard_core::{AgentId, Door, HUMAN, Name, error_chain};
use switchboard_hub::{HubError, View};
use switchboard_sys::files::Dir;
use tokio::time::Instant;

use crate::error::{WorkspaceError, unless_disk};
use crate::housekeeping::sleep_unless_short;
use crate::mailbox;
use crate::rejected_files::{RejectedFile, list_rejected};
use crate::tree::Section;
use crate::workspace::{Workspace, blocking};

/// Counts of one scan.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ScanSummary {
    /// Number of messages ingested.
    pub ingested: usize,
    /// Number of missing or damaged message files that were restored.
    pub restored: usize,
    /// Number of files that may still be in the middle of a write.
    ///
    /// If there are any, another scan is due soon.
    pub settling: usize,
}

impl ScanSummary {
    pub(super) fn add(&mut self, other: Self) {
        self.ingested += other.ingested;
        self.restored += other.restored;
        self.settling += other.settling;
    }
}

/// State of a mailbox folder at its last complete scan.
#[derive(Debug, Clone, Default)]
pub struct LastScan {
    /// Fingerprint of the folder.
    pub(super) stamp: Option<String>,
    /// Rejected files with their fingerprints.
    ///
    /// They are checked one by one, because a file that is completed in place does not change the folder's fingerprint.
    refused: Vec<(String, String)>,
}

impl LastScan {
    pub(crate) fn read(view: &View<'_>, folder: &str) -> Result<Self, HubError> {
        let within = format!("inbox/{folder}/");
        let refused = list_rejected(view)?
            .into_iter()
            .filter_map(|rejected| Some((rejected.path.strip_prefix(&within)?.to_owned(), rejected.stamp)));
        Ok(Self { stamp: view.get_note(Door::Workspace, SCANNED, folder)?, refused: refused.collect() })
    }

    /// Returns true if no rejected file has changed.
    fn is_refused_as_before(&self, dir: &Dir) -> bool {
        let as_before = |(name, stamp): &(String, String)| {
            !stamp.is_empty() && mailbox::file_fingerprint(dir, name) == *stamp
        };
        self.refused.iter().all(as_before)
    }
}

/// Minimum number of waiting messages in a large mailbox.
///
/// Listing a large mailbox takes more than some 10 ms.
const LARGE: usize = 2000;

/// Throttle factor for scans of a large mailbox.
///
/// The pause is 50 × the duration of the comparison, so scans use at most 2 % of a core. Every delivery changes the
/// folder, and listing a million names takes seconds. Scans that must not miss a file are not throttled.
const THROTTLE_FACTOR: u32 = 50;

/// Maximum pause between two throttled scans of a large mailbox.
const MAX_THROTTLE: SignedDuration = SignedDuration::from_mins(10);

/// Notes topic: the time from which each large mailbox may be scanned again.
const DUE: &str = "due";

/// Notes topic: the fingerprint of each mailbox folder at its last complete scan.
const SCANNED: &str = "looked";

/// Selects the mailboxes to scan and the depth of the comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScanMode {
    /// Scans mailboxes that changed since their last scan; large ones are throttled by [`THROTTLE_FACTOR`].
    Throttled,
    /// Scans mailboxes that changed since their last scan, without a throttle.
    Changed,
    /// Scans all mailboxes.
    All,
    /// Scans all mailboxes and compares the file of every waiting message by content.
    Content,
}

impl Workspace {
    /// Scans the mailboxes that changed since their last scan.
    ///
    /// Scans of large mailboxes are throttled by `THROTTLE_FACTOR`.
    pub async fn scan(&self) -> Result<ScanSummary, WorkspaceError> {
        self.scan_with(ScanMode::Throttled).await
    }

    /// Scans the mailboxes that changed, without a throttle.
    ///
    /// Ingests every file that existed before the call.
    pub(crate) async fn scan_changed(&self) -> Result<ScanSummary, WorkspaceError> {
        self.scan_with(ScanMode::Changed).await
    }

    /// Scans all mailboxes and sleeps for `pause_factor` × the scan's duration after each one.
    pub(crate) async fn scan_all(&self, pause_factor: u32) -> Result<ScanSummary, WorkspaceError> {
        self.scan_throttled(ScanMode::All, pause_factor).await
    }

    /// Reconciles all mailboxes with the journal by content.
    pub async fn verify_mailboxes(&self) -> Result<ScanSummary, WorkspaceError> {
        self.verify_throttled(0).await
    }

    async fn scan_with(&self, mode: ScanMode) -> Result<ScanSummary, WorkspaceError> {
        self.scan_throttled(mode, 0).await
    }

    async fn scan_throttled(&self, mode: ScanMode, pause_factor: u32) -> Result<ScanSummary, WorkspaceError> {
        let mut scanned = ScanSummary::default();
        for folder in self.mailbox_folders().await? {
            let began = Instant::now();
            scanned.add(self.scan_or_report(&folder, mode).await?);
            sleep_unless_short(began.elapsed() * pause_factor).await;
        }
        Ok(scanned)
    }

    /// Returns the names of all mailbox folders that exist or should exist.
    pub(crate) async fn mailbox_folders(&self) -> Result<BTreeSet<String>, WorkspaceError> {
        self.tree().check_not_moved()?;
        let tree = self.tree().clone();
        let listed = blocking(move || Ok(tree.folders(Section::Inbox)?)).await?;
        let mut folders: BTreeSet<String> = listed.into_iter().collect();
        self.clear_rejected(|path| {
            let folder = path.strip_prefix("inbox/").and_then(|rest| rest.split('/').next());
            folder.is_some_and(|folder| !folders.contains(folder))
        })
        .await?;
        // Add the folders of all agents: a deleted folder is not listed, but messages may be waiting in it.
        let directory = self.hub().directory().await?;
        let local = directory.agents().filter(|agent| agent.id.realm.is_none());
        folders.extend(local.map(|agent| agent.id.name.to_string()));
        folders.insert(HUMAN.to_owned());
        Ok(folders)
    }

    /// Reconciles all mailboxes with the journal by content.
    ///
    /// Sleeps for `pause_factor` × the duration after each mailbox.
    pub(crate) async fn verify_throttled(&self, pause_factor: u32) -> Result<ScanSummary, WorkspaceError> {
        self.finish_renaming().await?;
        self.scan_throttled(ScanMode::Content, pause_factor).await
    }

    /// Reconciles one mailbox with the journal by content.
    pub(crate) async fn verify_mailbox(&self, folder: &str) -> Result<ScanSummary, WorkspaceError> {
        self.scan_or_report(folder, ScanMode::Content).await
    }

    /// Scans one agent's mailbox if it changed since its last scan.
    pub async fn scan_mailbox(&self, agent: &AgentId) -> Result<ScanSummary, WorkspaceError> {
        let own = self.owner_of(&*self.hub().directory().await?, agent.name.clone()).await?;
        // If the disk cannot be written, the owner can still read the messages that were ingested before.
        let mut scanned = unless_disk(self.scan_or_report(own.name.as_str(), ScanMode::Throttled).await)?;
        if own.name.as_str() != agent.name.as_str() {
            scanned.add(unless_disk(self.scan_or_report(agent.name.as_str(), ScanMode::Throttled).await)?);
        }
        Ok(scanned)
    }

    /// Returns true if an agent's mailbox folder has not changed since its last complete scan.
    ///
    /// [`Workspace::scan_mailbox`] would then find nothing. Opens no file, unless files in the folder were rejected.
    pub async fn is_unchanged(&self, agent: &AgentId, last: &LastScan) -> Result<bool, WorkspaceError> {
        let (tree, now, name) = (self.tree().clone(), self.hub().now(), agent.name.clone());
        let last = last.clone();
        let compare = move || {
            let Some(stamp) = tree.own_folder_metadata(Section::Inbox, name.as_str())? else {
                return Ok(false);
            };
            let stamp = mailbox::stable_fingerprint(stamp, now);
            if stamp.is_none() || stamp != last.stamp {
                return Ok(false);
            }
            if last.refused.is_empty() {
                return Ok(true);
            }
            let dir = tree.own_folder(Section::Inbox, name.as_str())?;
            Ok(dir.is_some_and(|dir| last.is_refused_as_before(&dir)))
        };
        if self.hub().is_local() { compare() } else { blocking(compare).await }
    }

    /// Scans a mailbox and records an I/O error, so that other mailboxes are still scanned.
    async fn scan_or_report(&self, folder: &str, mode: ScanMode) -> Result<ScanSummary, WorkspaceError> {
        match self.scan_folder(folder, mode).await {
            Err(WorkspaceError::File(error)) => {
                self.report_folder(folder, error_chain(&error)).await?;
                Ok(ScanSummary::default())
            }
            scanned => scanned,
        }
    }

    async fn report_folder(&self, folder: &str, reason: String) -> Result<(), WorkspaceError> {
        Ok(self
            .report_rejected(RejectedFile { path: format!("inbox/{folder}"), reason, stamp: String::new() })
            .await?)
    }

    async fn scan_folder(&self, folder: &str, mode: ScanMode) -> Result<ScanSummary, WorkspaceError> {
        let Ok(name) = Name::parse(folder) else {
            self.report_folder(folder, "the folder's name is not the name of an agent".into()).await?;
            return Ok(ScanSummary::default());
        };
        let (tree, wanted) = (self.tree().clone(), name.clone());
        let found = blocking(move || match tree.own_folder(Section::Inbox, wanted.as_str())? {
            Some(dir) => Ok(Some((dir.dir_stat()?, dir))),
            None => Ok(None),
        });
        let Some((stamp, dir)) = found.await? else { return self.restore_folder(name, mode).await };
        let stamp = mailbox::stable_fingerprint(stamp, self.hub().now());
        let by_stamp = matches!(mode, ScanMode::Throttled | ScanMode::Changed);
        if by_stamp && self.is_unchanged_since(folder, stamp.as_deref(), &dir).await? {
            return Ok(ScanSummary::default());
        }
        let is_large = self.hub().mailboxes().unread(AgentId::local(name.clone()), LARGE).await? == LARGE;
        if is_large && mode == ScanMode::Throttled && self.is_throttled(folder).await? {
            return Ok(ScanSummary::default());
        }
        let (scanned, listing_time) = self.compare_mailbox(name, dir, mode).await?;
        if is_large {
            self.throttle(folder, listing_time * THROTTLE_FACTOR).await?;
        }
        // A scan is complete only if no file is in the middle of a write.
        if scanned.settling == 0 {
            self.hub().notes(Door::Workspace).put_unsynced(SCANNED, folder.to_owned(), stamp).await?;
        }
        Ok(scanned)
    }

    /// Returns true if the throttle delays the next scan of a large mailbox.
    async fn is_throttled(&self, folder: &str) -> Result<bool, WorkspaceError> {
        let due = self.hub().notes(Door::Workspace).get(DUE, folder).await?;
        let due = due.and_then(|due| due.parse::<Timestamp>().ok());
        let longest = self.hub().now().saturating_add(MAX_THROTTLE).unwrap_or(Timestamp::MAX);
        // If the recorded time is too far in the future, the clock was set back after the time was written.
        Ok(due.is_some_and(|due| due > self.hub().now() && due <= longest))
    }

    /// Records the time from which a large mailbox may be scanned again.
    async fn throttle(&self, folder: &str, pause: Duration) -> Result<(), WorkspaceError> {
        let pause = SignedDuration::try_from(pause).unwrap_or(MAX_THROTTLE).min(MAX_THROTTLE);
        let due = self.hub().now().saturating_add(pause).unwrap_or(Timestamp::MAX);
        Ok(self.hub().notes(Door::Workspace).put(DUE, folder.to_owned(), Some(due.to_string())).await?)
    }

    /// Returns true if a mailbox is unchanged since its last complete scan.
    async fn is_unchanged_since(
        &self,
        folder: &str,
        stamp: Option<&str>,
        dir: &Dir,
    ) -> Result<bool, WorkspaceError> {
        let Some(stamp) = stamp else { return Ok(false) };
        let folder = folder.to_owned();
        let last = self.hub().view(move |view| LastScan::read(view, &folder)).await?;
        if last.stamp.as_deref() != Some(stamp) {
            return Ok(false);
        }
        if last.refused.is_empty() {
            return Ok(true);
        }
        let dir = dir.clone();
        blocking(move || Ok(last.is_refused_as_before(&dir))).await
    }

    /// Recreates a deleted mailbox folder if messages are waiting in it.
    async fn restore_folder(&self, name: Name, mode: ScanMode) -> Result<ScanSummary, WorkspaceError> {
        let agent = self.owner_of(&*self.hub().directory().await?, name.clone()).await?;
        // A folder under a former name or another spelling should contain no files.
        if agent.name.as_str() != name.as_str() || self.hub().mailboxes().unread(agent.clone(), 1).await? == 0
        {
            return Ok(ScanSummary::default());
        }
        let (tree, name) = (self.tree().clone(), agent.name.clone());
        let dir = blocking(move || Ok(tree.create_own_folder(Section::Inbox, &name)?)).await?;
        Ok(self.compare_mailbox(agent.name, dir, mode).await?.0)
    }
}
