//! The folder that a team shares: where everything is.

use std::path::Path;
use std::sync::Arc;

use switchboard_core::{Name, nearest};
use switchboard_sys::files::{Dir, Durability, FileError};

use crate::error::ChannelError;
use crate::ids::is_month;

/// Where the channels are.
pub(crate) const CHANNELS: &str = "channels";

/// Where old messages of a channel are, inside its folder.
const ARCHIVE: &str = "archive";

/// Where everything is that is no message.
const SIGNALS: &str = "signals";

/// Where the heartbeat files are, among the signals.
const PRESENCE: &str = "presence";

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
    Shared { path: Arc<Path>, mark: Mark },
}

/// Mark that distinguishes a mounted folder from its bare mount point.
#[derive(Debug, Clone)]
enum Mark {
    /// The identity that the folder has.
    Known(Arc<str>),
    /// It has none that is noted, and why not. Nothing is written into it.
    Missing(Arc<ChannelError>),
}

impl Tree {
    /// Opens the folder, which must exist: a network mount that is missing must not become a folder beneath it.
    ///
    /// Of one that several users share, all of them may use what is in it. `channels_state` is the identity of the folder that this hub
    /// has used at that path: without it, the folder is another one.
    pub fn open(root: &Path, is_shared: bool, known: Option<&str>) -> Result<Self, ChannelError> {
        if !is_shared {
            let dir = Dir::open_root(root).map_err(|source| missing(root, source))?;
            return Ok(Self { root: Root::Own(dir) });
        }
        let path: Arc<Path> = root.into();
        let Some(known) = known else {
            let dir = Dir::open_shared(&path).map_err(|source| missing(&path, source))?;
            let mark = match create_identity(&dir) {
                Ok(identity) => Mark::Known(identity.into()),
                Err(error) => Mark::Missing(Arc::new(error.into())),
            };
            return Ok(Self { root: Root::Shared { path, mark } });
        };
        let tree = Self { root: Root::Shared { path, mark: Mark::Known(known.into()) } };
        tree.root()?;
        Ok(tree)
    }

    /// The same folder, for reading alone: the hub could not note its identity.
    pub(crate) fn into_read_only(self, why: ChannelError) -> Self {
        match self.root {
            Root::Own(_) => self,
            Root::Shared { path, .. } => {
                Self { root: Root::Shared { path, mark: Mark::Missing(Arc::new(why)) } }
            }
        }
    }

    /// The folder itself, to read from; an error where its mount is missing.
    pub fn root(&self) -> Result<Dir, ChannelError> {
        let (path, mark) = match &self.root {
            Root::Own(dir) => return Ok(dir.clone()),
            Root::Shared { path, mark } => (path, mark),
        };
        let dir = Dir::open_shared(path).map_err(|source| missing(path, source))?;
        let Mark::Known(expected) = mark else { return Ok(dir) };
        let found = match dir.subdir(SIGNALS)? {
            Some(signals) => read_identity(&signals)?,
            None => None,
        };
        match found {
            Some(found) if *found == **expected => Ok(dir),
            found => Err(ChannelError::IdentityMismatch {
                path: path.to_path_buf(),
                has_identity: found.is_some(),
            }),
        }
    }

    /// The folder itself, to write into. Without a known identity it may be a bare mount point tomorrow, so that is an error.
    pub(crate) fn writable_root(&self) -> Result<Dir, ChannelError> {
        match &self.root {
            Root::Shared { path, mark: Mark::Missing(why) } => {
                Err(ChannelError::NoIdentity { path: path.to_path_buf(), source: why.clone() })
            }
            _ => self.root(),
        }
    }

    /// The folder of all channels, made where it is missing.
    pub(crate) fn channels(&self) -> Result<Dir, ChannelError> {
        Ok(self.writable_root()?.make_subdir(CHANNELS)?)
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
    pub(crate) fn existing_channel(&self, channel: &Name) -> Result<Dir, ChannelError> {
        if let Some(dir) = self.channel(channel)? {
            return Ok(dir);
        }
        let names = self.channel_names()?;
        let near = nearest(channel.as_str(), names.iter().map(Name::as_str));
        Err(ChannelError::UnknownChannel { channel: channel.clone(), near })
    }

    /// A channel's folder, made where it is missing: a channel begins with its first message. One whose name differs in letter
    /// case alone is the same channel.
    pub(crate) fn create_channel(&self, channel: &Name) -> Result<Dir, ChannelError> {
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

    /// The folder of heartbeat files, where it exists.
    pub(crate) fn existing_presence(&self) -> Result<Option<Dir>, ChannelError> {
        match self.root()?.subdir(SIGNALS)? {
            Some(signals) => Ok(signals.subdir(PRESENCE)?),
            None => Ok(None),
        }
    }

    /// The folder of heartbeat files, made where it is missing.
    pub(crate) fn presence(&self) -> Result<Dir, ChannelError> {
        Ok(self.signals()?.make_subdir(PRESENCE)?)
    }

    /// The folder that says which watcher is at which message, one folder per agent.
    pub(crate) fn lease_folder(&self, agent: &Name) -> Result<Dir, ChannelError> {
        Ok(self.signals()?.make_subdir("claims")?.make_subdir(agent.as_str())?)
    }

    /// The folders of all agents that have watched.
    pub(crate) fn lease_folders(&self) -> Result<Vec<Dir>, ChannelError> {
        let leases = self.signals()?.make_subdir("claims")?;
        let names = leases.names()?;
        Ok(names.iter().filter_map(|name| leases.subdir(name).ok().flatten()).collect())
    }

    /// The folder of the watchers' logs.
    pub(crate) fn logs(&self) -> Result<Dir, ChannelError> {
        Ok(self.writable_root()?.make_subdir("logs")?)
    }

    /// What tells this folder from every other, for all who share it. The first who asks makes it.
    pub(crate) fn identity(&self) -> Result<String, ChannelError> {
        match &self.root {
            Root::Shared { mark: Mark::Known(identity), .. } => Ok(identity.to_string()),
            _ => Ok(create_identity(&self.writable_root()?)?),
        }
    }

    fn signals(&self) -> Result<Dir, ChannelError> {
        Ok(self.writable_root()?.make_subdir(SIGNALS)?)
    }
}

fn missing(path: &Path, source: FileError) -> ChannelError {
    ChannelError::Root { path: path.to_owned(), source }
}

fn read_identity(signals: &Dir) -> Result<Option<String>, FileError> {
    let found = signals.read(IDENTITY, 1 << 10)?;
    Ok(found.map(|found| String::from_utf8_lossy(&found.bytes).into_owned()))
}

fn create_identity(root: &Dir) -> Result<String, FileError> {
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
pub(crate) fn create_archive(channel: &Dir, month: &str) -> Result<Dir, FileError> {
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
    switchboard_sys::blocking::run(work).await.map_err(|_| ChannelError::Closed)?
}

#[cfg(test)]
#[path = "tree_tests.rs"]
mod tests;
