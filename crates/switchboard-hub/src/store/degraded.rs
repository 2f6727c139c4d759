//! Degraded mode: opens a store that cannot be written.
//!
//! The store is on a read-only mount, in a read-only folder or on a full disk. SQLite reads a WAL database through the
//! log's index, to which it writes. With `readonly_shm`, SQLite builds that index in memory instead, so that nothing is
//! written and no other process is blocked.

use std::fmt::Write as _;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rusqlite::{Connection, OpenFlags};
use switchboard_sys::disk;
use switchboard_sys::files::Dir;

use crate::error::HubError;
use crate::store::binding::{self, HubKey};
use crate::store::open::{check_schema, set_busy_wait};
use crate::store::recover::{DATABASE, LOCK, Opened};
use crate::store::side_files;
use crate::store::writer::Setup;

/// Opens a store for reading, after opening it for writing failed with `why`.
///
/// Fails with `why` if the disk is not the reason, or if there is nothing to read.
pub(crate) fn open(
    folder: &Dir,
    key: Option<&HubKey>,
    reason: HubError,
) -> Result<(Option<File>, Opened), HubError> {
    let has_database = folder.stat(DATABASE).is_ok_and(|found| found.is_some_and(|found| found.len > 0));
    if !reason.is_disk() || !has_database {
        return Err(reason);
    }
    let lock = folder.open_existing(LOCK)?;
    if let Some(lock) = &lock {
        lock.lock_shared().map_err(folder.io_error("lock", LOCK))?;
    }
    let Ok(connection) = open_read_only(folder, key) else { return Err(reason) };
    tracing::debug!(error = %reason, "the store cannot be written; opened it for reading only");
    Ok((lock, Opened::new(connection)))
}

/// Opens the database of a store without writing anything.
pub(crate) fn open_read_only(folder: &Dir, key: Option<&HubKey>) -> Result<Connection, HubError> {
    binding::verify(folder, key)?;
    if let Some(name) = side_files::find_planted(folder, key)? {
        return Err(HubError::ForeignSideFile { path: folder.path().join(name) });
    }
    let is_complete = folder.stat(side_files::LOG)?.is_none_or(|found| found.len == 0);
    // Without a log, the database file alone is complete; with a log, the log's index locates its frames.
    let way = if is_complete { "immutable=1" } else { "readonly_shm=1" };
    let uri = format!("file:{}?mode=ro&{way}", encoded(&folder.path().join(DATABASE)));
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_URI
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let mut connection = Connection::open_with_flags(uri, flags)?;
    set_busy_wait(&mut connection, true)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    connection.pragma_update(None, "cell_size_check", true)?;
    connection.set_db_config(rusqlite::config::DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.set_prepared_statement_cache_capacity(64);
    check_schema(&connection, &folder.path().join(DATABASE))?;
    Ok(connection)
}

/// Returns true if a connection cannot write the store.
///
/// It was opened for reading, or it is the placeholder after a failed reopen.
pub(crate) fn is_read_only(connection: &Connection) -> bool {
    connection.is_readonly(rusqlite::MAIN_DB).unwrap_or(false) || connection.path().is_none_or(str::is_empty)
}

/// Builds the error that every write to a degraded store returns.
fn refusal() -> HubError {
    let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_READONLY);
    rusqlite::Error::SqliteFailure(code, None).into()
}

/// Reopens a degraded store for writing once its disk can be written.
///
/// Fails with the reason if the store still cannot be written. The connections of a process share SQLite's state of the
/// log's index, so all read-only connections are closed first.
pub(crate) fn regain(connection: &mut Connection, setup: &Setup) -> Result<(), HubError> {
    if !is_read_only(connection) {
        return Ok(());
    }
    if disk::probe(&setup.folder).is_some() {
        return Err(refusal());
    }
    *connection = Connection::open_in_memory()?;
    setup.store.readers.close();
    match setup.open_database() {
        Ok(reopened) => *connection = reopened,
        Err(reason) => {
            tracing::warn!(error = %reason, "the store cannot be written yet");
            *connection = open_read_only(&setup.folder, setup.config.key.as_ref())?;
            return Err(reason);
        }
    }
    if is_read_only(connection) { Err(refusal()) } else { Ok(()) }
}

/// Percent-encodes a path for an SQLite URI.
fn encoded(path: &Path) -> String {
    let mut text = String::new();
    for byte in path.as_os_str().as_bytes() {
        if byte.is_ascii_alphanumeric() || b"/-_.~".contains(byte) {
            text.push(char::from(*byte));
        } else {
            // Writing to a `String` cannot fail.
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

#[cfg(test)]
#[path = "degraded_tests.rs"]
mod tests;
