//! Ingests files that other programs write into mailboxes.
//!
//! File events are only hints: each scan reconciles the whole mailbox with the files that the journal expects in it.
//! [`repair`](crate::repair) restores missing files.

mod scan;

use std::sync::Arc;
use std::time::Duration;

use switchboard_core::{AgentId, Directory, Door, MessageId, Name, error_chain};
use switchboard_hub::{Accepted, Draft, HubError};
use switchboard_sys::files::Dir;
use tokio::time::Instant;

pub(crate) use self::scan::LastScan;
use self::scan::ScanMode;
pub use self::scan::ScanSummary;
use crate::error::WorkspaceError;
use crate::ids;
use crate::mailbox::{self, Comparison, Listing, Names, NewFile, Unreadable};
use crate::rejected_files::RejectedFile;
use crate::translate::{Found, to_draft};
use crate::tree::Section;
use crate::workspace::{Workspace, belongs_in_archive, blocking, move_to_archive};

/// Maximum number of waiting messages for which a changed mailbox is also compared by content.
///
/// Larger mailboxes are compared by name only; [`Workspace::verify_mailboxes`] compares their content as well.
const COMPARE_LIMIT: usize = 64;

/// A mailbox folder and its owner.
pub(crate) struct Mailbox {
    folder: Name,
    pub(crate) agent: AgentId,
    /// True if the folder has the agent's current name.
    ///
    /// The journal expects the agent's messages only in this folder.
    is_own: bool,
    pub(crate) dir: Dir,
    pub(crate) directory: Arc<Directory>,
}

/// Outcome of processing one file during a scan.
enum FileOutcome {
    Ingested,
    Settling,
    /// The message is already known, so there is nothing to do.
    Known,
    /// The file was rejected and stays where it is.
    Rejected {
        reason: String,
        /// True if only a change of the file can resolve the rejection.
        in_file: bool,
    },
}

impl Workspace {
    /// Reconciles a mailbox with the journal and ingests new files.
    ///
    /// Also returns the duration of the comparison. The duration excludes the ingestion, so that a burst of files does
    /// not delay the next scan.
    async fn compare_mailbox(
        &self,
        folder: Name,
        dir: Dir,
        mode: ScanMode,
    ) -> Result<(ScanSummary, Duration), WorkspaceError> {
        let began = Instant::now();
        let directory = self.hub().directory().await?;
        let agent = self.owner_of(&directory, folder.clone()).await?;
        // A folder under a former name should contain no files.
        let is_own = agent.name.as_str() == folder.as_str();
        let mailbox = Mailbox { folder, agent, is_own, dir, directory };
        let (limit, listed) = (self.config().file_limit, mailbox.dir.clone());
        // List the folder before reading the journal: then a file delivered after the listing is not reported missing,
        // and the journal already knows a file archived before the listing.
        let names = blocking(move || Ok(Names::list(&listed)?)).await?;
        let mut comparison = Comparison::of(names);
        // Read the pending deliveries before the waiting messages: a message that moves from one to the other in
        // between is then in at least one of them.
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
            // A repair may have moved aside another file, so list the folder again.
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
        /// Messages per page, which bounds the memory used for a large mailbox.
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
                // A file delivered after the listing is not missing.
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

    /// Ingests new files in sender order.
    ///
    /// `still` contains the names of files that remain rejected.
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
                // Another process has already ingested the file.
                Ok(accepted) if accepted.duplicate => FileOutcome::Known,
                Ok(accepted) => {
                    if let Err(error) = self.after_intake(mailbox, &name, &accepted).await {
                        // The message is in the journal, so a failure to write its receipt must not stop the other
                        // files.
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

    /// Supersedes earlier tasks of the sender and writes the receipt after a message was ingested.
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
            // A loop limit stopped the message, so the reader must not get it.
            self.archive(&mailbox.agent, accepted.id).await?;
        } else if let Some(stored) = self.hub().journal().message(accepted.id).await? {
            if crate::translate::replaces_earlier(&stored.message) {
                self.supersede_earlier(&stored.message).await?;
            }
            self.refuse_untyped(&stored.message, &accepted.deliveries).await?;
        }
        self.write_receipt(accepted.id).await
    }

    /// Moves a file into the agent's own folder.
    ///
    /// The file comes from a folder under a former name or another spelling.
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

    /// Returns the owner of a mailbox folder, in the canonical spelling.
    ///
    /// An unregistered name takes the spelling of the first existing folder that matches it.
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

    /// Builds a draft from a new file.
    ///
    /// If the file is not to be ingested, returns the file's outcome instead.
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
                // A modification time far in the future does not tell the file's age.
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
            // `reply_to` is the id under which the sender knows the message that it replies to.
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

    /// Finds the message that has this protocol id in this mailbox.
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

    /// Handles an unexpected file whose id belongs to a known message.
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
            // Either a move to the archive was interrupted, or the file is a copy of an archived message.
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
    /// Returns a file's path relative to `.switchboard/`.
    fn path(&self, name: &str) -> String {
        format!("inbox/{}/{name}", self.folder)
    }
}

/// Returns the reason of an error that concerns a single file or message.
///
/// Passes on any other error.
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
