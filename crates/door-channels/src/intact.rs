//! Whether message files still are what was accepted: a channel only ever grows.
//!
//! Files are on other people's disks, and anyone may change them. The journal has each message as it was accepted, so
//! an edit or a removal can be told, and both versions are kept: what was accepted in the journal, and what
//! somebody made of it in the folder. Nothing is put back, since what others do to files is theirs to undo.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};

use switchboard_core::{Directory, Door, MessageId, Name};
use switchboard_hub::{HubError, Stored};
use switchboard_sys::files::Dir;

use crate::channels::Channels;
use crate::error::ChannelError;
use crate::names::{file_name, id_of_file};
use crate::reading::message_ids;
use crate::translate::says_the_same;
use crate::tree::{archives, blocking};
use crate::wire::ChannelMessage;

/// What happened to a file after its message was accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Altered {
    /// It says something else now.
    Edited {
        /// The file, below the shared folder.
        file: String,
        /// The message as it was accepted.
        id: MessageId,
    },
    /// It is gone, and not in the archive either.
    Deleted {
        /// Where it was, below the shared folder.
        file: String,
        /// The message as it was accepted.
        id: MessageId,
    },
    /// The whole channel is gone.
    Channel {
        /// The channel.
        channel: Name,
        /// How many messages were in it.
        messages: usize,
        /// The newest of them as it was accepted.
        id: MessageId,
    },
}

impl std::fmt::Display for Altered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Edited { file, .. } => write!(f, "{file} was edited after it was posted"),
            Self::Deleted { file, .. } => write!(f, "{file} was deleted after it was posted"),
            Self::Channel { channel, messages, .. } => {
                write!(
                    f,
                    "channels/{channel} was deleted, and {messages} of its messages are in no file any more"
                )
            }
        }
    }
}

impl Altered {
    /// The message as it was accepted, which the journal has.
    pub fn id(&self) -> MessageId {
        match self {
            Self::Edited { id, .. } | Self::Deleted { id, .. } | Self::Channel { id, .. } => *id,
        }
    }
}

impl Channels {
    /// Compares every message file of every channel with the journal. Changes nothing.
    pub async fn altered(&self) -> Result<Vec<Altered>, ChannelError> {
        let tree = self.tree().clone();
        let mut channels: BTreeSet<Name> =
            blocking(move || tree.channel_names()).await?.into_iter().collect();
        let there = channels.clone();
        // Of one whose folder is gone only the journal knows.
        let known = self.hub().scopes(Door::Channels).await?;
        channels.extend(known.iter().filter_map(|scope| Name::parse(scope).ok()));
        let mut altered = Vec::new();
        for channel in channels {
            let found = self.altered_in(&channel).await?;
            if there.contains(&channel) {
                altered.extend(found);
            } else if let Some(id) = found.iter().map(Altered::id).max() {
                altered.push(Altered::Channel { channel, messages: found.len(), id });
            }
        }
        Ok(altered)
    }

    /// Channels that have several folders, whose names differ in letter case alone, each with the names.
    pub async fn twins(&self) -> Result<Vec<Vec<Name>>, ChannelError> {
        let tree = self.tree().clone();
        let names = blocking(move || tree.channel_names()).await?;
        let mut by_name: BTreeMap<Name, Vec<Name>> = BTreeMap::new();
        for name in names {
            by_name.entry(name.clone()).or_default().push(name);
        }
        Ok(by_name.into_values().filter(|spellings| spellings.len() > 1).collect())
    }

    async fn altered_in(&self, channel: &Name) -> Result<Vec<Altered>, ChannelError> {
        let directory = self.hub().directory().await?;
        // A file whose name is not the id it gives itself has two names, one of which is no file.
        let mut names: BTreeMap<MessageId, Vec<String>> = BTreeMap::new();
        for native in self.hub().native_ids(Door::Channels, channel.as_str()).await? {
            // What the hub itself says of a message goes by the hub's own id, and is in no file.
            if let Some(id) = self.message_named(channel, &native).await?
                && native != id.to_string()
            {
                names.entry(id).or_default().push(native);
            }
        }
        let places = self.places(channel).await?;
        let mut altered = Vec::new();
        for (id, natives) in names {
            let Some(stored) = self.readable(id).await? else { continue };
            let there: Vec<&String> = natives.iter().filter(|native| places.contains_key(*native)).collect();
            if there.is_empty() {
                let first = natives.iter().min().map(|native| shown(channel, native));
                altered.extend(first.map(|file| Altered::Deleted { file, id }));
            }
            for native in there {
                let Some(dir) = places.get(native) else { continue };
                if !self.is_intact(channel, dir, native, &stored, &directory).await? {
                    altered.push(Altered::Edited { file: shown(channel, native), id });
                }
            }
        }
        Ok(altered)
    }

    /// Compares files that an event says were changed with the journal, and tells of those that are not what was
    /// accepted.
    pub(crate) async fn check_touched(
        &self,
        channels: &Path,
        paths: Vec<PathBuf>,
    ) -> Result<(), ChannelError> {
        let touched: HashSet<_> = paths.iter().filter_map(|path| place_of(channels, path)).collect();
        if touched.is_empty() {
            return Ok(());
        }
        let directory = self.hub().directory().await?;
        for (channel, native) in touched {
            // What was not accepted yet is taken in as it is.
            let Some(stored) = self.accepted(&channel, &native).await? else { continue };
            let (file, id) = (shown(&channel, &native), stored.message.id);
            let altered = match self.place_of_message(&channel, &native).await? {
                None => Some(Altered::Deleted { file, id }),
                Some(dir) if self.is_intact(&channel, &dir, &native, &stored, &directory).await? => None,
                Some(_) => Some(Altered::Edited { file, id }),
            };
            self.tell(&channel, &native, altered.as_ref());
        }
        Ok(())
    }

    /// Tells of files that were there at the last look, unless they were moved to the archive.
    pub(crate) async fn tell_of_gone(&self, channel: &Name, gone: Vec<String>) -> Result<(), ChannelError> {
        if gone.is_empty() {
            return Ok(());
        }
        let places = self.places(channel).await?;
        for native in gone {
            if places.contains_key(&native) {
                continue;
            }
            // What was never accepted, or what the journal has let go, may go.
            let Some(stored) = self.accepted(channel, &native).await? else { continue };
            let altered = Altered::Deleted { file: shown(channel, &native), id: stored.message.id };
            self.tell(channel, &native, Some(&altered));
        }
        Ok(())
    }

    /// Says it once, until the file is what it was.
    fn tell(&self, channel: &Name, native: &str, altered: Option<&Altered>) {
        let key = (channel.clone(), native.to_owned());
        let mut told = self.told().lock();
        match altered {
            None => {
                told.remove(&key);
            }
            Some(altered) => {
                if told.insert(key) {
                    let id = altered.id();
                    tracing::warn!("{altered}; `switchboard thread {id}` shows what was accepted");
                }
            }
        }
    }

    async fn is_intact(
        &self,
        channel: &Name,
        dir: &Dir,
        native: &str,
        stored: &Stored,
        directory: &Directory,
    ) -> Result<bool, ChannelError> {
        let (dir, name, limit) = (dir.clone(), file_name(native), self.config().file_limit);
        let read = blocking(move || Ok(dir.read(&name, limit).ok().flatten())).await?;
        let file = read.and_then(|read| ChannelMessage::parse(&read.bytes).ok());
        Ok(file.is_some_and(|file| says_the_same(&file, &stored.message, channel, directory)))
    }

    async fn accepted(&self, channel: &Name, native: &str) -> Result<Option<Stored>, ChannelError> {
        match self.message_named(channel, native).await? {
            Some(id) => self.readable(id).await,
            None => Ok(None),
        }
    }

    /// A message as it was accepted. One that is damaged in the journal cannot be compared with its file, and is told of
    /// by whoever looks at the journal.
    async fn readable(&self, id: MessageId) -> Result<Option<Stored>, ChannelError> {
        match self.hub().message(id).await {
            Err(HubError::DamagedMessage { .. }) => Ok(None),
            found => Ok(found?),
        }
    }

    async fn message_named(&self, channel: &Name, native: &str) -> Result<Option<MessageId>, ChannelError> {
        let named = self.hub().find_by_native(Some(Door::Channels), native).await?;
        let here = named.into_iter().find(|(scope, _)| scope.eq_ignore_ascii_case(channel.as_str()));
        Ok(here.map(|(_, id)| id))
    }

    /// The folder that a message's file is in, be it in the archive.
    async fn place_of_message(&self, channel: &Name, native: &str) -> Result<Option<Dir>, ChannelError> {
        let (tree, channel, name) = (self.tree().clone(), channel.clone(), file_name(native));
        blocking(move || {
            for dir in tree.folders(&channel)? {
                let months = archives(&dir)?;
                let mut places = std::iter::once(dir).chain(months);
                if let Some(place) = places.find(|place| place.stat(&name).is_ok_and(|found| found.is_some()))
                {
                    return Ok(Some(place));
                }
            }
            Ok(None)
        })
        .await
    }

    /// Every message file of a channel, with the folder that it is in.
    async fn places(&self, channel: &Name) -> Result<HashMap<String, Dir>, ChannelError> {
        let (tree, channel) = (self.tree().clone(), channel.clone());
        blocking(move || {
            let mut places = HashMap::new();
            for dir in tree.folders(&channel)? {
                for folder in archives(&dir)?.into_iter().chain([dir]) {
                    places.extend(message_ids(&folder)?.into_iter().map(|id| (id, folder.clone())));
                }
            }
            Ok(places)
        })
        .await
    }
}

fn shown(channel: &Name, native: &str) -> String {
    format!("channels/{channel}/{native}.json")
}

/// The channel and the id of a message file, by its path; the archive's folders lie between the two.
fn place_of(channels: &Path, path: &Path) -> Option<(Name, String)> {
    let below = path.strip_prefix(channels).ok()?;
    let channel = below.components().next()?.as_os_str().to_str()?;
    let native = id_of_file(below.file_name()?.to_str()?)?;
    Some((Name::parse(channel).ok()?, native.to_owned()))
}

#[cfg(test)]
#[path = "intact_tests.rs"]
mod tests;
