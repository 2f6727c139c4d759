//! Ingests message files that other programs put into channels.
//!
//! Events name files to read; a listing finds files without an event. The journal records which names were
//! ingested. The last name seen is no cursor: a slow writer, clock skew or a network mount can add a file
//! with an earlier name at any time.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use switchboard_core::{Address, AgentId, Directory, Door, MessageId, Name, Route, error_chain};
use switchboard_hub::{Draft, HubError, Registration};
use switchboard_sys::files::{Dir, FileStat};

use crate::channels::Channels;
use crate::error::ChannelError;
use crate::folder_stamp::FolderStamp;
use crate::ids::{agent_of, file_name, id_of_file, is_deprecated, is_named_after, second_of};
use crate::reading::message_ids;
use crate::translate::{
    derived_id, from_linked_hub, has_content_of, hub_id, hub_of, is_post, native_id, sender, to_draft,
    with_folder, withhold_from_link, written_at,
};
use crate::tree::blocking;
use crate::wire::{ChannelMessage, Malformed, When, time};

/// Note topic of rejected files.
const PROBLEM: &str = "problem";

/// Most files per batch: a batch is in memory until the journal has it.
const BATCH: usize = 256;

/// Scan state of one channel in this process.
#[derive(Debug, Default)]
pub(crate) struct ChannelState {
    /// Ids that the journal has.
    ids: HashSet<String>,
    /// Rejected files with their stamp at that time.
    rejected: HashMap<String, FileStat>,
    /// Message files of the last listing, and those that events have named since.
    present: HashSet<String>,
    /// Files that may still be incomplete.
    settling: HashSet<String>,
    /// New files to ingest, in order. Only names are queued, so a burst of any size fits.
    pending: VecDeque<String>,
    /// Folder stamp of the last listing, and of the last complete scan.
    listed: Option<FolderStamp>,
    looked: Option<FolderStamp>,
}

/// Result of a scan.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ScanSummary {
    /// Messages that were ingested.
    pub ingested: usize,
    /// Files that may still be incomplete; scan again soon.
    pub settling: usize,
}

impl ScanSummary {
    /// Adds the scan of one channel. An unreadable channel does not block the others.
    fn add(&mut self, channel: &Name, scanned: Result<Self, ChannelError>) -> Result<(), ChannelError> {
        match scanned {
            Ok(summary) => {
                self.ingested += summary.ingested;
                self.settling += summary.settling;
            }
            Err(ChannelError::File(error)) => {
                tracing::warn!(%channel, error = %error_chain(&error), "cannot read the channel");
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

/// New file with its content.
struct NewFile {
    id: String,
    stamp: FileStat,
    content: Result<ChannelMessage, String>,
    /// True if it may still be incomplete.
    is_young: bool,
}

/// Batch of new files that a scan found.
#[derive(Default)]
struct ScanBatch {
    files: Vec<NewFile>,
    /// Message files that the previous scan had seen and that are missing now.
    gone: Vec<String>,
    /// True if more files are queued.
    more: bool,
}

/// Origin of a new file.
enum FileOrigin {
    /// The journal has its message.
    Known,
    /// Another hub wrote it, and the journal does not have its message yet.
    OtherHub(MessageId),
    /// No hub wrote it.
    New,
}

impl Channels {
    /// Scans all channels that changed since their last scan.
    pub async fn scan(&self) -> Result<ScanSummary, ChannelError> {
        let tree = self.tree().clone();
        let channels = blocking(move || tree.channel_names()).await?;
        let mut summary = ScanSummary::default();
        for channel in channels {
            summary.add(&channel, self.scan_channel(&channel).await)?;
        }
        Ok(summary)
    }

    /// Scans the files that events have named, and files that were incomplete at the last scan. A channel
    /// that was never listed is listed.
    pub(crate) async fn scan_named(
        &self,
        channels: &Path,
        paths: &[PathBuf],
    ) -> Result<ScanSummary, ChannelError> {
        // Keyed by the spelling of the folder name, of which a channel can have several.
        let mut named: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (channel, state) in self.channel_states().lock().iter() {
            if !state.settling.is_empty() {
                named.insert(channel.clone(), Vec::new());
            }
        }
        for (channel, id) in paths.iter().filter_map(|path| message_path(channels, path)) {
            named.entry(channel).or_default().push(id);
        }
        let mut summary = ScanSummary::default();
        for (channel, ids) in named {
            let Ok(channel) = Name::parse(&channel) else { continue };
            summary.add(&channel, self.scan_files(&channel, Some(ids)).await)?;
        }
        Ok(summary)
    }

    /// Scans one channel, if it changed since its last scan.
    pub async fn scan_channel(&self, channel: &Name) -> Result<ScanSummary, ChannelError> {
        self.scan_files(channel, None).await
    }

    /// Scans the named files of a channel, or lists the channel if none are named.
    async fn scan_files(
        &self,
        channel: &Name,
        mut named: Option<Vec<String>>,
    ) -> Result<ScanSummary, ChannelError> {
        if !self.channel_states().lock().contains_key(channel.as_str()) {
            let ids = self.hub().native_ids().in_scope(Door::Channels, channel.as_str()).await?;
            self.channel_states()
                .lock()
                .entry(channel.to_string())
                .or_insert(ChannelState { ids, ..ChannelState::default() });
        }
        // Serialized: files that one scan has queued must not count as done for another.
        let _turn = self.scan_lock().lock().await;
        let mut summary = ScanSummary::default();
        let is_listed = named.is_none();
        loop {
            let (this, place, now) = (self.clone(), channel.clone(), self.hub().now());
            let files = named.take();
            let batch = blocking(move || this.next_batch(&place, files, now)).await?;
            let Some(batch) = batch else { return Ok(summary) };
            let took = self.ingest(channel, batch.files).await?;
            summary.ingested += took.ingested;
            summary.settling += took.settling;
            self.report_deleted(channel, batch.gone).await?;
            if !batch.more {
                if let Some(state) =
                    self.channel_states().lock().get_mut(channel.as_str()).filter(|_| is_listed)
                {
                    // Only a scan without unfinished files counts as complete.
                    let listed = state.listed.filter(|listed| summary.settling == 0 && listed.is_settled());
                    state.looked = listed;
                }
                return Ok(summary);
            }
        }
    }

    /// Returns the next batch of new files; `None` if the channel is unchanged.
    fn next_batch(
        &self,
        channel: &Name,
        named: Option<Vec<String>>,
        now: Timestamp,
    ) -> Result<Option<ScanBatch>, ChannelError> {
        let Some(dir) = self.tree().channel(channel)? else { return Ok(None) };
        let mut batch = ScanBatch::default();
        let (has_pending, was_listed) = match self.channel_states().lock().get(channel.as_str()) {
            Some(state) => (!state.pending.is_empty(), state.listed.is_some()),
            None => (false, false),
        };
        if let Some(named) = named.filter(|_| was_listed) {
            self.queue_named(channel, &dir, named)?;
        } else if !has_pending {
            match self.list_new(channel, &dir, now)? {
                Some(gone) => batch.gone = gone,
                None => return Ok(None),
            }
        }
        let ids: Vec<String> = {
            let mut state = self.channel_states().lock();
            let Some(state) = state.get_mut(channel.as_str()) else { return Ok(None) };
            let count = state.pending.len().min(BATCH);
            let ids = state.pending.drain(..count).collect();
            batch.more = !state.pending.is_empty();
            ids
        };
        let settle = jiff::SignedDuration::try_from(self.config().settle).unwrap_or_default();
        for id in ids {
            let name = file_name(&id);
            let Some(stamp) = dir.stat(&name)? else { continue };
            let content = match dir.read(&name, self.config().file_limit) {
                Ok(Some(read)) => ChannelMessage::parse(&read.bytes).map_err(|error| error.to_string()),
                Ok(None) => continue,
                Err(error) => Err(error_chain(&error)),
            };
            let age = now.as_nanosecond() - stamp.mtime_ns;
            let is_young = stamp.is_regular && age.abs() < settle.as_nanos();
            batch.files.push(NewFile { id, stamp, content, is_young });
        }
        Ok(Some(batch))
    }

    /// Queues the named files that are new, or that changed since they were rejected.
    fn queue_named(&self, channel: &Name, dir: &Dir, named: Vec<String>) -> Result<(), ChannelError> {
        let (mut new, rejected) = {
            let mut state = self.channel_states().lock();
            let Some(state) = state.get_mut(channel.as_str()) else { return Ok(()) };
            let queued: HashSet<&String> = state.pending.iter().collect();
            let settling = std::mem::take(&mut state.settling);
            let named: BTreeSet<String> = named.into_iter().chain(settling).collect();
            let is_new = |id: &String| !state.ids.contains(id) && !queued.contains(id);
            let new: Vec<String> = named.into_iter().filter(is_new).collect();
            let rejected: Vec<Option<FileStat>> =
                new.iter().map(|id| state.rejected.get(id).copied()).collect();
            state.present.extend(new.iter().cloned());
            (new, rejected)
        };
        let mut rejected = rejected.into_iter();
        let mut failed = None;
        new.retain(|id| match rejected.next().flatten() {
            None => true,
            Some(problem) => match dir.stat(&file_name(id)) {
                Ok(stamp) => stamp != Some(problem),
                Err(error) => {
                    failed = Some(error);
                    true
                }
            },
        });
        if let Some(error) = failed {
            return Err(error.into());
        }
        if new.len() > BATCH {
            sort_by_time(dir, &mut new, self.config().file_limit);
        }
        if let Some(state) = self.channel_states().lock().get_mut(channel.as_str()) {
            state.pending.extend(new);
        }
        Ok(())
    }

    /// Lists a channel and queues its new files; returns the deleted ones, or `None` if the channel is
    /// unchanged.
    ///
    /// Reads only the metadata of rejected files, and of new ones in a large batch their time.
    fn list_new(
        &self,
        channel: &Name,
        dir: &Dir,
        now: Timestamp,
    ) -> Result<Option<Vec<String>>, ChannelError> {
        let looked = FolderStamp::at(dir, now, self.config())?;
        let (rejected, is_unchanged) = match self.channel_states().lock().get(channel.as_str()) {
            Some(state) => (state.rejected.clone(), looked.is_unchanged_since(state.looked.as_ref())),
            None => return Ok(None),
        };
        let mut changed = HashSet::new();
        for (id, stamp) in &rejected {
            if dir.stat(&file_name(id))?.as_ref() != Some(stamp) {
                changed.insert(id.as_str());
            }
        }
        if is_unchanged && changed.is_empty() {
            return Ok(None);
        }
        let present = message_ids(dir)?;
        let is_new = |state: &ChannelState, id: &String| {
            !state.ids.contains(id) && (changed.contains(id.as_str()) || !rejected.contains_key(id))
        };
        let mut new: Vec<String> = match self.channel_states().lock().get(channel.as_str()) {
            Some(state) => present.iter().filter(|id| is_new(state, id)).cloned().collect(),
            None => return Ok(None),
        };
        if new.len() > BATCH {
            sort_by_time(dir, &mut new, self.config().file_limit);
        }
        let mut state = self.channel_states().lock();
        let Some(state) = state.get_mut(channel.as_str()) else { return Ok(None) };
        state.pending = new.into();
        state.settling.clear();
        state.listed = Some(looked);
        let before = std::mem::replace(&mut state.present, present.into_iter().collect());
        Ok(Some(before.into_iter().filter(|id| !state.present.contains(id)).collect()))
    }

    /// Ingests a batch of new files in the order of the channel.
    async fn ingest(&self, channel: &Name, files: Vec<NewFile>) -> Result<ScanSummary, ChannelError> {
        let mut summary = ScanSummary::default();
        let mut good: Vec<(NewFile, ChannelMessage)> = Vec::new();
        for mut file in files {
            match std::mem::replace(&mut file.content, Err(String::new())) {
                Ok(message) => good.push((file, message)),
                Err(_) if file.is_young => {
                    summary.settling += 1;
                    if let Some(state) = self.channel_states().lock().get_mut(channel.as_str()) {
                        state.settling.insert(file.id);
                    }
                }
                Err(reason) => self.report(channel, &file, &reason).await?,
            }
        }
        good.sort_by(|(_, one), (_, other)| one.order().cmp(&other.order()));
        let mut ids_here: HashMap<String, MessageId> = HashMap::new();
        let (mut drafted, mut drafts) = (Vec::new(), Vec::new());
        let own = self.own_name().await?;
        for (file, message) in good {
            let elsewhere = match self.find_origin(channel, &file.id, &message).await? {
                FileOrigin::Known => continue,
                FileOrigin::OtherHub(id) => Some(id),
                FileOrigin::New => None,
            };
            if let Some(old) = [&message.from, &message.to].into_iter().find(|id| is_deprecated(id)) {
                tracing::warn!(%channel, message = %file.id, "the agent id '{old}' is deprecated");
            }
            if let (Some(named), Ok(from)) = (agent_of(&file.id), sender(&message))
                && !is_named_after(named, &from)
            {
                tracing::warn!(%channel, message = %file.id, %from, "the file name and the field 'from' name different agents");
            }
            // The link may be ingesting this message right now; on a conflict it is looked up again.
            let shared = (self.folder().is_some() || hub_id(&message).is_some()).then(|| message.clone());
            let drafted_message =
                self.draft(channel, &file.id, message, elsewhere, own.as_ref(), &mut ids_here).await?;
            match drafted_message {
                Ok((draft, other_id)) => {
                    drafted.push((file, draft.id, other_id, shared));
                    drafts.push(draft);
                }
                Err(error) => self.report(channel, &file, &error.to_string()).await?,
            }
        }
        let answers = self.hub().submit_all(drafts).await;
        for ((file, id, other_id, shared), answer) in drafted.into_iter().zip(answers) {
            if let (Err(HubError::Conflict { .. }), Some(message)) = (&answer, &shared)
                && matches!(self.find_origin(channel, &file.id, message).await?, FileOrigin::Known)
            {
                continue;
            }
            match answer {
                Ok(accepted) => {
                    if let Some(stop) = accepted.stopped {
                        tracing::warn!(%channel, message = %file.id, reason = %stop, "goes no further");
                    }
                    if let Some(other) = other_id {
                        self.hub().native_ids().bind(id, native_id(channel, &other)).await?;
                    }
                    summary.ingested += usize::from(!accepted.duplicate);
                    if self.note_known(channel, &file.id) {
                        self.clear_rejection(channel, &file.id).await?;
                    }
                }
                Err(error) if error.is_store_unavailable() => return Err(error.into()),
                Err(error) => self.report(channel, &file, &error.to_string()).await?,
            }
        }
        Ok(summary)
    }

    /// Converts a new file to a draft; also returns the id inside the file if its name differs. `own` is this
    /// hub's name among linked hubs.
    async fn draft(
        &self,
        channel: &Name,
        native: &str,
        message: ChannelMessage,
        elsewhere: Option<MessageId>,
        own: Option<&Name>,
        ids_here: &mut HashMap<String, MessageId>,
    ) -> Result<Result<(Draft, Option<String>), Malformed>, ChannelError> {
        let at = match sender(&message).and_then(|_| written_at(&message)) {
            Ok(at) => at,
            Err(error) => return Ok(Err(error)),
        };
        let reply_to = match message.in_reply_to() {
            Some(parent) => match ids_here.get(parent) {
                Some(id) => Some(*id),
                None => self.known_message(channel, parent).await?,
            },
            None => None,
        };
        // A message that another hub wrote has the same id on both hubs.
        let id = elsewhere.unwrap_or_else(|| derived_id(channel, native, at));
        let other_id = Some(message.id.clone()).filter(|other| other != native);
        ids_here.insert(native.to_owned(), id);
        ids_here.extend(other_id.clone().map(|other| (other, id)));
        // An old message that is new to this hub, as after a loss of its database, wakes no agent and fills
        // no mailbox.
        let is_history = self.hub().now().duration_since(at) > self.config().history;
        let (writer, folder) = (hub_of(&message), self.folder().filter(|_| is_post(&message)));
        let drafted = match to_draft(message, channel, native, reply_to) {
            Ok(draft) => Draft { id, ..with_folder(draft, folder) },
            Err(error) => return Ok(Err(error)),
        };
        let directory = self.hub().directory().await?;
        let drafted = match (elsewhere.and(own), &writer) {
            (Some(own), Some(hub)) if own != hub => from_linked_hub(drafted, hub, own, &directory),
            _ => {
                self.join(&drafted.from, channel).await?;
                let is_theirs = elsewhere.is_some() && is_from_other_hub(&drafted.to, &directory);
                let drafted = Draft { restored: is_theirs.then(Vec::new), ..drafted };
                // The file does not say which hub wrote it, if any.
                if elsewhere.is_some() && self.folder().is_some() {
                    withhold_from_link(drafted)
                } else {
                    drafted
                }
            }
        };
        let drafted = if is_history {
            Draft { restored: Some(Vec::new()), ..withhold_from_link(drafted) }
        } else {
            drafted
        };
        Ok(Ok((drafted, other_id)))
    }

    /// Determines whether the journal has the file's message: a hub process wrote the file, or the link was
    /// first.
    ///
    /// Records the file's id, in case its writer died before doing so.
    async fn find_origin(
        &self,
        channel: &Name,
        native: &str,
        file: &ChannelMessage,
    ) -> Result<FileOrigin, ChannelError> {
        // A file that no hub wrote has an id derived from its name, the same in every hub.
        let derived = || written_at(file).ok().map(|at| derived_id(channel, native, at));
        let by_hub = hub_id(file);
        let Some(id) = by_hub.or_else(|| self.folder().and_then(|_| derived())) else {
            return Ok(FileOrigin::New);
        };
        match self.hub().journal().message(id).await {
            Ok(Some(stored)) if has_content_of(file, &stored.message) => {
                self.record_name(channel, id, native).await?;
                Ok(FileOrigin::Known)
            }
            Ok(Some(_)) => Ok(FileOrigin::New),
            Ok(None) => Ok(by_hub.map_or(FileOrigin::New, FileOrigin::OtherHub)),
            // Damaged in the journal: `doctor` reports it, and the other files are ingested.
            Err(HubError::DamagedMessage { .. }) => Ok(FileOrigin::Known),
            Err(error) => Err(error.into()),
        }
    }

    /// Registers a sender as a reader of the channel, so that answers reach it there.
    pub(crate) async fn join(&self, agent: &AgentId, channel: &Name) -> Result<(), ChannelError> {
        if agent.is_human() || agent.realm.is_some() {
            return Ok(());
        }
        let route = Route::Channel { channel: channel.clone() };
        let directory = self.hub().directory().await?;
        if directory.agent(agent).is_some_and(|state| state.routes.contains(&route)) {
            return Ok(());
        }
        // An agent without routes has an implicit mailbox; adding a route must preserve it.
        let mailbox = directory.agent(agent).filter(|state| state.routes.is_empty());
        let mut routes: Vec<Route> =
            mailbox.map(|state| Route::Mailbox { agent: state.id.name.clone() }).into_iter().collect();
        routes.push(route);
        let new = Registration { name: agent.name.clone(), role: None, team: None, routes };
        match self.hub().agents().register(new).await {
            // The hub's own name is reserved; its messages are ingested all the same.
            Ok(_) | Err(HubError::ReservedName { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// True if the journal has this message of the channel, as of the last scan.
    pub(crate) fn is_known(&self, channel: &Name, native: &str) -> bool {
        self.channel_states().lock().get(channel.as_str()).is_some_and(|state| state.ids.contains(native))
    }

    /// Marks a message as ingested; returns true if its file was rejected before.
    pub(crate) fn note_known(&self, channel: &Name, native: &str) -> bool {
        let mut state = self.channel_states().lock();
        // The first scan of a channel loads its state from the journal.
        state.get_mut(channel.as_str()).is_some_and(|state| {
            state.ids.insert(native.to_owned());
            state.rejected.remove(native).is_some()
        })
    }

    /// Returns the ingested messages of a channel that this process knows, sorted by name.
    pub(crate) fn known_ids(&self, channel: &Name) -> Vec<String> {
        let state = self.channel_states().lock();
        let same_channel =
            state.iter().filter(|(spelling, _)| spelling.eq_ignore_ascii_case(channel.as_str()));
        let mut ids: Vec<&String> =
            same_channel.flat_map(|(_, state)| &state.ids).filter(|id| second_of(id).is_some()).collect();
        ids.sort_unstable();
        ids.dedup();
        ids.into_iter().cloned().collect()
    }

    /// Reports a rejected file once for each of its states, and leaves it in place.
    async fn report(&self, channel: &Name, file: &NewFile, reason: &str) -> Result<(), ChannelError> {
        let place = format!("channels/{channel}/{}.json", file.id);
        tracing::warn!(file = %place, reason, "a file in a channel cannot be ingested and stays in place");
        let state = |state: &mut ChannelState| state.rejected.insert(file.id.clone(), file.stamp);
        self.channel_states().lock().get_mut(channel.as_str()).map(state);
        Ok(self.hub().notes(Door::Channels).put(PROBLEM, place, Some(reason.to_owned())).await?)
    }

    /// Clears the rejection of a file that was ingested after all.
    async fn clear_rejection(&self, channel: &Name, native: &str) -> Result<(), ChannelError> {
        let place = format!("channels/{channel}/{native}.json");
        Ok(self.hub().notes(Door::Channels).put(PROBLEM, place, None).await?)
    }

    /// Returns the rejected files that still exist, each with the reason.
    pub async fn rejected_files(&self) -> Result<Vec<(String, String)>, ChannelError> {
        let noted = self.hub().notes(Door::Channels).all(PROBLEM).await?;
        let tree = self.tree().clone();
        blocking(move || {
            let is_there = |place: &str| {
                let (channel, file) = place.strip_prefix("channels/")?.split_once('/')?;
                let dir = tree.channel(&Name::parse(channel).ok()?).ok()??;
                dir.stat(file).ok().flatten()
            };
            Ok(noted.into_iter().filter(|(place, _)| is_there(place).is_some()).collect())
        })
        .await
    }
}

/// Parses the channel folder and the message id from a path; `None` for deeper paths, as in the archive.
fn message_path(channels: &Path, path: &Path) -> Option<(String, String)> {
    let (channel, file) = path.strip_prefix(channels).ok()?.to_str()?.split_once('/')?;
    Some((channel.to_owned(), id_of_file(file)?.to_owned()))
}

/// True if the address is an agent of another hub.
fn is_from_other_hub(to: &Address, directory: &Directory) -> bool {
    let Address::Agent(agent) = to else { return false };
    !agent.is_human() && directory.addressee(agent).is_some_and(|state| state.hub().is_some())
}

/// Sorts new files by their time if they exceed one batch: random names do not order messages within a
/// second.
///
/// Only the time of each file is held in memory.
fn sort_by_time(dir: &Dir, ids: &mut [String], limit: u64) {
    ids.sort_by_cached_key(|id| {
        let read = dir.read(&file_name(id), limit).ok().flatten();
        let when = read.and_then(|read| serde_json::from_slice::<When>(&read.bytes).ok());
        (when.and_then(|when| time(&when.timestamp)).or_else(|| second_of(id)), id.clone())
    });
}

#[cfg(test)]
#[path = "intake_tests.rs"]
mod tests;
