//! What can go wrong in the hub.

use std::path::PathBuf;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use switchboard_core::{AgentId, MessageId, Name, Pattern, ResolveError, TaskName, sanitize_inline};
use switchboard_sys::files::FileError;
use switchboard_sys::service_lease::LeaseError;

use crate::claims::LONGEST_LEASE;
use crate::reservations::Reservation;

/// Why the hub did not do what was asked. Nothing was accepted, unless it is said to be [unsure](HubError::OutcomeUnknown).
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// The address leads to nobody.
    #[error(transparent)]
    Unresolved(#[from] ResolveError),
    /// The same native id came before with other content; the first stays.
    #[error("the id '{native_id}' was already used for another message ({first})")]
    Conflict {
        /// The id as its protocol spells it.
        native_id: String,
        /// The message that came first.
        first: MessageId,
    },
    /// The body is larger than allowed.
    #[error("the body has {size} bytes and the limit is {limit}")]
    BodyTooLarge {
        /// Bytes given.
        size: usize,
        /// Bytes allowed.
        limit: usize,
    },
    /// The metadata is larger than allowed.
    #[error("the metadata has {size} bytes and the limit is {limit}")]
    MetadataTooLarge {
        /// Bytes given.
        size: usize,
        /// Bytes allowed.
        limit: usize,
    },
    /// Somebody has the task.
    #[error("the task '{task}' is {holder}'s until {until:.0}")]
    ClaimHeld {
        /// The task.
        task: TaskName,
        /// Who has it.
        holder: AgentId,
        /// Until when, unless it is renewed.
        until: Timestamp,
        /// The number of the claim, where it is the asking agent's own.
        own: Option<i64>,
    },
    /// The claim is not in force any more, and what was to be done under it was not done.
    #[error("claim {fence} of the task '{task}' is not in force: {}", stale(.holder.as_ref(), *.was_claimed))]
    StaleClaim {
        /// The task.
        task: TaskName,
        /// The number as given.
        fence: i64,
        /// Who has the task now.
        holder: Option<AgentId>,
        /// Whether anybody ever had it.
        was_claimed: bool,
    },
    /// The claim is among all linked hubs, and the link does not answer.
    #[error("no link with other hubs answers, and the task '{task}' is claimed among them")]
    NoLink {
        /// The task.
        task: TaskName,
    },
    /// A claim or reservation is asked for longer than any may last.
    #[error("a lease of {lease:#} is too long: a claim or reservation lasts {} h at most", LONGEST_LEASE.as_hours())]
    LeaseTooLong {
        /// How long it was to last.
        lease: SignedDuration,
    },
    /// A claim that a message names cannot be read.
    #[error("the metadata 'claim' of the message must be {{\"task\": NAME, \"fence\": NUMBER}}")]
    BadClaim,
    /// Somebody else works at these files.
    #[error("{}", .taken.iter().map(|(pattern, by)| format!("'{pattern}' overlaps '{}', which is {}'s until {:.0}", sanitize_inline(&by.pattern), by.holder, by.until)).collect::<Vec<_>>().join("; "))]
    FilesReserved {
        /// Each pattern as asked for, and what it overlaps.
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
        /// Who asked.
        agent: AgentId,
    },
    /// The name stands for the person or for the hub itself: no agent is registered or writes under it.
    #[error("'{name}' is kept for {reserved_for}, and no agent can have it")]
    ReservedName {
        /// The name.
        name: Name,
        /// Whom it is kept for.
        reserved_for: &'static str,
    },
    /// The name is in use.
    #[error("the name '{name}' is already in use")]
    NameTaken {
        /// The name.
        name: Name,
    },
    /// The team takes no further member.
    #[error("'{team}' is a composite team, played by {member} alone")]
    CompositeTeam {
        /// The team.
        team: Name,
        /// Its one member.
        member: Name,
    },
    /// Several agents cannot play a team of one.
    #[error("'{team}' cannot become a composite team: it has {} members ({})", .members.len(), .members.iter().map(Name::as_str).collect::<Vec<_>>().join(", "))]
    SeveralMembers {
        /// The team.
        team: Name,
        /// Its members.
        members: Vec<Name>,
    },
    /// The reader's cursor points before what retention has removed.
    #[error("the cursor {cursor} is older than what is kept; the oldest kept is {oldest}")]
    CursorExpired {
        /// The cursor as given.
        cursor: i64,
        /// The first number that can still be read.
        oldest: i64,
    },
    /// Another process runs this service already.
    #[error("{holder} already runs `{service}` in this workspace")]
    ServiceTaken {
        /// The service.
        service: String,
        /// Who runs it.
        holder: String,
    },
    /// The store was written by a newer Switchboard.
    #[error("{path} has schema {found} and this switchboard knows up to {known}")]
    NewerSchema {
        /// The database.
        path: PathBuf,
        /// Its schema.
        found: i64,
        /// Ours.
        known: i64,
    },
    /// The store was written by an older Switchboard, and cannot be brought up to date while others use it.
    #[error("{path} has schema {found}, and another process keeps it from being upgraded")]
    OlderSchema {
        /// The database.
        path: PathBuf,
        /// Its schema.
        found: i64,
    },
    /// The database cannot be read, and another process has it open, so it cannot be moved aside.
    #[error("{path} is damaged and another process has it open")]
    DamagedInUse {
        /// The database.
        path: PathBuf,
    },
    /// The database is not bound to this user and machine.
    #[error("{path} came from elsewhere: it is not bound to this user and machine")]
    ForeignDatabase {
        /// The database.
        path: PathBuf,
    },
    /// The database came from elsewhere, and another process has the hub open, so it cannot be moved.
    #[error("{path} came from elsewhere and another process has the hub open")]
    ForeignInUse {
        /// The database.
        path: PathBuf,
    },
    /// A file beside the database is not the one that was bound.
    #[error("{path} is not the file that belongs to the database")]
    ForeignSideFile {
        /// The file.
        path: PathBuf,
    },
    /// A file beside the database was replaced or removed while another process has the database open.
    #[error("{path} was replaced or removed while another process has the database open")]
    SideFileInUse {
        /// The file.
        path: PathBuf,
    },
    /// There is no such database to adopt.
    #[error("there is no database {path} to adopt")]
    NoForeignDatabase {
        /// The database.
        path: PathBuf,
    },
    /// The database is another user's, whose key is not at hand.
    #[error("{path} belongs to the user {owner}, and is not bound to you")]
    OthersDatabase {
        /// The database.
        path: PathBuf,
        /// The number of its owner.
        owner: u32,
    },
    /// The key that databases are bound with cannot be read or made.
    #[error("the hub's key {path} cannot be used: {problem}")]
    Key {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// A row of the journal does not match its checksum.
    #[error("message {id} is damaged in the journal")]
    DamagedMessage {
        /// The message.
        id: String,
    },
    /// The disk is full.
    #[error("the disk is full: nothing was accepted")]
    NoSpace {
        /// What was being written.
        #[source]
        source: Arc<rusqlite::Error>,
    },
    /// The store cannot be written: its disk or its folder is read-only.
    #[error("the store is read-only: nothing was accepted")]
    ReadOnly {
        /// What was being written.
        #[source]
        source: Arc<rusqlite::Error>,
    },
    /// The database was deleted, or replaced, while this process had it open.
    #[error("the store was deleted: {} is gone or another file, and nothing was accepted", .path.display())]
    StoreDeleted {
        /// The database.
        path: PathBuf,
    },
    /// The journal was recovered, and agents may be missing that are read back from files.
    #[error("the journal was recovered and agents are still read back from files: nothing was done")]
    Rebuilding,
    /// The disk failed after the message was written, and the message could not be taken back.
    #[error("the disk failed while the message was written, and whether it was kept is not known")]
    OutcomeUnknown {
        /// What was being written.
        #[source]
        source: Arc<rusqlite::Error>,
    },
    /// The database said no.
    #[error("the journal could not be read or written")]
    Store {
        /// What SQLite said.
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

/// Why a claim is not in force.
fn stale(holder: Option<&AgentId>, was_claimed: bool) -> String {
    match holder {
        Some(holder) => format!("it is {holder}'s now"),
        None if was_claimed => "it has ended".to_owned(),
        None => "nobody here has claimed that task".to_owned(),
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
    /// Whether the disk is read-only, full or failing, so that what was asked could not be written. What is there can
    /// still be read.
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
    /// Whether the database itself is damaged, rather than the request or the disk.
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Store { source } if is_damage(source))
    }

    /// What SQLite said, where the database itself failed and not what was asked of it.
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

    /// The same for a further one of those whom one failure concerns.
    pub(crate) fn again(&self) -> Self {
        match self {
            Self::Store { source } | Self::NoSpace { source } | Self::ReadOnly { source } => {
                source.clone().into()
            }
            Self::StoreDeleted { path } => Self::StoreDeleted { path: path.clone() },
            Self::DamagedInUse { path } => Self::DamagedInUse { path: path.clone() },
            Self::SideFileInUse { path } => Self::SideFileInUse { path: path.clone() },
            Self::File(error) => error.again().into(),
            // All else that keeps work from being done at all.
            _ => Self::Closed,
        }
    }

    /// Whether the same request may succeed a little later.
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

/// Whether an error is a reason to look at the database more closely: damage, or a statement of ours
/// that does not fit the tables, which is what a list of tables that was damaged looks like.
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
