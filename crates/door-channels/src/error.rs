//! Error type of the channels door.

use std::path::PathBuf;
use std::sync::Arc;

use switchboard_core::Name;
use switchboard_hub::HubError;
use switchboard_sys::files::FileError;

use crate::wire::Malformed;

/// Error of the channels door.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// The channels folder is missing or unusable.
    #[error("the channels folder {} cannot be used", .path.display())]
    Root {
        /// Configured path.
        path: PathBuf,
        /// Underlying file error.
        source: FileError,
    },
    /// The folder has another identity than the one last used at this path. Usually it is the mount point of a disk
    /// that is not mounted.
    #[error(
        "the channels folder {} is another one than before: {}",
        .path.display(),
        if *has_identity { "signals/folder has another identity" } else { "it has no signals/folder; is it mounted?" }
    )]
    IdentityMismatch {
        /// Path of the folder.
        path: PathBuf,
        /// True if the folder has the identity of another channels folder.
        has_identity: bool,
    },
    /// The folder has no identity and cannot be given one, so it is read-only.
    #[error("the channels folder {} cannot be marked with signals/folder", .path.display())]
    NoIdentity {
        /// Path of the folder.
        path: PathBuf,
        /// Reason why no identity can be created.
        source: Arc<Self>,
    },
    /// The message is accepted, but its file is not written yet.
    #[error("{id} is accepted, but its file is not written yet")]
    NotWritten {
        /// Id of the message.
        id: switchboard_core::MessageId,
        /// Reason why the file could not be written.
        source: Box<Self>,
    },
    /// No channel has this name.
    #[error("there is no channel '{channel}'")]
    UnknownChannel {
        /// Requested name.
        channel: Name,
        /// Names of similar channels, best match first.
        near: Vec<String>,
    },
    /// A field has an invalid value.
    #[error("'{field}' {problem}")]
    Field {
        /// Name of the field.
        field: &'static str,
        /// Description of the problem, and the valid values.
        problem: String,
    },
    /// The channel has no message with this id.
    #[error("no message '{id}' is in the channel '{channel}'")]
    UnknownMessage {
        /// Id of the cursor.
        id: String,
        /// Channel that was searched.
        channel: Name,
    },
    /// The cursor is ahead of the channel.
    #[error("'{id}' is ahead of the channel '{channel}', whose newest message is {newest}")]
    Ahead {
        /// Id of the cursor.
        id: String,
        /// Channel that was searched.
        channel: Name,
        /// Newest message of the channel.
        newest: String,
    },
    /// The cursor has expired: its message existed, but was removed since.
    #[error("'{id}' is no longer in the channel '{channel}', whose oldest message is {oldest}")]
    Expired {
        /// Requested id.
        id: String,
        /// Channel that was searched.
        channel: Name,
        /// Oldest message of the channel.
        oldest: String,
    },
    /// Another hub that shares the folder is about to write the file.
    #[error("the file of {id} has not arrived yet; try again later")]
    FilePending {
        /// Id of the message.
        id: switchboard_core::MessageId,
    },
    /// The file violates the protocol.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The hub rejected the operation.
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
    /// Returns true if the channels folder is currently unusable, for example because its disk is not mounted.
    pub fn is_unmounted(&self) -> bool {
        match self {
            Self::Root { .. } | Self::IdentityMismatch { .. } | Self::NoIdentity { .. } => true,
            Self::NotWritten { source, .. } => source.is_unmounted(),
            _ => false,
        }
    }

    /// Returns true if the disk is full or read-only. Files can still be read.
    pub fn is_disk(&self) -> bool {
        matches!(self, Self::File(error) if error.is_disk())
    }
}
