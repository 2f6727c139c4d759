//! Ingests files that other programs write into mailboxes. [`repair`](crate::repair) restores missing files.
//!
//! File events are hints. Each scan compares the whole mailbox with the files that the journal expects in it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use switchboard_core::{AgentId, Directory, Door, HUMAN, MessageId, Name, error_chain};
use switchboard_hub::{Accepted, Draft, HubError, View};
use switchboard_sys::files::Dir;
use tokio::time::Instant;

use crate::error::{WorkspaceError, unless_disk};
use crate::housekeeping::sleep_unless_short;
use crate::ids;
use crate::mailbox::{self, Comparison, Listing, Names, NewFile, Unreadable};
use crate::rejected_files::{RejectedFile, list_rejected};
use crate::translate::{Found, to_draft};
use crate::tree::Section;
use crate::workspace::{Workspace, belongs_in_archive, blocking, move_to_archive};

/// Topic of notes: the fingerprint of each mailbox folder at its last complete scan.
const SCANNED: &str = "looked";

/// Mailboxes with at most this many waiting messages are also compared by content when they change. Larger ones are
/// compared by name, and by content in [`Workspace::verify_mailboxes`].
const COMPARE_LIMIT: usize = 64;

/// Counts of one scan.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ScanSummary {
    /// Messages ingested.
    pub ingested: usize,
    /// Files of ours that were missing or damaged and were written again.
    pub restored: usize,
    /// Files that may still be in the middle of a write; scan again soon.
    pub settling: usize,
}

impl ScanSummary {
    fn add(&mut self, other: Self) {
        self.ingested += other.ingested;
        self.restored += other.restored;
        self.settling += other.settling;
    }
}

/// A mailbox folder and its owner.
pub(crate) struct Mailbox {
    folder: Name,
    pub(crate) agent: AgentId,
    /// True if the journal expects the agent's mail in this folder.
    is_own: bool,
    pub(crate) dir: Dir,
    pub(crate) directory: Arc<Directory>,
}

/// State of a mailbox folder at its last complete scan.
#[derive(Debug, Clone, Default)]
pub struct LastScan {
    /// The folder's fingerprint.
    stamp: Option<String>,
    /// Rejected files with their fingerprints: a file completed in place does not change the folder's fingerprint.
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

    /// True if no rejected file has changed.
    fn is_refused_as_before(&self, dir: &Dir) -> bool {
        let as_before = |(name, stamp): &(String, String)| {
            !stamp.is_empty() && mailbox::file_fingerprint(dir, name) == *stamp
        };
        self.refused.iter().all(as_before)
    }
}

/// Outcome of one file.
enum FileOutcome {
    Ingested,
    Settling,
    /// Known already; nothing to do.
    Known,
    /// Rejected; the file stays where it is.
    Rejected {
        reason: String,
        /// True if only a change of the file can fix it.
        in_file: bool,
    },
}

/// A mailbox with this many waiting messages is large: listing it takes more than some 10 ms.
const LARGE: usize = 2000;

/// Scans of a large mailbox are throttled: the pause is 50 × the duration of the comparison, so they use at most 2 % of
/// a core. Every delivery changes the folder, and listing a million names takes seconds. Scans that must not miss a
/// file are not throttled.
const THROTTLE_FACTOR: u32 = 50;

/// Upper bound of that pause.
const MAX_THROTTLE: SignedDuration = SignedDuration::from_mins(10);

/// Topic of notes: when each large mailbox may be scanned again.
const DUE: &str = "due";

/// Mailboxes to scan, and how thoroughly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ScanMode {
    /// Mailboxes that changed since their last scan; large ones throttled by [`THROTTLE_FACTOR`].
    Throttled,
    /// Mailboxes that changed since their last scan.
    Changed,
    /// All mailboxes.
    All,
    /// All mailboxes, and every waiting message's file by content.
    Content,
}

impl Workspace {
    /// Scans the mailboxes that changed since their last scan. Scans of large ones are throttled by `THROTTLE_FACTOR`.
    pub async fn scan(&self) -> Result<ScanSummary, WorkspaceError> {
        self.scan_with(ScanMode::Throttled).await
    }

    /// Scans the mailboxes that changed, without the throttle: ingests every file that existed before the call.
    pub(crate) async fn scan_changed(&self) -> Result<ScanSummary, WorkspaceError> {
        self.scan_with(ScanMode::Changed).await
    }

    /// Scans all mailboxes, with a pause of `pause_factor` × the duration after each.
    pub(crate) async fn scan_all(&self, pause_factor: u32) -> Result<ScanSummary, WorkspaceError> {
        self.scan_throttled(ScanMode::All, pause_factor).await
    }

    /// Compares all mailboxes with the journal by content.
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
        // A folder that was deleted is not listed, but mail may wait in it.
        let directory = self.hub().directory().await?;
        let local = directory.agents().filter(|agent| agent.id.realm.is_none());
        folders.extend(local.map(|agent| agent.id.name.to_string()));
        folders.insert(HUMAN.to_owned());
        Ok(folders)
    }

    /// Compares all mailboxes with the journal by content, with a pause of `pause_factor` × the duration after each.
    pub(crate) async fn verify_throttled(&self, pause_factor: u32) -> Result<ScanSummary, WorkspaceError> {
        self.finish_renaming().await?;
        self.scan_throttled(ScanMode::Content, pause_factor).await
    }

    /// Compares one mailbox with the journal by content.
    pub(crate) async fn verify_mailbox(&self, folder: &str) -> Result<ScanSummary, WorkspaceError> {
        self.scan_or_report(folder, ScanMode::Content).await
    }

    /// Scans one agent's mailbox if it changed since its last scan.
    pub async fn scan_mailbox(&self, agent: &AgentId) -> Result<ScanSummary, WorkspaceError> {
        let own = self.owner_of(&*self.hub().directory().await?, agent.name.clone()).await?;
        // If the disk cannot be written, the owner still reads what was ingested before.
        let mut scanned = unless_disk(self.scan_or_report(own.name.as_str(), ScanMode::Throttled).await)?;
        if own.name.as_str() != agent.name.as_str() {
            scanned.add(unless_disk(self.scan_or_report(agent.name.as_str(), ScanMode::Throttled).await)?);
        }
        Ok(scanned)
    }

    /// True if an agent's mailbox folder has not changed since its last complete scan, so that
    /// [`Workspace::scan_mailbox`] would find nothing. Opens no file, unless files in the folder were rejected.
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

    /// True if the throttle delays the next scan of a large mailbox.
    async fn is_throttled(&self, folder: &str) -> Result<bool, WorkspaceError> {
        let due = self.hub().notes(Door::Workspace).get(DUE, folder).await?;
        let due = due.and_then(|due| due.parse::<Timestamp>().ok());
        let longest = self.hub().now().saturating_add(MAX_THROTTLE).unwrap_or(Timestamp::MAX);
        // A later time was written before the clock was set back.
        Ok(due.is_some_and(|due| due > self.hub().now() && due <= longest))
    }

    /// Records when a large mailbox may be scanned again.
    async fn throttle(&self, folder: &str, pause: Duration) -> Result<(), WorkspaceError> {
        let pause = SignedDuration::try_from(pause).unwrap_or(MAX_THROTTLE).min(MAX_THROTTLE);
        let due = self.hub().now().saturating_add(pause).unwrap_or(Timestamp::MAX);
        Ok(self.hub().notes(Door::Workspace).put(DUE, folder.to_owned(), Some(due.to_string())).await?)
    }

    /// True if a mailbox is unchanged since its last complete scan.
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

    /// Creates a deleted mailbox folder again if mail waits in it.
    async fn restore_folder(&self, name: Name, mode: ScanMode) -> Result<ScanSummary, WorkspaceError> {
        let agent = self.owner_of(&*self.hub().directory().await?, name.clone()).await?;
        // No file is expected in the folder of a former name or another spelling.
        if agent.name.as_str() != name.as_str() || self.hub().mailboxes().unread(agent.clone(), 1).await? == 0
        {
            return Ok(ScanSummary::default());
        }
        let (tree, name) = (self.tree().clone(), agent.name.clone());
        let dir = blocking(move || Ok(tree.create_own_folder(Section::Inbox, &name)?)).await?;
        Ok(self.compare_mailbox(agent.name, dir, mode).await?.0)
    }

    /// Compares a mailbox with the journal and ingests new files. Also returns the duration of the comparison without
    /// the ingestion, so that a burst of files does not delay the next scan.
    async fn compare_mailbox(
        &self,
        folder: Name,
        dir: Dir,
        mode: ScanMode,
    ) -> Result<(ScanSummary, Duration), WorkspaceError> {
        let began = Instant::now();
        let directory = self.hub().directory().await?;
        let agent = self.owner_of(&directory, folder.clone()).await?;
        // No file is expected in the folder of a former name.
        let is_own = agent.name.as_str() == folder.as_str();
        let mailbox = Mailbox { folder, agent, is_own, dir, directory };
        let (limit, listed) = (self.config().file_limit, mailbox.dir.clone());
        // List first: a file delivered after the listing is not missing, and one archived before it is known to be.
        let names = blocking(move || Ok(Names::list(&listed)?)).await?;
        let mut comparison = Comparison::of(names);
        // Read the deliveries in flight before the waiting ones: one that arrives in between is in one of the two.
        for coming in self.hub().mailboxes().pending_files(mailbox.agent.clone()).await? {
            comparison.expect(&ids::file_of(&coming));
        }
        let mut still = Vec::new();
        let mut scanned = self.compare_waiting(&mailbox, &mut comparison, mode, &mut still).await?;
        let compared = began.elapsed();
        let listed = mailbox.dir.clone();
        let restored = scanned.restored > 0;
        let (aside, listing) = blocking(move || {
            let listing = comparison.read_new(&listed, limit)?;
            // A repair may have moved another file aside.
            let aside = if restored { Names::list(&listed)?.aside } else { comparison.names().aside.clone() };
            Ok((aside, listing))
        })
        .await?;
        for name in aside {
            let reason = "it had the file name of another message and was moved aside".to_owned();
            let stamp = mailbox::file_fingerprint(&mailbox.dir, &name);
            self.report_rejected(RejectedFile { path: mailbox.path(&name), reason, stamp }).await?;
            still.push(name);
        }
        scanned.add(self.ingest(&mailbox, listing, still).await?);
        Ok((scanned, compared))
    }

    /// Compares the files of all waiting messages with the listing, page by page, and repairs them.
    async fn compare_waiting(
        &self,
        mailbox: &Mailbox,
        comparison: &mut Comparison,
        mode: ScanMode,
        still: &mut Vec<String>,
    ) -> Result<ScanSummary, WorkspaceError> {
        /// Messages per page, which bounds memory for a large mailbox.
        const PAGE: usize = 1000;
        let mut scanned = ScanSummary::default();
        if !mailbox.is_own {
            return Ok(scanned);
        }
        let agent = mailbox.agent.clone();
        let by_content = mode == ScanMode::Content
            || self.hub().mailboxes().unread(agent.clone(), COMPARE_LIMIT + 1).await? <= COMPARE_LIMIT;
        let mut after = 0;
        loop {
            let page = self.hub().mailboxes().expected_files_after(agent.clone(), after, PAGE).await?;
            let Some((last, _)) = page.last() else { return Ok(scanned) };
            after = *last;
            for (_, waiting) in page {
                let name = ids::file_of(&waiting);
                let listed = comparison.expect(&name);
                // A file delivered since the listing is not missing.
                let is_there = listed || matches!(mailbox.dir.stat(&name), Ok(Some(_)));
                if is_there && !(listed && by_content) {
                    continue;
                }
                match self.repair(mailbox, waiting.id, is_there).await? {
                    Ok(repaired) => scanned.restored += usize::from(repaired),
                    Err(reason) => {
                        let path = mailbox.path(&name);
                        still.push(name);
                        self.report_rejected(RejectedFile { path, reason, stamp: String::new() }).await?;
                    }
                }
            }
        }
    }

    /// Ingests new files in the order of their senders. `still` has the names of files that are rejected already.
    async fn ingest(
        &self,
        mailbox: &Mailbox,
        listing: Listing,
        mut still: Vec<String>,
    ) -> Result<ScanSummary, WorkspaceError> {
        let mut scanned =
            ScanSummary { settling: usize::from(listing.needs_rescan), ..ScanSummary::default() };
        let mut drafts: Vec<((String, String), Draft)> = Vec::new();
        for file in listing.new {
            let (name, stamp) = (file.name.clone(), file.stamp.clone());
            let draft = match self.build_draft(mailbox, file).await {
                Ok(draft) => draft,
                Err(error) => {
                    Err(FileOutcome::Rejected { reason: single_file_error(error)?, in_file: false })
                }
            };
            match draft {
                Ok(draft) => drafts.push(((name, stamp), draft)),
                Err(outcome) => {
                    self.apply_outcome(outcome, mailbox, name, stamp, &mut scanned, &mut still).await?;
                }
            }
        }
        let (names, batch): (Vec<_>, Vec<_>) = drafts.into_iter().unzip();
        for ((name, stamp), answer) in names.into_iter().zip(self.hub().submit_all(batch).await) {
            let outcome = match answer {
                // Another process ingested it first.
                Ok(accepted) if accepted.duplicate => FileOutcome::Known,
                Ok(accepted) => {
                    if let Err(error) = self.after_intake(mailbox, &name, &accepted).await {
                        // The message is in the journal. A failure to write its receipt must not stop the other files.
                        tracing::warn!(error = %single_file_error(error)?, file = name, "a message was ingested, but its receipt or archiving failed");
                    }
                    FileOutcome::Ingested
                }
                Err(error) if error.is_store_unavailable() => return Err(error.into()),
                Err(error) => FileOutcome::Rejected { reason: error.to_string(), in_file: true },
            };
            self.apply_outcome(outcome, mailbox, name, stamp, &mut scanned, &mut still).await?;
        }
        let (folder, within) = (format!("inbox/{}", mailbox.folder), mailbox.path(""));
        self.clear_rejected(|path| {
            let is_resolved = |name: &str| !still.iter().any(|still| still == name);
            path == folder || path.strip_prefix(&within).is_some_and(is_resolved)
        })
        .await?;
        Ok(scanned)
    }

    async fn apply_outcome(
        &self,
        outcome: FileOutcome,
        mailbox: &Mailbox,
        name: String,
        stamp: String,
        scanned: &mut ScanSummary,
        still: &mut Vec<String>,
    ) -> Result<(), WorkspaceError> {
        match outcome {
            FileOutcome::Ingested => scanned.ingested += 1,
            FileOutcome::Settling => scanned.settling += 1,
            FileOutcome::Known => {}
            FileOutcome::Rejected { reason, in_file } => {
                let path = mailbox.path(&name);
                let stamp = if in_file { stamp } else { String::new() };
                still.push(name);
                self.report_rejected(RejectedFile { path, reason, stamp }).await?;
            }
        }
        Ok(())
    }

    /// Writes the receipt of an ingested message and supersedes its sender's earlier tasks.
    async fn after_intake(
        &self,
        mailbox: &Mailbox,
        name: &str,
        accepted: &Accepted,
    ) -> Result<(), WorkspaceError> {
        if !mailbox.is_own {
            self.move_to_own_folder(mailbox, name).await?;
        }
        if accepted.stopped.is_some() {
            // A loop limit stopped it, so its reader must not get it.
            self.archive(&mailbox.agent, accepted.id).await?;
        } else if let Some(stored) = self.hub().journal().message(accepted.id).await? {
            if crate::translate::replaces_earlier(&stored.message) {
                self.supersede_earlier(&stored.message).await?;
            }
            self.refuse_untyped(&stored.message, &accepted.deliveries).await?;
        }
        self.write_receipt(accepted.id).await
    }

    /// Moves a file from the folder of a former name, or of another spelling, into the agent's own folder.
    async fn move_to_own_folder(&self, mailbox: &Mailbox, name: &str) -> Result<(), WorkspaceError> {
        let (tree, dir) = (self.tree().clone(), mailbox.dir.clone());
        let (owner, name) = (mailbox.agent.name.clone(), name.to_owned());
        blocking(move || {
            let own = tree.create_own_folder(Section::Inbox, &owner)?;
            mailbox::move_file(&dir, &own, &name)?;
            Ok(())
        })
        .await
    }

    /// Returns the owner of a mailbox folder, in the canonical spelling. An unregistered name is spelled like the
    /// existing folder; the first of several.
    pub(crate) async fn owner_of(
        &self,
        directory: &Directory,
        folder: Name,
    ) -> Result<AgentId, WorkspaceError> {
        let agent = AgentId::local(folder);
        if agent.is_human() {
            return Ok(AgentId::human());
        }
        if let Some(known) = directory.agent(&agent) {
            return Ok(known.id.clone());
        }
        let (tree, name) = (self.tree().clone(), agent.name.clone());
        let spellings = blocking(move || Ok(tree.spellings(Section::Inbox, name.as_str())?)).await?;
        let spelling = spellings.first().and_then(|first| Name::parse(first).ok());
        Ok(spelling.map_or(agent, AgentId::local))
    }

    /// Builds a draft from a new file, or returns its outcome.
    async fn build_draft(
        &self,
        mailbox: &Mailbox,
        file: NewFile,
    ) -> Result<Result<Draft, FileOutcome>, WorkspaceError> {
        let Mailbox { agent, directory, .. } = mailbox;
        let rejected = |reason| Ok(Err(FileOutcome::Rejected { reason, in_file: true }));
        let content = match file.content {
            Ok(content) => content,
            Err(error) => {
                let settle = jiff::SignedDuration::try_from(self.config().settle).unwrap_or_default();
                // A date far in the future says nothing about the age of the file.
                let age = self.hub().now().duration_since(file.modified).abs();
                if matches!(error, Unreadable::Malformed(_)) && age < settle {
                    return Ok(Err(FileOutcome::Settling));
                }
                return rejected(error_chain(&error));
            }
        };
        let recipient = content.recipient.parse::<AgentId>().map(|id| directory.canonical(&id));
        if recipient.as_ref() != Ok(agent) {
            return rejected(format!(
                "the field 'recipient' is '{}' but the file lies in the mailbox of {agent}",
                content.recipient.escape_debug()
            ));
        }
        if let Some(known) = self.find_known(&content.id, agent).await? {
            return Ok(Err(self.handle_known_file(mailbox, known, &file.name).await?));
        }
        if directory.agent(agent).is_none() && !agent.is_human() {
            let reason = format!(
                "no agent is named '{agent}'; register it with `switchboard agents register \"{agent}\"` and the file is accepted"
            );
            return Ok(Err(FileOutcome::Rejected { reason, in_file: false }));
        }
        let reply_to = match &content.reply_to {
            // The sender's own id for the message that it replies to.
            Some(native) => match content.sender.parse::<AgentId>() {
                Ok(sender) => self.resolve_id_for(&sender, native).await.ok(),
                Err(_) => self.resolve_id(native).await.ok(),
            },
            None => None,
        };
        let found = Found {
            mailbox: agent.name.clone(),
            modified: file.modified,
            foreign_owner: self.tree().owner().is_some_and(|own| own != file.uid).then_some(file.uid),
        };
        Ok(to_draft(*content, &found, reply_to)
            .map(|draft| Draft { from: directory.canonical(&draft.from), ..draft })
            .map_err(|error| FileOutcome::Rejected { reason: error.to_string(), in_file: true }))
    }

    /// Finds the message that this mailbox has under a protocol id.
    async fn find_known(&self, native: &str, agent: &AgentId) -> Result<Option<MessageId>, WorkspaceError> {
        let mut candidates: Vec<MessageId> = ids::from_native(native).into_iter().collect();
        for (scope, id) in self.hub().native_ids().find(Some(Door::Workspace), native).await? {
            if scope.is_empty() || scope.eq_ignore_ascii_case(agent.name.as_str()) {
                candidates.push(id);
            }
        }
        for id in candidates {
            if let Some((_, receipt)) = self.hub().journal().receipt(id).await?
                && receipt.deliveries.iter().any(|delivery| &delivery.agent == agent)
            {
                return Ok(Some(id));
            }
        }
        Ok(None)
    }

    /// Handles a file whose id belongs to a known message and which is not expected here.
    async fn handle_known_file(
        &self,
        mailbox: &Mailbox,
        id: MessageId,
        name: &str,
    ) -> Result<FileOutcome, WorkspaceError> {
        let Some((stored, receipt)) = self.hub().journal().receipt(id).await? else {
            return Ok(FileOutcome::Known);
        };
        let expected = self.expected_file(mailbox, &stored.message).await?;
        let (dir, read, limit) = (mailbox.dir.clone(), name.to_owned(), self.config().file_limit);
        let same =
            blocking(move || Ok(dir.read(&read, limit)?.is_none_or(|found| expected.matches(&found.bytes))))
                .await?;
        if !same {
            let reason = format!("another message with this id was accepted before ({id})");
            return Ok(FileOutcome::Rejected { reason, in_file: true });
        }
        let delivery = receipt.deliveries.iter().find(|delivery| delivery.agent == mailbox.agent);
        if delivery.is_some_and(|delivery| belongs_in_archive(delivery.state)) {
            // An interrupted move to the archive, or a copy of a message that is archived.
            let (tree, dir) = (self.tree().clone(), mailbox.dir.clone());
            let (owner, name) = (mailbox.agent.name.clone(), name.to_owned());
            blocking(move || Ok(move_to_archive(&tree, &dir, &owner, &name)?)).await?;
            if let Err(error) = self.write_receipt(id).await {
                tracing::warn!(error = %single_file_error(error)?, "a receipt could not be written");
            }
        } else if !mailbox.is_own {
            self.move_to_own_folder(mailbox, name).await?;
        }
        Ok(FileOutcome::Known)
    }
}

impl Mailbox {
    /// Returns a file's path, below `.switchboard/`.
    fn path(&self, name: &str) -> String {
        format!("inbox/{}/{name}", self.folder)
    }
}

/// Returns the reason if an error concerns a single file or message; returns all other errors.
pub(crate) fn single_file_error(error: WorkspaceError) -> Result<String, WorkspaceError> {
    match error {
        WorkspaceError::File(error) => Ok(error_chain(&error)),
        WorkspaceError::Hub(error @ HubError::DamagedMessage { .. }) => Ok(error.to_string()),
        other => Err(other),
    }
}

#[cfg(test)]
#[path = "intake_tests.rs"]
mod tests;
