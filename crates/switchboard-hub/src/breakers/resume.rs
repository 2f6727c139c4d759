//! Lists stopped messages and resumes them for a person.

use std::collections::BTreeSet;

use jiff::Timestamp;
use rusqlite::{Connection, params};
use switchboard_core::{AgentId, Delivery, DeliveryState, Door};
use switchboard_sys::clock::timestamp_from_micros;

use super::thread_subject;
use crate::error::HubError;
use crate::events::HubEvent;
use crate::journal::reads;
use crate::store::rows::{self, MESSAGE_COLUMNS, MESSAGE_WIDTH, Stored};
use crate::store::writer::Transaction;

/// Message that a breaker has stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoppedMessage {
    /// The message.
    pub stored: Stored,
    /// Stored subject of the breaker. A person resumes all messages of a subject together.
    pub subject: String,
    /// Reason for the stop.
    pub reason: String,
    /// Time of the stop.
    pub at: Timestamp,
}

/// Message that was resumed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResumedMessage {
    /// The stopped message.
    pub stopped: StoppedMessage,
    /// Deliveries that were queued again.
    pub deliveries: Vec<Delivery>,
    /// Deliveries through the link that cannot be resumed, because the link has already passed the message.
    pub lost: Vec<Delivery>,
}

/// Lists the stopped messages, oldest first.
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
                tracing::warn!(%id, "skipped a damaged message");
                continue;
            }
            Err(other) => return Err(other),
        };
        stopped.push(StoppedMessage {
            stored,
            subject: row.get(MESSAGE_WIDTH)?,
            reason: row.get(MESSAGE_WIDTH + 1)?,
            at: timestamp_from_micros(row.get(MESSAGE_WIDTH + 2)?),
        });
    }
    Ok(stopped)
}

/// Resumes the subjects of the selected messages.
///
/// All other stopped messages of these subjects are resumed as well.
pub(crate) fn resume(
    tx: &mut Transaction<'_>,
    is_selected: impl Fn(&StoppedMessage) -> bool,
) -> Result<Vec<ResumedMessage>, HubError> {
    let stopped = list(tx.db)?;
    let selected: BTreeSet<String> = stopped
        .iter()
        .filter(|message| is_selected(message))
        .map(|message| message.subject.clone())
        .collect();
    let last = tx.last_seq()?;
    for subject in &selected {
        reset_counter(tx, subject, last)?;
    }
    let mut resumed = Vec::new();
    for message in stopped.into_iter().filter(|message| selected.contains(&message.subject)) {
        // Resets the conversation's counter too, so that the reply chain can continue, whichever breaker stopped it.
        reset_counter(tx, &thread_subject(message.stored.message.thread), last)?;
        resumed.push(release(tx, message)?);
    }
    for subject in &selected {
        tx.db.prepare_cached("DELETE FROM stops WHERE subject = ?1")?.execute([subject])?;
    }
    Ok(resumed)
}

/// Resets the breaker's count for a subject.
fn reset_counter(tx: &Transaction<'_>, subject: &str, last: i64) -> Result<(), HubError> {
    tx.db
        .prepare_cached("INSERT OR REPLACE INTO resumed (subject, seq, at) VALUES (?1, ?2, ?3)")?
        .execute(params![subject, last, tx.now.as_microsecond()])?;
    Ok(())
}

/// Queues the deliveries of a stopped message that were stopped for the same reason.
fn release(tx: &mut Transaction<'_>, stopped: StoppedMessage) -> Result<ResumedMessage, HubError> {
    let message = &stopped.stored.message;
    let (mut deliveries, mut lost) = (Vec::new(), Vec::new());
    for mut delivery in reads::deliveries(tx.db, stopped.stored.seq, message.id)? {
        if delivery.state != DeliveryState::Refused || delivery.note.as_ref() != Some(&stopped.reason) {
            continue;
        }
        // The delivery is lost: the link reads the journal in order and has already passed this message.
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
        tx.post_commit.events.push(HubEvent::Delivery(Box::new(delivery.clone())));
        deliveries.push(delivery);
    }
    Ok(ResumedMessage { stopped, deliveries, lost })
}

impl StoppedMessage {
    /// Returns true if the stopped message concerns an agent.
    ///
    /// The agent is its sender or recipient, or the subject of the breaker.
    pub fn concerns(&self, agent: &AgentId) -> bool {
        let message = &self.stored.message;
        let key = agent.key();
        message.from == *agent
            || message.to.as_agent() == Some(agent)
            || self.subject == format!("agent:{key}")
    }
}
