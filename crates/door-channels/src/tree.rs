//! Folder layout of the shared channels folder.

use std::path::Path;
use std::sync::Arc;

use switchboard_core::{Name, suggest_similar};
use switchboard_sys::files::{Dir, Durability, FileError};

use crate::error::ChannelError;
use crate::ids::is_month;

/// Name of the folder that contains all channels.
pub(crate) const CHANNELS: &str = "channels";

/// Name of the archive folder inside a channel's folder.
const ARCHIVE: &str = "archive";

/// Name of the folder for everything that is not a message.
const SIGNALS: &str = "signals";

/// Name of the folder of heartbeat files, inside [`SIGNALS`].
const PRESENCE: &str = "presence";

/// Name of the file with the identity of the shared folder.
const IDENTITY: &str = "folder";

/// The shared folder. Every path below the root is built from validated names.
#[derive(Debug, Clone)]
pub struct Tree {
    root: Root,
}

#[derive(Debug, Clone)]
enum Root {
    /// Folder of a workspace, held open.
    Own(Dir),
    /// Folder that may be a mount point. It is never held open, which would prevent an unmount: each use opens the path
    /// and checks the identity, so that the bare mount point is not used.
    Shared { path: Arc<Path>, mark: Mark },
}

/// Mark that distinguishes a mounted folder from its bare mount point.
#[derive(Debug, Clone)]
enum Mark {
    /// The identity that is recorded for the folder.
    Known(Arc<str>),
    /// No identity is recorded, for the given reason, so the folder is read-only.
    Missing(Arc<ChannelError>),
}

impl Tree {
    /// Opens the folder, which must exist: a missing network mount must not be replaced by a new folder.
    ///
    /// If several users share the folder, new files get permissions for all of them. `known` is the identity that this
    /// hub recorded for the path; a folder with another identity is rejected.
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

    /// Makes the tree read-only, because the hub could not record its identity.
    pub(crate) fn into_read_only(self, reason: ChannelError) -> Self {
        match self.root {
            Root::Own(_) => self,
            Root::Shared { path, .. } => {
                Self { root: Root::Shared { path, mark: Mark::Missing(Arc::new(reason)) } }
            }
        }
    }

    /// Opens the root for reading; fails if its mount is missing.
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

    /// Opens the root for writing. Fails without a recorded identity, because the path may later be a bare mount point.
    pub(crate) fn writable_root(&self) -> Result<Dir, ChannelError> {
        match &self.root {
            Root::Shared { path, mark: Mark::Missing(why) } => {
                Err(ChannelError::NoIdentity { path: path.to_path_buf(), source: why.clone() })
            }
            _ => self.root(),
        }
    }

    /// Opens or creates the folder of all channels.
    pub(crate) fn channels(&self) -> Result<Dir, ChannelError> {
        Ok(self.writable_root()?.ensure_subdir(CHANNELS)?)
    }

    /// Opens a channel's folder, if it exists.
    pub(crate) fn channel(&self, channel: &Name) -> Result<Option<Dir>, ChannelError> {
        let Some(channels) = self.root()?.subdir(CHANNELS)? else { return Ok(None) };
        Ok(folder_of(&channels, channel)?)
    }

    /// Opens all folders of a channel: on a case-sensitive file system, other programs may have created
    /// several.
    pub(crate) fn folders(&self, channel: &Name) -> Result<Vec<Dir>, ChannelError> {
        match self.root()?.subdir(CHANNELS)? {
            Some(channels) => Ok(folders_of(&channels, channel)?),
            None => Ok(Vec::new()),
        }
    }

    /// Opens a channel's folder. If it does not exist, the error lists similar names.
    pub(crate) fn existing_channel(&self, channel: &Name) -> Result<Dir, ChannelError> {
        if let Some(dir) = self.channel(channel)? {
            return Ok(dir);
        }
        let names = self.channel_names()?;
        let near = suggest_similar(channel.as_str(), names.iter().map(Name::as_str));
        Err(ChannelError::UnknownChannel { channel: channel.clone(), near })
    }

    /// Opens or creates a channel's folder. Names that differ only in letter case are the same channel.
    pub(crate) fn create_channel(&self, channel: &Name) -> Result<Dir, ChannelError> {
        let channels = self.channels()?;
        match folder_of(&channels, channel)? {
            Some(existing) => Ok(existing),
            None => Ok(channels.ensure_subdir(channel.as_str())?),
        }
    }

    /// Lists the channels, sorted. Skips invalid names.
    pub(crate) fn channel_names(&self) -> Result<Vec<Name>, ChannelError> {
        let Some(channels) = self.root()?.subdir(CHANNELS)? else { return Ok(Vec::new()) };
        let names = channels.names()?.into_iter().filter(|name| !name.starts_with('.'));
        Ok(names.filter_map(|name| Name::parse(&name).ok()).collect())
    }

    /// Opens the folder of heartbeat files, if it exists.
    pub(crate) fn existing_presence(&self) -> Result<Option<Dir>, ChannelError> {
        match self.root()?.subdir(SIGNALS)? {
            Some(signals) => Ok(signals.subdir(PRESENCE)?),
            None => Ok(None),
        }
    }

    /// Opens or creates the folder of heartbeat files.
    pub(crate) fn presence(&self) -> Result<Dir, ChannelError> {
        Ok(self.signals()?.ensure_subdir(PRESENCE)?)
    }

    /// Opens or creates the folder with an agent's answer leases.
    pub(crate) fn lease_folder(&self, agent: &Name) -> Result<Dir, ChannelError> {
        Ok(self.signals()?.ensure_subdir("claims")?.ensure_subdir(agent.as_str())?)
    }

    /// Opens the answer lease folders of all agents that have watched.
    pub(crate) fn lease_folders(&self) -> Result<Vec<Dir>, ChannelError> {
        let leases = self.signals()?.ensure_subdir("claims")?;
        let names = leases.names()?;
        Ok(names.iter().filter_map(|name| leases.subdir(name).ok().flatten()).collect())
    }

    /// Opens or creates the folder of the watchers' logs.
    pub(crate) fn logs(&self) -> Result<Dir, ChannelError> {
        Ok(self.writable_root()?.ensure_subdir("logs")?)
    }

    /// Returns the identity of the folder; the first caller creates it.
    pub(crate) fn identity(&self) -> Result<String, ChannelError> {
        match &self.root {
            Root::Shared { mark: Mark::Known(identity), .. } => Ok(identity.to_string()),
            _ => Ok(create_identity(&self.writable_root()?)?),
        }
    }

    fn signals(&self) -> Result<Dir, ChannelError> {
        Ok(self.writable_root()?.ensure_subdir(SIGNALS)?)
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
    let signals = root.ensure_subdir(SIGNALS)?;
    if let Some(found) = read_identity(&signals)? {
        return Ok(found);
    }
    let new = format!("{:032x}", fastrand::u128(..));
    signals.create_new(IDENTITY, new.as_bytes(), Durability::Synced)?;
    // Another process may have created the identity first.
    Ok(read_identity(&signals)?.unwrap_or(new))
}

/// Opens a channel's folder, if it exists.
fn folder_of(channels: &Dir, channel: &Name) -> Result<Option<Dir>, FileError> {
    match channels.subdir(channel.as_str())? {
        Some(existing) => Ok(Some(existing)),
        None => Ok(folders_of(channels, channel)?.into_iter().next()),
    }
}

fn folders_of(channels: &Dir, channel: &Name) -> Result<Vec<Dir>, FileError> {
    let names = channels.names()?.into_iter().filter(|name| name.eq_ignore_ascii_case(channel.as_str()));
    // A plain file in the folder of channels is ignored.
    Ok(names.filter_map(|name| channels.subdir(&name).ok().flatten()).collect())
}

/// Opens or creates the archive folder of a month.
pub(crate) fn create_archive(channel: &Dir, month: &str) -> Result<Dir, FileError> {
    channel.ensure_subdir(ARCHIVE)?.ensure_subdir(month)
}

/// Opens the archive folders of a channel, oldest first.
pub(crate) fn archives(channel: &Dir) -> Result<Vec<Dir>, FileError> {
    let Some(archive) = channel.subdir(ARCHIVE)? else { return Ok(Vec::new()) };
    let months = archive.names()?.into_iter().filter(|name| is_month(name));
    // A plain file with the name of a month is ignored.
    Ok(months.filter_map(|month| archive.subdir(&month).ok().flatten()).collect())
}

/// Runs blocking file work on a thread for blocking work.
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
