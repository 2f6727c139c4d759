//! Files that agents say they work at, so that others keep away from them. Nobody is kept from anything.

use jiff::{SignedDuration, Timestamp};
use rusqlite::{Connection, Row, params};
use switchboard_core::{AgentId, Pattern};
use switchboard_sys::clock::from_micros;

use crate::activity;
use crate::claims::{bounded, micros};
use crate::error::HubError;
use crate::store::writer::Work;
use crate::work_tree::WorkTree;

/// How long a reservation lasts where nobody says.
pub const RESERVATION_LEASE: SignedDuration = SignedDuration::from_mins(30);

/// Files that somebody works at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reservation {
    /// Who.
    pub holder: AgentId,
    /// The repository, and the tree of it that is checked out.
    pub tree: WorkTree,
    /// The files, as a pattern of paths within the tree.
    pub pattern: String,
    /// Whether it counts in every tree of the repository.
    pub shared: bool,
    /// What the holder says of it.
    pub note: Option<String>,
    /// Since when.
    pub made_at: Timestamp,
    /// Until when, unless it is made again.
    pub until: Timestamp,
}

/// What an agent asks for.
#[derive(Debug, Clone)]
pub struct ReservationRequest {
    /// Who asks.
    pub agent: AgentId,
    /// Where.
    pub tree: WorkTree,
    /// The files.
    pub patterns: Vec<Pattern>,
    /// Whether it is to count in every tree of the repository.
    pub shared: bool,
    /// What the agent says of it.
    pub note: Option<String>,
    /// For how long.
    pub lease: SignedDuration,
}

const COLUMNS: &str = "holder, repository, tree, pattern, shared, note, made_at, until";

/// Reserves all of the patterns, or none where one of them overlaps what somebody else has.
pub(crate) fn reserve(tx: &mut Work<'_>, asked: &ReservationRequest) -> Result<Vec<Reservation>, HubError> {
    let holder = tx.directory.value.canonical(&asked.agent);
    tx.db.execute(
        "DELETE FROM reservations WHERE until <= ?1 OR until - lease > ?1",
        [tx.now.as_microsecond()],
    )?;
    let others: Vec<Reservation> =
        list(tx.db, tx.now)?.into_iter().filter(|other| other.holder != holder).collect();
    let mut taken = Vec::new();
    for pattern in &asked.patterns {
        let other = others.iter().find(|other| other.conflicts_with(&asked.tree, asked.shared, pattern));
        taken.extend(other.map(|other| (pattern.clone(), other.clone())));
    }
    if !taken.is_empty() {
        return Err(HubError::FilesReserved { taken });
    }
    let lease = bounded(asked.lease);
    let until = tx.now.saturating_add(lease).unwrap_or(tx.now);
    let mut made = Vec::new();
    for pattern in &asked.patterns {
        remove(tx, &holder, &asked.tree, Some(pattern))?;
        tx.db
            .prepare_cached(
                "INSERT INTO reservations (holder, repository, tree, pattern, shared, note, made_at, lease, until) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            )?
            .execute(params![
                holder.to_string(),
                asked.tree.repository,
                asked.tree.root,
                pattern.as_str(),
                asked.shared,
                asked.note,
                tx.now.as_microsecond(),
                micros(lease),
                until.as_microsecond(),
            ])?;
        activity::note(tx, &holder, "reserved", pattern.as_str(), asked.note.as_deref())?;
        made.push(Reservation {
            holder: holder.clone(),
            tree: asked.tree.clone(),
            pattern: pattern.to_string(),
            shared: asked.shared,
            note: asked.note.clone(),
            made_at: tx.now,
            until,
        });
    }
    Ok(made)
}

/// Gives up an agent's reservations in a tree: these, or all. Returns how many there were.
pub(crate) fn unreserve(
    tx: &mut Work<'_>,
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
    tx: &Work<'_>,
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

/// What is reserved at a moment, oldest first.
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
    /// Whether somebody who works at `pattern` in a tree gets into its way.
    pub fn conflicts_with(&self, tree: &WorkTree, shared: bool, pattern: &Pattern) -> bool {
        let same_tree = self.tree.root == tree.root
            || (self.tree.repository == tree.repository && (self.shared || shared));
        // What cannot be read any more reserves nothing.
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
        made_at: from_micros(row.get(6).ok()?),
        until: from_micros(row.get(7).ok()?),
    })
}

#[cfg(test)]
#[path = "reservations_tests.rs"]
mod tests;
