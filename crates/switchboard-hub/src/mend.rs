//! Repair of a journal row from what the row itself and the names of its message still say.
//!
//! The seal of a row covers its content and its digest, and the native id of a message is noted twice. So a row with a
//! damaged digest or native id holds what proves its repair, and no file is needed.

use rusqlite::{Connection, params};
use switchboard_core::NativeId;

use crate::error::HubError;
use crate::outbox;
use crate::store::rows::{self, MESSAGE_COLUMNS, Stored};
use crate::store::writer::Work;

/// Repairs the digest or the native id of a row; false where that is not what is wrong with it.
/// `likely` is what its door would call the message: its name need not be noted then.
pub(crate) fn mend(tx: &mut Work<'_>, seq: i64, likely: Option<NativeId>) -> Result<bool, HubError> {
    if !mend_row(tx.db, seq, likely)? {
        return Ok(false);
    }
    outbox::take_back(tx, seq)?;
    Ok(true)
}

fn mend_row(db: &Connection, seq: i64, likely: Option<NativeId>) -> Result<bool, HubError> {
    let mut names: Vec<Option<(String, String, String)>> = vec![None];
    names.extend(likely.map(|name| Some((name.door.as_str().to_owned(), name.scope, name.id))));
    let mut statement = db.prepare("SELECT door, scope, id FROM native_ids WHERE seq = ?1")?;
    for name in statement.query_map([seq], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))? {
        names.extend(name.ok().map(Some));
    }
    for name in names {
        db.execute_batch("SAVEPOINT mend")?;
        let is_mended = try_name(db, seq, name.as_ref())?;
        db.execute_batch(if is_mended { "RELEASE mend" } else { "ROLLBACK TO mend; RELEASE mend" })?;
        if is_mended {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Gives a row a name, or leaves it the one that it has, and then the digest of what it says.
fn try_name(db: &Connection, seq: i64, name: Option<&(String, String, String)>) -> Result<bool, HubError> {
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
#[path = "mend_tests.rs"]
mod tests;
