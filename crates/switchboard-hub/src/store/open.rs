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

/// Largest lead of a schema version over ours that counts as a later version. A larger number is damage.
const MAX_SCHEMA_LEAD: i64 = 1000;

/// Pages in the log at which a short command checkpoints them. If no other process has the database open, each
/// command reads the whole log when it opens it (4 µs a page), while a checkpoint takes two syncs.
const PAGES_BETWEEN_COMMANDS: u32 = 128;

/// Tables of a new database. A database of an older schema is copied into a new one: see `recover`. So the same
/// tables have the same pages in all databases of one schema, by which `salvage` finds them.
const TABLES: &str = include_str!("schema.sql");

/// Treatment of the write-ahead log by the last connection that closes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AtClose {
    /// Retains it: a bound log is kept for the life of the database.
    KeepLog,
    /// Checkpoints and removes it, as SQLite does by default.
    RemoveLog,
}

impl AtClose {
    /// Retains the log if there is a key: only with a key can our log be distinguished from a planted one.
    pub(crate) fn with(key: Option<&HubKey>) -> Self {
        if key.is_some() { Self::KeepLog } else { Self::RemoveLog }
    }
}

/// Opens the database for writing, and creates it if needed.
pub(crate) fn open_for_writing(path: &Path, at_close: AtClose) -> Result<Connection, HubError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
    let mut connection = open(path, flags, at_close)?;
    create_tables(&mut connection, path)?;
    // The indexes of a large journal fit into 16 MiB, so that an append reads nothing.
    connection.pragma_update(None, "cache_size", -16_384)?;
    if blocking::is_inline() {
        connection.pragma_update(None, "wal_autocheckpoint", PAGES_BETWEEN_COMMANDS)?;
    }
    Ok(connection)
}

/// Opens the database for reading.
pub(crate) fn open_for_reading(path: &Path, at_close: AtClose) -> Result<Connection, HubError> {
    // Not SQLITE_OPEN_READ_ONLY: a reader of a WAL database may have to recover it.
    let connection = open(path, OpenFlags::SQLITE_OPEN_READ_WRITE, at_close)?;
    connection.pragma_update(None, "query_only", true)?;
    // A reader's cache is invalid after the next commit, and the system caches the pages as well: half a
    // mebibyte serves one listing, and several readers do not add up.
    connection.pragma_update(None, "cache_size", -512)?;
    Ok(connection)
}

/// Writes the header of an empty database in WAL mode. It is on disk on return.
///
/// SQLite removes the log of a database without pages, so the header comes before the log. It is written to a
/// separate file and copied into place in one write: SQLite needs two transactions for it, and a process that
/// opened the database between them would block the second one. `hub.db-journal` is never a file of ours.
pub(crate) fn write_header(folder: &Dir, name: &str) -> Result<(), HubError> {
    /// Far more bytes than an empty database has.
    const LARGEST: u64 = 1 << 20;
    let draft = format!("{name}.header");
    folder.remove(&draft)?;
    folder.create_new(&draft, b"", Durability::Unsynced)?;
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let connection = Connection::open_with_flags(folder.path().join(&draft), flags)?;
    connection.pragma_update(None, "journal_mode", "MEMORY")?;
    // Can be set only while there are no pages. Free pages return to the file system in portions: see `shrink`.
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

/// Opens a damaged database for salvage, without any change to it.
pub(crate) fn open_for_salvage(path: &Path) -> Result<Connection, HubError> {
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.set_db_config(rusqlite::config::DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    // This makes SQLite read truncated files too.
    connection.pragma_update(None, "writable_schema", true)?;
    connection.pragma_update(None, "query_only", true)?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(connection)
}

/// True if the list of tables is that of this program.
pub(crate) fn has_expected_tables(connection: &Connection) -> Result<bool, HubError> {
    let ours = Connection::open_in_memory()?;
    ours.execute_batch(TABLES)?;
    // An unreadable list, such as invalid text or a damaged page, is not ours.
    Ok(tables(connection).ok() == Some(tables(&ours)?))
}

/// Checks that the list of tables is still the one that the database was created with.
///
/// SQLite accepts a list with a flipped bit as long as it still parses, and then finds other data in the
/// tables, or nothing.
pub(crate) fn check_tables(connection: &Connection) -> Result<(), HubError> {
    let expected: i32 = connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
    if tables(connection).is_ok_and(|tables| checksum(&tables) == expected) {
        return Ok(());
    }
    Err(damage("its list of tables was changed"))
}

/// Stores a checksum of the list of tables in the database.
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

/// Builds the error of a damaged database.
pub(crate) fn damage(verdict: &str) -> HubError {
    let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT);
    rusqlite::Error::SqliteFailure(code, Some(verdict.to_owned())).into()
}

fn open(path: &Path, flags: OpenFlags, at_close: AtClose) -> Result<Connection, HubError> {
    // NOFOLLOW: a symbolic link in place of the database would redirect our writes.
    let flags = flags | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let mut connection = Connection::open_with_flags(path, flags)?;
    let keeps_log = at_close == AtClose::KeepLog;
    connection.set_db_config(rusqlite::config::DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, keeps_log)?;
    set_busy_wait(&mut connection, true)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    // The writer syncs the log itself, after the commit: see `store::commit`.
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    // A commit that finds 1,000 pages (4 MB) in the log checkpoints them: SQLite's default, and the bound of a
    // retained log. A log that a long reader let grow beyond twice that is truncated when it restarts.
    connection.pragma_update(None, "journal_size_limit", 8 << 20)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    // Checked on every page read, so that damage is detected as damage.
    connection.pragma_update(None, "cell_size_check", true)?;
    // Without it, SQLite plans a prepared statement again whenever a bound value changes.
    connection.set_db_config(rusqlite::config::DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(connection)
}

/// Sets whether a connection waits for locks of other processes, or fails at once.
pub(crate) fn set_busy_wait(connection: &mut Connection, wait: bool) -> rusqlite::Result<()> {
    connection.busy_handler(wait.then_some(wait_for_lock))
}

/// Busy handler: waits for another process's transaction. SQLite's own handler sleeps up to 100 ms at a time,
/// which starves one of many writers whose transactions take a millisecond each.
fn wait_for_lock(tries: i32) -> bool {
    let millis = fastrand::u64(0..4) + u64::try_from(tries).unwrap_or(0).min(6);
    std::thread::sleep(Duration::from_micros(200) + Duration::from_millis(millis) / 2);
    // About 30 s at 3.7 ms a try: longer than any transaction of ours by four orders of magnitude.
    tries < 8_000
}

/// Creates the tables of a new database, or checks those of an existing one.
fn create_tables(connection: &mut Connection, path: &Path) -> Result<(), HubError> {
    if schema(connection)? == SCHEMA {
        return check_tables(connection);
    }
    let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    match read_schema_version(&transaction)? {
        SchemaVersion::Empty => {}
        // Another process created them first.
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
    /// It has no tables yet.
    Empty,
    /// It is of an earlier version.
    Older(i64),
    /// It is current.
    Current,
    /// It is of a later version.
    Newer(i64),
    /// It has tables, but an impossible version number.
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
