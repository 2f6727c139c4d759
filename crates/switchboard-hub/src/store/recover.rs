//! A damaged database is moved aside, loudly, and what can be read of it is taken over.
//!
//! The rest comes back from the files that the doors keep: see [`crate::Hub::needs_rebuild`].

use std::fs::File;
use std::path::{Path, PathBuf};

use rusqlite::types::Value;
use rusqlite::{Connection, Row};

use crate::error::{HubError, is_damage};
use crate::files::Dir;
use crate::store::open::{open_for_reading, open_for_writing};
use crate::store::rows::{MESSAGE_COLUMNS, Stored};

/// The database's file name.
pub(crate) const DATABASE: &str = "hub.db";

/// Present when a process met damage while it worked: the next one to open looks closely.
const SUSPECT: &str = "hub.db.suspect";

/// The database, opened; and where the damaged one went, if it was.
pub(crate) struct Opened {
    pub(crate) connection: Connection,
    pub(crate) moved_aside: Option<PathBuf>,
}

/// What a database looks like from outside, before anybody opens it to work with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DatabaseState {
    /// There is none.
    Missing,
    /// SQLite's own check has nothing to complain about.
    Sound,
    /// It cannot be read as it is; the next hub to open it moves it aside.
    Damaged {
        /// What SQLite said.
        problem: String,
    },
}

/// Looks at the database in a folder and changes nothing.
pub(crate) fn check(folder: &Dir) -> Result<DatabaseState, HubError> {
    if folder.stat(DATABASE)?.is_none_or(|found| found.len == 0) {
        return Ok(DatabaseState::Missing);
    }
    let verdict = open_for_reading(&folder.path().join(DATABASE))
        .and_then(|db| Ok(db.query_row("PRAGMA integrity_check(1)", [], |row| row.get::<_, String>(0))?));
    match verdict {
        Ok(verdict) if verdict == "ok" => Ok(DatabaseState::Sound),
        Ok(problem) => Ok(DatabaseState::Damaged { problem }),
        Err(error) if error.is_damage() => Ok(DatabaseState::Damaged { problem: error.to_string() }),
        Err(error) => Err(error),
    }
}

/// Opens the database, or moves it aside and makes a new one where it cannot be read.
///
/// `lock` is held shared by every process that has the hub open; only a process that holds it alone
/// may move the database.
pub(crate) fn open_or_recover(folder: &Dir, lock: &File) -> Result<Opened, HubError> {
    let path = folder.path().join(DATABASE);
    match open_checked(folder, &path) {
        Ok(connection) => return Ok(Opened { connection, moved_aside: None }),
        Err(error) if error.is_damage() => tracing::error!(path = %path.display(), "the journal is damaged"),
        Err(error) => return Err(error),
    }
    if lock.unlock().and_then(|()| lock.try_lock().map_err(Into::into)).is_err() {
        return Err(HubError::DamagedInUse { path });
    }
    let opened = match open_checked(folder, &path) {
        // Another process was quicker.
        Ok(connection) => Ok(Opened { connection, moved_aside: None }),
        Err(_) => replace(folder, &path),
    };
    // From alone to shared. Between the two calls another process may come in, which does no harm.
    if lock.unlock().and_then(|()| lock.lock_shared()).is_err() {
        tracing::warn!("the lock on the hub could not be taken again");
    }
    opened
}

/// Notes that damage was met, so that the next open looks closely instead of trusting the header.
pub(crate) fn suspect(folder: &Dir) {
    if let Err(error) = folder.replace(SUSPECT, b"", 0o600) {
        tracing::warn!(error = %error, "the damage could not be noted");
    }
}

fn open_checked(folder: &Dir, path: &Path) -> Result<Connection, HubError> {
    prepare(folder)?;
    let connection = open_for_writing(path)?;
    if folder.stat(SUSPECT)?.is_some() {
        let verdict: String = connection.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))?;
        if verdict != "ok" {
            return Err(damage(&verdict));
        }
        folder.remove(SUSPECT)?;
    }
    Ok(connection)
}

fn damage(verdict: &str) -> HubError {
    let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT);
    rusqlite::Error::SqliteFailure(code, Some(verdict.to_owned())).into()
}

/// Makes an empty database file that only its owner can read, and clears what would spoil it.
fn prepare(folder: &Dir) -> Result<(), HubError> {
    if folder.stat(DATABASE)?.is_none() {
        // A write-ahead log without its database belongs to one that is gone; SQLite would replay it.
        let mark = fastrand::u32(..);
        for suffix in ["-wal", "-shm"] {
            let name = format!("{DATABASE}{suffix}");
            folder.move_new(&name, folder, &format!("{DATABASE}.orphan.{mark:08x}{suffix}"))?;
        }
        folder.create_new(DATABASE, b"", crate::files::Durability::Later)?;
    }
    Ok(())
}

/// Moves the damaged database aside under a name that says so, and starts a new one.
fn replace(folder: &Dir, path: &Path) -> Result<Opened, HubError> {
    let mark = format!("{DATABASE}.damaged.{:08x}", fastrand::u32(..));
    for suffix in ["", "-wal", "-shm"] {
        folder.move_new(&format!("{DATABASE}{suffix}"), folder, &format!("{mark}{suffix}"))?;
    }
    folder.remove(SUSPECT)?;
    prepare(folder)?;
    let mut connection = open_for_writing(path)?;
    let aside = folder.path().join(&mark);
    let saved = open_for_reading(&aside).and_then(|old| salvage(&old, &mut connection));
    match saved {
        Ok(saved) => tracing::error!(
            damaged = %aside.display(),
            saved,
            "the damaged journal was moved aside; what could be read of it was taken over"
        ),
        Err(error) => tracing::error!(
            damaged = %aside.display(),
            error = %error,
            "the damaged journal was moved aside; nothing could be read of it"
        ),
    }
    Ok(Opened { connection, moved_aside: Some(aside) })
}

/// Copies every row that can still be read, from both ends of each table towards the damage.
fn salvage(old: &Connection, new: &mut Connection) -> Result<usize, HubError> {
    let new = new.transaction()?;
    let mut saved = 0;
    for (table, key) in [
        ("messages", "seq"),
        ("deliveries", "id"),
        ("native_ids", "door, id, scope"),
        ("agents", "name"),
        ("aliases", "alias"),
        ("teams", "id"),
        ("notes", "door, topic, key"),
    ] {
        for order in ["ASC", "DESC"] {
            match copy(old, &new, table, key, order) {
                Ok(rows) => saved += rows,
                Err(error) => tracing::warn!(table, error = %error, "part of a damaged table is lost"),
            }
        }
    }
    new.execute_batch(
        "DELETE FROM deliveries WHERE id / 65536 NOT IN (SELECT seq FROM messages); \
         DELETE FROM native_ids WHERE seq NOT IN (SELECT seq FROM messages); \
         INSERT OR REPLACE INTO meta (key, value) VALUES ('directory', '1');",
    )?;
    new.commit()?;
    Ok(saved)
}

fn copy(old: &Connection, new: &Connection, table: &str, key: &str, order: &str) -> Result<usize, HubError> {
    let key: Vec<String> = key.split(", ").map(|column| format!("m.{column} {order}")).collect();
    // Messages are checked against their checksum on the way; the columns used for that come first.
    let columns = if table == "messages" { format!("{MESSAGE_COLUMNS}, m.*") } else { "m.*".to_owned() };
    let mut select = old.prepare(&format!("SELECT {columns} FROM {table} m ORDER BY {}", key.join(", ")))?;
    let skip = if table == "messages" { crate::store::rows::MESSAGE_WIDTH } else { 0 };
    let names: Vec<String> = select.column_names().skip(skip).map(str::to_owned).collect();
    let marks = vec!["?"; names.len()].join(", ");
    let mut insert =
        new.prepare(&format!("INSERT OR IGNORE INTO {table} ({}) VALUES ({marks})", names.join(", ")))?;
    let mut saved = 0;
    let mut rows = select.query([])?;
    loop {
        let row = match rows.next() {
            Ok(Some(row)) => row,
            Ok(None) => return Ok(saved),
            Err(error) if is_damage(&error) => return Ok(saved),
            Err(error) => return Err(error.into()),
        };
        if skip > 0 && Stored::read(row).is_err() {
            continue;
        }
        saved += insert.execute(rusqlite::params_from_iter(values(row, skip, names.len())?))?;
    }
}

fn values(row: &Row<'_>, from: usize, count: usize) -> rusqlite::Result<Vec<Value>> {
    (from..from + count).map(|column| row.get(column)).collect()
}

#[cfg(test)]
#[path = "recover_tests.rs"]
mod tests;
