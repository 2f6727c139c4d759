//! The way in: files that other programs put into mailboxes. What mailboxes lost is `repair`'s business.
//!
//! Events are hints, the listing is the truth: whatever leads here, a mailbox is compared as a whole
//! with what the journal expects in it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use switchboard_core::{AgentId, Directory, Door, HUMAN, MessageId, Name};
use switchboard_hub::{Accepted, Draft, HubError, View};
use switchboard_sys::files::Dir;
use tokio::time::Instant;

use crate::delivery::describe;
use crate::error::{WorkspaceError, unless_disk};
use crate::housekeeping::rest_after;
use crate::ids;
use crate::mailbox::{self, Comparison, Listing, Names, NewFile, Unreadable};
use crate::rejected_files::{RejectedFile, list_rejected};
use crate::translate::{Found, to_draft};
use crate::tree::Section;
use crate::workspace::{Workspace, belongs_in_archive, blocking, move_to_archive};

/// Under this topic the hub remembers the stamp of each mailbox as of its last complete look.
const LOOKED: &str = "looked";

/// Mailboxes with at most this many waiting messages are also compared by content whenever they
/// changed; larger ones by name only, and by content in [`Workspace::verify_mailboxes`].
const COMPARE: usize = 64;

/// What a sweep did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ScanSummary {
    /// Messages taken in.
    pub taken: usize,
    /// Files of ours that were missing or damaged and were written again.
    pub restored: usize,
    /// Files that may still be being written; look again soon.
    pub settling: usize,
}

impl ScanSummary {
    fn add(&mut self, other: Self) {
        self.taken += other.taken;
        self.restored += other.restored;
        self.settling += other.settling;
    }
}

/// A mailbox folder, and whose it is.
pub(crate) struct Mailbox {
    folder: Name,
    pub(crate) agent: AgentId,
    /// Whether this is the folder in which the agent's mail is expected.
    is_own: bool,
    pub(crate) dir: Dir,
    pub(crate) directory: Arc<Directory>,
}

/// What the hub remembers of the last complete look at a mailbox folder.
#[derive(Debug, Clone, Default)]
pub(crate) struct LastScan {
    /// The folder's stamp.
    stamp: Option<String>,
    /// Files that were refused, with their stamps: one may be completed in place, which the folder's stamp does not show.
    refused: Vec<(String, String)>,
}

impl LastScan {
    pub(crate) fn read(view: &View<'_>, folder: &str) -> Result<Self, HubError> {
        let within = format!("inbox/{folder}/");
        let refused = list_rejected(view)?
            .into_iter()
            .filter_map(|rejected| Some((rejected.path.strip_prefix(&within)?.to_owned(), rejected.stamp)));
        Ok(Self { stamp: view.get_note(Door::Workspace, LOOKED, folder)?, refused: refused.collect() })
    }

    /// Whether no refused file has changed.
    fn is_refused_as_before(&self, dir: &Dir) -> bool {
        let as_before =
            |(name, stamp): &(String, String)| !stamp.is_empty() && mailbox::stamp_of(dir, name) == *stamp;
        self.refused.iter().all(as_before)
    }
}

/// One file's fate.
enum FileOutcome {
    Taken,
    Settling,
    /// Known already; nothing to do.
    Known,
    /// Left in place.
    Rejected {
        reason: String,
        /// Whether only another content of the file can cure it.
        in_file: bool,
    },
}

/// Waiting messages from which on a mailbox is large: to list it takes more than some 10 ms.
const LARGE: usize = 2000;

/// After a large mailbox is compared with the journal, it rests 50 times as long, unless a check must miss nothing. Every
/// delivery changes the folder, and to list a million names takes seconds: so that takes 2 % of a core.
const PACE: u32 = 50;

/// The longest such rest.
const LONGEST_REST: SignedDuration = SignedDuration::from_mins(10);

/// Under this topic the hub remembers when each large mailbox is due again.
const DUE: &str = "due";

/// Which mailboxes are looked at, and how closely.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ScanMode {
    /// Those that changed since they were last looked at; large ones no more often than [`PACE`] allows.
    Paced,
    /// Those that changed since they were last looked at.
    Changed,
    /// All of them.
    All,
    /// All of them, and every waiting message's file by content.
    Content,
}

impl Workspace {
    /// Looks at all mailboxes that changed since they were last looked at. Large ones may have to wait: see `PACE`.
    pub async fn scan(&self) -> Result<ScanSummary, WorkspaceError> {
        self.scan_with(ScanMode::Paced).await
    }

    /// The same without waiting for large ones: afterwards every file that was there before is taken in.
    pub(crate) async fn scan_changed(&self) -> Result<ScanSummary, WorkspaceError> {
        self.scan_with(ScanMode::Changed).await
    }

    /// Looks at all mailboxes, whatever their stamps say, and rests after each for `rest` times its length.
    pub(crate) async fn scan_all(&self, rest: u32) -> Result<ScanSummary, WorkspaceError> {
        self.scan_throttled(ScanMode::All, rest).await
    }

    /// Compares all mailboxes with the journal by content, whatever their stamps say.
    pub async fn verify_mailboxes(&self) -> Result<ScanSummary, WorkspaceError> {
        self.verify_throttled(0).await
    }

    async fn scan_with(&self, mode: ScanMode) -> Result<ScanSummary, WorkspaceError> {
        self.scan_throttled(mode, 0).await
    }

    async fn scan_throttled(&self, mode: ScanMode, rest: u32) -> Result<ScanSummary, WorkspaceError> {
        let mut scanned = ScanSummary::default();
        for folder in self.mailbox_folders().await? {
            let began = Instant::now();
            scanned.add(self.scan_or_report(&folder, mode).await?);
            rest_after(began.elapsed() * rest).await;
        }
        Ok(scanned)
    }

    /// Names of all mailbox folders that are there or should be.
    pub(crate) async fn mailbox_folders(&self) -> Result<BTreeSet<String>, WorkspaceError> {
        self.tree().check_not_moved()?;
        let tree = self.tree().clone();
        let there = blocking(move || Ok(tree.folders(Section::Inbox)?)).await?;
        let mut folders: BTreeSet<String> = there.into_iter().collect();
        self.clear_rejected(|path| {
            let folder = path.strip_prefix("inbox/").and_then(|rest| rest.split('/').next());
            folder.is_some_and(|folder| !folders.contains(folder))
        })
        .await?;
        // A folder that is gone is not listed, and mail may wait in it all the same.
        let directory = self.hub().directory().await?;
        let local = directory.agents().filter(|agent| agent.id.realm.is_none());
        folders.extend(local.map(|agent| agent.id.name.to_string()));
        folders.insert(HUMAN.to_owned());
        Ok(folders)
    }

    /// Compares all mailboxes with the journal by content, resting after each for `rest` times its length.
    pub(crate) async fn verify_throttled(&self, rest: u32) -> Result<ScanSummary, WorkspaceError> {
        self.finish_renaming().await?;
        self.scan_throttled(ScanMode::Content, rest).await
    }

    /// Compares one mailbox with the journal by content.
    pub(crate) async fn verify_mailbox(&self, folder: &str) -> Result<ScanSummary, WorkspaceError> {
        self.scan_or_report(folder, ScanMode::Content).await
    }

    /// Looks at one agent's mailbox, if it changed since it was last looked at.
    pub async fn scan_mailbox(&self, agent: &AgentId) -> Result<ScanSummary, WorkspaceError> {
        let own = self.owner_of(&*self.hub().directory().await?, agent.name.clone()).await?;
        // Its owner reads what was taken in before, where the disk takes nothing more.
        let mut scanned = unless_disk(self.scan_or_report(own.name.as_str(), ScanMode::Paced).await)?;
        if own.name.as_str() != agent.name.as_str() {
            scanned.add(unless_disk(self.scan_or_report(agent.name.as_str(), ScanMode::Paced).await)?);
        }
        Ok(scanned)
    }

    /// Whether an agent's mailbox folder has not changed since its last complete look, and [`Workspace::scan_mailbox`]
    /// would find nothing. Opens no file, unless files in the folder were refused.
    pub(crate) async fn is_unchanged(
        &self,
        agent: &AgentId,
        last: &LastScan,
    ) -> Result<bool, WorkspaceError> {
        let (tree, now, name) = (self.tree().clone(), self.hub().now(), agent.name.clone());
        let last = last.clone();
        let compare = move || {
            let Some(stamp) = tree.own_folder_metadata(Section::Inbox, name.as_str())? else {
                return Ok(false);
            };
            let stamp = mailbox::trusted_stamp(stamp, now);
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

    /// One mailbox in trouble does not keep the others waiting.
    async fn scan_or_report(&self, folder: &str, mode: ScanMode) -> Result<ScanSummary, WorkspaceError> {
        match self.scan_folder(folder, mode).await {
            Err(WorkspaceError::File(error)) => {
                self.report_folder(folder, describe(&error)).await?;
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
            Some(dir) => Ok(Some((dir.stamp()?, dir))),
            None => Ok(None),
        });
        let Some((stamp, dir)) = found.await? else { return self.restore_folder(name, mode).await };
        let stamp = mailbox::trusted_stamp(stamp, self.hub().now());
        let by_stamp = matches!(mode, ScanMode::Paced | ScanMode::Changed);
        if by_stamp && self.is_unchanged_since(folder, stamp.as_deref(), &dir).await? {
            return Ok(ScanSummary::default());
        }
        let is_large = self.hub().unread(AgentId::local(name.clone()), LARGE).await? == LARGE;
        if is_large && mode == ScanMode::Paced && self.rests(folder).await? {
            return Ok(ScanSummary::default());
        }
        let (scanned, listing_time) = self.look(name, dir, mode).await?;
        if is_large {
            self.rest(folder, listing_time * PACE).await?;
        }
        // Only a look that left nothing open counts as complete.
        if scanned.settling == 0 {
            self.hub().put_note_unsynced(Door::Workspace, LOOKED, folder.to_owned(), stamp).await?;
        }
        Ok(scanned)
    }

    /// Whether a large mailbox is not due yet.
    async fn rests(&self, folder: &str) -> Result<bool, WorkspaceError> {
        let due = self.hub().get_note(Door::Workspace, DUE, folder).await?;
        let due = due.and_then(|due| due.parse::<Timestamp>().ok());
        let longest = self.hub().now().saturating_add(LONGEST_REST).unwrap_or(Timestamp::MAX);
        // One that lies further ahead is from before the clock was set back.
        Ok(due.is_some_and(|due| due > self.hub().now() && due <= longest))
    }

    /// Notes when a large mailbox is due again.
    async fn rest(&self, folder: &str, rest: Duration) -> Result<(), WorkspaceError> {
        let rest = SignedDuration::try_from(rest).unwrap_or(LONGEST_REST).min(LONGEST_REST);
        let due = self.hub().now().saturating_add(rest).unwrap_or(Timestamp::MAX);
        Ok(self.hub().put_note(Door::Workspace, DUE, folder.to_owned(), Some(due.to_string())).await?)
    }

    /// Whether nothing has happened in a mailbox since its last complete look.
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

    /// A mailbox folder that is gone although mail waits in it is made again.
    async fn restore_folder(&self, name: Name, mode: ScanMode) -> Result<ScanSummary, WorkspaceError> {
        let agent = self.owner_of(&*self.hub().directory().await?, name.clone()).await?;
        // Under a former name, or another spelling, nothing is expected.
        if agent.name.as_str() != name.as_str() || self.hub().unread(agent.clone(), 1).await? == 0 {
            return Ok(ScanSummary::default());
        }
        let (tree, name) = (self.tree().clone(), agent.name.clone());
        let dir = blocking(move || Ok(tree.create_own_folder(Section::Inbox, &name)?)).await?;
        Ok(self.look(agent.name, dir, mode).await?.0)
    }

    /// Compares a mailbox with the journal and takes in what is new. Also returns how long the comparison took, without the
    /// intake: a burst of dropped files is no reason to leave the next one lying.
    async fn look(
        &self,
        folder: Name,
        dir: Dir,
        mode: ScanMode,
    ) -> Result<(ScanSummary, Duration), WorkspaceError> {
        let began = Instant::now();
        let directory = self.hub().directory().await?;
        let agent = self.owner_of(&directory, folder.clone()).await?;
        // The folder of a former name holds nothing that is expected there.
        let is_own = agent.name.as_str() == folder.as_str();
        let mailbox = Mailbox { folder, agent, is_own, dir, directory };
        let (limit, listed) = (self.config().file_limit, mailbox.dir.clone());
        // The listing comes first: what is delivered after it is not missing, and what was archived
        // before it is known to be.
        let names = blocking(move || Ok(Names::list(&listed)?)).await?;
        let mut comparison = Comparison::of(names);
        // What is on its way is read before what waits: what arrives in between is in one of the two.
        for coming in self.hub().pending_files(mailbox.agent.clone()).await? {
            comparison.expect(&ids::file_of(&coming));
        }
        let mut still = Vec::new();
        let mut scanned = self.compare_waiting(&mailbox, &mut comparison, mode, &mut still).await?;
        let compared = began.elapsed();
        let listed = mailbox.dir.clone();
        let restored = scanned.restored > 0;
        let (aside, listing) = blocking(move || {
            let listing = comparison.read_new(&listed, limit)?;
            // What was put right may have moved another file aside.
            let aside = if restored { Names::list(&listed)?.aside } else { comparison.names().aside.clone() };
            Ok((aside, listing))
        })
        .await?;
        for name in aside {
            let reason = "it stood under the name of another message and was moved aside".to_owned();
            let stamp = mailbox::stamp_of(&mailbox.dir, &name);
            self.report_rejected(RejectedFile { path: mailbox.path(&name), reason, stamp }).await?;
            still.push(name);
        }
        scanned.add(self.ingest(&mailbox, listing, still).await?);
        Ok((scanned, compared))
    }

    /// Compares the files of all waiting messages with the listing, a page at a time, and puts right what is wrong.
    async fn compare_waiting(
        &self,
        mailbox: &Mailbox,
        comparison: &mut Comparison,
        mode: ScanMode,
        still: &mut Vec<String>,
    ) -> Result<ScanSummary, WorkspaceError> {
        /// Messages of one page, so that a large mailbox is never in memory as a whole.
        const PAGE: usize = 1000;
        let mut scanned = ScanSummary::default();
        if !mailbox.is_own {
            return Ok(scanned);
        }
        let agent = mailbox.agent.clone();
        let by_content =
            mode == ScanMode::Content || self.hub().unread(agent.clone(), COMPARE + 1).await? <= COMPARE;
        let mut after = 0;
        loop {
            let page = self.hub().expected_files_after(agent.clone(), after, PAGE).await?;
            let Some((last, _)) = page.last() else { return Ok(scanned) };
            after = *last;
            for (_, waiting) in page {
                let name = ids::file_of(&waiting);
                let listed = comparison.expect(&name);
                // What was delivered since the listing is not missing.
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

    /// Takes in what is new, in the order of its senders. `still` are names with a problem known already.
    async fn ingest(
        &self,
        mailbox: &Mailbox,
        listing: Listing,
        mut still: Vec<String>,
    ) -> Result<ScanSummary, WorkspaceError> {
        let mut scanned = ScanSummary { settling: usize::from(listing.again), ..ScanSummary::default() };
        let mut drafts: Vec<((String, String), Draft)> = Vec::new();
        for file in listing.new {
            let (name, stamp) = (file.name.clone(), file.stamp.clone());
            let draft = match self.draft(mailbox, file).await {
                Ok(draft) => draft,
                Err(error) => Err(FileOutcome::Rejected { reason: own_fault(error)?, in_file: false }),
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
                // Another process was quicker.
                Ok(accepted) if accepted.duplicate => FileOutcome::Known,
                Ok(accepted) => {
                    if let Err(error) = self.after_intake(mailbox, &name, &accepted).await {
                        // The message is in the journal; what could not be written beside it is not
                        // worth leaving the others behind.
                        tracing::warn!(error = %own_fault(error)?, file = name, "not all is done for a message");
                    }
                    FileOutcome::Taken
                }
                Err(
                    error @ (HubError::Store { .. }
                    | HubError::NoSpace { .. }
                    | HubError::ReadOnly { .. }
                    | HubError::StoreDeleted { .. }
                    | HubError::DamagedInUse { .. }
                    | HubError::OutcomeUnknown { .. }
                    | HubError::Closed),
                ) => return Err(error.into()),
                Err(error) => FileOutcome::Rejected { reason: error.to_string(), in_file: true },
            };
            self.apply_outcome(outcome, mailbox, name, stamp, &mut scanned, &mut still).await?;
        }
        let (folder, within) = (format!("inbox/{}", mailbox.folder), mailbox.path(""));
        self.clear_rejected(|path| {
            let is_over = |name: &str| !still.iter().any(|still| still == name);
            path == folder || path.strip_prefix(&within).is_some_and(is_over)
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
            FileOutcome::Taken => scanned.taken += 1,
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

    /// A receipt for what was taken in; and what its sender's earlier tasks make of it.
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
            // A rule against storms says that its reader must not get it.
            self.archive(&mailbox.agent, accepted.id).await?;
        } else if let Some(stored) = self.hub().message(accepted.id).await? {
            if crate::translate::replaces_earlier(&stored.message) {
                self.supersede_earlier(&stored.message).await?;
            }
            self.refuse_untyped(&stored.message, &accepted.deliveries).await?;
        }
        self.write_receipt(accepted.id).await
    }

    /// Moves a file out of the folder of a former name, or of another spelling, into the agent's own.
    async fn move_to_own_folder(&self, mailbox: &Mailbox, name: &str) -> Result<(), WorkspaceError> {
        let (tree, dir) = (self.tree().clone(), mailbox.dir.clone());
        let (owner, name) = (mailbox.agent.name.clone(), name.to_owned());
        blocking(move || {
            let own = tree.create_own_folder(Section::Inbox, &owner)?;
            mailbox::bring(&dir, &own, &name)?;
            Ok(())
        })
        .await
    }

    /// Whose mailbox a folder is, in the spelling that is used for every path. A name that nobody has registered is
    /// spelled as the folder that is there; where several are, as the first.
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

    /// A new file as a draft, or what becomes of it instead.
    async fn draft(
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
                // A date far in the future says nothing about when it was written.
                let age = self.hub().now().duration_since(file.modified).abs();
                if matches!(error, Unreadable::Malformed(_)) && age < settle {
                    return Ok(Err(FileOutcome::Settling));
                }
                return rejected(describe(&error));
            }
        };
        let recipient = content.recipient.parse::<AgentId>().map(|id| directory.canonical(&id));
        if recipient.as_ref() != Ok(agent) {
            return rejected(format!(
                "the field 'recipient' is '{}' but the file lies in the mailbox of {agent}",
                content.recipient.escape_debug()
            ));
        }
        if let Some(known) = self.known(&content.id, agent).await? {
            return Ok(Err(self.again(mailbox, known, &file.name).await?));
        }
        if directory.agent(agent).is_none() && !agent.is_human() {
            let reason = format!(
                "no agent is named '{agent}'; register it with `switchboard agents register \"{agent}\"` and the file is taken in"
            );
            return Ok(Err(FileOutcome::Rejected { reason, in_file: false }));
        }
        let reply_to = match &content.reply_to {
            // It is what its sender calls the message it answers.
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

    /// The message that this mailbox knows by this id.
    async fn known(&self, native: &str, agent: &AgentId) -> Result<Option<MessageId>, WorkspaceError> {
        let mut candidates: Vec<MessageId> = ids::from_native(native).into_iter().collect();
        for (scope, id) in self.hub().find_by_native(Some(Door::Workspace), native).await? {
            if scope.is_empty() || scope.eq_ignore_ascii_case(agent.name.as_str()) {
                candidates.push(id);
            }
        }
        for id in candidates {
            if let Some((_, receipt)) = self.hub().receipt(id).await?
                && receipt.deliveries.iter().any(|delivery| &delivery.agent == agent)
            {
                return Ok(Some(id));
            }
        }
        Ok(None)
    }

    /// A file under the id of a message that is known and not expected here.
    async fn again(
        &self,
        mailbox: &Mailbox,
        id: MessageId,
        name: &str,
    ) -> Result<FileOutcome, WorkspaceError> {
        let Some((stored, receipt)) = self.hub().receipt(id).await? else { return Ok(FileOutcome::Known) };
        let expected = self.expected(mailbox, &stored.message).await?;
        let (dir, read, limit) = (mailbox.dir.clone(), name.to_owned(), self.config().file_limit);
        let same = blocking(move || {
            Ok(dir.read(&read, limit)?.is_none_or(|found| expected.is_met_by(&found.bytes)))
        })
        .await?;
        if !same {
            let reason = format!("another message was accepted under this id before ({id})");
            return Ok(FileOutcome::Rejected { reason, in_file: true });
        }
        let delivery = receipt.deliveries.iter().find(|delivery| delivery.agent == mailbox.agent);
        if delivery.is_some_and(|delivery| belongs_in_archive(delivery.state)) {
            // An interrupted move, or a copy of something that was done with.
            let (tree, dir) = (self.tree().clone(), mailbox.dir.clone());
            let (owner, name) = (mailbox.agent.name.clone(), name.to_owned());
            blocking(move || Ok(move_to_archive(&tree, &dir, &owner, &name)?)).await?;
            if let Err(error) = self.write_receipt(id).await {
                tracing::warn!(error = %own_fault(error)?, "a receipt could not be written");
            }
        } else if !mailbox.is_own {
            self.move_to_own_folder(mailbox, name).await?;
        }
        Ok(FileOutcome::Known)
    }
}

impl Mailbox {
    /// Where a file of it is, below `.switchboard/`.
    fn path(&self, name: &str) -> String {
        format!("inbox/{}/{name}", self.folder)
    }
}

/// The reason, where an error concerns one file or one message alone; all others are passed on.
pub(crate) fn own_fault(error: WorkspaceError) -> Result<String, WorkspaceError> {
    match error {
        WorkspaceError::File(error) => Ok(describe(&error)),
        WorkspaceError::Hub(error @ HubError::DamagedMessage { .. }) => Ok(error.to_string()),
        other => Err(other),
    }
}

#[cfg(test)]
#[path = "intake_tests.rs"]
mod tests;
