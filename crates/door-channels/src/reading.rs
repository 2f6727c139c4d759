//! Reading channels: in order, complete, and without a place in the journal.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use notify::RecursiveMode;
use parking_lot::Mutex;
use switchboard_core::{Door, Name};
use switchboard_sys::files::Dir;

use crate::channels::Channels;
use crate::error::{ChannelError, describe};
use crate::folder_stamp::FolderStamp;
use crate::folder_watcher::{Changes, FolderWatcher, is_message_file};
use crate::ids::{file_name, id_of_file, second_of};
use crate::tree::{archives, blocking};
use crate::wire::ChannelMessage;

/// Messages of a channel, in order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Transcript {
    /// The messages, by time and then by id.
    pub messages: Vec<ChannelMessage>,
    /// Files that are no messages, each with the reason.
    pub unreadable: Vec<(String, String)>,
}

/// One channel at a glance.
#[derive(Debug, Clone, PartialEq)]
pub struct ChannelSummary {
    /// Its name.
    pub channel: Name,
    /// How many message files it has, without those in its archive.
    pub messages: usize,
    /// How many are in its archive.
    pub archived: usize,
    /// The newest of them.
    pub newest: Option<ChannelMessage>,
}

/// Reads a channel as it grows. Each message comes once, however late its file appears.
pub struct Follower {
    channels: Channels,
    channel: Name,
    seen: Arc<Mutex<Seen>>,
    watcher: FolderWatcher,
    /// What is to be looked at.
    changes: Option<Changes>,
    /// Whether the last look found something.
    found: bool,
}

/// What a follower has been shown.
#[derive(Default)]
struct Seen {
    ids: HashSet<String>,
    /// The channel as of the last look that left nothing open.
    looked: Option<FolderStamp>,
}

impl Channels {
    /// The last messages of a channel, or all of them; those in its archive too.
    pub async fn read(&self, channel: &Name, last: Option<usize>) -> Result<Transcript, ChannelError> {
        let (tree, channel, limit) = (self.tree().clone(), channel.clone(), self.config().file_limit);
        blocking(move || {
            let dir = tree.existing_channel(&channel)?;
            let ids = message_ids(&dir)?;
            let mut reading = read_all(&dir, last.map_or(&ids[..], |last| newest(&ids, last)), limit);
            // While a message is moved it is in both places.
            let seen: HashSet<&String> = ids.iter().collect();
            for month in archives(&dir)?.iter().rev() {
                let missing = last.map(|last| last.saturating_sub(reading.messages.len()));
                if missing == Some(0) {
                    break;
                }
                let mut ids = message_ids(month)?;
                ids.retain(|id| !seen.contains(id));
                let older = read_all(month, missing.map_or(&ids[..], |missing| newest(&ids, missing)), limit);
                reading.messages.extend(older.messages);
                reading.unreadable.extend(older.unreadable);
            }
            reading.messages.sort_by(|one, other| one.order().cmp(&other.order()));
            let extra = last.map_or(0, |last| reading.messages.len().saturating_sub(last));
            reading.messages.drain(..extra);
            Ok(reading)
        })
        .await
    }

    /// The last messages of a channel that this process knows of, without one of them, in order. No folder is listed.
    pub(crate) async fn read_known(
        &self,
        channel: &Name,
        last: usize,
        without: &str,
    ) -> Result<Vec<ChannelMessage>, ChannelError> {
        if last == 0 {
            return Ok(Vec::new());
        }
        let mut ids = self.known_ids(channel);
        ids.retain(|id| id != without);
        let (tree, channel, limit) = (self.tree().clone(), channel.clone(), self.config().file_limit);
        blocking(move || {
            let dirs = tree.folders(&channel)?;
            let (mut messages, mut end) = (Vec::new(), ids.len());
            let oldest = ids.len().saturating_sub(last.saturating_add(MAX_MISSING));
            while messages.len() < last && end > oldest {
                // Some of them may be gone by now.
                let some = newest(&ids[..end], last - messages.len());
                end -= some.len();
                for dir in &dirs {
                    messages.extend(read_all(dir, some, limit).messages);
                }
            }
            messages.sort_by(|one, other| one.order().cmp(&other.order()));
            messages.drain(..messages.len().saturating_sub(last));
            Ok(messages)
        })
        .await
    }

    /// Everything in a channel after one of its messages.
    pub async fn read_after(&self, channel: &Name, id: &str) -> Result<Transcript, ChannelError> {
        let mut reading = self.read(channel, None).await?;
        if let Some(place) = reading.messages.iter().position(|message| message.id == id) {
            reading.messages.drain(..=place);
            return Ok(reading);
        }
        let (id, channel) = (id.to_owned(), channel.clone());
        let (Some(oldest), Some(newest)) = (reading.messages.first(), reading.messages.last()) else {
            return Err(ChannelError::UnknownMessage { id, channel });
        };
        let named = self.hub().find_by_native(Some(Door::Channels), &id).await?;
        Err(if named.iter().any(|(scope, _)| scope.eq_ignore_ascii_case(channel.as_str())) {
            ChannelError::Expired { id, channel, oldest: oldest.id.clone() }
        } else if second_of(&id) > second_of(&newest.id) {
            ChannelError::Ahead { id, channel, newest: newest.id.clone() }
        } else {
            ChannelError::UnknownMessage { id, channel }
        })
    }

    /// The channels there are.
    pub async fn list(&self) -> Result<Vec<ChannelSummary>, ChannelError> {
        let (tree, limit) = (self.tree().clone(), self.config().file_limit);
        blocking(move || {
            let mut list = Vec::new();
            for channel in tree.channel_names()? {
                // A plain file beside the channels is none.
                let Ok(Some(dir)) = tree.channel(&channel) else { continue };
                let ids = message_ids(&dir)?;
                let mut archived = 0;
                for month in archives(&dir)? {
                    archived += message_ids(&month)?.len();
                }
                let newest = read_all(&dir, newest(&ids, 1), limit).messages.pop();
                list.push(ChannelSummary { channel, messages: ids.len(), archived, newest });
            }
            Ok(list)
        })
        .await
    }

    /// Follows a channel from after the messages in `seen`. The channel is made where it is missing.
    pub async fn follow(&self, channel: &Name, seen: &Transcript) -> Result<Follower, ChannelError> {
        let (tree, place) = (self.tree().clone(), channel.clone());
        let dir = blocking(move || match tree.channel(&place)? {
            Some(there) => Ok(there),
            None => tree.create_channel(&place),
        });
        let dir = dir.await?;
        let unreadable = seen.unreadable.iter().filter_map(|(name, _)| id_of_file(name)).map(str::to_owned);
        let ids = seen.messages.iter().map(|message| message.id.clone()).chain(unreadable).collect();
        Ok(Follower {
            channels: self.clone(),
            channel: channel.clone(),
            seen: Arc::new(Mutex::new(Seen { ids, looked: None })),
            watcher: FolderWatcher::open(&dir, RecursiveMode::NonRecursive, is_message_file, self.config())
                .await,
            changes: Some(Changes::Unknown),
            found: false,
        })
    }
}

impl Follower {
    /// What is new, in order; returns when there is something.
    pub async fn next(&mut self) -> Result<Transcript, ChannelError> {
        loop {
            if let Some(changes) = self.changes.clone() {
                let (channels, channel, seen) =
                    (self.channels.clone(), self.channel.clone(), self.seen.clone());
                let reading = blocking(move || read_new(&channels, &channel, &seen, &changes)).await?;
                self.changes = None;
                self.found = !reading.messages.is_empty();
                if self.found {
                    let shown = reading.messages.iter().map(|message| message.id.clone());
                    self.seen.lock().ids.extend(shown);
                    return Ok(reading);
                }
            }
            self.changes = self.watcher.next(self.found, Duration::MAX).await;
        }
    }
}

/// What a follower has not been shown.
fn read_new(
    channels: &Channels,
    channel: &Name,
    seen: &Mutex<Seen>,
    changes: &Changes,
) -> Result<Transcript, ChannelError> {
    let dir = channels.tree().existing_channel(channel)?;
    if let Changes::Named(paths) = changes {
        let names = paths.iter().filter_map(|path| id_of_file(path.file_name()?.to_str()?));
        let mut ids: Vec<String> = names.map(str::to_owned).collect();
        ids.retain(|id| !seen.lock().ids.contains(id));
        return Ok(read_all(&dir, &ids, channels.config().file_limit));
    }
    let looked = FolderStamp::at(&dir, channels.hub().now(), channels.config())?;
    let mut seen = seen.lock();
    if looked.is_unchanged_since(seen.looked.as_ref()) {
        return Ok(Transcript::default());
    }
    let mut ids = message_ids(&dir)?;
    ids.retain(|id| !seen.ids.contains(id));
    let reading = read_all(&dir, &ids, channels.config().file_limit);
    // What cannot be read yet may be half written: it is looked at again.
    seen.looked = reading.unreadable.is_empty().then_some(looked).filter(FolderStamp::is_settled);
    Ok(reading)
}

/// The ids of the messages in a folder, sorted by name. No file is looked at: the name has all.
pub(crate) fn message_ids(dir: &Dir) -> Result<Vec<String>, ChannelError> {
    Ok(dir.names()?.iter().filter_map(|name| id_of_file(name)).map(str::to_owned).collect())
}

/// At least the last so many, up to the beginning of a second: within one, names say nothing about the order.
fn newest(ids: &[String], last: usize) -> &[String] {
    let second = |id: &String| id.as_bytes().get(..SECOND).map(<[u8]>::to_vec);
    let mut start = ids.len().saturating_sub(last);
    while start > 0 && start < ids.len() && second(&ids[start]) == second(&ids[start - 1]) {
        start -= 1;
    }
    &ids[start..]
}

/// Most messages without a file, deleted or archived, that are passed over to find those before them.
const MAX_MISSING: usize = 1000;

/// The length of `msg-YYYYMMDD-HHMMSS`.
const SECOND: usize = 19;

fn read_all(dir: &Dir, ids: &[String], limit: u64) -> Transcript {
    let mut reading = Transcript::default();
    for id in ids {
        let name = file_name(id);
        match dir.read(&name, limit) {
            Ok(None) => {}
            Ok(Some(read)) => match ChannelMessage::parse(&read.bytes) {
                // The name is what others find it by.
                Ok(message) => reading.messages.push(ChannelMessage { id: id.clone(), ..message }),
                Err(error) => reading.unreadable.push((name, error.to_string())),
            },
            Err(error) => reading.unreadable.push((name, describe(&error))),
        }
    }
    reading.messages.sort_by(|one, other| one.order().cmp(&other.order()));
    reading
}

#[cfg(test)]
#[path = "reading_tests.rs"]
mod tests;
