//! Circuit breakers against message storms and exceeded budgets.
//!
//! A message that a breaker stops is journaled and not delivered. Each breaker counts per subject: a conversation, a
//! pair of agents, or an agent. The hub notifies the sender at once, and the person once per subject; for a budget, the
//! person is notified once per hour or day that the budget covers. When a person resumes a subject, its stopped
//! messages are delivered and its breaker starts to count from there.

mod resume;

use jiff::{SignedDuration, Timestamp};
use rusqlite::{OptionalExtension, params};
use serde_json::Map;
use switchboard_core::{
    AgentId, Budget, Delivery, DeliveryState, Hop, LoopLimits, Message, MessageId, RecentReplies, TripReason,
    Usage, check_budget, check_loops, estimate_tokens,
};

pub use self::resume::{ResumedMessage, StoppedMessage};
pub(crate) use self::resume::{list, resume};
use crate::delivery::notice;
use crate::directory::HUB_NAME;
use crate::error::HubError;
use crate::events::HubEvent;
use crate::journal::submit::PlannedDelivery;
use crate::store::rows;
use crate::store::writer::Transaction;

/// Minutes for which spending is retained: one hour more than the longest budget period, which is a day.
const SPENDING_RETENTION: i64 = 25 * 60;

/// Rate limit on stop notices to a sender that gets no direct answer. In a storm, one notice per stopped message would
/// be another storm.
const SENDER_NOTICE_INTERVAL: SignedDuration = SignedDuration::from_mins(1);

/// Breakers that a message has tripped.
#[derive(Debug, Default)]
pub(crate) struct Tripped {
    /// Breaker that stops the whole message.
    message: Option<TripReason>,
    /// Breakers that stop single deliveries.
    deliveries: Vec<TripReason>,
}

/// Returns the subject of breakers that count by conversation.
pub(crate) fn thread_subject(thread: MessageId) -> String {
    format!("thread:{thread}")
}

fn agent_subject(agent: &AgentId) -> String {
    format!("agent:{}", agent.key())
}

fn subject(stop: &TripReason, message: &Message) -> String {
    match stop {
        TripReason::Hops { .. } | TripReason::Cycle { .. } | TripReason::Thread { .. } => {
            thread_subject(message.thread)
        }
        TripReason::Pair { from, to, .. } => pair_subject(from, to),
        TripReason::Messages { agent, .. } | TripReason::Tokens { agent, .. } => agent_subject(agent),
    }
}

fn pair_subject(one: &AgentId, other: &AgentId) -> String {
    let mut pair = [one.key(), other.key()];
    pair.sort_unstable();
    // The bar is a safe separator, because an agent name cannot contain one.
    format!("pair:{}|{}", pair[0], pair[1])
}

/// Returns the journal number after which messages of a subject count.
///
/// That is the number of the last message before a person resumed the subject, or 0.
pub(crate) fn resumed_after(tx: &Transaction<'_>, subject: &str) -> Result<i64, HubError> {
    let seq = tx
        .db
        .prepare_cached("SELECT seq FROM resumed WHERE subject = ?1")?
        .query_row([subject], |row| row.get(0))
        .optional()?;
    Ok(seq.unwrap_or(0))
}

/// Decides which of the planned deliveries the breakers stop.
pub(crate) fn check(
    tx: &Transaction<'_>,
    message: &Message,
    planned: &mut [PlannedDelivery],
) -> Result<Tripped, HubError> {
    let mut tripped = Tripped::default();
    let by_person = message.from.is_human() && message.origin.verified;
    let is_read_back = !planned.is_empty() && planned.iter().all(|(_, decided)| decided.is_some());
    if by_person || is_read_back {
        return Ok(tripped);
    }
    tripped.message = match check_loop(tx, message, planned)? {
        Some(stop) => Some(stop),
        // Most hubs have no budgets, and every message takes this path.
        None if tx.config.budgets.is_unlimited() => return Ok(tripped),
        None => check_sender_budget(tx, message, planned)?,
    };
    for (planned, decided) in planned.iter_mut().filter(|(_, decided)| decided.is_none()) {
        let stop = match &tripped.message {
            Some(stop) => Some(stop.to_string()),
            None => match check_recipient_budget(tx, message, &planned.agent)? {
                Some(stop) => {
                    let reason = stop.to_string();
                    tripped.deliveries.push(stop);
                    Some(reason)
                }
                None => None,
            },
        };
        *decided = stop.map(|reason| (DeliveryState::Refused, reason));
    }
    if tripped.message.is_none() && tripped.deliveries.len() == planned.len() {
        tripped.message = tripped.deliveries.pop();
    }
    Ok(tripped)
}

/// Checks the loop breakers (storm protection) for a message.
fn check_loop(
    tx: &Transaction<'_>,
    message: &Message,
    planned: &[PlannedDelivery],
) -> Result<Option<TripReason>, HubError> {
    if message.in_reply_to.is_none() {
        return Ok(None);
    }
    // Agents are counted under their current names, because a rename must not reset a limit.
    let directory = &tx.directory.value;
    let mut message = message.clone();
    message.from = directory.canonical(&message.from);
    for hop in &mut message.via {
        if let Hop::Agent(agent) = hop {
            *agent = directory.canonical(agent);
        }
    }
    let message = &message;
    let thread_replies = thread_replies(tx, message)?;
    for (planned, decided) in planned {
        if decided.is_some() {
            continue;
        }
        let count = |since| pair_replies(tx, &message.from, &planned.agent, since);
        let check = |pair_replies| {
            let recent = RecentReplies { pair_replies, thread_replies };
            check_loops(message, &planned.agent, recent, tx.config.loops)
        };
        let stop = match check(count(0)?) {
            // A message from the person resets the count. The hub queries for such a message only where it makes a
            // difference.
            Err(TripReason::Pair { .. }) => check(count(last_person_message(tx, message.thread)?)?),
            checked => checked,
        };
        if let Err(stop) = stop {
            return Ok(Some(stop));
        }
    }
    Ok(None)
}

/// Returns the number of the person's last message in a conversation, or 0 if there is none.
pub(crate) fn last_person_message(tx: &Transaction<'_>, thread: MessageId) -> Result<i64, HubError> {
    Ok(tx
        .db
        .prepare_cached(
            "SELECT coalesce(max(seq), 0) FROM (SELECT seq, sender, verified FROM messages WHERE id = ?1 UNION ALL \
             SELECT seq, sender, verified FROM messages WHERE thread = ?1 AND thread <> id) WHERE sender = ?2 AND verified",
        )?
        .query_row(params![thread.as_bytes(), AgentId::human().to_string()], |row| row.get(0))?)
}

fn pair_replies(tx: &Transaction<'_>, one: &AgentId, other: &AgentId, after: i64) -> Result<u32, HubError> {
    let since = tx.now.saturating_sub(LoopLimits::PAIR_WINDOW).unwrap_or(tx.now);
    let resumed = resumed_after(tx, &pair_subject(one, other))?.max(after);
    let (one, other) = (names_of(tx, one), names_of(tx, other));
    // Times in the future are excluded: they were written before the clock was set back.
    Ok(tx
        .db
        .prepare_cached(
            "WITH one AS (SELECT value FROM json_each(?3)), other AS (SELECT value FROM json_each(?4)) \
             SELECT count(*) FROM messages WHERE in_reply_to IS NOT NULL AND accepted_at > ?1 AND accepted_at <= ?2 \
             AND seq > ?5 AND ((sender IN one AND recipient IN other) OR (sender IN other AND recipient IN one))",
        )?
        .query_row(
            params![since.as_microsecond(), tx.now.as_microsecond(), one, other, resumed],
            |row| row.get(0),
        )?)
}

/// Counts recent replies in a conversation, up to the limit.
///
/// The count starts after the last message of the person, or after the person resumed the conversation.
fn thread_replies(tx: &Transaction<'_>, message: &Message) -> Result<u32, HubError> {
    let resumed = resumed_after(tx, &thread_subject(message.thread))?;
    let mut statement = tx.db.prepare_cached(
        "SELECT verified AND sender = ?2 FROM messages WHERE thread = ?1 AND thread <> id AND seq > ?3 \
         AND sender <> ?4 ORDER BY seq DESC LIMIT ?5",
    )?;
    let person = AgentId::human().to_string();
    let mut rows = statement.query(params![
        message.thread.as_bytes(),
        person,
        resumed,
        HUB_NAME,
        tx.config.loops.thread
    ])?;
    let mut count = 0;
    while let Some(row) = rows.next()? {
        if row.get(0)? {
            break;
        }
        count += 1;
    }
    Ok(count)
}

/// Returns the name of an agent and all its aliases, as a JSON list.
fn names_of(tx: &Transaction<'_>, agent: &AgentId) -> String {
    let local = agent.realm.is_none();
    let aliases = tx.directory.value.aliases().filter(|(_, of)| local && **of == agent.name);
    let mut names = vec![agent.to_string()];
    names.extend(aliases.map(|(alias, _)| alias.to_string()));
    rows::json(&names)
}

/// Checks the sender's budget for a message.
fn check_sender_budget(
    tx: &Transaction<'_>,
    message: &Message,
    planned: &[PlannedDelivery],
) -> Result<Option<TripReason>, HubError> {
    // A message to the person is exempt: it ends the reply chain, and may report that the budget is used up.
    if planned.iter().all(|(planned, _)| planned.agent.is_human()) {
        return Ok(None);
    }
    let sender = tx.directory.value.canonical(&message.from);
    let budget = tx.config.budgets.of(&sender);
    if !budget.is_limited() {
        return Ok(None);
    }
    let spent = spent(tx, &sender)?;
    let spent = Usage { messages: spent.messages + 1, tokens: spent.tokens + estimate_tokens(&message.body) };
    Ok(check_budget(&sender, spent, budget).err())
}

/// Checks a recipient's token budget, to which the message would be charged.
fn check_recipient_budget(
    tx: &Transaction<'_>,
    message: &Message,
    agent: &AgentId,
) -> Result<Option<TripReason>, HubError> {
    let budget = Budget { messages_per_hour: None, ..tx.config.budgets.of(agent) };
    if !budget.is_limited() {
        return Ok(None);
    }
    let tokens = spent(tx, agent)?.tokens + estimate_tokens(&message.body);
    Ok(check_budget(agent, Usage { messages: 0, tokens }, budget).err())
}

/// Returns an agent's usage in the last hour and day, or since a person resumed the agent.
fn spent(tx: &Transaction<'_>, agent: &AgentId) -> Result<Usage, HubError> {
    let minute = |time: Timestamp| time.as_second().div_euclid(60);
    let before = |span| minute(tx.now.saturating_sub(span).unwrap_or(tx.now));
    let resumed: i64 = tx
        .db
        .prepare_cached("SELECT at FROM resumed WHERE subject = ?1")?
        .query_row([agent_subject(agent)], |row| row.get(0))
        .optional()?
        .map_or(i64::MIN, |at: i64| at.div_euclid(60_000_000));
    // Times in the future are excluded: they were written before the clock was set back.
    Ok(tx
        .db
        .prepare_cached(
            "SELECT coalesce(sum(messages) FILTER (WHERE minute > ?2), 0), coalesce(sum(tokens), 0) FROM spending \
             WHERE agent = ?1 AND minute > ?3 AND minute > ?4 AND minute <= ?5",
        )?
        .query_row(
            params![agent.to_string(), before(Budget::HOUR), before(Budget::DAY), resumed, minute(tx.now)],
            |row| Ok(Usage { messages: row.get(0)?, tokens: row.get(1)? }),
        )?)
}

/// Charges a sent message to its sender and its recipients, if they have budgets.
pub(crate) fn record_spending(
    tx: &Transaction<'_>,
    message: &Message,
    deliveries: &[Delivery],
) -> Result<(), HubError> {
    if tx.config.budgets.is_unlimited() {
        return Ok(());
    }
    let tokens = estimate_tokens(&message.body);
    let mut goes_out = false;
    for delivery in deliveries.iter().filter(|delivery| !delivery.state.is_final()) {
        goes_out = true;
        if tx.config.budgets.of(&delivery.agent).is_limited() {
            charge(tx, &delivery.agent, 0, tokens)?;
        }
    }
    let sender = tx.directory.value.canonical(&message.from);
    if goes_out && tx.config.budgets.of(&sender).is_limited() {
        charge(tx, &sender, 1, tokens)?;
    }
    Ok(())
}

/// Charges messages and tokens to an agent.
pub(crate) fn charge(
    tx: &Transaction<'_>,
    agent: &AgentId,
    messages: u64,
    tokens: u64,
) -> Result<(), HubError> {
    let minute = tx.now.as_second().div_euclid(60);
    let name = agent.to_string();
    tx.db
        .prepare_cached(
            "INSERT INTO spending (agent, minute, messages, tokens) VALUES (?1, ?2, ?3, ?4) ON CONFLICT (agent, minute) \
             DO UPDATE SET messages = messages + excluded.messages, tokens = tokens + excluded.tokens",
        )?
        .execute(params![name, minute, messages, i64::try_from(tokens).unwrap_or(i64::MAX)])?;
    tx.db
        .prepare_cached("DELETE FROM spending WHERE agent = ?1 AND minute < ?2")?
        .execute(params![name, minute - SPENDING_RETENTION])?;
    Ok(())
}

/// Records stopped deliveries and notifies the sender and the hub's owner.
///
/// Returns the breaker that stops the whole message, if any.
pub(crate) fn record(
    tx: &mut Transaction<'_>,
    seq: i64,
    message: &Message,
    tripped: Tripped,
) -> Result<Option<TripReason>, HubError> {
    for stop in tripped.message.iter().chain(&tripped.deliveries) {
        let (subject, reason) = (subject(stop, message), stop.to_string());
        let is_person_notified = is_person_notified(tx, message, stop, &subject)?;
        let is_sender_notified = is_sender_notified(tx, message, stop)?;
        tx.db
            .prepare_cached("INSERT OR IGNORE INTO stops (seq, subject, reason, at) VALUES (?1, ?2, ?3, ?4)")?
            .execute(params![seq, subject, reason, tx.now.as_microsecond()])?;
        if !is_person_notified {
            notify_person(tx, message, stop)?;
        }
        if !is_sender_notified {
            let body = format!(
                "Your message to {} was stopped: {stop}. It is stored, and delivered when the person resumes it.",
                message.to
            );
            notice::write_to_sender(tx, message, body, Map::new())?;
        }
        tx.post_commit.events.push(HubEvent::Stopped { id: message.id, from: message.from.clone(), reason });
    }
    Ok(tripped.message)
}

/// Returns true if the person was already notified of a storm or an exceeded budget.
///
/// After the person has resumed a storm's subject, they are notified again.
fn is_person_notified(
    tx: &Transaction<'_>,
    message: &Message,
    stop: &TripReason,
    subject: &str,
) -> Result<bool, HubError> {
    let window = match stop {
        TripReason::Messages { .. } => Budget::HOUR,
        TripReason::Tokens { .. } => Budget::DAY,
        TripReason::Hops { .. }
        | TripReason::Cycle { .. }
        | TripReason::Thread { .. }
        | TripReason::Pair { .. } => {
            let resumed = resumed_after(tx, subject)?;
            // Unread reminders carry metadata; they do not count as notices of a stop.
            return Ok(tx.db.query_row(
                "SELECT EXISTS (SELECT 1 FROM messages WHERE thread = ?1 AND thread <> id AND sender = ?2 AND verified \
                 AND metadata IS NULL AND seq > ?3)",
                params![message.thread.as_bytes(), HUB_NAME, resumed],
                |row| row.get(0),
            )?);
        }
    };
    // The interval starts at the last notice and not at the last stop: otherwise the person would be notified only once
    // of an agent that never pauses.
    let since = tx.now.saturating_sub(window).unwrap_or(tx.now).as_microsecond();
    Ok(tx
        .db
        .prepare_cached(
            "SELECT EXISTS (SELECT 1 FROM stops s JOIN messages m ON m.seq = s.seq JOIN messages n ON n.in_reply_to = m.id \
             WHERE s.subject = ?1 AND s.at > ?2 AND n.sender = ?3 AND n.recipient = ?4 AND n.verified \
             AND n.metadata IS NULL)",
        )?
        .query_row(params![subject, since, HUB_NAME, AgentId::human().to_string()], |row| row.get(0))?)
}

/// Returns true if the sender was recently notified that a message was stopped.
///
/// For a loop breaker, only notices in the same conversation count; for a budget, all of them.
fn is_sender_notified(tx: &Transaction<'_>, message: &Message, stop: &TripReason) -> Result<bool, HubError> {
    let since = tx.now.saturating_sub(SENDER_NOTICE_INTERVAL).unwrap_or(tx.now).as_microsecond();
    let sender = tx.directory.value.canonical(&message.from).to_string();
    let thread = (!stop.is_budget()).then_some(message.thread);
    Ok(tx
        .db
        .prepare_cached(
            "SELECT EXISTS (SELECT 1 FROM messages WHERE in_reply_to IS NOT NULL AND accepted_at > ?1 \
             AND accepted_at <= ?2 AND sender = ?3 AND recipient = ?4 AND verified AND metadata IS NULL \
             AND (?5 IS NULL OR thread = ?5))",
        )?
        .query_row(
            params![
                since,
                tx.now.as_microsecond(),
                HUB_NAME,
                sender,
                thread.as_ref().map(MessageId::as_bytes)
            ],
            |row| row.get(0),
        )?)
}

fn notify_person(tx: &mut Transaction<'_>, stopped: &Message, stop: &TripReason) -> Result<(), HubError> {
    let id = stopped.id;
    let or = if stop.is_reset_by_human() { " Or write in the thread: that resets the limit." } else { "" };
    let body = format!(
        "Stopped a message from {} to {}: {stop}. The message is stored. To deliver it: switchboard resume {id}.{or}",
        stopped.from, stopped.to
    );
    notice::write(tx, stopped, AgentId::human(), body, Map::new())?;
    Ok(())
}

#[cfg(test)]
#[path = "breakers_tests.rs"]
mod tests;
