//! Repair of a damaged journal row from the data in the database.
//!
//! The seal of a row covers its content and its digest, and the native id of a message is stored twice. A row with a
//! damaged digest or native id can therefore be repaired and verified without any file.

use rusqlite::{Connection, params};
use switchboard_core::NativeId;

use crate::delivery::outbox;
use crate::error::HubError;
use crate::store::rows::{self, MESSAGE_COLUMNS, Stored};
use crate::store::writer::Transaction;

/// Repairs the digest or the native id of a row.
///
/// Returns false if another field is damaged. `likely` is the native id that the message's door would use; with it, the
/// native id need not be stored elsewhere.
pub(crate) fn repair(tx: &mut Transaction<'_>, seq: i64, likely: Option<NativeId>) -> Result<bool, HubError> {
    if !repair_row(tx.db, seq, likely)? {
        return Ok(false);
    }
    outbox::requeue_repaired(tx, seq)?;
    Ok(true)
}

fn repair_row(db: &Connection, seq: i64, likely: Option<NativeId>) -> Result<bool, HubError> {
    let mut names: Vec<Option<(String, String, String)>> = vec![None];
    names.extend(likely.map(|name| Some((name.door.as_str().to_owned(), name.scope, name.id))));
    let mut statement = db.prepare("SELECT door, scope, id FROM native_ids WHERE seq = ?1")?;
    for name in statement.query_map([seq], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))? {
        names.extend(name.ok().map(Some));
    }
    for name in names {
        db.execute_batch("SAVEPOINT mend")?;
        let is_repaired = try_native_id(db, seq, name.as_ref())?;
        db.execute_batch(if is_repaired { "RELEASE mend" } else { "ROLLBACK TO mend; RELEASE mend" })?;
        if is_repaired {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Sets the native id of a row and recomputes its digest if needed.
///
/// The native id is set only if one is given. The digest is recomputed if the row is still damaged. Returns true if the
/// row is intact afterwards.
fn try_native_id(
    db: &Connection,
    seq: i64,
    name: Option<&(String, String, String)>,
) -> Result<bool, HubError> {
    if let Some((door, scope, id)) = name {
        let naming = "UPDATE messages SET door = ?2, scope = ?3, native_id = ?4 WHERE seq = ?1";
        db.execute(naming, params![seq, door, scope, id])?;
        if row(db, seq, |row| Stored::read(row).is_ok())? {
            return Ok(true);
        }
    }
    let digest = row(db, seq, |row| Stored::parse(row).map(|(stored, _)| rows::digest(&stored.message)))?;
    let Some(digest) = digest else { return Ok(false) };
    db.execute("UPDATE messages SET digest = ?2 WHERE seq = ?1", params![seq, digest])?;
    row(db, seq, |row| Stored::read(row).is_ok())
}

fn row<T>(db: &Connection, seq: i64, read: impl FnOnce(&rusqlite::Row<'_>) -> T) -> Result<T, HubError> {
    let mut statement = db.prepare(&format!("SELECT {MESSAGE_COLUMNS} FROM messages m WHERE m.seq = ?1"))?;
    Ok(statement.query_row([seq], |row| Ok(read(row)))?)
}

#[cfg(test)]
#[path = "repair_tests.rs"]
mod tests;
