//! The folder that a team shares: where everything is.

use std::path::Path;

use switchboard_core::{Name, nearest};
use switchboard_hub::files::{Dir, Durability, FileError};

use crate::error::ChannelError;
use crate::names::is_month;

/// Where the channels are.
pub(crate) const CHANNELS: &str = "channels";

/// Where old messages of a channel are, inside its folder.
const ARCHIVE: &str = "archive";

/// The file that tells a shared folder from every other.
const IDENTITY: &str = "folder";

/// The shared folder. Every path below it is made of validated names.
#[derive(Debug, Clone)]
pub struct Tree {
    root: Dir,
}

impl Tree {
    /// Opens the folder, which must exist: a network mount that is missing must not become a folder beneath it.
    ///
    /// Of one that several users share, all of them may use what is in it.
    pub fn open(root: &Path, is_shared: bool) -> Result<Self, ChannelError> {
        match if is_shared { Dir::open_shared(root) } else { Dir::open_root(root) } {
            Ok(root) => Ok(Self { root }),
            Err(source) => Err(ChannelError::Root { path: root.to_owned(), source }),
        }
    }

    /// The folder itself.
    pub fn root(&self) -> &Dir {
        &self.root
    }

    /// The folder of all channels, made where it is missing.
    pub(crate) fn channels(&self) -> Result<Dir, FileError> {
        self.root.make_subdir(CHANNELS)
    }

    /// A channel's folder, where it exists.
    pub(crate) fn channel(&self, channel: &Name) -> Result<Option<Dir>, FileError> {
        match self.root.subdir(CHANNELS)? {
            Some(channels) => match channels.subdir(channel.as_str())? {
                Some(there) => Ok(Some(there)),
                None => Ok(folders_of(&channels, channel)?.into_iter().next()),
            },
            None => Ok(None),
        }
    }

    /// All folders of a channel: where the file system tells letter cases apart, other programs can have made several.
    pub(crate) fn folders(&self, channel: &Name) -> Result<Vec<Dir>, FileError> {
        match self.root.subdir(CHANNELS)? {
            Some(channels) => folders_of(&channels, channel),
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
    pub(crate) fn make_channel(&self, channel: &Name) -> Result<Dir, FileError> {
        match self.channel(channel)? {
            Some(there) => Ok(there),
            None => self.channels()?.make_subdir(channel.as_str()),
        }
    }

    /// The channels there are, sorted. What cannot be the name of one is left out.
    pub(crate) fn channel_names(&self) -> Result<Vec<Name>, FileError> {
        let Some(channels) = self.root.subdir(CHANNELS)? else { return Ok(Vec::new()) };
        let names = channels.names()?.into_iter().filter(|name| !name.starts_with('.'));
        Ok(names.filter_map(|name| Name::parse(&name).ok()).collect())
    }

    /// The folder of heartbeat files, made where it is missing.
    pub(crate) fn presence(&self) -> Result<Dir, FileError> {
        self.signals()?.make_subdir("presence")
    }

    /// The folder that says which watcher is at which message, one folder per agent.
    pub(crate) fn claims(&self, agent: &Name) -> Result<Dir, FileError> {
        self.signals()?.make_subdir("claims")?.make_subdir(agent.as_str())
    }

    /// The folders of all agents that have watched.
    pub(crate) fn claims_of_all(&self) -> Result<Vec<Dir>, FileError> {
        let claims = self.signals()?.make_subdir("claims")?;
        let names = claims.names()?;
        Ok(names.iter().filter_map(|name| claims.subdir(name).ok().flatten()).collect())
    }

    /// The folder of the watchers' logs.
    pub(crate) fn logs(&self) -> Result<Dir, FileError> {
        self.root.make_subdir("logs")
    }

    /// What tells this folder from every other, for all who share it. The first who asks makes it.
    pub(crate) fn identity(&self) -> Result<String, FileError> {
        let signals = self.signals()?;
        let new = format!("{:032x}", fastrand::u128(..));
        if signals.stat(IDENTITY)?.is_none() {
            signals.create_new(IDENTITY, new.as_bytes(), Durability::Synced)?;
        }
        let found = signals.read(IDENTITY, 1 << 10)?;
        Ok(found.map_or(new, |found| String::from_utf8_lossy(&found.bytes).into_owned()))
    }

    fn signals(&self) -> Result<Dir, FileError> {
        self.root.make_subdir("signals")
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
