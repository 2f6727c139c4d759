//! Reservations: advisory leases on files, which warn other agents and block no write.

use jiff::{SignedDuration, Timestamp};
use rusqlite::{Connection, Row, params};
use switchboard_core::{AgentId, Pattern};
use switchboard_sys::clock::timestamp_from_micros;

use crate::activity;
use crate::claims::work_tree::WorkTree;
use crate::claims::{bounded, micros};
use crate::error::HubError;
use crate::store::writer::Transaction;

/// Default lease duration of a reservation.
pub const RESERVATION_LEASE: SignedDuration = SignedDuration::from_mins(30);

/// Reservation of files by an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reservation {
    /// The agent that holds the reservation.
    pub holder: AgentId,
    /// Repository and work tree.
    pub tree: WorkTree,
    /// Pattern of paths within the tree.
    pub pattern: String,
    /// True if the reservation applies to every work tree of the repository.
    pub shared: bool,
    /// Note of the holder.
    pub note: Option<String>,
    /// Start of the lease.
    pub made_at: Timestamp,
    /// End of the lease, unless it is renewed.
    pub until: Timestamp,
}

/// Request for a reservation.
#[derive(Debug, Clone)]
pub struct ReservationRequest {
    /// The requesting agent.
    pub agent: AgentId,
    /// The work tree.
    pub tree: WorkTree,
    /// Patterns of the files.
    pub patterns: Vec<Pattern>,
    /// True if the reservation applies to every work tree of the repository.
    pub shared: bool,
    /// Note of the agent.
    pub note: Option<String>,
    /// Requested lease duration.
    pub lease: SignedDuration,
}

const COLUMNS: &str = "holder, repository, tree, pattern, shared, note, made_at, until";

/// Reserves all patterns, or none if any of them overlaps another agent's reservation.
pub(crate) fn reserve(
    tx: &mut Transaction<'_>,
    request: &ReservationRequest,
) -> Result<Vec<Reservation>, HubError> {
    let holder = tx.directory.value.canonical(&request.agent);
    tx.db.execute(
        "DELETE FROM reservations WHERE until <= ?1 OR until - lease > ?1",
        [tx.now.as_microsecond()],
    )?;
    let others: Vec<Reservation> =
        list(tx.db, tx.now)?.into_iter().filter(|other| other.holder != holder).collect();
    let mut taken = Vec::new();
    for pattern in &request.patterns {
        let other = others.iter().find(|other| other.conflicts_with(&request.tree, request.shared, pattern));
        taken.extend(other.map(|other| (pattern.clone(), other.clone())));
    }
    if !taken.is_empty() {
        return Err(HubError::FilesReserved { taken });
    }
    let lease = bounded(request.lease);
    let until = tx.now.saturating_add(lease).unwrap_or(tx.now);
    let mut granted = Vec::new();
    for pattern in &request.patterns {
        remove(tx, &holder, &request.tree, Some(pattern))?;
        tx.db
            .prepare_cached(
                "INSERT INTO reservations (holder, repository, tree, pattern, shared, note, made_at, lease, until) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            )?
            .execute(params![
                holder.to_string(),
                request.tree.repository,
                request.tree.root,
                pattern.as_str(),
                request.shared,
                request.note,
                tx.now.as_microsecond(),
                micros(lease),
                until.as_microsecond(),
            ])?;
        activity::note(tx, &holder, "reserved", pattern.as_str(), request.note.as_deref())?;
        granted.push(Reservation {
            holder: holder.clone(),
            tree: request.tree.clone(),
            pattern: pattern.to_string(),
            shared: request.shared,
            note: request.note.clone(),
            made_at: tx.now,
            until,
        });
    }
    Ok(granted)
}

/// Releases an agent's reservations in a tree: those with these patterns, or all of them.
///
/// Returns how many reservations were released.
pub(crate) fn unreserve(
    tx: &mut Transaction<'_>,
    agent: &AgentId,
    tree: &WorkTree,
    patterns: &[Pattern],
) -> Result<usize, HubError> {
    let holder = tx.directory.value.canonical(agent);
    if patterns.is_empty() {
        let removed = remove(tx, &holder, tree, None)?;
        if removed > 0 {
            activity::note(tx, &holder, "unreserved", "all", None)?;
        }
        return Ok(removed);
    }
    let mut removed = 0;
    for pattern in patterns {
        let found = remove(tx, &holder, tree, Some(pattern))?;
        if found > 0 {
            activity::note(tx, &holder, "unreserved", pattern.as_str(), None)?;
        }
        removed += found;
    }
    Ok(removed)
}

fn remove(
    tx: &Transaction<'_>,
    holder: &AgentId,
    tree: &WorkTree,
    pattern: Option<&Pattern>,
) -> Result<usize, HubError> {
    Ok(tx
        .db
        .prepare_cached(
            "DELETE FROM reservations WHERE holder = ?1 AND tree = ?2 AND (?3 IS NULL OR pattern = ?3) AND until > ?4",
        )?
        .execute(params![
            holder.to_string(),
            tree.root,
            pattern.map(Pattern::as_str),
            tx.now.as_microsecond()
        ])?)
}

/// Lists the reservations in force at a moment, oldest first.
pub(crate) fn list(db: &Connection, now: Timestamp) -> Result<Vec<Reservation>, HubError> {
    let mut statement = db.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM reservations WHERE until > ?1 AND until - lease <= ?1 ORDER BY id"
    ))?;
    let mut rows = statement.query([now.as_microsecond()])?;
    let mut reservations = Vec::new();
    while let Some(row) = rows.next()? {
        reservations.extend(read(row));
    }
    Ok(reservations)
}

impl Reservation {
    /// Returns true if another agent's work at `pattern` in a tree conflicts with this reservation.
    pub fn conflicts_with(&self, tree: &WorkTree, shared: bool, pattern: &Pattern) -> bool {
        let same_tree = self.tree.root == tree.root
            || (self.tree.repository == tree.repository && (self.shared || shared));
        // A reservation with an unreadable pattern has no effect.
        same_tree && Pattern::parse(&self.pattern).is_ok_and(|own| own.overlaps(pattern))
    }
}

fn read(row: &Row<'_>) -> Option<Reservation> {
    Some(Reservation {
        holder: row.get::<_, String>(0).ok()?.parse().ok()?,
        tree: WorkTree { repository: row.get(1).ok()?, root: row.get(2).ok()? },
        pattern: row.get(3).ok()?,
        shared: row.get(4).ok()?,
        note: row.get(5).ok()?,
        made_at: timestamp_from_micros(row.get(6).ok()?),
        until: timestamp_from_micros(row.get(7).ok()?),
    })
}

#[cfg(test)]
#[path = "reservations_tests.rs"]
mod tests;
