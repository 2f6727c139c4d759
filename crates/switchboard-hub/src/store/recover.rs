//! Recovery: moves a damaged database aside and copies its readable rows into a new one.
//!
//! The rest is read back from the doors' files: see [`crate::Database::needs_rebuild`]. A database with an older schema
//! is upgraded in the same way, except that nothing is lost.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::Connection;
use switchboard_sys::files::{Created, Dir, Durability};

use crate::change_signal;
use crate::error::{HubError, is_suspicious};
use crate::journal::extent::Extent;
use crate::journal::maintenance;
use crate::store::adopt::quarantine;
use crate::store::binding::{self, HubKey};
use crate::store::degraded::open_read_only;
use crate::store::open::{
    AtClose, SchemaVersion, check_tables, damage, has_expected_tables, open_for_reading, open_for_salvage,
    open_for_writing, read_schema_version, write_header,
};
use crate::store::rollback::rewrite;
use crate::store::salvage::{GRAFTED, copy_rebuilt_flag, open_damaged, salvage};
use crate::store::side_files::{self, Renewed};

/// File name of the database.
pub(crate) const DATABASE: &str = "hub.db";

/// Name of the lock file.
///
/// Every process with an open hub holds the lock shared, and a process that moves the database holds it exclusively.
pub(crate) const LOCK: &str = "hub.lock";

/// Marker file for suspected damage: the next process that opens the hub checks the database closely.
///
/// It exists after a process met damage while running, or ended without a repair after a disk failure.
const SUSPECT: &str = "hub.db.suspect";

/// Name of the new database while it is filled from a damaged one. The file may be discarded at any time.
pub(super) const UNFINISHED: &str = "hub.db.unfinished";

/// Name of the complete new database, until it has replaced the damaged one.
const READY: &str = "hub.db.ready";

/// The opened database, and the paths to which unusable files were moved.
pub(crate) struct Opened {
    pub(crate) connection: Connection,
    /// Path to which a damaged database was moved.
    pub(crate) moved_aside: Option<PathBuf>,
    /// Path to which a foreign database was moved (quarantine).
    pub(crate) quarantined: Option<PathBuf>,
    /// Paths to which planted side files were moved.
    pub(crate) planted: Vec<PathBuf>,
}

impl Opened {
    pub(super) fn new(connection: Connection) -> Self {
        Self { connection, moved_aside: None, quarantined: None, planted: Vec::new() }
    }
}

/// State of a database that was checked without opening the hub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DatabaseState {
    /// The database does not exist.
    Missing,
    /// A close check found no fault.
    Sound,
    /// The database is sound but has an earlier schema.
    ///
    /// The next process that opens the hub upgrades it.
    Older {
        /// Schema version of the database.
        schema: i64,
    },
    /// The database is foreign: not bound to this user and machine. The next process that opens the hub moves it aside.
    Foreign,
    /// A side file of SQLite is planted. The next process that opens the hub moves the file aside.
    PlantedFile {
        /// The file.
        name: String,
    },
    /// The database is damaged. The next process that opens the hub moves it aside.
    Damaged {
        /// The problem, as reported by the check.
        problem: String,
    },
}

/// Checks the database in a folder without changing anything.
pub(crate) fn check(folder: &Dir, key: Option<&HubKey>, extent: Extent) -> Result<DatabaseState, HubError> {
    match folder.stat(DATABASE)? {
        None => return Ok(DatabaseState::Missing),
        Some(found) if found.is_regular && found.len == 0 => return Ok(DatabaseState::Missing),
        // If the entry is not a regular file, this fails and names its type.
        Some(found) if !found.is_regular => drop(folder.open_own(DATABASE)?),
        Some(_) => {}
    }
    match binding::verify(folder, key) {
        Err(HubError::ForeignDatabase { .. }) => return Ok(DatabaseState::Foreign),
        verified => verified?,
    }
    if let Some(name) = side_files::find_planted(folder, key)? {
        return Ok(DatabaseState::PlantedFile { name: name.to_owned() });
    }
    // Without a bound log, SQLite creates a log for the duration of the check.
    let at_close =
        if side_files::verify(folder, key).is_ok() { AtClose::with(key) } else { AtClose::RemoveLog };
    let opened = match open_for_reading(&folder.path().join(DATABASE), at_close) {
        Err(error) if error.is_disk() => open_read_only(folder, key).map_err(|_| error),
        opened => opened,
    };
    let examined = opened.and_then(|db| Ok((first_fault(&db, extent)?, read_schema_version(&db)?)));
    match examined {
        Ok((Some(problem), _)) => Ok(DatabaseState::Damaged { problem }),
        Ok((None, SchemaVersion::Older(schema))) => Ok(DatabaseState::Older { schema }),
        Ok((None, _)) => Ok(DatabaseState::Sound),
        Err(error) if error.is_damage() => Ok(DatabaseState::Damaged { problem: error.to_string() }),
        Err(error) => Err(error),
    }
}

/// Returns the first fault that a close check finds: by SQLite's own check, and in the parts that it does not cover.
fn first_fault(db: &Connection, extent: Extent) -> Result<Option<String>, HubError> {
    const TABLES: &str = "its list of tables was changed";
    // If the table of messages cannot be read either, the whole database is checked.
    let is_whole = extent.after(db).unwrap_or(0) == 0;
    let verdict = if is_whole { integrity(db)? } else { integrity_of_small_tables(db)? };
    if verdict != "ok" {
        return Ok(Some(verdict));
    }
    let is_sound = match read_schema_version(db)? {
        SchemaVersion::Current => has_expected_tables(db)?,
        SchemaVersion::Older(_) => check_tables(db).is_ok(),
        SchemaVersion::Empty | SchemaVersion::Newer(_) => return Ok(None),
        SchemaVersion::Invalid => return Ok(Some("its schema version is lost".to_owned())),
    };
    if !is_sound {
        return Ok(Some(TABLES.to_owned()));
    }
    let can_search = db.execute_batch("SELECT rowid FROM search WHERE search MATCH 'a' LIMIT 1").is_ok();
    Ok((!can_search).then(|| "its search index cannot be read".to_owned()))
}

/// Acquires the shared lock of the store and opens the database.
pub(crate) fn lock_and_open(folder: &Dir, key: Option<&HubKey>) -> Result<(Option<File>, Opened), HubError> {
    let lock = folder.open_own(LOCK)?;
    lock.lock_shared().map_err(folder.io_error("lock", LOCK))?;
    let opened = open_or_recover(folder, &lock, key)?;
    Ok((Some(lock), opened))
}

/// Opens the database. If it is unreadable or foreign, moves it aside and creates a new one.
///
/// Every process that has the hub open holds `lock` shared; only a process that holds it exclusively may move the
/// database.
pub(crate) fn open_or_recover(folder: &Dir, lock: &File, key: Option<&HubKey>) -> Result<Opened, HubError> {
    let path = folder.path().join(DATABASE);
    let mut first = open_checked(folder, &path, key);
    let mut renewed = Renewed::default();
    if let Err(HubError::ForeignSideFile { .. }) = first {
        renewed = side_files::renew_exclusively(folder, lock, key)?;
        first = open_checked(folder, &path, key);
        lock_shared(lock);
    }
    let mut opened = recover_or_replace(folder, lock, key, &path, first)?;
    if renewed.lost_log {
        // The doors read the content of the lost log back from their files.
        maintenance::forget_rebuilt(&opened.connection)?;
    }
    opened.planted = renewed.moved_aside;
    Ok(opened)
}

/// Recovers or replaces the database, depending on the error of the first attempt to open it.
fn recover_or_replace(
    folder: &Dir,
    lock: &File,
    key: Option<&HubKey>,
    path: &Path,
    first: Result<Connection, HubError>,
) -> Result<Opened, HubError> {
    match first {
        Ok(connection) => return Ok(Opened::new(connection)),
        Err(error) if error.is_damage() => {
            tracing::error!(path = %path.display(), "the journal is damaged");
            try_lock_exclusive(lock).ok_or(HubError::DamagedInUse { path: path.to_owned() })?;
        }
        Err(older @ HubError::OlderSchema { .. }) => try_lock_exclusive(lock).ok_or(older)?,
        Err(HubError::ForeignDatabase { path }) => {
            let is_over = || binding::verify(folder, key).is_ok();
            lock_exclusive_or(lock, is_over).ok_or(HubError::ForeignInUse { path })?;
        }
        Err(error) => return Err(error),
    }
    let opened = match open_checked(folder, path, key) {
        // Another process has already recovered the database.
        Ok(connection) => Ok(Opened::new(connection)),
        Err(HubError::OlderSchema { found, .. }) => rebuild_database(folder, path, Some(found), key),
        Err(HubError::ForeignDatabase { .. }) => create_after_quarantine(folder, path, key),
        // A database with foreign pages is not salvaged.
        Err(HubError::ForeignSideFile { path }) => Err(HubError::SideFileInUse { path }),
        Err(_) => rebuild_database(folder, path, None, key),
    };
    lock_shared(lock);
    opened
}

/// Quarantines a foreign database and creates a new one.
fn create_after_quarantine(folder: &Dir, path: &Path, key: Option<&HubKey>) -> Result<Opened, HubError> {
    let aside = quarantine(folder, key)?;
    folder.remove(SUSPECT)?;
    tracing::debug!(quarantined = %aside.display(), "the journal came from elsewhere");
    let connection = open_checked(folder, path, key)?;
    Ok(Opened { quarantined: Some(aside), ..Opened::new(connection) })
}

/// Acquires the lock exclusively, or returns `None` if another process has the hub open.
pub(super) fn try_lock_exclusive(lock: &File) -> Option<()> {
    lock.unlock().and_then(|()| lock.try_lock().map_err(Into::into)).ok()
}

/// Acquires the lock exclusively, with retries while other processes handle the same database.
///
/// Returns with the lock shared if `is_over` reports that another process has resolved the problem, and `None` if the
/// retries are exhausted.
pub(super) fn lock_exclusive_or(lock: &File, is_over: impl Fn() -> bool) -> Option<()> {
    for _ in 0..100 {
        if try_lock_exclusive(lock).is_some() {
            return Some(());
        }
        // The shared lock waits for the process that currently repairs the database.
        lock.lock_shared().ok()?;
        if is_over() {
            return Some(());
        }
        lock.unlock().ok()?;
        std::thread::sleep(Duration::from_millis(10));
    }
    None
}

/// Downgrades an exclusive lock to a shared one.
///
/// Another process may acquire the lock between the two calls, which is harmless.
pub(super) fn lock_shared(lock: &File) {
    if lock.unlock().and_then(|()| lock.lock_shared()).is_err() {
        tracing::warn!("cannot lock the hub again");
    }
}

/// Records suspected damage, so that the next open checks closely instead of trusting the header.
pub(crate) fn mark_suspect(folder: &Dir) {
    if let Err(error) = folder.replace(SUSPECT, b"", 0o600) {
        tracing::warn!(error = %error, "cannot record the damage");
    }
}

fn open_checked(folder: &Dir, path: &Path, key: Option<&HubKey>) -> Result<Connection, HubError> {
    let opening_lock = prepare(folder, key)?;
    binding::verify(folder, key)?;
    if opening_lock.is_some() {
        side_files::verify(folder, key)?;
    }
    let connection = open_verified(folder, path, key)?;
    drop(opening_lock);
    if folder.stat(SUSPECT)?.is_some() {
        if let Some(problem) = first_fault(&connection, Extent::Everything)? {
            return Err(damage(&problem));
        }
        let log = folder.open_own(&format!("{DATABASE}-wal"))?;
        rewrite(&connection, &log)?;
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        // The doors have to read their files back: SQLite truncates a damaged log at its first damaged frame without an
        // error.
        maintenance::forget_rebuilt(&connection)?;
        folder.remove(SUSPECT)?;
        tracing::info!("the journal may be incomplete; messages that it lost are read from files");
    }
    Ok(connection)
}

/// Opens a database and verifies that SQLite has opened the verified side files.
pub(super) fn open_verified(folder: &Dir, path: &Path, key: Option<&HubKey>) -> Result<Connection, HubError> {
    let connection = open_for_writing(path, AtClose::with(key))?;
    side_files::verify(folder, key)?;
    Ok(connection)
}

/// Returns the first error that SQLite's own check reports, or `ok`.
///
/// A check that cannot run is reported as an error too.
fn integrity(connection: &Connection) -> Result<String, HubError> {
    match connection.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0)) {
        Err(error) if is_suspicious(&error) => Ok(error.to_string()),
        verdict => Ok(verdict?),
    }
}

/// Checks only the tables that stay small, because the check of a table reads every row.
fn integrity_of_small_tables(connection: &Connection) -> Result<String, HubError> {
    for table in ["meta", "agents", "aliases", "teams", "claims"] {
        let check = format!("PRAGMA quick_check('{table}')");
        let verdict = match connection.query_row(&check, [], |row| row.get(0)) {
            Err(error) if is_suspicious(&error) => error.to_string(),
            verdict => verdict?,
        };
        if verdict != "ok" {
            return Ok(verdict);
        }
    }
    Ok("ok".to_owned())
}

/// Creates an empty database file and removes leftovers that would damage it.
///
/// Only the owner can read the file. The caller holds the returned lock until it has opened the database, so that only
/// one process at a time opens a new database. `None` means that the database is in place and its side files are
/// verified.
///
/// Without the lock, one process could remove the log of a database that another has just created, and SQLite fails if
/// two processes initialize the same new database.
fn prepare(folder: &Dir, key: Option<&HubKey>) -> Result<Option<File>, HubError> {
    let is_in_place =
        folder.stat(DATABASE)?.is_some_and(|found| found.len > 0) && folder.stat(READY)?.is_none();
    if is_in_place && side_files::verify(folder, key).is_ok() {
        return Ok(None);
    }
    // The signal file serves as the lock file, because no process locks it otherwise.
    let opening_lock = folder.open_own(change_signal::NAME)?;
    opening_lock.lock().map_err(folder.io_error("lock", change_signal::NAME))?;
    if let Some(found) = folder.stat(DATABASE)? {
        // Either the new database is in place and still has its second name, or the damaged database was not moved yet
        // and the recovery starts over.
        folder.remove(READY)?;
        if found.len == 0 {
            set_orphaned_log_aside(folder)?;
            binding::bind(folder, &[DATABASE], key)?;
            initialize(folder, key)?;
        }
        return Ok(Some(opening_lock));
    }
    set_orphaned_log_aside(folder)?;
    folder.move_new(READY, folder, DATABASE)?;
    if folder.create_new(DATABASE, b"", Durability::Unsynced)? == Created::Created {
        binding::bind(folder, &[DATABASE], key)?;
    }
    initialize(folder, key)?;
    Ok(Some(opening_lock))
}

/// Initializes a database that was just put in place and that no process has open.
fn initialize(folder: &Dir, key: Option<&HubKey>) -> Result<(), HubError> {
    if folder.stat(DATABASE)?.is_some_and(|found| found.len == 0) {
        side_files::move_aside(folder, side_files::JOURNAL)?;
        write_header(folder, DATABASE)?;
    }
    side_files::renew(folder, key)?;
    Ok(())
}

/// Moves a log that has no database aside.
///
/// The log belongs to a lost database, and SQLite would replay it into a new one.
pub(super) fn set_orphaned_log_aside(folder: &Dir) -> Result<(), HubError> {
    let mark = fastrand::u32(..);
    for (name, suffix) in side_files::SIDE_FILES.into_iter().zip(["-wal", "-shm"]) {
        match folder.stat(name)? {
            Some(found) if found.is_regular && found.len > 0 => {
                folder.move_new(name, folder, &format!("{DATABASE}.orphan.{mark:08x}{suffix}"))?;
            }
            _ => drop(side_files::move_aside(folder, name)?),
        }
    }
    Ok(())
}

/// Rebuilds a database from a damaged or older one, and then moves the old database aside.
///
/// The old database gets a descriptive name. This order ensures that an interruption loses nothing: until the new
/// database is complete, the old one stays in place.
fn rebuild_database(
    folder: &Dir,
    path: &Path,
    older: Option<i64>,
    key: Option<&HubKey>,
) -> Result<Opened, HubError> {
    for stale in [UNFINISHED, GRAFTED, READY] {
        remove_database(folder, stale)?;
    }
    folder.create_new(UNFINISHED, b"", Durability::Unsynced)?;
    let unfinished = folder.path().join(UNFINISHED);
    write_header(folder, UNFINISHED)?;
    let mut connection = open_for_writing(&unfinished, AtClose::RemoveLog)?;
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    let old = match older {
        Some(_) => Some(open_for_salvage(path)?),
        None => open_damaged(folder, path, &unfinished)?,
    };
    let saved = match &old {
        Some(old) => Some(salvage(old, &mut connection)?),
        None => None,
    };
    let upgraded = older.filter(|_| saved.is_some_and(|saved| saved.complete));
    if let (Some(_), Some(old)) = (upgraded, &old) {
        copy_rebuilt_flag(old, &connection)?;
    }
    drop(old);
    connection.close().map_err(|(_, error)| error)?;
    remove_database(folder, GRAFTED)?;
    // Both databases are bound, because the old one stays in place if the rebuild is interrupted.
    binding::bind(folder, &[UNFINISHED, DATABASE], key)?;
    folder.move_new(UNFINISHED, folder, READY)?;

    let reason = upgraded.map_or_else(|| "damaged".to_owned(), |schema| format!("schema{schema}"));
    let mark = format!("{DATABASE}.{reason}.{:08x}", fastrand::u32(..));
    // The database is moved before its side files: once it is gone, the next open cleans up leftovers and puts the new
    // database in place.
    for suffix in ["", "-wal", "-shm"] {
        let name = format!("{DATABASE}{suffix}");
        if folder.stat(&name)?.is_some_and(|found| found.len > 0 || suffix.is_empty()) {
            folder.move_new(&name, folder, &format!("{mark}{suffix}"))?;
        } else {
            folder.remove(&name)?;
        }
    }
    folder.remove(SUSPECT)?;
    let opening_lock = prepare(folder, key)?;
    let connection = open_verified(folder, path, key)?;
    drop(opening_lock);
    let aside = folder.path().join(&mark);
    let saved = saved.map(|saved| saved.rows);
    match (upgraded, saved) {
        (Some(schema), saved) => {
            tracing::info!(schema, saved, kept = %aside.display(), "the journal was upgraded");
            return Ok(Opened::new(connection));
        }
        (None, Some(saved)) => tracing::error!(
            damaged = %aside.display(),
            saved,
            "the damaged journal was moved aside; its readable part was copied"
        ),
        (None, None) => tracing::error!(
            damaged = %aside.display(),
            "the damaged journal was moved aside; no part of it was readable"
        ),
    }
    Ok(Opened { moved_aside: Some(aside), ..Opened::new(connection) })
}

fn remove_database(folder: &Dir, name: &str) -> Result<(), HubError> {
    for suffix in ["", "-wal", "-shm", "-journal"] {
        folder.remove(&format!("{name}{suffix}"))?;
    }
    Ok(())
}

#[cfg(test)]
#[path = "recover_tests.rs"]
mod tests;
