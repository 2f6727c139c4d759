//! Quarantine of a foreign database, and its adoption by a person's decision.

use std::path::PathBuf;

use jiff::Timestamp;
use rusqlite::{Connection, OpenFlags};
use switchboard_sys::files::{Dir, Moved};

use crate::error::HubError;
use crate::store::binding::{self, HubKey};
use crate::store::open::{AtClose, open_for_reading};
use crate::store::recover::{DATABASE, lock_exclusive_or, lock_shared, set_orphaned_log_aside};
use crate::store::side_files::{self, LOG};

/// Name prefix of a quarantined database.
const QUARANTINED: &str = "hub.db.foreign.";

/// Foreign database: it is not bound to this user and machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignDatabase {
    /// File name of the database in the hub's folder.
    pub name: String,
    /// Senders of the messages, those with the most messages first.
    pub senders: Vec<ForeignSender>,
}

/// Sender of messages in a foreign database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignSender {
    /// The sender, as stored.
    pub sender: String,
    /// Number of the sender's messages.
    pub messages: u64,
    /// Number of the sender's messages that will count as verified once the database is adopted.
    pub verified: u64,
    /// Acceptance time of the sender's first message.
    pub first: Timestamp,
    /// Acceptance time of the sender's last message.
    pub last: Timestamp,
}

/// Quarantines a foreign database under a new name and returns its path. Requires the exclusive lock.
pub(super) fn quarantine(folder: &Dir, key: Option<&HubKey>) -> Result<PathBuf, HubError> {
    let name = format!("{QUARANTINED}{:08x}", fastrand::u32(..));
    separate(folder, key)?;
    move_database(folder, DATABASE, &name)?;
    Ok(folder.path().join(name))
}

/// Lists the foreign databases in a folder: the current one, then those in quarantine.
pub(crate) fn list(folder: &Dir, key: Option<&HubKey>) -> Result<Vec<String>, HubError> {
    let mut names = Vec::new();
    match binding::verify(folder, key) {
        Err(HubError::ForeignDatabase { .. }) => names.push(DATABASE.to_owned()),
        verified => verified?,
    }
    let is_database = |name: &String| {
        name.strip_prefix(QUARANTINED)
            .is_some_and(|mark| mark.bytes().all(|byte| byte.is_ascii_alphanumeric()))
    };
    names.extend(folder.names()?.into_iter().filter(is_database));
    Ok(names)
}

/// Describes a foreign database by the senders of its messages.
pub(crate) fn describe(folder: &Dir, name: &str) -> Result<ForeignDatabase, HubError> {
    // If the entry is not a regular file, this fails and names its type.
    drop(folder.open_own(name)?);
    // A rollback journal can name any file for deletion, and no database of this program has one.
    side_files::move_aside(folder, &format!("{name}-journal"))?;
    let db = open_for_reading(&folder.path().join(name), AtClose::RemoveLog)?;
    let senders = senders(&db)?;
    Ok(ForeignDatabase { name: name.to_owned(), senders })
}

fn senders(db: &Connection) -> Result<Vec<ForeignSender>, HubError> {
    let mut statement = db.prepare(
        "SELECT sender, count(*), sum(verified <> 0), min(accepted_at), max(accepted_at) FROM messages \
         GROUP BY sender ORDER BY 2 DESC, 1",
    )?;
    let time = |micros: i64| Timestamp::from_microsecond(micros).unwrap_or(Timestamp::UNIX_EPOCH);
    let rows = statement.query_map([], |row| {
        Ok(ForeignSender {
            sender: row.get(0)?,
            messages: row.get(1)?,
            verified: row.get(2)?,
            first: time(row.get(3)?),
            last: time(row.get(4)?),
        })
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Adopts a foreign database: binds it and puts it in place.
///
/// Returns the path to which the previous database was moved.
pub(crate) fn adopt(folder: &Dir, name: &str, key: &HubKey) -> Result<Option<PathBuf>, HubError> {
    let lock = folder.open_own("hub.lock")?;
    lock_exclusive_or(&lock, || false)
        .ok_or_else(|| HubError::ForeignInUse { path: folder.path().join(DATABASE) })?;
    let adopted = adopt_alone(folder, name, key);
    lock_shared(&lock);
    adopted
}

fn adopt_alone(folder: &Dir, name: &str, key: &HubKey) -> Result<Option<PathBuf>, HubError> {
    side_files::move_aside(folder, &format!("{name}-journal"))?;
    if name == DATABASE {
        separate(folder, Some(key))?;
        checkpoint(folder, name)?;
        binding::bind(folder, &[DATABASE], Some(key))?;
        side_files::renew(folder, Some(key))?;
        return Ok(None);
    }
    if folder.stat(name)?.is_none_or(|found| !found.is_regular) {
        return Err(HubError::NoForeignDatabase { path: folder.path().join(name) });
    }
    // The log is checkpointed into the database first, so that one file has to be moved instead of three.
    checkpoint(folder, name)?;
    binding::bind(folder, &[name, DATABASE], Some(key))?;
    let replaced = format!("{DATABASE}.replaced.{:08x}", fastrand::u32(..));
    let was_there = folder.stat(DATABASE)?.is_some();
    move_database(folder, DATABASE, &replaced)?;
    if folder.move_new(name, folder, DATABASE)? != Moved::Moved {
        return Err(HubError::NoForeignDatabase { path: folder.path().join(name) });
    }
    side_files::renew(folder, Some(key))?;
    Ok(was_there.then(|| folder.path().join(replaced)))
}

/// Moves this hub's own log away from a foreign database that has replaced its database.
///
/// The pages of the two do not belong together.
fn separate(folder: &Dir, key: Option<&HubKey>) -> Result<(), HubError> {
    side_files::move_aside(folder, side_files::JOURNAL)?;
    let Some(key) = key else { return Ok(()) };
    if binding::are_bound(folder, &[LOG], key)? { set_orphaned_log_aside(folder) } else { Ok(()) }
}

/// Checkpoints a database and removes its log.
fn checkpoint(folder: &Dir, name: &str) -> Result<(), HubError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let db = Connection::open_with_flags(folder.path().join(name), flags)?;
    db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    db.close().map_err(|(_, error)| error.into())
}

/// Moves a database with its log and the log's index.
///
/// The database is moved first, because the next process that opens the store cleans up a log that has no database.
fn move_database(folder: &Dir, from: &str, to: &str) -> Result<(), HubError> {
    for suffix in ["", "-wal", "-shm"] {
        folder.move_new(&format!("{from}{suffix}"), folder, &format!("{to}{suffix}"))?;
    }
    Ok(())
}

#[cfg(test)]
#[path = "adopt_tests.rs"]
mod tests;
