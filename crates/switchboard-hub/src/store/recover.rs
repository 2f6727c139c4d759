//! A damaged database is moved aside, loudly, and what can be read of it is taken over.
//!
//! The rest comes back from the files that the doors keep: see [`crate::Hub::needs_rebuild`]. A database of an older
//! schema takes the same way, except that nothing is lost on it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::Connection;
use switchboard_sys::files::{Created, Dir, Durability};

use crate::bell;
use crate::error::{HubError, is_suspicious};
use crate::extent::Extent;
use crate::maintenance;
use crate::store::adopt::quarantine;
use crate::store::binding::{self, HubKey};
use crate::store::degraded::open_read_only;
use crate::store::open::{
    Age, AtClose, age, check_tables, damage, has_our_tables, open_for_reading, open_for_salvage,
    open_for_writing, write_header,
};
use crate::store::refused::write_anew;
use crate::store::salvage::{GRAFTED, keep_rebuilt, open_damaged, salvage};
use crate::store::side_files::{self, Renewed};

/// The database's file name.
pub(crate) const DATABASE: &str = "hub.db";

/// The lock that every process with an open hub holds shared, and one that moves the database alone.
pub(crate) const LOCK: &str = "hub.lock";

/// Present when a process met damage while it worked, or ended without having put right what a failing disk had left: the
/// next one to open looks closely.
const SUSPECT: &str = "hub.db.suspect";

/// The new database while it is filled from a damaged one. It may be thrown away at any time.
pub(super) const UNFINISHED: &str = "hub.db.unfinished";

/// The new database once it is complete, until it has taken the place of the damaged one.
const READY: &str = "hub.db.ready";

/// The database, opened; and where the one went that could not be used.
pub(crate) struct Opened {
    pub(crate) connection: Connection,
    /// A damaged one.
    pub(crate) moved_aside: Option<PathBuf>,
    /// One from elsewhere.
    pub(crate) quarantined: Option<PathBuf>,
    /// Files that were planted beside it.
    pub(crate) planted: Vec<PathBuf>,
}

impl Opened {
    pub(super) fn in_place(connection: Connection) -> Self {
        Self { connection, moved_aside: None, quarantined: None, planted: Vec::new() }
    }
}

/// What a database looks like from outside, before anybody opens it to work with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DatabaseState {
    /// There is none.
    Missing,
    /// A close look has nothing to complain about.
    Sound,
    /// It is sound, and of an earlier version; the next hub to open it upgrades it.
    Older {
        /// The number of its schema.
        schema: i64,
    },
    /// It is not bound to this user and machine; the next hub to open it moves it aside.
    Foreign,
    /// A file of SQLite beside it is not ours; the next hub to open it moves that aside.
    PlantedFile {
        /// The file.
        name: String,
    },
    /// It cannot be read as it is; the next hub to open it moves it aside.
    Damaged {
        /// What SQLite said.
        problem: String,
    },
}

/// Looks at the database in a folder and changes nothing.
pub(crate) fn check(folder: &Dir, key: Option<&HubKey>, extent: Extent) -> Result<DatabaseState, HubError> {
    match folder.stat(DATABASE)? {
        None => return Ok(DatabaseState::Missing),
        Some(found) if found.is_regular && found.len == 0 => return Ok(DatabaseState::Missing),
        // Says what it is instead of a file.
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
    // Without a log of ours, SQLite makes one for as long as this takes.
    let at_close =
        if side_files::verify(folder, key).is_ok() { AtClose::with(key) } else { AtClose::RemoveLog };
    let opened = match open_for_reading(&folder.path().join(DATABASE), at_close) {
        Err(error) if error.is_disk() => open_read_only(folder, key).map_err(|_| error),
        opened => opened,
    };
    let looked = opened.and_then(|db| Ok((complaint(&db, extent)?, age(&db)?)));
    match looked {
        Ok((Some(problem), _)) => Ok(DatabaseState::Damaged { problem }),
        Ok((None, Age::Older(schema))) => Ok(DatabaseState::Older { schema }),
        Ok((None, _)) => Ok(DatabaseState::Sound),
        Err(error) if error.is_damage() => Ok(DatabaseState::Damaged { problem: error.to_string() }),
        Err(error) => Err(error),
    }
}

/// What a close look complains about first: SQLite's own check, and what that does not look at.
fn complaint(db: &Connection, extent: Extent) -> Result<Option<String>, HubError> {
    const TABLES: &str = "its list of tables is not the one it was made with";
    // Where the table of messages cannot be read either, the whole is looked at.
    let is_whole = extent.after(db).unwrap_or(0) == 0;
    let verdict = if is_whole { integrity(db)? } else { integrity_of_few(db)? };
    if verdict != "ok" {
        return Ok(Some(verdict));
    }
    let is_sound = match age(db)? {
        Age::Ours => has_our_tables(db)?,
        Age::Older(_) => check_tables(db).is_ok(),
        Age::New | Age::Newer(_) => return Ok(None),
        Age::Lost => return Ok(Some("the number of its schema is lost".to_owned())),
    };
    if !is_sound {
        return Ok(Some(TABLES.to_owned()));
    }
    let can_search = db.execute_batch("SELECT rowid FROM search WHERE search MATCH 'a' LIMIT 1").is_ok();
    Ok((!can_search).then(|| "its index of words cannot be read".to_owned()))
}

/// Takes a share of the store's lock and opens the database.
pub(crate) fn lock_and_open(folder: &Dir, key: Option<&HubKey>) -> Result<(Option<File>, Opened), HubError> {
    let lock = folder.open_own(LOCK)?;
    lock.lock_shared().map_err(folder.io("lock", LOCK))?;
    let opened = open_or_recover(folder, &lock, key)?;
    Ok((Some(lock), opened))
}

/// Opens the database, or moves it aside and makes a new one where it cannot be read or came from elsewhere.
///
/// `lock` is held shared by every process that has the hub open; only a process that holds it alone
/// may move the database.
pub(crate) fn open_or_recover(folder: &Dir, lock: &File, key: Option<&HubKey>) -> Result<Opened, HubError> {
    let path = folder.path().join(DATABASE);
    let mut first = open_checked(folder, &path, key);
    let mut renewed = Renewed::default();
    if let Err(HubError::ForeignSideFile { .. }) = first {
        renewed = side_files::renew_alone(folder, lock, key)?;
        first = open_checked(folder, &path, key);
        share(lock);
    }
    let mut opened = settle(folder, lock, key, &path, first)?;
    if renewed.lost_log {
        // The doors read the content of the lost log back from their files.
        maintenance::forget_rebuilt(&opened.connection)?;
    }
    opened.planted = renewed.moved_aside;
    Ok(opened)
}

/// Deals with what the first attempt to open the database met.
fn settle(
    folder: &Dir,
    lock: &File,
    key: Option<&HubKey>,
    path: &Path,
    first: Result<Connection, HubError>,
) -> Result<Opened, HubError> {
    match first {
        Ok(connection) => return Ok(Opened::in_place(connection)),
        Err(error) if error.is_damage() => {
            tracing::error!(path = %path.display(), "the journal is damaged");
            alone(lock).ok_or(HubError::DamagedInUse { path: path.to_owned() })?;
        }
        Err(older @ HubError::OlderSchema { .. }) => alone(lock).ok_or(older)?,
        Err(HubError::ForeignDatabase { path }) => {
            let is_over = || binding::verify(folder, key).is_ok();
            alone_or(lock, is_over).ok_or(HubError::ForeignInUse { path })?;
        }
        Err(error) => return Err(error),
    }
    let opened = match open_checked(folder, path, key) {
        // Another process was quicker.
        Ok(connection) => Ok(Opened::in_place(connection)),
        Err(HubError::OlderSchema { found, .. }) => replace(folder, path, Some(found), key),
        Err(HubError::ForeignDatabase { .. }) => begin_after_quarantine(folder, path, key),
        // Nothing is salvaged from a database with foreign pages.
        Err(HubError::ForeignSideFile { path }) => Err(HubError::SideFileInUse { path }),
        Err(_) => replace(folder, path, None, key),
    };
    share(lock);
    opened
}

/// Moves a foreign database aside and begins a new one.
fn begin_after_quarantine(folder: &Dir, path: &Path, key: Option<&HubKey>) -> Result<Opened, HubError> {
    let aside = quarantine(folder, key)?;
    folder.remove(SUSPECT)?;
    tracing::debug!(quarantined = %aside.display(), "the journal came from elsewhere");
    let connection = open_checked(folder, path, key)?;
    Ok(Opened { quarantined: Some(aside), ..Opened::in_place(connection) })
}

/// Takes the lock alone, where nobody else has the hub open.
pub(super) fn alone(lock: &File) -> Option<()> {
    lock.unlock().and_then(|()| lock.try_lock().map_err(Into::into)).ok()
}

/// Takes the lock alone, with patience for others that meet the same database; shares it where one of them was quicker, so
/// that the reason to be alone is over.
pub(super) fn alone_or(lock: &File, is_over: impl Fn() -> bool) -> Option<()> {
    for _ in 0..100 {
        if alone(lock).is_some() {
            return Some(());
        }
        // Waits for one that is at it.
        lock.lock_shared().ok()?;
        if is_over() {
            return Some(());
        }
        lock.unlock().ok()?;
        std::thread::sleep(Duration::from_millis(10));
    }
    None
}

/// Shares a lock that was held alone. Between the two calls another process may come in, which does no harm.
pub(super) fn share(lock: &File) {
    if lock.unlock().and_then(|()| lock.lock_shared()).is_err() {
        tracing::warn!("the lock on the hub could not be taken again");
    }
}

/// Notes that damage was met, so that the next open looks closely instead of trusting the header.
pub(crate) fn mark_suspect(folder: &Dir) {
    if let Err(error) = folder.replace(SUSPECT, b"", 0o600) {
        tracing::warn!(error = %error, "the damage could not be noted");
    }
}

fn open_checked(folder: &Dir, path: &Path, key: Option<&HubKey>) -> Result<Connection, HubError> {
    let turn = prepare(folder, key)?;
    binding::verify(folder, key)?;
    if turn.is_some() {
        side_files::verify(folder, key)?;
    }
    let connection = open_verified(folder, path, key)?;
    drop(turn);
    if folder.stat(SUSPECT)?.is_some() {
        if let Some(problem) = complaint(&connection, Extent::Everything)? {
            return Err(damage(&problem));
        }
        let log = folder.open_own(&format!("{DATABASE}-wal"))?;
        write_anew(&connection, &log)?;
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        // SQLite ends a damaged log at its first damaged frame and says nothing.
        maintenance::forget_rebuilt(&connection)?;
        folder.remove(SUSPECT)?;
        tracing::info!("the journal was in doubt; messages that it lost are read back from files");
    }
    Ok(connection)
}

/// Opens a database whose side files were verified, and verifies that SQLite has opened those.
pub(super) fn open_verified(folder: &Dir, path: &Path, key: Option<&HubKey>) -> Result<Connection, HubError> {
    let connection = open_for_writing(path, AtClose::with(key))?;
    side_files::verify(folder, key)?;
    Ok(connection)
}

/// The first complaint of SQLite's own check, or `ok`. That it cannot be made is a complaint too.
fn integrity(connection: &Connection) -> Result<String, HubError> {
    match connection.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0)) {
        Err(error) if is_suspicious(&error) => Ok(error.to_string()),
        verdict => Ok(verdict?),
    }
}

/// The same for the tables that stay small. Every row of a larger one would be read.
fn integrity_of_few(connection: &Connection) -> Result<String, HubError> {
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

/// Makes an empty database file that only its owner can read, and clears what would spoil it.
///
/// The answer is to be kept until the database has been opened: where it is new, one does that at a time.
/// `None` says that the side files are verified.
///
/// Otherwise the log of a database that another process has just made could be cleared away, and SQLite gives
/// up where two make the same new database theirs.
fn prepare(folder: &Dir, key: Option<&HubKey>) -> Result<Option<File>, HubError> {
    let is_in_place =
        folder.stat(DATABASE)?.is_some_and(|found| found.len > 0) && folder.stat(READY)?.is_none();
    if is_in_place && side_files::verify(folder, key).is_ok() {
        return Ok(None);
    }
    // Any file of ours will do that nobody locks otherwise.
    let turn = folder.open_own(bell::NAME)?;
    turn.lock().map_err(folder.io("lock", bell::NAME))?;
    if let Some(found) = folder.stat(DATABASE)? {
        // Either it has taken its place and still has its other name, or the damaged one was not yet
        // moved and everything begins anew.
        folder.remove(READY)?;
        if found.len == 0 {
            orphan_log(folder)?;
            binding::bind(folder, &[DATABASE], key)?;
            begin(folder, key)?;
        }
        return Ok(Some(turn));
    }
    orphan_log(folder)?;
    folder.move_new(READY, folder, DATABASE)?;
    if folder.create_new(DATABASE, b"", Durability::Later)? == Created::Created {
        binding::bind(folder, &[DATABASE], key)?;
    }
    begin(folder, key)?;
    Ok(Some(turn))
}

/// Prepares a database that has just got its place, and that no process has open, for opening.
fn begin(folder: &Dir, key: Option<&HubKey>) -> Result<(), HubError> {
    if folder.stat(DATABASE)?.is_some_and(|found| found.len == 0) {
        side_files::set_aside(folder, side_files::JOURNAL)?;
        write_header(folder, DATABASE)?;
    }
    side_files::renew(folder, key)?;
    Ok(())
}

/// Moves a log without its database aside: it belongs to one that is gone, and SQLite would replay it.
pub(super) fn orphan_log(folder: &Dir) -> Result<(), HubError> {
    let mark = fastrand::u32(..);
    for (name, suffix) in side_files::SIDE_FILES.into_iter().zip(["-wal", "-shm"]) {
        match folder.stat(name)? {
            Some(found) if found.is_regular && found.len > 0 => {
                folder.move_new(name, folder, &format!("{DATABASE}.orphan.{mark:08x}{suffix}"))?;
            }
            _ => drop(side_files::set_aside(folder, name)?),
        }
    }
    Ok(())
}

/// Fills a new database from a damaged one, or from one of an older schema, and then moves that aside under a name
/// that says so.
///
/// In this order, so that nothing is lost when it is interrupted: until the new one is complete, the
/// old one stays where it is.
fn replace(folder: &Dir, path: &Path, older: Option<i64>, key: Option<&HubKey>) -> Result<Opened, HubError> {
    for stale in [UNFINISHED, GRAFTED, READY] {
        remove_database(folder, stale)?;
    }
    folder.create_new(UNFINISHED, b"", Durability::Later)?;
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
    let upgraded = older.filter(|_| saved.is_some_and(|saved| saved.whole));
    if let (Some(_), Some(old)) = (upgraded, &old) {
        keep_rebuilt(old, &connection)?;
    }
    drop(old);
    connection.close().map_err(|(_, error)| error)?;
    remove_database(folder, GRAFTED)?;
    // Both, because the old one stays in place when this is interrupted.
    binding::bind(folder, &[UNFINISHED, DATABASE], key)?;
    folder.move_new(UNFINISHED, folder, READY)?;

    let why = upgraded.map_or_else(|| "damaged".to_owned(), |schema| format!("schema{schema}"));
    let mark = format!("{DATABASE}.{why}.{:08x}", fastrand::u32(..));
    // The database first: without it, what is left of it is cleared away and the new one takes its place.
    for suffix in ["", "-wal", "-shm"] {
        let name = format!("{DATABASE}{suffix}");
        if folder.stat(&name)?.is_some_and(|found| found.len > 0 || suffix.is_empty()) {
            folder.move_new(&name, folder, &format!("{mark}{suffix}"))?;
        } else {
            folder.remove(&name)?;
        }
    }
    folder.remove(SUSPECT)?;
    let turn = prepare(folder, key)?;
    let connection = open_verified(folder, path, key)?;
    drop(turn);
    let aside = folder.path().join(&mark);
    let saved = saved.map(|saved| saved.rows);
    match (upgraded, saved) {
        (Some(schema), saved) => {
            tracing::info!(schema, saved, kept = %aside.display(), "the journal was upgraded");
            return Ok(Opened::in_place(connection));
        }
        (None, Some(saved)) => tracing::error!(
            damaged = %aside.display(),
            saved,
            "the damaged journal was moved aside; what could be read of it was taken over"
        ),
        (None, None) => tracing::error!(
            damaged = %aside.display(),
            "the damaged journal was moved aside; nothing could be read of it"
        ),
    }
    Ok(Opened { moved_aside: Some(aside), ..Opened::in_place(connection) })
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
