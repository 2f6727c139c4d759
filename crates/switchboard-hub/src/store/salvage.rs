//! Salvage: copies the readable rows of a damaged database into a new one.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rusqlite::types::Value;
use rusqlite::{Connection, Row};
use switchboard_sys::clock::Clock;
use switchboard_sys::files::Dir;

use crate::delivery::missing_deliveries;
use crate::directory;
use crate::error::HubError;
use crate::journal::chain;
use crate::store::open::{has_expected_tables, open_for_salvage};
use crate::store::recover::{DATABASE, UNFINISHED};
use crate::store::rows::{MESSAGE_COLUMNS, MESSAGE_WIDTH, SPREAD, Stored};

/// Copy of a damaged database that was given a new schema (list of tables).
pub(super) const GRAFTED: &str = "hub.db.grafted";

/// Tables that are copied, with their order and stride.
///
/// Each entry has the columns that order the table and, for a numeric order, the distance between the numbers of two
/// consecutive messages.
const TABLES: [(&str, &str, Option<i64>); 14] = [
    ("messages", "seq", Some(1)),
    ("deliveries", "id", Some(SPREAD)),
    ("native_ids", "door, id, scope", None),
    ("agents", "name", None),
    ("aliases", "alias", None),
    ("teams", "id", None),
    ("notes", "door, topic, key", None),
    ("chain_breaks", "seq", Some(1)),
    ("stops", "seq, subject", None),
    ("resumed", "subject", None),
    ("spending", "agent, minute", None),
    ("claims", "task", None),
    ("reservations", "id", None),
    ("activity", "id", None),
];

/// Highest plausible message number; a larger number is damage.
///
/// 2^40 messages are 35 years at a thousand per second.
const HIGHEST: i64 = 1 << 40;

/// Maximum number of rows that are probed one by one: about a minute's work.
///
/// Rows are probed if the order of a table is lost.
const MOST_PROBES: i64 = 10_000_000;

/// Opens the damaged database for reading, or returns `None` if nothing in it is readable.
pub(super) fn open_damaged(folder: &Dir, path: &Path, new: &Path) -> Result<Option<Connection>, HubError> {
    if let Ok(old) = open_for_salvage(path)
        && has_expected_tables(&old)?
    {
        return Ok(Some(old));
    }
    graft(folder, path, new)?;
    let grafted = open_for_salvage(&folder.path().join(GRAFTED));
    match grafted {
        Ok(old) if has_expected_tables(&old)? => Ok(Some(old)),
        _ => Ok(None),
    }
}

/// Copies the damaged database and gives the copy the new database's header and schema.
///
/// All other pages are found through the schema, and its page numbers are the same in all databases of this program:
/// the tables are created in the same order, before any row is inserted.
fn graft(folder: &Dir, path: &Path, new: &Path) -> Result<(), HubError> {
    for suffix in ["", "-wal"] {
        let (from, to) = (format!("{DATABASE}{suffix}"), format!("{GRAFTED}{suffix}"));
        if folder.stat(&from)?.is_some() {
            let mut source = folder.open_own(&from)?;
            let mut copy = folder.open_own(&to)?;
            std::io::copy(&mut source, &mut copy).map_err(folder.io_error("copy", &from))?;
        }
    }
    let copy = folder.open_own(GRAFTED)?;
    let mut fresh = Vec::new();
    File::open(new)
        .and_then(|mut file| file.read_to_end(&mut fresh))
        .map_err(folder.io_error("read", UNFINISHED))?;
    let size = page_size(&fresh);
    let length = folder.stat(DATABASE)?.map_or(0, |found| found.len);
    let pages = u32::try_from(length / size.max(1) as u64).unwrap_or(u32::MAX);
    // The header stores the page counts at these offsets (SQLite file format, section 1.3).
    for number in schema_pages(&fresh, size) {
        let start = (number - 1) * size;
        let Some(page) = fresh.get_mut(start..start + size) else { continue };
        if number == 1 {
            page[28..32].copy_from_slice(&pages.to_be_bytes());
            page[32..40].fill(0);
        }
        copy.write_all_at(page, start as u64).map_err(folder.io_error("write", GRAFTED))?;
    }
    tracing::warn!(damaged = %path.display(), "its list of tables is damaged and was replaced in a copy");
    Ok(())
}

/// Reads the page size: two bytes at offset 16, where 1 stands for 65536 (SQLite file format, section 1.3.2).
fn page_size(database: &[u8]) -> usize {
    match database.get(16..18) {
        Some(&[0, 1]) => 1 << 16,
        Some(&[high, low]) => usize::from(u16::from_be_bytes([high, low])),
        _ => 0,
    }
}

/// Finds the pages of the schema table: the first page and its children (SQLite file format, section 1.6).
fn schema_pages(database: &[u8], size: usize) -> Vec<usize> {
    // Page type of an interior page of a table B-tree.
    const INTERIOR: u8 = 5;
    let mut pages = vec![1];
    let bytes = |at: usize, count: usize| {
        let bytes = database.get(..size).and_then(|page| page.get(at..at + count)).unwrap_or_default();
        bytes.iter().fold(0_usize, |number, byte| (number << 8) | usize::from(*byte))
    };
    if database.get(100) == Some(&INTERIOR) {
        pages.push(bytes(108, 4));
        pages.extend((0..bytes(103, 2)).map(|cell| bytes(bytes(112 + 2 * cell, 2), 4)));
    }
    pages.retain(|page| *page > 0);
    pages
}

/// Result of a salvage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Salvaged {
    /// Number of rows that were copied.
    pub(super) rows: usize,
    /// True if nothing was lost.
    pub(super) complete: bool,
}

/// Copies every readable row of the old database.
///
/// Each table is copied from both ends towards the damage, and rows between two damaged regions one by one. A table
/// that an older schema does not have stays empty.
pub(super) fn salvage(old: &Connection, new: &mut Connection) -> Result<Salvaged, HubError> {
    let new = new.transaction()?;
    let (mut saved, mut complete) = (0, true);
    for (table, key, step) in TABLES {
        if !has_table(old, table) {
            continue;
        }
        let order = |order: &str| {
            let key: Vec<String> = key.split(", ").map(|column| format!("m.{column} {order}")).collect();
            format!("ORDER BY {}", key.join(", "))
        };
        let up = copy(old, &new, table, &order("ASC"), [])?;
        saved += up.saved;
        complete &= up.complete && up.skipped == 0;
        if up.complete {
            continue;
        }
        tracing::warn!(table, "a table is damaged; some of it may be lost");
        let down = copy(old, &new, table, &order("DESC"), [])?;
        saved += down.saved;
        let Some(step) = step else { continue };
        let first = up.last.map_or(0, |last| last / step);
        let last = down.last.map_or_else(|| highest(old), |last| last / step);
        for number in first..=last.min(first.saturating_add(MOST_PROBES)) {
            let between = format!("WHERE m.{key} >= ?1 AND m.{key} < ?2");
            saved += copy(old, &new, table, &between, [number * step, (number + 1) * step])?.saved;
        }
    }
    let floor = highest(old).max(highest(&new));
    new.execute("INSERT INTO meta (key, value) VALUES ('floor', ?1)", [floor.to_string()])?;
    if let Some(pruned) = read_number(old, "SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'pruned'") {
        new.execute("INSERT INTO meta (key, value) VALUES ('pruned', ?1)", [pruned.to_string()])?;
    }
    new.execute_batch(
        "DELETE FROM deliveries WHERE id / 65536 NOT IN (SELECT seq FROM messages); \
         DELETE FROM native_ids WHERE seq NOT IN (SELECT seq FROM messages); \
         INSERT OR IGNORE INTO native_ids (door, id, scope, seq) \
         SELECT door, native_id, scope, seq FROM messages ORDER BY seq; \
         INSERT OR REPLACE INTO meta (key, value) VALUES ('directory', '1'); \
         DELETE FROM mailboxes; \
         INSERT INTO mailboxes (agent, unseen, waiting) \
         SELECT agent, sum(state = 2), count(*) FROM deliveries WHERE state IN (2, 3) GROUP BY agent;",
    )?;
    missing_deliveries::restore_all(&new, &directory::load(&new)?)?;
    chain::repair(&new, Clock::system().now())?;
    new.commit()?;
    Ok(Salvaged { rows: saved, complete })
}

/// Copies the flag that the doors have read their files back, for an upgrade without loss.
pub(super) fn copy_rebuilt_flag(old: &Connection, new: &Connection) -> Result<(), HubError> {
    let rebuilt: bool =
        old.query_row("SELECT EXISTS (SELECT 1 FROM meta WHERE key = 'rebuilt')", [], |row| row.get(0))?;
    if rebuilt {
        new.execute("INSERT OR IGNORE INTO meta (key, value) VALUES ('rebuilt', '1')", [])?;
    }
    Ok(())
}

/// Returns true if a database has a table that can be read.
fn has_table(db: &Connection, table: &str) -> bool {
    let found =
        db.query_row("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?1", [table], |_| Ok(()));
    !matches!(found, Err(rusqlite::Error::QueryReturnedNoRows))
}

/// Returns the highest message number that was ever assigned, according to any readable table.
fn highest(db: &Connection) -> i64 {
    let sources = [
        "SELECT max(seq) FROM messages",
        "SELECT max(id) / 65536 FROM deliveries",
        "SELECT max(seq) FROM native_ids",
        "SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'pruned'",
        "SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'floor'",
    ];
    sources.iter().filter_map(|source| read_number(db, source)).max().unwrap_or(0)
}

/// Reads a message number, or returns `None` if it is not plausible.
fn read_number(db: &Connection, sql: &str) -> Option<i64> {
    db.query_row(sql, [], |row| row.get::<_, i64>(0)).ok().filter(|number| (0..HIGHEST).contains(number))
}

/// Result of copying a table.
struct Copied {
    saved: usize,
    /// Number of rows that were reached but could not be read.
    skipped: usize,
    /// Number of the last row that was reached, in tables that are ordered by a number.
    last: Option<i64>,
    /// True if the end of the table was reached.
    complete: bool,
}

/// Copies the readable rows that `rest`, the end of an SQL query, selects.
///
/// Fails only if the new database cannot be written.
fn copy(
    old: &Connection,
    new: &Connection,
    table: &str,
    rest: &str,
    values: impl rusqlite::Params,
) -> Result<Copied, HubError> {
    let mut copied = Copied { saved: 0, skipped: 0, last: None, complete: false };
    // Messages are verified against their checksums while they are copied; the columns for that come first.
    let is_messages = table == "messages";
    let columns = if is_messages { format!("{MESSAGE_COLUMNS}, m.*") } else { "m.*".to_owned() };
    let skip = if is_messages { MESSAGE_WIDTH } else { 0 };
    let Ok(mut select) = old.prepare_cached(&format!("SELECT {columns} FROM {table} m {rest}")) else {
        return Ok(copied);
    };
    let names: Vec<String> = select.column_names().skip(skip).map(str::to_owned).collect();
    let marks = vec!["?"; names.len()].join(", ");
    let mut insert = new
        .prepare_cached(&format!("INSERT OR IGNORE INTO {table} ({}) VALUES ({marks})", names.join(", ")))?;
    let Ok(mut rows) = select.query(values) else { return Ok(copied) };
    loop {
        let row = match rows.next() {
            Ok(Some(row)) => row,
            Ok(None) => {
                copied.complete = true;
                return Ok(copied);
            }
            Err(_) => return Ok(copied),
        };
        // The number is the first column in all tables that are ordered by a number.
        copied.last = row.get(0).ok().or(copied.last);
        if is_messages && Stored::read(row).is_err() {
            copied.skipped += 1;
            continue;
        }
        match row_values(row, skip, names.len()) {
            Ok(values) => copied.saved += insert.execute(rusqlite::params_from_iter(values))?,
            Err(_) => copied.skipped += 1,
        }
    }
}

fn row_values(row: &Row<'_>, from: usize, count: usize) -> rusqlite::Result<Vec<Value>> {
    (from..from + count).map(|column| row.get(column)).collect()
}
