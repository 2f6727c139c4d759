//! The folder that a team shares: where everything is.

use std::path::Path;
use std::sync::Arc;

use switchboard_core::{Name, nearest};
use switchboard_hub::files::{Dir, Durability, FileError};

use crate::error::ChannelError;
use crate::names::is_month;

/// Where the channels are.
pub(crate) const CHANNELS: &str = "channels";

/// Where old messages of a channel are, inside its folder.
const ARCHIVE: &str = "archive";

/// Where everything is that is no message.
const SIGNALS: &str = "signals";

/// The file that tells a shared folder from every other.
const IDENTITY: &str = "folder";

/// The shared folder. Every path below it is made of validated names.
#[derive(Debug, Clone)]
pub struct Tree {
    root: Root,
}

#[derive(Debug, Clone)]
enum Root {
    /// A workspace's own folder, held open.
    Own(Dir),
    /// A folder that can be a mount. Nothing of it is held open, which would keep it from being unmounted: each use opens the
    /// path again and checks that it leads to the folder of this identity, and not to the bare mount point.
    Shared { path: Arc<Path>, identity: Option<Arc<str>> },
}

impl Tree {
    /// Opens the folder, which must exist: a network mount that is missing must not become a folder beneath it.
    ///
    /// Of one that several users share, all of them may use what is in it. `known` is the identity of the folder that this hub
    /// has used at that path: without it, the folder is another one.
    pub fn open(root: &Path, is_shared: bool, known: Option<&str>) -> Result<Self, ChannelError> {
        if !is_shared {
            let dir = Dir::open_root(root).map_err(|source| missing(root, source))?;
            return Ok(Self { root: Root::Own(dir) });
        }
        let mut tree = Self { root: Root::Shared { path: root.into(), identity: known.map(Into::into) } };
        let dir = tree.root()?;
        if known.is_none() {
            // Where nothing can be written, nothing is posted either.
            let identity = make_identity(&dir).ok().map(Into::into);
            tree.root = Root::Shared { path: root.into(), identity };
        }
        Ok(tree)
    }

    /// The folder itself; an error where its mount is missing.
    pub fn root(&self) -> Result<Dir, ChannelError> {
        let (path, identity) = match &self.root {
            Root::Own(dir) => return Ok(dir.clone()),
            Root::Shared { path, identity } => (path, identity),
        };
        let dir = Dir::open_shared(path).map_err(|source| missing(path, source))?;
        let Some(expected) = identity.as_deref() else { return Ok(dir) };
        let found = match dir.subdir(SIGNALS)? {
            Some(signals) => read_identity(&signals)?,
            None => None,
        };
        match found {
            Some(found) if found == expected => Ok(dir),
            found => {
                Err(ChannelError::AnotherFolder { path: path.to_path_buf(), has_identity: found.is_some() })
            }
        }
    }

    /// The folder of all channels, made where it is missing.
    pub(crate) fn channels(&self) -> Result<Dir, ChannelError> {
        Ok(self.root()?.make_subdir(CHANNELS)?)
    }

    /// A channel's folder, where it exists.
    pub(crate) fn channel(&self, channel: &Name) -> Result<Option<Dir>, ChannelError> {
        let Some(channels) = self.root()?.subdir(CHANNELS)? else { return Ok(None) };
        Ok(folder_of(&channels, channel)?)
    }

    /// All folders of a channel: where the file system tells letter cases apart, other programs can have made several.
    pub(crate) fn folders(&self, channel: &Name) -> Result<Vec<Dir>, ChannelError> {
        match self.root()?.subdir(CHANNELS)? {
            Some(channels) => Ok(folders_of(&channels, channel)?),
            None => Ok(Vec::new()),
        }
    }

    /// A channel's folder, or an error that names those like it.
    pub(crate) fn known_channel(&self, channel: &Name) -> Result<Dir, ChannelError> {
        if let Some(dir) = self.channel(channel)? {
            return Ok(dir);
        }
        let names = self.channel_names()?;
        let near = nearest(channel.as_str(), names.iter().map(Name::as_str));
        Err(ChannelError::UnknownChannel { channel: channel.clone(), near })
    }

    /// A channel's folder, made where it is missing: a channel begins with its first message. One whose name differs in letter
    /// case alone is the same channel.
    pub(crate) fn make_channel(&self, channel: &Name) -> Result<Dir, ChannelError> {
        let channels = self.channels()?;
        match folder_of(&channels, channel)? {
            Some(there) => Ok(there),
            None => Ok(channels.make_subdir(channel.as_str())?),
        }
    }

    /// The channels there are, sorted. What cannot be the name of one is left out.
    pub(crate) fn channel_names(&self) -> Result<Vec<Name>, ChannelError> {
        let Some(channels) = self.root()?.subdir(CHANNELS)? else { return Ok(Vec::new()) };
        let names = channels.names()?.into_iter().filter(|name| !name.starts_with('.'));
        Ok(names.filter_map(|name| Name::parse(&name).ok()).collect())
    }

    /// The folder of heartbeat files, made where it is missing.
    pub(crate) fn presence(&self) -> Result<Dir, ChannelError> {
        Ok(self.signals()?.make_subdir("presence")?)
    }

    /// The folder that says which watcher is at which message, one folder per agent.
    pub(crate) fn claims(&self, agent: &Name) -> Result<Dir, ChannelError> {
        Ok(self.signals()?.make_subdir("claims")?.make_subdir(agent.as_str())?)
    }

    /// The folders of all agents that have watched.
    pub(crate) fn claims_of_all(&self) -> Result<Vec<Dir>, ChannelError> {
        let claims = self.signals()?.make_subdir("claims")?;
        let names = claims.names()?;
        Ok(names.iter().filter_map(|name| claims.subdir(name).ok().flatten()).collect())
    }

    /// The folder of the watchers' logs.
    pub(crate) fn logs(&self) -> Result<Dir, ChannelError> {
        Ok(self.root()?.make_subdir("logs")?)
    }

    /// What tells this folder from every other, for all who share it. The first who asks makes it.
    pub(crate) fn identity(&self) -> Result<String, ChannelError> {
        match &self.root {
            Root::Shared { identity: Some(identity), .. } => Ok(identity.to_string()),
            Root::Own(_) | Root::Shared { identity: None, .. } => Ok(make_identity(&self.root()?)?),
        }
    }

    fn signals(&self) -> Result<Dir, ChannelError> {
        Ok(self.root()?.make_subdir(SIGNALS)?)
    }
}

fn missing(path: &Path, source: FileError) -> ChannelError {
    ChannelError::Root { path: path.to_owned(), source }
}

fn read_identity(signals: &Dir) -> Result<Option<String>, FileError> {
    let found = signals.read(IDENTITY, 1 << 10)?;
    Ok(found.map(|found| String::from_utf8_lossy(&found.bytes).into_owned()))
}

fn make_identity(root: &Dir) -> Result<String, FileError> {
    let signals = root.make_subdir(SIGNALS)?;
    if let Some(found) = read_identity(&signals)? {
        return Ok(found);
    }
    let new = format!("{:032x}", fastrand::u128(..));
    signals.create_new(IDENTITY, new.as_bytes(), Durability::Synced)?;
    // Another process may have been quicker.
    Ok(read_identity(&signals)?.unwrap_or(new))
}

/// A channel's folder among all, where it exists.
fn folder_of(channels: &Dir, channel: &Name) -> Result<Option<Dir>, FileError> {
    match channels.subdir(channel.as_str())? {
        Some(there) => Ok(Some(there)),
        None => Ok(folders_of(channels, channel)?.into_iter().next()),
    }
}

fn folders_of(channels: &Dir, channel: &Name) -> Result<Vec<Dir>, FileError> {
    let names = channels.names()?.into_iter().filter(|name| name.eq_ignore_ascii_case(channel.as_str()));
    // A plain file beside the channels is none.
    Ok(names.filter_map(|name| channels.subdir(&name).ok().flatten()).collect())
}

/// The folder of a month in the archive of a channel, made where it is missing.
pub(crate) fn make_archive(channel: &Dir, month: &str) -> Result<Dir, FileError> {
    channel.make_subdir(ARCHIVE)?.make_subdir(month)
}

/// The folders of the archive of a channel, oldest first.
pub(crate) fn archives(channel: &Dir) -> Result<Vec<Dir>, FileError> {
    let Some(archive) = channel.subdir(ARCHIVE)? else { return Ok(Vec::new()) };
    let months = archive.names()?.into_iter().filter(|name| is_month(name));
    // What is called like a month and is no folder is none of ours.
    Ok(months.filter_map(|month| archive.subdir(&month).ok().flatten()).collect())
}

/// Runs file work on a thread that may wait.
pub(crate) async fn blocking<T, F>(work: F) -> Result<T, ChannelError>
where
    T: Send + 'static,
    F: FnOnce() -> Result<T, ChannelError> + Send + 'static,
{
    switchboard_hub::blocking::run(work).await.map_err(|_| ChannelError::Closed)?
}

#[cfg(test)]
#[path = "tree_tests.rs"]
mod tests;
