//! Errors of the hub.

use std::path::PathBuf;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use switchboard_core::{AgentId, MessageId, Name, Pattern, ResolveError, TaskName, sanitize_inline};
use switchboard_sys::files::FileError;
use switchboard_sys::service_lease::LeaseError;

use crate::claims::MAX_LEASE_DURATION;
use crate::claims::reservations::Reservation;

/// Error of a hub operation.
///
/// No change was made, except where the outcome is [unknown](HubError::OutcomeUnknown).
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// The address resolves to no recipient.
    #[error(transparent)]
    Unresolved(#[from] ResolveError),
    /// The native id (idempotency key) was already used for other content; the first message stays.
    #[error("the id '{native_id}' was already used for another message ({first})")]
    Conflict {
        /// The native id, as the protocol spells it.
        native_id: String,
        /// Id of the first message.
        first: MessageId,
    },
    /// The message body exceeds the size limit.
    #[error("the body has {size} bytes and the limit is {limit}")]
    BodyTooLarge {
        /// Size of the body, in bytes.
        size: usize,
        /// Maximum size, in bytes.
        limit: usize,
    },
    /// The message metadata exceeds the size limit.
    #[error("the metadata has {size} bytes and the limit is {limit}")]
    MetadataTooLarge {
        /// Size of the metadata, in bytes.
        size: usize,
        /// Maximum size, in bytes.
        limit: usize,
    },
    /// Another claim on the task is in force.
    #[error("the task '{task}' is claimed by {holder} until {until:.0}")]
    ClaimHeld {
        /// The task.
        task: TaskName,
        /// The holder.
        holder: AgentId,
        /// End of the lease, unless it is renewed.
        until: Timestamp,
        /// Fencing token of the claim, if the requesting agent itself holds it.
        own: Option<i64>,
    },
    /// The claim is no longer in force (stale fencing token).
    ///
    /// The action under the claim was refused.
    #[error("claim {fence} of the task '{task}' is not in force: {}", stale(.holder.as_ref(), *.was_claimed))]
    StaleClaim {
        /// The task.
        task: TaskName,
        /// The fencing token as given.
        fence: i64,
        /// The current holder.
        holder: Option<AgentId>,
        /// True if the task was ever claimed.
        was_claimed: bool,
    },
    /// The claim is global (among all linked hubs), and no link answers.
    #[error("the task '{task}' is claimed among linked hubs, and the link is down")]
    NoLink {
        /// The task.
        task: TaskName,
    },
    /// The requested lease of a claim or reservation exceeds the maximum.
    #[error("a lease of {lease:#} is too long: the limit for a claim or reservation is {} h", MAX_LEASE_DURATION.as_hours())]
    LeaseTooLong {
        /// The requested lease.
        lease: SignedDuration,
    },
    /// The claim in a message's metadata is malformed.
    #[error("the metadata 'claim' of the message must be {{\"task\": NAME, \"fence\": NUMBER}}")]
    BadClaim,
    /// Another agent has reserved these files.
    #[error("{}", .taken.iter().map(|(pattern, by)| format!("'{pattern}' overlaps '{}', reserved by {} until {:.0}", sanitize_inline(&by.pattern), by.holder, by.until)).collect::<Vec<_>>().join("; "))]
    FilesReserved {
        /// Requested patterns, each with the reservation that it overlaps.
        taken: Vec<(Pattern, Reservation)>,
    },
    /// There is no such message.
    #[error("no message has the id '{id}'")]
    UnknownMessage {
        /// The id as given.
        id: String,
    },
    /// The message is not for that agent.
    #[error("message {id} is not for {agent}")]
    NotTheRecipient {
        /// The message.
        id: MessageId,
        /// The requesting agent.
        agent: AgentId,
    },
    /// The name is reserved for the person or the hub.
    ///
    /// Agents can neither register nor write under it.
    #[error("the name '{name}' is reserved for {reserved_for}")]
    ReservedName {
        /// The name.
        name: Name,
        /// For whom the name is reserved.
        reserved_for: &'static str,
    },
    /// The name is in use.
    #[error("the name '{name}' is already in use")]
    NameTaken {
        /// The name.
        name: Name,
    },
    /// A composite team already has its only member.
    #[error("'{team}' is a composite team, whose only member is {member}")]
    CompositeTeam {
        /// The team.
        team: Name,
        /// The only member of the team.
        member: Name,
    },
    /// A team with several members cannot become composite.
    #[error("'{team}' cannot become a composite team: it has {} members ({})", .members.len(), .members.iter().map(Name::as_str).collect::<Vec<_>>().join(", "))]
    SeveralMembers {
        /// The team.
        team: Name,
        /// The members of the team.
        members: Vec<Name>,
    },
    /// The cursor points before the oldest entry that retention has kept.
    #[error("the cursor {cursor} has expired; the oldest available is {oldest}")]
    CursorExpired {
        /// The cursor as given.
        cursor: i64,
        /// The oldest number that can still be read.
        oldest: i64,
    },
    /// Another process already runs this service.
    #[error("{holder} already runs `{service}` in this workspace")]
    ServiceTaken {
        /// The service.
        service: String,
        /// The process that runs the service.
        holder: String,
    },
    /// The store was written by a newer Switchboard.
    #[error("{path} has schema {found} but this switchboard reads up to {known}")]
    NewerSchema {
        /// The database.
        path: PathBuf,
        /// Schema version of the database.
        found: i64,
        /// The newest schema version that this program supports.
        known: i64,
    },
    /// The store has an older schema, and other processes that use the store block the upgrade.
    #[error("{path} has schema {found}, and cannot be upgraded while another process uses it")]
    OlderSchema {
        /// The database.
        path: PathBuf,
        /// Schema version of the database.
        found: i64,
    },
    /// The database is damaged, and cannot be moved aside while another process has it open.
    #[error("{path} is damaged and another process has it open")]
    DamagedInUse {
        /// The database.
        path: PathBuf,
    },
    /// The database is foreign: it is not bound to this user and machine.
    #[error("{path} came from elsewhere: it is not bound to this user and machine")]
    ForeignDatabase {
        /// The database.
        path: PathBuf,
    },
    /// The database is foreign, and cannot be moved aside while another process has the hub open.
    #[error("{path} came from elsewhere and another process has the hub open")]
    ForeignInUse {
        /// The database.
        path: PathBuf,
    },
    /// A file beside the database, such as the WAL, is not the one that was bound.
    #[error("{path} does not belong to the database")]
    ForeignSideFile {
        /// The key file.
        path: PathBuf,
    },
    /// A file beside the database was replaced or removed.
    ///
    /// It cannot be renewed while another process has the database open.
    #[error("{path} was replaced or removed while another process has the database open")]
    SideFileInUse {
        /// The file.
        path: PathBuf,
    },
    /// There is no foreign database at this path to adopt.
    #[error("there is no database {path} to adopt")]
    NoForeignDatabase {
        /// The database.
        path: PathBuf,
    },
    /// The database belongs to another user, and that user's key is not available.
    #[error("{path} belongs to the user {owner}, and is not bound to you")]
    OthersDatabase {
        /// The database.
        path: PathBuf,
        /// User id of the database's owner.
        owner: u32,
    },
    /// The key that binds databases cannot be read or created.
    #[error("the hub's key {path} cannot be used: {problem}")]
    Key {
        /// The file.
        path: PathBuf,
        /// Description of the problem.
        problem: String,
    },
    /// A message in the journal does not match its checksum.
    #[error("message {id} is damaged in the journal")]
    DamagedMessage {
        /// The message.
        id: String,
    },
    /// The disk is full.
    #[error("the disk is full: nothing was accepted")]
    NoSpace {
        /// The error from SQLite.
        #[source]
        source: Arc<rusqlite::Error>,
    },
    /// The store's disk or folder is read-only.
    #[error("the store is read-only: nothing was accepted")]
    ReadOnly {
        /// The error from SQLite.
        #[source]
        source: Arc<rusqlite::Error>,
    },
    /// The database was deleted or replaced while this process had it open.
    #[error("the store was deleted: {} is missing or was replaced, and nothing was accepted", .path.display())]
    StoreDeleted {
        /// The database.
        path: PathBuf,
    },
    /// The hub was recovered, and agents may be missing until they are read back from files.
    #[error("the journal was recovered and agents are still being restored from files: retry in a moment")]
    Rebuilding,
    /// The outcome is unknown: the disk failed after the message was written, and the rollback failed too.
    #[error("the disk failed while the message was written: whether it was accepted is not known")]
    OutcomeUnknown {
        /// The error from SQLite.
        #[source]
        source: Arc<rusqlite::Error>,
    },
    /// SQLite reported an error.
    #[error("the journal could not be read or written")]
    Store {
        /// The error from SQLite.
        #[source]
        source: Arc<rusqlite::Error>,
    },
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The hub is shutting down.
    #[error("the hub is shutting down")]
    Closed,
}

/// Describes why a claim is no longer in force.
fn stale(holder: Option<&AgentId>, was_claimed: bool) -> String {
    match holder {
        Some(holder) => format!("{holder} holds it now"),
        None if was_claimed => "it has ended".to_owned(),
        None => "no agent of this hub has claimed it".to_owned(),
    }
}

impl From<LeaseError> for HubError {
    fn from(error: LeaseError) -> Self {
        match error {
            LeaseError::Taken { service, holder } => Self::ServiceTaken { service, holder },
            LeaseError::File(error) => Self::File(error),
        }
    }
}

impl From<rusqlite::Error> for HubError {
    fn from(source: rusqlite::Error) -> Self {
        Arc::new(source).into()
    }
}

impl From<Arc<rusqlite::Error>> for HubError {
    fn from(source: Arc<rusqlite::Error>) -> Self {
        match source.sqlite_error_code() {
            Some(rusqlite::ErrorCode::DiskFull) => Self::NoSpace { source },
            Some(rusqlite::ErrorCode::ReadOnly) => Self::ReadOnly { source },
            _ => Self::Store { source },
        }
    }
}

impl HubError {
    /// Returns true if a write failed because the disk is read-only, full or failing. Reads still work.
    pub fn is_disk(&self) -> bool {
        use rusqlite::ErrorCode::{CannotOpen, SystemIoFailure};
        match self {
            Self::NoSpace { .. } | Self::ReadOnly { .. } | Self::OutcomeUnknown { .. } => true,
            Self::File(error) => error.is_disk(),
            Self::Store { source } => {
                matches!(source.sqlite_error_code(), Some(CannotOpen | SystemIoFailure))
            }
            _ => false,
        }
    }
}

impl HubError {
    /// Returns true if the database itself is damaged, rather than the request or the disk.
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Store { source } if is_damage(source))
    }

    /// Returns SQLite's error if the database itself failed, and not the request.
    pub(crate) fn of_database(&self) -> Option<&Arc<rusqlite::Error>> {
        match self {
            Self::Store { source }
            | Self::NoSpace { source }
            | Self::ReadOnly { source }
            | Self::OutcomeUnknown { source } => {
                matches!(**source, rusqlite::Error::SqliteFailure(..)).then_some(source)
            }
            _ => None,
        }
    }

    /// Duplicates the error, for several callers that are affected by one failure.
    pub(crate) fn duplicate(&self) -> Self {
        match self {
            Self::Store { source } | Self::NoSpace { source } | Self::ReadOnly { source } => {
                source.clone().into()
            }
            Self::StoreDeleted { path } => Self::StoreDeleted { path: path.clone() },
            Self::DamagedInUse { path } => Self::DamagedInUse { path: path.clone() },
            Self::SideFileInUse { path } => Self::SideFileInUse { path: path.clone() },
            Self::File(error) => error.duplicate().into(),
            // Any other failure here means that no work can be done at all.
            _ => Self::Closed,
        }
    }

    /// Returns true if the store currently accepts no message at all.
    ///
    /// An intake then stops and retries all messages later. Other errors concern only the one message.
    pub fn is_store_unavailable(&self) -> bool {
        matches!(
            self,
            Self::Store { .. }
                | Self::NoSpace { .. }
                | Self::ReadOnly { .. }
                | Self::StoreDeleted { .. }
                | Self::DamagedInUse { .. }
                | Self::OutcomeUnknown { .. }
                | Self::Closed
        )
    }

    /// Returns true if a later retry of the same request may succeed.
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::NoSpace { .. }
            | Self::ReadOnly { .. }
            | Self::OutcomeUnknown { .. }
            | Self::Closed
            | Self::Rebuilding
            | Self::DamagedInUse { .. }
            | Self::ForeignInUse { .. }
            | Self::ForeignSideFile { .. }
            | Self::SideFileInUse { .. }
            | Self::OlderSchema { .. }
            | Self::NoLink { .. } => true,
            Self::File(error) => error.is_disk(),
            Self::Store { source } => matches!(
                source.sqlite_error_code(),
                Some(
                    rusqlite::ErrorCode::DatabaseBusy
                        | rusqlite::ErrorCode::DatabaseLocked
                        | rusqlite::ErrorCode::SystemIoFailure
                )
            ),
            _ => false,
        }
    }
}

/// Returns true if an error is a reason to check the database for damage.
///
/// The reasons are damage that SQLite reports, and an SQL statement that does not fit the tables, which is the symptom
/// of a damaged schema.
pub(crate) fn is_suspicious(error: &rusqlite::Error) -> bool {
    let misfit = match error {
        rusqlite::Error::SqlInputError { .. } => true,
        rusqlite::Error::SqliteFailure(error, _) => error.extended_code & 0xff == rusqlite::ffi::SQLITE_ERROR,
        _ => false,
    };
    misfit || is_damage(error)
}

pub(crate) fn is_damage(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(rusqlite::ErrorCode::DatabaseCorrupt | rusqlite::ErrorCode::NotADatabase)
    )
}

#[cfg(test)]
#[path = "error_tests.rs"]
mod tests;
