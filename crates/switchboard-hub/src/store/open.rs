//! Opening the database: settings, schema, and what stands in the way.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use crate::error::HubError;

/// The schema this program writes.
const SCHEMA: i64 = 1;

/// One script per schema step: `MIGRATIONS[n]` leads from schema n to n + 1.
const MIGRATIONS: [&str; 1] = [include_str!("schema.sql")];

/// Opens the database for writing, making or migrating it where needed.
pub(crate) fn open_for_writing(path: &Path) -> Result<Connection, HubError> {
    let mut connection = open(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE)?;
    migrate(&mut connection, path)?;
    Ok(connection)
}

/// Opens the database for reading.
pub(crate) fn open_for_reading(path: &Path) -> Result<Connection, HubError> {
    // Not SQLITE_OPEN_READ_ONLY: a reader of a WAL database may have to recover it.
    let connection = open(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    connection.pragma_update(None, "query_only", true)?;
    Ok(connection)
}

fn open(path: &Path, flags: OpenFlags) -> Result<Connection, HubError> {
    // NOFOLLOW: a link in the place of the database would have us write wherever it points.
    let flags = flags | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let mut connection = Connection::open_with_flags(path, flags)?;
    connection.busy_handler(Some(wait_for_lock))?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    // Checked on every page read, so that damage is noticed as damage.
    connection.pragma_update(None, "cell_size_check", true)?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(connection)
}

/// Waits for another process's transaction. SQLite's own handler sleeps up to 100 ms at a time, which
/// starves one of many writers whose transactions take a millisecond each.
fn wait_for_lock(tries: i32) -> bool {
    let millis = fastrand::u64(0..4) + u64::try_from(tries).unwrap_or(0).min(6);
    std::thread::sleep(Duration::from_micros(200) + Duration::from_millis(millis) / 2);
    // About 30 s at 3.7 ms a try: longer than any transaction of ours by four orders of magnitude.
    tries < 8_000
}

fn migrate(connection: &mut Connection, path: &Path) -> Result<(), HubError> {
    if schema(connection)? == SCHEMA {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    let found = schema(&transaction)?;
    if found > SCHEMA {
        return Err(HubError::NewerSchema { path: path.to_owned(), found, known: SCHEMA });
    }
    for step in MIGRATIONS.iter().skip(usize::try_from(found).unwrap_or(0)) {
        transaction.execute_batch(step)?;
    }
    transaction.pragma_update(None, "user_version", SCHEMA)?;
    transaction.commit()?;
    Ok(())
}

fn schema(connection: &Connection) -> Result<i64, HubError> {
    Ok(connection.pragma_query_value(None, "user_version", |row| row.get(0))?)
}
