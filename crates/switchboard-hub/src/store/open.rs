//! Opening the database: settings, schema, and what stands in the way.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};
use sha2::{Digest, Sha256};
use switchboard_sys::blocking;
use switchboard_sys::files::{Dir, Durability};

use crate::error::HubError;
use crate::store::binding::HubKey;

/// The schema this program writes.
const SCHEMA: i64 = 4;

/// How far ahead of ours a schema can be and still be one. What is beyond is damage.
const FORESEEABLE: i64 = 1000;

/// Pages in the log at which a short command checkpoints them. Where no other process has the database open, each command
/// reads the whole log when it opens it (4 µs a page), while a checkpoint takes two waits for the disk.
const PAGES_BETWEEN_COMMANDS: u32 = 128;

/// The tables of a new database. One of an older schema is copied into a new one: see `recover`. So the same tables
/// lie in the same pages in all databases of one schema, which is what `salvage` finds them by.
const TABLES: &str = include_str!("schema.sql");

/// Treatment of the write-ahead log by the last connection that closes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AtClose {
    /// Leaves it as it is: a bound log is kept for the life of the database.
    KeepLog,
    /// Checkpoints and removes it, as SQLite does by default.
    RemoveLog,
}

impl AtClose {
    /// A log can be told from a planted one only with a key.
    pub(crate) fn with(key: Option<&HubKey>) -> Self {
        if key.is_some() { Self::KeepLog } else { Self::RemoveLog }
    }
}

/// Opens the database for writing, making it where needed.
pub(crate) fn open_for_writing(path: &Path, at_close: AtClose) -> Result<Connection, HubError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
    let mut connection = open(path, flags, at_close)?;
    make_tables(&mut connection, path)?;
    // The indexes of a large journal fit into 16 MiB, so that a message is appended without reading.
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
    // Whatever a reader has kept is void after the next commit, and the system has the pages as well: half
    // a mebibyte serves one listing, and several readers do not add up.
    connection.pragma_update(None, "cache_size", -512)?;
    Ok(connection)
}

/// Writes the header of an empty database in WAL mode. It is on disk on return.
///
/// SQLite removes the log of a database without pages, so the header comes before the log. It is made beside the database
/// and put there in one write: to SQLite it takes two transactions, and a process that opened the database between the
/// two would be in the way of the second. `hub.db-journal` is never a file of ours.
pub(crate) fn write_header(folder: &Dir, name: &str) -> Result<(), HubError> {
    /// Far more than an empty database has.
    const LARGEST: u64 = 1 << 20;
    let draft = format!("{name}.header");
    folder.remove(&draft)?;
    folder.create_new(&draft, b"", Durability::Later)?;
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let connection = Connection::open_with_flags(folder.path().join(&draft), flags)?;
    connection.pragma_update(None, "journal_mode", "MEMORY")?;
    // Can only be set while there are no pages. Free pages go back to the file system a part at a time: see `shrink`.
    connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.close().map_err(|(_, error)| error)?;
    if let Some(header) = folder.read(&draft, LARGEST)? {
        let database = folder.open_own(name)?;
        database.write_all_at(&header.bytes, 0).map_err(folder.io("write", name))?;
        database.sync_all().map_err(folder.io("sync", name))?;
    }
    folder.remove(&draft)?;
    Ok(())
}

/// Opens a damaged database, to read what can be read and change nothing.
pub(crate) fn open_for_salvage(path: &Path) -> Result<Connection, HubError> {
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.set_db_config(rusqlite::config::DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    // This also makes SQLite read a file that has been cut short.
    connection.pragma_update(None, "writable_schema", true)?;
    connection.pragma_update(None, "query_only", true)?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(connection)
}

/// Whether the list of tables is the one that this program makes.
pub(crate) fn has_our_tables(connection: &Connection) -> Result<bool, HubError> {
    let ours = Connection::open_in_memory()?;
    ours.execute_batch(TABLES)?;
    // What cannot be read is not ours: text that is no text, or a page that is no page.
    Ok(tables(connection).ok() == Some(tables(&ours)?))
}

/// Whether the list of tables is still the one that the database was made with.
///
/// SQLite reads a list with a flipped bit in it without complaint, as long as it makes some sense, and then
/// finds other things in the tables, or nothing.
pub(crate) fn check_tables(connection: &Connection) -> Result<(), HubError> {
    let expected: i32 = connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
    if tables(connection).is_ok_and(|tables| mark(&tables) == expected) {
        return Ok(());
    }
    Err(damage("its list of tables is not the one it was made with"))
}

/// Notes the list of tables that a database is made with.
pub(crate) fn sign(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "application_id", mark(&tables(connection)?))
}

/// Names and definitions of all tables and indexes.
type Tables = Vec<(String, Option<String>)>;

fn tables(connection: &Connection) -> rusqlite::Result<Tables> {
    let mut statement = connection.prepare("SELECT name, sql FROM sqlite_schema ORDER BY rowid")?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    rows.collect()
}

/// A checksum that fits the field that SQLite's header has to spare for its users.
fn mark(tables: &Tables) -> i32 {
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

/// The error that says that the database is damaged.
pub(crate) fn damage(verdict: &str) -> HubError {
    let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT);
    rusqlite::Error::SqliteFailure(code, Some(verdict.to_owned())).into()
}

fn open(path: &Path, flags: OpenFlags, at_close: AtClose) -> Result<Connection, HubError> {
    // NOFOLLOW: a link in the place of the database would have us write wherever it points.
    let flags = flags | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let mut connection = Connection::open_with_flags(path, flags)?;
    let keeps_log = at_close == AtClose::KeepLog;
    connection.set_db_config(rusqlite::config::DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, keeps_log)?;
    wait_for_others(&mut connection, true)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    // The writer waits for the disk itself, after the commit: see `store::finish`.
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    // A commit that finds 1,000 pages (4 MB) in the log checkpoints them: SQLite's default, and the bound of a log
    // that is kept. What a long reader let grow beyond twice that is cut off when the log starts again.
    connection.pragma_update(None, "journal_size_limit", 8 << 20)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    // Checked on every page read, so that damage is noticed as damage.
    connection.pragma_update(None, "cell_size_check", true)?;
    // Without it SQLite plans a prepared statement anew whenever a bound value changes.
    connection.set_db_config(rusqlite::config::DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(connection)
}

/// Sets whether a connection waits where another process is in its way, or fails at once.
pub(crate) fn wait_for_others(connection: &mut Connection, wait: bool) -> rusqlite::Result<()> {
    connection.busy_handler(wait.then_some(wait_for_lock))
}

/// Waits for another process's transaction. SQLite's own handler sleeps up to 100 ms at a time, which
/// starves one of many writers whose transactions take a millisecond each.
fn wait_for_lock(tries: i32) -> bool {
    let millis = fastrand::u64(0..4) + u64::try_from(tries).unwrap_or(0).min(6);
    std::thread::sleep(Duration::from_micros(200) + Duration::from_millis(millis) / 2);
    // About 30 s at 3.7 ms a try: longer than any transaction of ours by four orders of magnitude.
    tries < 8_000
}

/// Makes the tables of a new database, and checks those of any other.
fn make_tables(connection: &mut Connection, path: &Path) -> Result<(), HubError> {
    if schema(connection)? == SCHEMA {
        return check_tables(connection);
    }
    let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    match age(&transaction)? {
        Age::New => {}
        // Another process was quicker.
        Age::Ours => return check_tables(&transaction),
        Age::Older(found) => {
            check_tables(&transaction)?;
            return Err(HubError::OlderSchema { path: path.to_owned(), found });
        }
        Age::Newer(found) => {
            return Err(HubError::NewerSchema { path: path.to_owned(), found, known: SCHEMA });
        }
        Age::Lost => return Err(damage("the number of its schema is lost")),
    }
    transaction.execute_batch(TABLES)?;
    transaction.pragma_update(None, "user_version", SCHEMA)?;
    sign(&transaction)?;
    transaction.commit()?;
    Ok(())
}

/// Whether the database has the tables of this program; says of which schema it is, where not.
pub(crate) fn check_schema(connection: &Connection, path: &Path) -> Result<(), HubError> {
    let path = || path.to_owned();
    match age(connection)? {
        Age::Ours => check_tables(connection),
        Age::Older(found) => Err(HubError::OlderSchema { path: path(), found }),
        Age::Newer(found) => Err(HubError::NewerSchema { path: path(), found, known: SCHEMA }),
        Age::New | Age::Lost => Err(damage("the number of its schema is lost")),
    }
}

/// How the schema of a database stands to the one of this program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Age {
    /// It has no tables yet.
    New,
    /// It is of an earlier version.
    Older(i64),
    /// It is the same.
    Ours,
    /// It is of a later version.
    Newer(i64),
    /// It has tables, and a number that no version has.
    Lost,
}

/// Of which age a database is.
pub(crate) fn age(connection: &Connection) -> Result<Age, HubError> {
    let found = schema(connection)?;
    let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    Ok(match found {
        0 if tables == 0 => Age::New,
        SCHEMA => Age::Ours,
        1..SCHEMA => Age::Older(found),
        _ if (SCHEMA..SCHEMA + FORESEEABLE).contains(&found) => Age::Newer(found),
        _ => Age::Lost,
    })
}

fn schema(connection: &Connection) -> Result<i64, HubError> {
    Ok(connection.pragma_query_value(None, "user_version", |row| row.get(0))?)
}
