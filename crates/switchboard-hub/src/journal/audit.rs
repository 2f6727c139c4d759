//! Audit of the journal's hash chain: finds entries that were changed, added or removed.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use rusqlite::{Connection, Row};
use switchboard_sys::clock::timestamp_from_micros;

use crate::error::HubError;
use crate::journal::chain::{self, BreakReason, GENESIS, RowHash};
use crate::store::rows::{self, MESSAGE_COLUMNS, MESSAGE_WIDTH, SPREAD, Stored};

/// Result of an audit of the whole chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Audit {
    /// Number of entries that were checked.
    pub entries: u64,
    /// The last entry of the chain. If it is stored elsewhere, it later reveals whether the journal up to it was
    /// rewritten.
    pub head: Option<ChainHead>,
    /// Recorded breaks: entries whose predecessor is missing for a known reason.
    pub breaks: Vec<ChainBreak>,
    /// The first bad entry.
    pub first_bad: Option<BadEntry>,
    /// Number of bad entries.
    pub bad: u64,
}

/// Head of the hash chain: the number and hash of its last entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChainHead {
    /// Number of the entry in the journal.
    pub seq: i64,
    /// Hash of the entry, which also covers all earlier entries.
    pub hash: ChainHash,
}

/// Recorded break of the chain: an entry whose predecessor is missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainBreak {
    /// Number of the entry after the break.
    pub seq: i64,
    /// The reason.
    pub reason: BreakReason,
    /// Time of the break.
    pub at: Timestamp,
}

/// Bad entry: its content or its place in the chain is not as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadEntry {
    /// Number of the entry in the journal.
    pub seq: i64,
    /// The message id, if it can be read.
    pub id: Option<switchboard_core::MessageId>,
    /// Fault of the entry.
    pub fault: EntryFault,
}

/// Fault of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryFault {
    /// The content of the entry was changed.
    Changed,
    /// The entry's hash does not follow from the entry before it.
    OutOfChain,
    /// The entry was removed, and not by retention.
    Removed,
    /// The entry's hash differs from the one that was noted.
    NotAsNoted,
}

impl fmt::Display for EntryFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Changed => "its content was changed after it was written",
            Self::OutOfChain => {
                "it does not follow from the entry before it: an entry was removed, added or rewritten here"
            }
            Self::Removed => "it was removed, but not by retention",
            Self::NotAsNoted => "its hash differs from the recorded one: the journal was rewritten",
        })
    }
}

/// Hash of the chain, displayed as 64 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChainHash(RowHash);

impl ChainHash {
    /// Parses a hash from 64 hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        let mut hash = GENESIS;
        if text.len() != 2 * hash.len() || !text.is_ascii() {
            return None;
        }
        for (number, byte) in hash.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * number..2 * number + 2], 16).ok()?;
        }
        Some(Self(hash))
    }
}

impl fmt::Display for ChainHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Journal entry with its place in the hash chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditEntry {
    /// The message, or the entry's number if it cannot be read.
    pub stored: Result<Stored, i64>,
    /// Hash of the entry's content.
    pub content: Option<ChainHash>,
    /// Hash of the previous entry, or `None` if that hash is lost.
    pub previous: Option<ChainHash>,
    /// Hash of this entry, or `None` if it cannot be read.
    pub hash: Option<ChainHash>,
}

impl AuditEntry {
    /// Returns the number of the entry in the journal.
    pub fn seq(&self) -> i64 {
        self.stored.as_ref().map_or_else(|seq| *seq, |stored| stored.seq)
    }

    /// Returns the fault of the entry, judged by the entry alone.
    fn fault(&self) -> Option<EntryFault> {
        let (Ok(stored), Some(ChainHash(content))) = (&self.stored, &self.content) else {
            return Some(EntryFault::Changed);
        };
        match (&self.previous, &self.hash) {
            (Some(ChainHash(previous)), Some(ChainHash(hash))) => {
                (chain::hash_row(previous, stored.seq, content) != *hash).then_some(EntryFault::OutOfChain)
            }
            (None, Some(_)) => None,
            (_, None) => Some(EntryFault::OutOfChain),
        }
    }
}

/// Verifies the whole chain. `noted` is the chain head of an earlier audit.
pub(crate) fn verify(db: &Connection, noted: Option<ChainHead>) -> Result<Audit, HubError> {
    // The audit reads one snapshot, so that entries that are appended meanwhile do not look like missing ones.
    let moment = db.unchecked_transaction()?;
    let mut audit = Audit { entries: 0, head: None, breaks: breaks(&moment)?, first_bad: None, bad: 0 };
    let mut removed = removed(&moment)?.into_iter().peekable();
    let mut walk = Walk::new(&audit.breaks, &moment)?;
    let mut as_noted = noted.is_none();
    let statement = format!("SELECT {MESSAGE_COLUMNS}, m.chain FROM messages m ORDER BY m.seq");
    let mut statement = moment.prepare(&statement)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let entry = walk.entry(row)?;
        let seq = entry.seq();
        while let Some(gone) = removed.next_if(|gone| *gone < seq) {
            audit.blame(gone, None, EntryFault::Removed);
        }
        audit.entries += 1;
        let id = || row.get(1).ok().map(switchboard_core::MessageId::from_bytes);
        if let Some(fault) = entry.fault() {
            audit.blame(seq, id(), fault);
        } else if let Some(noted) = noted
            && noted.seq == seq
            && Some(noted.hash) != entry.hash
        {
            audit.blame(seq, id(), EntryFault::NotAsNoted);
        }
        as_noted |= noted.is_some_and(|noted| noted.seq == seq);
        audit.head = entry.hash.map(|hash| ChainHead { seq, hash }).or(audit.head);
    }
    for gone in removed {
        audit.blame(gone, None, EntryFault::Removed);
    }
    if let Some(noted) = noted
        && !as_noted
        && !is_bridged(&moment, noted)?
    {
        audit.blame(noted.seq, None, EntryFault::Removed);
    }
    Ok(audit)
}

impl Audit {
    fn blame(&mut self, seq: i64, id: Option<switchboard_core::MessageId>, fault: EntryFault) {
        self.bad += 1;
        if self.first_bad.as_ref().is_none_or(|first| seq < first.seq) {
            self.first_bad = Some(BadEntry { seq, id, fault });
        }
    }
}

/// Returns a page of entries after a cursor, each with its place in the chain.
pub(crate) fn entries(db: &Connection, after: i64, limit: usize) -> Result<Vec<AuditEntry>, HubError> {
    let moment = db.unchecked_transaction()?;
    let mut walk = Walk::new(&breaks(&moment)?, &moment)?;
    walk.previous = chain::previous_hash(&moment, after + 1)?;
    let statement =
        format!("SELECT {MESSAGE_COLUMNS}, m.chain FROM messages m WHERE m.seq > ?1 ORDER BY m.seq LIMIT ?2");
    let mut statement = moment.prepare(&statement)?;
    let mut rows = statement.query([after, i64::try_from(limit).unwrap_or(i64::MAX)])?;
    let mut entries = Vec::new();
    while let Some(row) = rows.next()? {
        entries.push(walk.entry(row)?);
    }
    Ok(entries)
}

/// Walks the chain in the order of the journal.
struct Walk {
    /// Hash from which the next entry has to follow.
    previous: Option<RowHash>,
    /// Hashes from which entries after a recorded break follow, by entry number.
    bridges: BTreeMap<i64, Option<RowHash>>,
}

impl Walk {
    fn new(breaks: &[ChainBreak], db: &Connection) -> Result<Self, HubError> {
        let mut bridges = BTreeMap::new();
        for noted in breaks {
            bridges.insert(noted.seq, chain::previous_hash(db, noted.seq)?);
        }
        Ok(Self { previous: Some(GENESIS), bridges })
    }

    /// Reads an entry and its hash from a row of [`MESSAGE_COLUMNS`].
    fn entry(&mut self, row: &Row<'_>) -> Result<AuditEntry, HubError> {
        let seq: i64 = row.get(0)?;
        let hash = row.get::<_, RowHash>(MESSAGE_WIDTH).ok();
        let previous = self.bridges.get(&seq).copied().unwrap_or(self.previous);
        self.previous = hash;
        let content = match Stored::read_unsealed(row) {
            Ok((stored, digest)) => Some(rows::content(&stored.message, stored.accepted_at, &digest)),
            Err(_) => None,
        };
        // An unreadable message is a bad entry; the audit continues.
        let stored = Stored::read(row).map_err(|_| seq);
        Ok(AuditEntry {
            stored,
            content: content.map(ChainHash),
            previous: previous.map(ChainHash),
            hash: hash.map(ChainHash),
        })
    }
}

fn breaks(db: &Connection) -> Result<Vec<ChainBreak>, HubError> {
    let mut statement = db.prepare("SELECT seq, reason, at FROM chain_breaks ORDER BY seq")?;
    let rows = statement.query_map([], |row| {
        // An unknown reason means that the record is damaged, so it does not explain the break.
        let reason = BreakReason::from_name(&row.get::<_, String>(1)?).unwrap_or(BreakReason::Recovered);
        Ok(ChainBreak { seq: row.get(0)?, reason, at: timestamp_from_micros(row.get(2)?) })
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Finds the numbers of missing entries whose deliveries still exist.
///
/// Every regular removal of an entry removes its deliveries too.
fn removed(db: &Connection) -> Result<Vec<i64>, HubError> {
    let mut statement = db.prepare(&format!(
        "SELECT DISTINCT id / {SPREAD} FROM deliveries WHERE id / {SPREAD} NOT IN (SELECT seq FROM messages) ORDER BY 1"
    ))?;
    let rows = statement.query_map([], |row| row.get(0))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Returns true if retention or a rollback removed the noted entry.
///
/// The entry can then no longer be checked.
fn is_bridged(db: &Connection, noted: ChainHead) -> Result<bool, HubError> {
    Ok(db.query_row(
        "SELECT EXISTS (SELECT 1 FROM chain_breaks WHERE reason IN (?2, ?3) \
         AND seq = (SELECT min(seq) FROM messages WHERE seq > ?1))",
        rusqlite::params![noted.seq, BreakReason::Retention.as_str(), BreakReason::Refused.as_str()],
        |row| row.get(0),
    )?)
}

#[cfg(test)]
#[path = "audit_tests.rs"]
mod tests;
