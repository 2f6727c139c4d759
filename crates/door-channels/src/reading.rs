//! Reading of channels, in order and complete, independent of the journal.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use switchboard_core::{Door, Name, error_chain};
use switchboard_sys::file_watcher::Depth;
use switchboard_sys::files::Dir;

use crate::channels::Channels;
use crate::error::ChannelError;
use crate::folder_stamp::FolderStamp;
use crate::folder_watcher::{Changes, FolderWatcher, is_message_file};
use crate::ids::{file_name, id_of_file, second_of};
use crate::tree::{archives, blocking};
use crate::wire::ChannelMessage;

/// Messages of a channel, in order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Transcript {
    /// Messages sorted by time, then by id.
    pub messages: Vec<ChannelMessage>,
    /// Files that are not valid messages, each with the reason.
    pub unreadable: Vec<(String, String)>,
}

/// Summary of one channel.
#[derive(Debug, Clone, PartialEq)]
pub struct ChannelSummary {
    /// Name of the channel.
    pub channel: Name,
    /// Number of message files, without the archive.
    pub messages: usize,
    /// Number of archived messages.
    pub archived: usize,
    /// Newest message outside the archive.
    pub newest: Option<ChannelMessage>,
}

/// Follower of a channel, which returns each new message once, however late its file is written.
pub struct Follower {
    channels: Channels,
    channel: Name,
    seen: Arc<Mutex<Seen>>,
    watcher: FolderWatcher,
    /// Changes to be read next.
    changes: Option<Changes>,
    /// True if the last read found messages.
    found: bool,
}

/// Messages that a follower has already returned.
#[derive(Default)]
struct Seen {
    ids: HashSet<String>,
    /// Folder stamp of the last complete read.
    looked: Option<FolderStamp>,
}

impl Channels {
    /// Reads the last messages of a channel, or all of them, including the archive.
    pub async fn read(&self, channel: &Name, last: Option<usize>) -> Result<Transcript, ChannelError> {
        let (tree, channel, limit) = (self.tree().clone(), channel.clone(), self.config().file_limit);
        blocking(move || {
            let dir = tree.existing_channel(&channel)?;
            let ids = message_ids(&dir)?;
            let mut reading = read_all(&dir, last.map_or(&ids[..], |last| newest(&ids, last)), limit);
            // While a message is being archived, it is in both folders.
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

    /// Returns the last ingested messages of a channel except one, in order, without listing its folder.
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
                // Some of the files may have been deleted meanwhile, so older ones are read until there are enough.
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

    /// Reads all messages of a channel after the given one.
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
        let named = self.hub().native_ids().find(Some(Door::Channels), &id).await?;
        Err(if named.iter().any(|(scope, _)| scope.eq_ignore_ascii_case(channel.as_str())) {
            ChannelError::Expired { id, channel, oldest: oldest.id.clone() }
        } else if second_of(&id) > second_of(&newest.id) {
            ChannelError::Ahead { id, channel, newest: newest.id.clone() }
        } else {
            ChannelError::UnknownMessage { id, channel }
        })
    }

    /// Lists the channels.
    pub async fn list(&self) -> Result<Vec<ChannelSummary>, ChannelError> {
        let (tree, limit) = (self.tree().clone(), self.config().file_limit);
        blocking(move || {
            let mut list = Vec::new();
            for channel in tree.channel_names()? {
                // A plain file in the folder of channels is ignored.
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

    /// Follows a channel from the messages in `seen` on. Creates the channel if it does not exist.
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
            watcher: FolderWatcher::open(&dir, Depth::Folder, is_message_file, self.config()).await,
            changes: Some(Changes::Unknown),
            found: false,
        })
    }
}

impl Follower {
    /// Waits for new messages and returns them in order.
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

/// Reads the messages that a follower has not returned.
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
    // An unreadable file may be incomplete and has to be read again.
    seen.looked = reading.unreadable.is_empty().then_some(looked).filter(FolderStamp::is_settled);
    Ok(reading)
}

/// Returns the ids of the messages in a folder, sorted by name, without opening a file.
pub(crate) fn message_ids(dir: &Dir) -> Result<Vec<String>, ChannelError> {
    Ok(dir.names()?.iter().filter_map(|name| id_of_file(name)).map(str::to_owned).collect())
}

/// Returns at least the last `last` ids. The slice starts at the start of a second, because names do not order messages
/// within a second.
fn newest(ids: &[String], last: usize) -> &[String] {
    let second = |id: &String| id.as_bytes().get(..SECOND).map(<[u8]>::to_vec);
    let mut start = ids.len().saturating_sub(last);
    while start > 0 && start < ids.len() && second(&ids[start]) == second(&ids[start - 1]) {
        start -= 1;
    }
    &ids[start..]
}

/// Maximum number of deleted or archived messages that are skipped to find earlier ones.
const MAX_MISSING: usize = 1000;

/// Length of `msg-YYYYMMDD-HHMMSS`.
const SECOND: usize = 19;

fn read_all(dir: &Dir, ids: &[String], limit: u64) -> Transcript {
    let mut reading = Transcript::default();
    for id in ids {
        let name = file_name(id);
        match dir.read(&name, limit) {
            Ok(None) => {}
            Ok(Some(read)) => match ChannelMessage::parse(&read.bytes) {
                // Use the id in the file name, not the one inside the file, because other messages refer to the file
                // name.
                Ok(message) => reading.messages.push(ChannelMessage { id: id.clone(), ..message }),
                Err(error) => reading.unreadable.push((name, error.to_string())),
            },
            Err(error) => reading.unreadable.push((name, error_chain(&error))),
        }
    }
    reading.messages.sort_by(|one, other| one.order().cmp(&other.order()));
    reading
}

#[cfg(test)]
#[path = "reading_tests.rs"]
mod tests;
