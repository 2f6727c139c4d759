//! Integrity of message files: detection of files that were edited or deleted after they were accepted.
//!
//! Other programs can change the files. The journal has each message as accepted, so tampering is detectable, and both
//! versions remain: the accepted one in the journal and the changed one in the folder. Nothing is restored, because
//! only the users of the folder may undo each other's changes.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};

use switchboard_core::{Directory, Door, MessageId, Name};
use switchboard_hub::{HubError, Stored};
use switchboard_sys::files::Dir;

use crate::channels::Channels;
use crate::error::ChannelError;
use crate::ids::{file_name, id_of_file};
use crate::reading::message_ids;
use crate::translate::is_unmodified;
use crate::tree::{archives, blocking};
use crate::wire::ChannelMessage;

/// Change of a file after its message was accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tampering {
    /// The file has other content than the accepted message.
    Edited {
        /// Path of the file below the shared folder.
        file: String,
        /// Accepted message.
        id: MessageId,
    },
    /// The file is missing, also from the archive.
    Deleted {
        /// Former path of the file below the shared folder.
        file: String,
        /// Accepted message.
        id: MessageId,
    },
    /// The folder of a whole channel is missing.
    Channel {
        /// Name of the channel.
        channel: Name,
        /// Number of accepted messages of the channel.
        messages: usize,
        /// Newest accepted message of the channel.
        id: MessageId,
    },
}

impl std::fmt::Display for Tampering {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Edited { file, .. } => write!(f, "{file} was changed after it was posted"),
            Self::Deleted { file, .. } => write!(f, "{file} was deleted after it was posted"),
            Self::Channel { channel, messages, .. } => {
                write!(f, "channels/{channel} was deleted, and {messages} of its messages now have no file")
            }
        }
    }
}

impl Tampering {
    /// Returns the id of the accepted message, which the journal has.
    pub fn id(&self) -> MessageId {
        match self {
            Self::Edited { id, .. } | Self::Deleted { id, .. } | Self::Channel { id, .. } => *id,
        }
    }
}

impl Channels {
    /// Compares every message file of every channel with the journal, read-only.
    pub async fn find_tampering(&self) -> Result<Vec<Tampering>, ChannelError> {
        let tree = self.tree().clone();
        let mut channels: BTreeSet<Name> =
            blocking(move || tree.channel_names()).await?.into_iter().collect();
        let with_folder = channels.clone();
        // A channel whose folder is missing is known only from the journal.
        let known = self.hub().native_ids().scopes(Door::Channels).await?;
        channels.extend(known.iter().filter_map(|scope| Name::parse(scope).ok()));
        let mut tampering = Vec::new();
        for channel in channels {
            let found = self.find_tampering_in(&channel).await?;
            if with_folder.contains(&channel) {
                tampering.extend(found);
            } else if let Some(id) = found.iter().map(Tampering::id).max() {
                tampering.push(Tampering::Channel { channel, messages: found.len(), id });
            }
        }
        Ok(tampering)
    }

    /// Finds channels with several folders whose names differ only in letter case.
    pub async fn find_case_conflicts(&self) -> Result<Vec<Vec<Name>>, ChannelError> {
        let tree = self.tree().clone();
        let names = blocking(move || tree.channel_names()).await?;
        let mut by_name: BTreeMap<Name, Vec<Name>> = BTreeMap::new();
        for name in names {
            by_name.entry(name.clone()).or_default().push(name);
        }
        Ok(by_name.into_values().filter(|spellings| spellings.len() > 1).collect())
    }

    async fn find_tampering_in(&self, channel: &Name) -> Result<Vec<Tampering>, ChannelError> {
        let directory = self.hub().directory().await?;
        // A message whose file name differs from the id inside the file has two ids, and only one of them names a file.
        let mut names: BTreeMap<MessageId, Vec<String>> = BTreeMap::new();
        for native in self.hub().native_ids().in_scope(Door::Channels, channel.as_str()).await? {
            // Notices of the hub only have the hub's own id, and no file.
            if let Some(id) = self.message_named(channel, &native).await?
                && native != id.to_string()
            {
                names.entry(id).or_default().push(native);
            }
        }
        let files = self.locate_files(channel).await?;
        let mut tampering = Vec::new();
        for (id, native_ids) in names {
            let Some(stored) = self.readable(id).await? else { continue };
            let present: Vec<&String> =
                native_ids.iter().filter(|native| files.contains_key(*native)).collect();
            if present.is_empty() {
                let first = native_ids.iter().min().map(|native| display_path(channel, native));
                tampering.extend(first.map(|file| Tampering::Deleted { file, id }));
            }
            for native in present {
                let Some(dir) = files.get(native) else { continue };
                if !self.is_intact(channel, dir, native, &stored, &directory).await? {
                    tampering.push(Tampering::Edited { file: display_path(channel, native), id });
                }
            }
        }
        Ok(tampering)
    }

    /// Compares files that an event reported as changed with the journal, and reports tampering.
    pub(crate) async fn check_touched(
        &self,
        channels: &Path,
        paths: Vec<PathBuf>,
    ) -> Result<(), ChannelError> {
        let touched: HashSet<_> = paths.iter().filter_map(|path| parse_path(channels, path)).collect();
        if touched.is_empty() {
            return Ok(());
        }
        let directory = self.hub().directory().await?;
        for (channel, native) in touched {
            // A file that is not accepted yet is ingested as it is.
            let Some(stored) = self.accepted(&channel, &native).await? else { continue };
            let (file, id) = (display_path(&channel, &native), stored.message.id);
            let tampering = match self.find_folder(&channel, &native).await? {
                None => Some(Tampering::Deleted { file, id }),
                Some(dir) if self.is_intact(&channel, &dir, &native, &stored, &directory).await? => None,
                Some(_) => Some(Tampering::Edited { file, id }),
            };
            self.report_once(&channel, &native, tampering.as_ref());
        }
        Ok(())
    }

    /// Reports files that the previous scan saw and that are missing now, unless they were archived.
    pub(crate) async fn report_deleted(&self, channel: &Name, gone: Vec<String>) -> Result<(), ChannelError> {
        if gone.is_empty() {
            return Ok(());
        }
        let files = self.locate_files(channel).await?;
        for native in gone {
            if files.contains_key(&native) {
                continue;
            }
            // Files that were never accepted, or whose messages retention removed from the journal, may be deleted.
            let Some(stored) = self.accepted(channel, &native).await? else { continue };
            let tampering =
                Tampering::Deleted { file: display_path(channel, &native), id: stored.message.id };
            self.report_once(channel, &native, Some(&tampering));
        }
        Ok(())
    }

    /// Reports tampering with a file once, until the file is restored.
    fn report_once(&self, channel: &Name, native: &str, tampering: Option<&Tampering>) {
        let key = (channel.clone(), native.to_owned());
        let mut reported = self.reported().lock();
        match tampering {
            None => {
                reported.remove(&key);
            }
            Some(tampering) => {
                if reported.insert(key) {
                    let id = tampering.id();
                    tracing::warn!("{tampering}; `switchboard thread {id}` shows what was accepted");
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
        Ok(file.is_some_and(|file| is_unmodified(&file, &stored.message, channel, directory)))
    }

    async fn accepted(&self, channel: &Name, native: &str) -> Result<Option<Stored>, ChannelError> {
        match self.message_named(channel, native).await? {
            Some(id) => self.readable(id).await,
            None => Ok(None),
        }
    }

    /// Returns an accepted message; `None` if its journal entry is damaged, which the journal's own check reports.
    async fn readable(&self, id: MessageId) -> Result<Option<Stored>, ChannelError> {
        match self.hub().journal().message(id).await {
            Err(HubError::DamagedMessage { .. }) => Ok(None),
            found => Ok(found?),
        }
    }

    async fn message_named(&self, channel: &Name, native: &str) -> Result<Option<MessageId>, ChannelError> {
        let named = self.hub().native_ids().find(Some(Door::Channels), native).await?;
        let in_channel = named.into_iter().find(|(scope, _)| scope.eq_ignore_ascii_case(channel.as_str()));
        Ok(in_channel.map(|(_, id)| id))
    }

    /// Finds the folder that holds a message's file, including the archive.
    async fn find_folder(&self, channel: &Name, native: &str) -> Result<Option<Dir>, ChannelError> {
        let (tree, channel, name) = (self.tree().clone(), channel.clone(), file_name(native));
        blocking(move || {
            for dir in tree.folders(&channel)? {
                let months = archives(&dir)?;
                let mut files = std::iter::once(dir).chain(months);
                if let Some(place) = files.find(|place| place.stat(&name).is_ok_and(|found| found.is_some()))
                {
                    return Ok(Some(place));
                }
            }
            Ok(None)
        })
        .await
    }

    /// Locates every message file of a channel, including the archive.
    async fn locate_files(&self, channel: &Name) -> Result<HashMap<String, Dir>, ChannelError> {
        let (tree, channel) = (self.tree().clone(), channel.clone());
        blocking(move || {
            let mut files = HashMap::new();
            for dir in tree.folders(&channel)? {
                for folder in archives(&dir)?.into_iter().chain([dir]) {
                    files.extend(message_ids(&folder)?.into_iter().map(|id| (id, folder.clone())));
                }
            }
            Ok(files)
        })
        .await
    }
}

fn display_path(channel: &Name, native: &str) -> String {
    format!("channels/{channel}/{native}.json")
}

/// Parses the channel and the message id from a file's path, which may be inside the archive.
fn parse_path(channels: &Path, path: &Path) -> Option<(Name, String)> {
    let below = path.strip_prefix(channels).ok()?;
    let channel = below.components().next()?.as_os_str().to_str()?;
    let native = id_of_file(below.file_name()?.to_str()?)?;
    Some((Name::parse(channel).ok()?, native.to_owned()))
}

#[cfg(test)]
#[path = "integrity_tests.rs"]
mod tests;
