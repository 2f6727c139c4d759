//! What can go wrong at the channels door.

use std::path::PathBuf;
use std::sync::Arc;

use switchboard_core::Name;
use switchboard_hub::HubError;
use switchboard_sys::files::FileError;

use crate::wire::Malformed;

/// Why the channels door did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// The folder that holds the channels is not there.
    #[error("the channels folder {} cannot be used", .path.display())]
    Root {
        /// Where it should be.
        path: PathBuf,
        /// What the system said.
        source: FileError,
    },
    /// The folder is another than the one that this hub has used at that path: mostly the bare mount point of a disk that is
    /// not mounted.
    #[error(
        "the channels folder {} is not the one that was used here before: {}",
        .path.display(),
        if *has_identity { "signals/folder has another identity" } else { "it has no signals/folder; is it mounted?" }
    )]
    IdentityMismatch {
        /// Where it is.
        path: PathBuf,
        /// Whether it is the folder of some other channels.
        has_identity: bool,
    },
    /// The folder has no identity, and none can be noted: nothing is written into it.
    #[error("the channels folder {} cannot be marked as the one that is used here", .path.display())]
    NoIdentity {
        /// Where it is.
        path: PathBuf,
        /// Why not.
        source: Arc<Self>,
    },
    /// A message that is accepted has no file yet.
    #[error("{id} is accepted, but its file is not written yet")]
    NotWritten {
        /// The message.
        id: switchboard_core::MessageId,
        /// Why not.
        source: Box<Self>,
    },
    /// There is no channel of that name.
    #[error("there is no channel '{channel}'")]
    UnknownChannel {
        /// The name as given.
        channel: Name,
        /// Channels that look like it, best first.
        near: Vec<String>,
    },
    /// Something that was given does not do.
    #[error("'{field}' {problem}")]
    Field {
        /// Which.
        field: &'static str,
        /// What is wrong with it, and what would do.
        problem: String,
    },
    /// A message that is answered is not in the channel.
    #[error("no message '{id}' is in the channel '{channel}'")]
    UnknownMessage {
        /// The id as given.
        id: String,
        /// Where it was looked for.
        channel: Name,
    },
    /// A place in a channel that it has not come to.
    #[error("'{id}' is ahead of the channel '{channel}', whose newest message is {newest}")]
    Ahead {
        /// The id as given.
        id: String,
        /// Where it was looked for.
        channel: Name,
        /// What the channel ends with now.
        newest: String,
    },
    /// A place in a channel that is gone: the message was there once.
    #[error("'{id}' is no longer in the channel '{channel}', whose oldest message is {oldest}")]
    Expired {
        /// The id as given.
        id: String,
        /// Where it was looked for.
        channel: Name,
        /// What the channel begins with now.
        oldest: String,
    },
    /// Another hub that shares the folder is about to write the file of a message.
    #[error("the file of {id} has not come yet")]
    FilePending {
        /// The message.
        id: switchboard_core::MessageId,
    },
    /// A file is not what the protocol says.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The hub said no.
    #[error(transparent)]
    Hub(#[from] HubError),
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The runtime is shutting down.
    #[error("the program is shutting down")]
    Closed,
}

impl ChannelError {
    /// Whether the folder of the channels cannot be used now, and may be back later.
    pub fn is_unmounted(&self) -> bool {
        match self {
            Self::Root { .. } | Self::IdentityMismatch { .. } | Self::NoIdentity { .. } => true,
            Self::NotWritten { source, .. } => source.is_unmounted(),
            _ => false,
        }
    }

    /// Whether the disk is full or read-only, so that nothing can be written. What is there can still be read.
    pub fn is_disk(&self) -> bool {
        matches!(self, Self::File(error) if error.is_disk())
    }
}

/// An error with its cause, in one line.
pub(crate) fn describe(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
