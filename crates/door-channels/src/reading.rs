//! Reading channels: in order, complete, and without a place in the journal.

use std::collections::HashSet;
use std::time::Duration;

use switchboard_core::Name;
use switchboard_hub::files::Dir;
use switchboard_hub::platform;

use crate::channels::Channels;
use crate::error::{ChannelError, describe};
use crate::hints::Hints;
use crate::names::{file_name, id_of_file};
use crate::tree::blocking;
use crate::wire::ChannelMessage;

/// Messages of a channel, in order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reading {
    /// The messages, by time and then by id.
    pub messages: Vec<ChannelMessage>,
    /// Files that are no messages, each with the reason.
    pub left_out: Vec<(String, String)>,
}

/// One channel at a glance.
#[derive(Debug, Clone, PartialEq)]
pub struct ChannelSummary {
    /// Its name.
    pub channel: Name,
    /// How many message files it has.
    pub messages: usize,
    /// The newest of them.
    pub newest: Option<ChannelMessage>,
}

/// Reads a channel as it grows. Each message comes once, however late its file appears.
pub struct Follower {
    channels: Channels,
    channel: Name,
    seen: HashSet<String>,
    hints: Option<Hints>,
    pause: Duration,
}

impl Channels {
    /// The last messages of a channel, or all of them.
    pub async fn read(&self, channel: &Name, last: Option<usize>) -> Result<Reading, ChannelError> {
        let (tree, channel, limit) = (self.tree().clone(), channel.clone(), self.config().file_limit);
        blocking(move || {
            let dir = tree.known_channel(&channel)?;
            let ids = message_ids(&dir)?;
            let ids = last.map_or(&ids[..], |last| newest(&ids, last));
            let mut reading = read_all(&dir, ids, limit);
            let extra = last.map_or(0, |last| reading.messages.len().saturating_sub(last));
            reading.messages.drain(..extra);
            Ok(reading)
        })
        .await
    }

    /// Everything in a channel after one of its messages.
    pub async fn read_after(&self, channel: &Name, id: &str) -> Result<Reading, ChannelError> {
        let mut reading = self.read(channel, None).await?;
        let Some(place) = reading.messages.iter().position(|message| message.id == id) else {
            return Err(ChannelError::UnknownMessage { id: id.to_owned(), channel: channel.clone() });
        };
        reading.messages.drain(..=place);
        Ok(reading)
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
                let newest = read_all(&dir, newest(&ids, 1), limit).messages.pop();
                list.push(ChannelSummary { channel, messages: ids.len(), newest });
            }
            Ok(list)
        })
        .await
    }

    /// Follows a channel from after the messages in `seen`. The channel is made where it is missing.
    pub async fn follow(&self, channel: &Name, seen: &Reading) -> Result<Follower, ChannelError> {
        let (tree, place) = (self.tree().clone(), channel.clone());
        let dir = blocking(move || Ok(tree.make_channel(&place)?)).await?;
        let config = self.config();
        let is_remote = platform::is_network_filesystem(dir.path());
        let left_out = seen.left_out.iter().filter_map(|(name, _)| id_of_file(name)).map(str::to_owned);
        Ok(Follower {
            channels: self.clone(),
            channel: channel.clone(),
            seen: seen.messages.iter().map(|message| message.id.clone()).chain(left_out).collect(),
            hints: Some(Hints::watch(dir.path())),
            pause: if is_remote { config.rescan_network } else { config.rescan },
        })
    }
}

impl Follower {
    /// What is new, in order; returns when there is something.
    pub async fn next(&mut self) -> Result<Reading, ChannelError> {
        loop {
            let (tree, limit) = (self.channels.tree().clone(), self.channels.config().file_limit);
            let (channel, seen) = (self.channel.clone(), self.seen.clone());
            let reading = blocking(move || {
                let dir = tree.known_channel(&channel)?;
                let ids: Vec<String> =
                    message_ids(&dir)?.into_iter().filter(|id| !seen.contains(id)).collect();
                Ok(read_all(&dir, &ids, limit))
            })
            .await?;
            // What cannot be read yet may be half written: it is looked at again.
            self.seen.extend(reading.messages.iter().map(|message| message.id.clone()));
            if !reading.messages.is_empty() {
                return Ok(reading);
            }
            match &self.hints {
                Some(hints) => hints.next(self.pause).await,
                None => tokio::time::sleep(self.pause).await,
            }
        }
    }
}

/// The ids of a channel's messages, sorted by name. No file is looked at: the name has all.
fn message_ids(dir: &Dir) -> Result<Vec<String>, ChannelError> {
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

/// The length of `msg-YYYYMMDD-HHMMSS`.
const SECOND: usize = 19;

fn read_all(dir: &Dir, ids: &[String], limit: u64) -> Reading {
    let mut reading = Reading::default();
    for id in ids {
        let name = file_name(id);
        match dir.read(&name, limit) {
            Ok(None) => {}
            Ok(Some(read)) => match ChannelMessage::parse(&read.bytes) {
                // The name is what others find it by.
                Ok(message) => reading.messages.push(ChannelMessage { id: id.clone(), ..message }),
                Err(error) => reading.left_out.push((name, error.to_string())),
            },
            Err(error) => reading.left_out.push((name, describe(&error))),
        }
    }
    reading.messages.sort_by(|one, other| one.order().cmp(&other.order()));
    reading
}

#[cfg(test)]
#[path = "reading_tests.rs"]
mod tests;
