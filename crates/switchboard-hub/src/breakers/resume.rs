//! What is stopped, and how a person lets it go on.

use std::collections::BTreeSet;

use jiff::Timestamp;
use rusqlite::{Connection, params};
use switchboard_core::{AgentId, Delivery, DeliveryState, Door};
use switchboard_sys::clock::from_micros;

use super::thread_subject;
use crate::error::HubError;
use crate::events::HubEvent;
use crate::reads;
use crate::store::rows::{self, MESSAGE_COLUMNS, MESSAGE_WIDTH, Stored};
use crate::store::writer::Work;

/// A message that a rule has stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoppedMessage {
    /// The message.
    pub stored: Stored,
    /// What the rule counts by, as the hub writes it; the same for all that are let go on together.
    pub subject: String,
    /// Why it was stopped.
    pub reason: String,
    /// When.
    pub at: Timestamp,
}

/// A message that goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResumedMessage {
    /// What was stopped.
    pub stopped: StoppedMessage,
    /// The deliveries that are made now.
    pub deliveries: Vec<Delivery>,
    /// Those that are not: other hubs were told long ago that there is nothing for them.
    pub lost: Vec<Delivery>,
}

/// What is stopped now, oldest first.
pub(crate) fn list(db: &Connection) -> Result<Vec<StoppedMessage>, HubError> {
    let mut statement = db.prepare(&format!(
        "SELECT {MESSAGE_COLUMNS}, s.subject, s.reason, s.at FROM stops s JOIN messages m ON m.seq = s.seq ORDER BY s.seq"
    ))?;
    let mut rows = statement.query([])?;
    let mut stopped = Vec::new();
    while let Some(row) = rows.next()? {
        let stored = match Stored::read(row) {
            Ok(stored) => stored,
            Err(HubError::DamagedMessage { id }) => {
                tracing::warn!(%id, "a damaged message was left out");
                continue;
            }
            Err(other) => return Err(other),
        };
        stopped.push(StoppedMessage {
            stored,
            subject: row.get(MESSAGE_WIDTH)?,
            reason: row.get(MESSAGE_WIDTH + 1)?,
            at: from_micros(row.get(MESSAGE_WIDTH + 2)?),
        });
    }
    Ok(stopped)
}

/// Lets the subjects go on that stopped any of the messages that are meant. Their other messages go on as well.
pub(crate) fn resume(
    tx: &mut Work<'_>,
    is_meant: impl Fn(&StoppedMessage) -> bool,
) -> Result<Vec<ResumedMessage>, HubError> {
    let stopped = list(tx.db)?;
    let meant: BTreeSet<String> =
        stopped.iter().filter(|one| is_meant(one)).map(|one| one.subject.clone()).collect();
    let last = tx.last_seq()?;
    for subject in &meant {
        go_on(tx, subject, last)?;
    }
    let mut resumed = Vec::new();
    for one in stopped.into_iter().filter(|one| meant.contains(&one.subject)) {
        // A chain of replies goes on in a conversation, whatever stopped it there.
        go_on(tx, &thread_subject(one.stored.message.thread), last)?;
        resumed.push(release(tx, one)?);
    }
    for subject in &meant {
        tx.db.prepare_cached("DELETE FROM stops WHERE subject = ?1")?.execute([subject])?;
    }
    Ok(resumed)
}

/// Has a subject's rule count from now on.
fn go_on(tx: &Work<'_>, subject: &str, last: i64) -> Result<(), HubError> {
    tx.db
        .prepare_cached("INSERT OR REPLACE INTO resumed (subject, seq, at) VALUES (?1, ?2, ?3)")?
        .execute(params![subject, last, tx.now.as_microsecond()])?;
    Ok(())
}

/// Queues the deliveries of a message that were not made for this reason.
fn release(tx: &mut Work<'_>, stopped: StoppedMessage) -> Result<ResumedMessage, HubError> {
    let message = &stopped.stored.message;
    let (mut deliveries, mut lost) = (Vec::new(), Vec::new());
    for mut delivery in reads::deliveries(tx.db, stopped.stored.seq, message.id)? {
        if delivery.state != DeliveryState::Refused || delivery.note.as_ref() != Some(&stopped.reason) {
            continue;
        }
        // The link reads the journal in order and has long passed this message.
        if delivery.route.door() == Door::Nats {
            lost.push(delivery);
            continue;
        }
        tx.db
            .prepare_cached(
                "UPDATE deliveries SET state = ?2, note = NULL, ended_at = NULL, owner = NULL, due_at = ?3 WHERE id = ?1",
            )?
            .execute(params![
                delivery.id.0,
                rows::state_number(DeliveryState::Queued),
                tx.now.as_microsecond()
            ])?;
        delivery.state = DeliveryState::Queued;
        delivery.note = None;
        delivery.milestones.ended = None;
        tx.after.events.push(HubEvent::Delivery(Box::new(delivery.clone())));
        deliveries.push(delivery);
    }
    Ok(ResumedMessage { stopped, deliveries, lost })
}

impl StoppedMessage {
    /// Whether an agent wrote it, is to get it, or is what the rule counts by.
    pub fn concerns(&self, agent: &AgentId) -> bool {
        let message = &self.stored.message;
        let key = agent.key();
        message.from == *agent
            || message.to.as_agent() == Some(agent)
            || self.subject == format!("agent:{key}")
    }
}
