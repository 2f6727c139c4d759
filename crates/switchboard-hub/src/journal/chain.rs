//! Hash chain of the journal: the hash of each row covers the previous hash and the row's content.
//!
//! [`crate::journal::audit`] detects a change, removal or insertion of a row, unless all later hashes are recomputed
//! too. A process that can write the database can recompute them; only a hash that was stored elsewhere reveals that.

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};
use sha2::{Digest, Sha256};

use crate::error::HubError;
use crate::journal::submit::READ_BACK;
use crate::store::rows::{self, MESSAGE_COLUMNS, MESSAGE_WIDTH, SPREAD, Stored};

/// Hash of a row in the chain.
pub(crate) type RowHash = [u8; 32];

/// Initial hash, from which the first row of a journal follows.
pub(crate) const GENESIS: RowHash = [0; 32];

/// Reason why a row does not follow from the previous row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakReason {
    /// Retention removed the rows in between.
    Retention,
    /// The journal was damaged, and the rows in between were lost.
    Recovered,
    /// The database was lost, and the one that was rebuilt from files starts here.
    Rebuilt,
    /// The journal is older than the chain.
    ///
    /// An upgrade computed the hashes of this row and of the existing rows after it.
    Upgraded,
    /// The row was damaged and restored from a file.
    ///
    /// The file does not contain all fields of the row.
    Restored,
    /// The rows in between were rolled back, because the disk did not store them.
    ///
    /// Their senders were told that they were not accepted.
    Refused,
}

impl BreakReason {
    const ALL: [Self; 6] =
        [Self::Retention, Self::Recovered, Self::Rebuilt, Self::Upgraded, Self::Restored, Self::Refused];

    /// Returns the reason as the database and JSON spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Retention => "retention",
            Self::Recovered => "recovered",
            Self::Rebuilt => "rebuilt",
            Self::Upgraded => "upgraded",
            Self::Restored => "restored",
            Self::Refused => "refused",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == name)
    }
}

/// Computes the chain hash of a row; `content` is the hash of its content.
pub(crate) fn hash_row(previous: &RowHash, seq: i64, content: &[u8; 32]) -> RowHash {
    let mut hash = Sha256::new();
    hash.update(previous);
    hash.update(seq.to_le_bytes());
    hash.update(content);
    hash.finalize().into()
}

/// Records a break of the chain before a row.
pub(crate) fn note_break(
    db: &Connection,
    seq: i64,
    previous: Option<&[u8]>,
    reason: BreakReason,
    now: Timestamp,
) -> rusqlite::Result<()> {
    db.prepare_cached(
        "INSERT OR REPLACE INTO chain_breaks (seq, previous, reason, at) VALUES (?1, ?2, ?3, ?4)",
    )?
    .execute(params![seq, previous, reason.as_str(), now.as_microsecond()])?;
    Ok(())
}

/// Bridges the chain over a row that is about to be removed.
///
/// Rows have to be removed in ascending order. If the last row is removed, the chain continues from the row before it.
pub(crate) fn bridge(db: &Connection, seq: i64, reason: BreakReason, now: Timestamp) -> rusqlite::Result<()> {
    db.prepare_cached("DELETE FROM chain_breaks WHERE seq = ?1")?.execute([seq])?;
    db.prepare_cached(
        "INSERT OR REPLACE INTO chain_breaks (seq, previous, reason, at) \
         SELECT (SELECT min(seq) FROM messages WHERE seq > ?1), chain, ?2, ?3 FROM messages \
         WHERE seq = ?1 AND seq < (SELECT max(seq) FROM messages)",
    )?
    .execute(params![seq, reason.as_str(), now.as_microsecond()])?;
    Ok(())
}

/// Records a break of the chain if the journal starts with messages rebuilt from files.
pub(crate) fn note_rebuilt(db: &Connection, now: Timestamp) -> rusqlite::Result<()> {
    db.execute(
        &format!(
            "INSERT OR IGNORE INTO chain_breaks (seq, previous, reason, at) \
             SELECT seq, ?1, ?2, ?3 FROM messages WHERE seq = (SELECT min(seq) FROM messages) \
             AND EXISTS (SELECT 1 FROM deliveries d WHERE d.id >= seq * {SPREAD} AND d.id < (seq + 1) * {SPREAD} \
             AND d.note = ?4)"
        ),
        params![GENESIS, BreakReason::Rebuilt.as_str(), now.as_microsecond(), READ_BACK],
    )?;
    Ok(())
}

/// Records a break of the chain if a restored row differs from the original.
pub(crate) fn note_restored(
    db: &Connection,
    seq: i64,
    content: &[u8; 32],
    now: Timestamp,
) -> rusqlite::Result<()> {
    let own: Option<RowHash> = db
        .query_row("SELECT chain FROM messages WHERE seq = ?1", [seq], |row| Ok(row.get(0).ok()))
        .optional()?
        .flatten();
    let follows =
        previous_hash(db, seq)?.is_some_and(|previous| own == Some(hash_row(&previous, seq, content)));
    if follows { Ok(()) } else { note_break(db, seq, None, BreakReason::Restored, now) }
}

/// Returns the hash from which a row follows, or `None` if that hash is lost.
pub(crate) fn previous_hash(db: &Connection, seq: i64) -> rusqlite::Result<Option<RowHash>> {
    let noted: Option<Option<RowHash>> = db
        .query_row("SELECT previous FROM chain_breaks WHERE seq = ?1", [seq], |row| Ok(row.get(0).ok()))
        .optional()?;
    if let Some(noted) = noted {
        return Ok(noted);
    }
    let row_before = "SELECT chain FROM messages WHERE seq < ?1 ORDER BY seq DESC LIMIT 1";
    let found: Option<Option<RowHash>> =
        db.query_row(row_before, [seq], |row| Ok(row.get(0).ok())).optional()?;
    Ok(found.unwrap_or(Some(GENESIS)))
}

/// Repairs the chain of a journal that was copied from another database.
///
/// Computes the hashes of rows that are older than the chain, and records breaks where rows are missing.
pub(crate) fn repair(db: &Connection, now: Timestamp) -> Result<(), HubError> {
    let mut select = db.prepare(&format!(
        "SELECT {MESSAGE_COLUMNS}, m.chain FROM messages m WHERE m.seq > ?1 ORDER BY m.seq LIMIT 1000"
    ))?;
    let (mut last, mut previous, mut upgraded) = (0, GENESIS, false);
    loop {
        let mut page = Vec::new();
        let mut rows = select.query([last])?;
        while let Some(row) = rows.next()? {
            let (stored, digest) = Stored::read_unsealed(row)?;
            let content = rows::content(&stored.message, stored.accepted_at, &digest);
            page.push((stored.seq, content, row.get::<_, RowHash>(MESSAGE_WIDTH).ok()));
        }
        let Some((newest, ..)) = page.last() else { return Ok(()) };
        last = *newest;
        for (seq, content, own) in page {
            let expected = hash_row(&previous, seq, &content);
            match own {
                Some(own) if own == expected || has_break(db, seq)? => previous = own,
                Some(own) => {
                    note_break(db, seq, None, BreakReason::Recovered, now)?;
                    previous = own;
                }
                None => {
                    if !upgraded {
                        note_break(db, seq, Some(&previous), BreakReason::Upgraded, now)?;
                        upgraded = true;
                    }
                    db.prepare_cached("UPDATE messages SET chain = ?2 WHERE seq = ?1")?
                        .execute(params![seq, expected])?;
                    previous = expected;
                }
            }
        }
    }
}

fn has_break(db: &Connection, seq: i64) -> rusqlite::Result<bool> {
    db.prepare_cached("SELECT EXISTS (SELECT 1 FROM chain_breaks WHERE seq = ?1)")?
        .query_row([seq], |row| row.get(0))
}
