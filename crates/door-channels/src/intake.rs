//! Intake of message files that other programs put into channels.
//!
//! File events name files to read; a listing finds files without an event. The journal records which names were
//! ingested. The last name seen cannot serve as a cursor: a slow writer, clock skew or a network mount can add a file
//! with an earlier name at any time.

mod scan;

use std::collections::{HashMap, HashSet, VecDeque};

use switchboard_core::{Address, AgentId, Directory, Door, MessageId, Name, Route};
use switchboard_hub::{Draft, HubError, Registration};
use switchboard_sys::files::FileStat;

pub use self::scan::ScanSummary;
use crate::channels::Channels;
use crate::error::ChannelError;
use crate::folder_stamp::FolderStamp;
use crate::ids::{agent_of, is_deprecated, is_named_after, second_of};
use crate::translate::{
    derived_id, from_linked_hub, has_content_of, hub_id, hub_of, is_post, native_id, sender, to_draft,
    with_folder, withhold_from_link, written_at,
};
use crate::tree::blocking;
use crate::wire::{ChannelMessage, Malformed};

/// Note topic of rejected files.
const PROBLEM: &str = "problem";

/// Scan state of one channel in this process.
#[derive(Debug, Default)]
pub(crate) struct ChannelState {
    /// Ids of messages that the journal has.
    ids: HashSet<String>,
    /// Rejected files, each with its stamp at the time of the rejection.
    rejected: HashMap<String, FileStat>,
    /// Message files of the last listing, and those that events have named since.
    present: HashSet<String>,
    /// Files that may still be incomplete.
    settling: HashSet<String>,
    /// Names of new files to ingest, in order. Only names are queued, so that a burst of any size fits into memory.
    pending: VecDeque<String>,
    /// Folder stamp of the last listing; [`Self::looked`] is that of the last complete scan.
    listed: Option<FolderStamp>,
    looked: Option<FolderStamp>,
}

/// New file with its content.
struct NewFile {
    id: String,
    stamp: FileStat,
    content: Result<ChannelMessage, String>,
    /// True if the file may still be incomplete.
    is_young: bool,
}

/// Origin of a new message file.
enum FileOrigin {
    /// The journal already has the file's message.
    Known,
    /// Another hub wrote the file, and the journal does not have its message yet.
    OtherHub(MessageId),
    /// No hub wrote the file.
    New,
}

impl Channels {
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
            // The NATS link may be ingesting this message concurrently, so on a conflict the origin is looked up again.
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

    /// Converts a new file to a draft; also returns the id inside the file if it differs from the file name. `own` is
    /// this hub's name among the linked hubs.
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
        // An old message that is new to this hub, for example after the loss of its database, wakes no agent and fills
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
                // The file does not say reliably which hub wrote it, so the link must not relay the message.
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

    /// Determines whether the journal already has the file's message: a process of this hub wrote the file, or the link
    /// delivered the message first.
    ///
    /// Records the file's id, in case its writer died before doing so.
    async fn find_origin(
        &self,
        channel: &Name,
        native: &str,
        file: &ChannelMessage,
    ) -> Result<FileOrigin, ChannelError> {
        // A file that no hub wrote has an id derived from its name, which is the same in every hub.
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
            // The journal entry is damaged, which `doctor` reports; the other files are still ingested.
            Err(HubError::DamagedMessage { .. }) => Ok(FileOrigin::Known),
            Err(error) => Err(error.into()),
        }
    }

    /// Registers a sender as a reader of the channel, so that replies reach it there.
    pub(crate) async fn join(&self, agent: &AgentId, channel: &Name) -> Result<(), ChannelError> {
        if agent.is_human() || agent.realm.is_some() {
            return Ok(());
        }
        let route = Route::Channel { channel: channel.clone() };
        let directory = self.hub().directory().await?;
        if directory.agent(agent).is_some_and(|state| state.routes.contains(&route)) {
            return Ok(());
        }
        // An agent without routes has an implicit mailbox, which must be preserved when a route is added.
        let mailbox = directory.agent(agent).filter(|state| state.routes.is_empty());
        let mut routes: Vec<Route> =
            mailbox.map(|state| Route::Mailbox { agent: state.id.name.clone() }).into_iter().collect();
        routes.push(route);
        let new = Registration { name: agent.name.clone(), role: None, team: None, routes };
        match self.hub().agents().register(new).await {
            // The hub's own name is reserved, so it cannot be registered, but its messages are ingested all the same.
            Ok(_) | Err(HubError::ReservedName { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns true if the journal has this message of the channel, as of the last scan.
    pub(crate) fn is_known(&self, channel: &Name, native: &str) -> bool {
        self.channel_states().lock().get(channel.as_str()).is_some_and(|state| state.ids.contains(native))
    }

    /// Marks a message as ingested; returns true if its file was rejected before.
    pub(crate) fn note_known(&self, channel: &Name, native: &str) -> bool {
        let mut state = self.channel_states().lock();
        // Until the first scan of a channel has loaded its state from the journal, there is nothing to update.
        state.get_mut(channel.as_str()).is_some_and(|state| {
            state.ids.insert(native.to_owned());
            state.rejected.remove(native).is_some()
        })
    }

    /// Returns the ids of a channel's ingested messages that this process knows, sorted by name.
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

    /// Reports a rejected file once for each state of the file, and leaves it in place.
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

/// Returns true if the address is an agent of another hub.
fn is_from_other_hub(to: &Address, directory: &Directory) -> bool {
    let Address::Agent(agent) = to else { return false };
    !agent.is_human() && directory.addressee(agent).is_some_and(|state| state.hub().is_some())
}

#[cfg(test)]
#[path = "intake_tests.rs"]
mod tests;
