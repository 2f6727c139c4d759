//! Opening the database: pragmas, schema version and schema checks.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};
use sha2::{Digest, Sha256};
use switchboard_sys::blocking;
use switchboard_sys::files::{Dir, Durability};

use crate::error::HubError;
use crate::store::binding::HubKey;

/// Schema version of this program.
const SCHEMA: i64 = 4;

/// Maximum lead of a stored schema version over this program's version; a larger number means damage.
const MAX_SCHEMA_LEAD: i64 = 1000;

/// Number of pages in the log at which a short command checkpoints the log.
///
/// If no other process has the database open, each command reads the whole log when it opens the database (4 µs per
/// page), while a checkpoint takes two syncs.
const PAGES_BETWEEN_COMMANDS: u32 = 128;

/// SQL that creates the tables of a new database.
///
/// A database with an older schema is copied into a new one: see `recover`. The same tables therefore have the same
/// pages in all databases of one schema, and `salvage` finds them by these pages.
const TABLES: &str = include_str!("schema.sql");

/// Treatment of the write-ahead log when the last connection closes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AtClose {
    /// Retains the log: a bound log is kept for the life of the database.
    KeepLog,
    /// Checkpoints and removes the log, as SQLite does by default.
    RemoveLog,
}

impl AtClose {
    /// Chooses to retain the log if there is a key.
    ///
    /// Only with a key can this hub's log be distinguished from a planted log.
    pub(crate) fn with(key: Option<&HubKey>) -> Self {
        if key.is_some() { Self::KeepLog } else { Self::RemoveLog }
    }
}

/// Opens the database for writing, and creates the database if needed.
pub(crate) fn open_for_writing(path: &Path, at_close: AtClose) -> Result<Connection, HubError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
    let mut connection = open(path, flags, at_close)?;
    create_tables(&mut connection, path)?;
    // The indexes of a large journal fit into 16 MiB, so that an append does not read from disk.
    connection.pragma_update(None, "cache_size", -16_384)?;
    if blocking::is_inline() {
        connection.pragma_update(None, "wal_autocheckpoint", PAGES_BETWEEN_COMMANDS)?;
    }
    Ok(connection)
}

/// Opens the database for reading.
pub(crate) fn open_for_reading(path: &Path, at_close: AtClose) -> Result<Connection, HubError> {
    // The mode is not SQLITE_OPEN_READ_ONLY, because a reader of a WAL database may have to recover it.
    let connection = open(path, OpenFlags::SQLITE_OPEN_READ_WRITE, at_close)?;
    connection.pragma_update(None, "query_only", true)?;
    // A reader's cache is invalid after the next commit, and the operating system caches the pages as well. Half a
    // mebibyte suffices for one listing and keeps the memory of several readers small.
    connection.pragma_update(None, "cache_size", -512)?;
    Ok(connection)
}

/// Writes the header of an empty database in WAL mode. The header is on disk when this function returns.
///
/// SQLite removes the log of a database without pages, so the header has to exist before the log. The header is written
/// to a separate file and copied into place in one write: SQLite needs two transactions for it, and a process that
/// opened the database between them would block the second one. This hub never creates `hub.db-journal`.
pub(crate) fn write_header(folder: &Dir, name: &str) -> Result<(), HubError> {
    /// Size limit, in bytes, that far exceeds the size of an empty database.
    const LARGEST: u64 = 1 << 20;
    let draft = format!("{name}.header");
    folder.remove(&draft)?;
    folder.create_new(&draft, b"", Durability::Unsynced)?;
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let connection = Connection::open_with_flags(folder.path().join(&draft), flags)?;
    connection.pragma_update(None, "journal_mode", "MEMORY")?;
    // This mode can be set only while the database has no pages. Free pages return to the file system in batches: see
    // `shrink`.
    connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.close().map_err(|(_, error)| error)?;
    if let Some(header) = folder.read(&draft, LARGEST)? {
        let database = folder.open_own(name)?;
        database.write_all_at(&header.bytes, 0).map_err(folder.io_error("write", name))?;
        database.sync_all().map_err(folder.io_error("sync", name))?;
    }
    folder.remove(&draft)?;
    Ok(())
}

/// Opens a damaged database for salvage without changing it.
pub(crate) fn open_for_salvage(path: &Path) -> Result<Connection, HubError> {
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.set_db_config(rusqlite::config::DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    // With this setting, SQLite reads truncated files too.
    connection.pragma_update(None, "writable_schema", true)?;
    connection.pragma_update(None, "query_only", true)?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(connection)
}

/// Returns true if the database has the schema (the list of tables) of this program.
pub(crate) fn has_expected_tables(connection: &Connection) -> Result<bool, HubError> {
    let ours = Connection::open_in_memory()?;
    ours.execute_batch(TABLES)?;
    // A list that cannot be read, because of invalid text or a damaged page, is not the expected one.
    Ok(tables(connection).ok() == Some(tables(&ours)?))
}

/// Checks that the schema is still the one with which the database was created.
///
/// The check compares checksums: SQLite accepts a list of tables with a flipped bit as long as it still parses, and
/// then finds different data or none in the tables.
pub(crate) fn check_tables(connection: &Connection) -> Result<(), HubError> {
    let expected: i32 = connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
    if tables(connection).is_ok_and(|tables| checksum(&tables) == expected) {
        return Ok(());
    }
    Err(damage("its list of tables was changed"))
}

/// Stores a checksum of the schema (the list of tables) in the database.
pub(crate) fn sign(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "application_id", checksum(&tables(connection)?))
}

/// Names and definitions of all tables and indexes.
type Tables = Vec<(String, Option<String>)>;

fn tables(connection: &Connection) -> rusqlite::Result<Tables> {
    let mut statement = connection.prepare("SELECT name, sql FROM sqlite_schema ORDER BY rowid")?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    rows.collect()
}

/// Computes a checksum that fits SQLite's `application_id` field.
fn checksum(tables: &Tables) -> i32 {
    let mut hash = Sha256::new();
    for (name, definition) in tables {
        hash.update(name);
        hash.update([0]);
        hash.update(definition.as_deref().unwrap_or_default());
        hash.update([0]);
    }
    let whole: [u8; 32] = hash.finalize().into();
    i32::from_le_bytes([whole[0], whole[1], whole[2], whole[3]])
}

/// Builds the error that reports a damaged database.
pub(crate) fn damage(verdict: &str) -> HubError {
    let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT);
    rusqlite::Error::SqliteFailure(code, Some(verdict.to_owned())).into()
}

fn open(path: &Path, flags: OpenFlags, at_close: AtClose) -> Result<Connection, HubError> {
    // NOFOLLOW is set because a symbolic link in place of the database would redirect the writes.
    let flags = flags | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let mut connection = Connection::open_with_flags(path, flags)?;
    let keeps_log = at_close == AtClose::KeepLog;
    connection.set_db_config(rusqlite::config::DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, keeps_log)?;
    set_busy_wait(&mut connection, true)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    // The writer syncs the log itself, after the commit: see `store::commit`.
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    // A commit that finds 1,000 pages (4 MB) in the log checkpoints them. This is SQLite's default, and it bounds a
    // retained log. A log that has grown beyond twice that size because of a long reader is truncated when it restarts.
    connection.pragma_update(None, "journal_size_limit", 8 << 20)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    // SQLite checks the cells of every page that it reads, so that damage is reported as damage.
    connection.pragma_update(None, "cell_size_check", true)?;
    // Without this option, SQLite replans a prepared statement whenever a bound value changes.
    connection.set_db_config(rusqlite::config::DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(connection)
}

/// Sets whether a connection waits for locks of other processes, or fails at once.
pub(crate) fn set_busy_wait(connection: &mut Connection, wait: bool) -> rusqlite::Result<()> {
    connection.busy_handler(wait.then_some(wait_for_lock))
}

/// Waits for another process's transaction (busy handler); returns false to stop the retries.
///
/// SQLite's own handler sleeps up to 100 ms at a time, which starves one of many writers whose transactions take a
/// millisecond each.
fn wait_for_lock(tries: i32) -> bool {
    let millis = fastrand::u64(0..4) + u64::try_from(tries).unwrap_or(0).min(6);
    std::thread::sleep(Duration::from_micros(200) + Duration::from_millis(millis) / 2);
    // The retries last about 30 s at some 4 ms each, four orders of magnitude longer than any transaction of this
    // program.
    tries < 8_000
}

/// Creates the tables of a new database, or checks the tables of an existing one.
fn create_tables(connection: &mut Connection, path: &Path) -> Result<(), HubError> {
    if schema(connection)? == SCHEMA {
        return check_tables(connection);
    }
    let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    match read_schema_version(&transaction)? {
        SchemaVersion::Empty => {}
        // Another process created the tables first.
        SchemaVersion::Current => return check_tables(&transaction),
        SchemaVersion::Older(found) => {
            check_tables(&transaction)?;
            return Err(HubError::OlderSchema { path: path.to_owned(), found });
        }
        SchemaVersion::Newer(found) => {
            return Err(HubError::NewerSchema { path: path.to_owned(), found, known: SCHEMA });
        }
        SchemaVersion::Invalid => return Err(damage("its schema version is lost")),
    }
    transaction.execute_batch(TABLES)?;
    transaction.pragma_update(None, "user_version", SCHEMA)?;
    sign(&transaction)?;
    transaction.commit()?;
    Ok(())
}

/// Checks that the database has the tables and schema version of this program.
pub(crate) fn check_schema(connection: &Connection, path: &Path) -> Result<(), HubError> {
    let path = || path.to_owned();
    match read_schema_version(connection)? {
        SchemaVersion::Current => check_tables(connection),
        SchemaVersion::Older(found) => Err(HubError::OlderSchema { path: path(), found }),
        SchemaVersion::Newer(found) => Err(HubError::NewerSchema { path: path(), found, known: SCHEMA }),
        SchemaVersion::Empty | SchemaVersion::Invalid => Err(damage("its schema version is lost")),
    }
}

/// Schema version of a database, relative to this program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SchemaVersion {
    /// The database has no tables yet.
    Empty,
    /// The database has an earlier schema version.
    Older(i64),
    /// The database has this program's schema version.
    Current,
    /// The database has a later schema version.
    Newer(i64),
    /// The database has tables, but an impossible version number.
    Invalid,
}

/// Reads the schema version of a database.
pub(crate) fn read_schema_version(connection: &Connection) -> Result<SchemaVersion, HubError> {
    let found = schema(connection)?;
    let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    Ok(match found {
        0 if tables == 0 => SchemaVersion::Empty,
        SCHEMA => SchemaVersion::Current,
        1..SCHEMA => SchemaVersion::Older(found),
        _ if (SCHEMA..SCHEMA + MAX_SCHEMA_LEAD).contains(&found) => SchemaVersion::Newer(found),
        _ => SchemaVersion::Invalid,
    })
}

fn schema(connection: &Connection) -> Result<i64, HubError> {
    Ok(connection.pragma_query_value(None, "user_version", |row| row.get(0))?)
}
