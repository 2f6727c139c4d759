//! No storms and no surprises on the bill: what is stopped, who is told, and how it goes on.
//!
//! A message that a rule stops is journaled and not delivered. Its sender is told at once, the person once for each
//! subject, which is what the rule counts by: a conversation, a pair of agents, or an agent; of a budget once for each
//! hour or day that it is for. A person lets a subject go on: what was stopped is delivered, and its rule counts anew
//! from there.

mod resume;

use jiff::{SignedDuration, Timestamp};
use rusqlite::{OptionalExtension, params};
use serde_json::Map;
use switchboard_core::{
    AgentId, Budget, Delivery, DeliveryState, Hop, LoopLimits, Message, MessageId, Recent, Spent, Stop,
    check_budget, check_loops, tokens_of,
};

pub use self::resume::{ResumedMessage, StoppedMessage};
pub(crate) use self::resume::{list, resume};
use crate::directory::HUB_NAME;
use crate::error::HubError;
use crate::events::HubEvent;
use crate::notice;
use crate::store::rows;
use crate::store::writer::Work;
use crate::submit::Decided;

/// How long spending is remembered: a little more than anything is counted for.
const REMEMBERED: i64 = 25 * 60;

/// How long a sender who has no answer otherwise has to wait to be told of the next stop: in a storm, one notice for
/// each of its drops would be another storm.
const SENDER_TOLD: SignedDuration = SignedDuration::from_mins(1);

/// What the rules have to say of a message.
#[derive(Debug, Default)]
pub(crate) struct Stops {
    /// Why nobody gets it.
    whole: Option<Stop>,
    /// Why some do not.
    some: Vec<Stop>,
}

/// The subject of the rules that count by conversation.
pub(crate) fn thread_subject(thread: MessageId) -> String {
    format!("thread:{thread}")
}

fn agent_subject(agent: &AgentId) -> String {
    format!("agent:{}", agent.key())
}

fn subject(stop: &Stop, message: &Message) -> String {
    match stop {
        Stop::Hops { .. } | Stop::Cycle { .. } | Stop::Thread { .. } => thread_subject(message.thread),
        Stop::Pair { from, to, .. } => pair_subject(from, to),
        Stop::Messages { agent, .. } | Stop::Tokens { agent, .. } => agent_subject(agent),
    }
}

fn pair_subject(one: &AgentId, other: &AgentId) -> String {
    let mut pair = [one.key(), other.key()];
    pair.sort_unstable();
    // No name has a bar in it.
    format!("pair:{}|{}", pair[0], pair[1])
}

/// From where on a subject counts: the last message before a person let it go on.
pub(crate) fn resumed(tx: &Work<'_>, subject: &str) -> Result<i64, HubError> {
    let seq = tx
        .db
        .prepare_cached("SELECT seq FROM resumed WHERE subject = ?1")?
        .query_row([subject], |row| row.get(0))
        .optional()?;
    Ok(seq.unwrap_or(0))
}

/// Decides which of the planned deliveries are not made.
pub(crate) fn check(tx: &Work<'_>, message: &Message, planned: &mut [Decided]) -> Result<Stops, HubError> {
    let mut stops = Stops::default();
    let by_person = message.from.is_human() && message.origin.verified;
    let is_read_back = !planned.is_empty() && planned.iter().all(|(_, decided)| decided.is_some());
    if by_person || is_read_back {
        return Ok(stops);
    }
    stops.whole = match in_a_loop(tx, message, planned)? {
        Some(stop) => Some(stop),
        // Most hubs have no budgets, and this is on the way of every message.
        None if tx.config.budgets.is_unlimited() => return Ok(stops),
        None => over_budget(tx, message, planned)?,
    };
    for (planned, decided) in planned.iter_mut().filter(|(_, decided)| decided.is_none()) {
        let stop = match &stops.whole {
            Some(stop) => Some(stop.to_string()),
            None => match too_dear(tx, message, &planned.agent)? {
                Some(stop) => {
                    let reason = stop.to_string();
                    stops.some.push(stop);
                    Some(reason)
                }
                None => None,
            },
        };
        *decided = stop.map(|reason| (DeliveryState::Refused, reason));
    }
    if stops.whole.is_none() && stops.some.len() == planned.len() {
        stops.whole = stops.some.pop();
    }
    Ok(stops)
}

/// Whether a rule against storms stops this message.
fn in_a_loop(tx: &Work<'_>, message: &Message, planned: &[Decided]) -> Result<Option<Stop>, HubError> {
    if message.in_reply_to.is_none() {
        return Ok(None);
    }
    // By the names that the agents have now: another name must not lift a limit.
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
            let recent = Recent { pair_replies, thread_replies };
            check_loops(message, &planned.agent, recent, tx.config.loops)
        };
        let stop = match check(count(0)?) {
            // A person's word starts anew. It is looked for only where that makes a difference.
            Err(Stop::Pair { .. }) => check(count(persons_word(tx, message.thread)?)?),
            checked => checked,
        };
        if let Err(stop) = stop {
            return Ok(Some(stop));
        }
    }
    Ok(None)
}

/// The last message of the person in a conversation, or that began it; 0 where there is none.
pub(crate) fn persons_word(tx: &Work<'_>, thread: MessageId) -> Result<i64, HubError> {
    Ok(tx
        .db
        .prepare_cached(
            "SELECT coalesce(max(seq), 0) FROM (SELECT seq, sender, verified FROM messages WHERE id = ?1 UNION ALL \
             SELECT seq, sender, verified FROM messages WHERE thread = ?1 AND thread <> id) WHERE sender = ?2 AND verified",
        )?
        .query_row(params![thread.as_bytes(), AgentId::human().to_string()], |row| row.get(0))?)
}

fn pair_replies(tx: &Work<'_>, one: &AgentId, other: &AgentId, after: i64) -> Result<u32, HubError> {
    let since = tx.now.saturating_sub(LoopLimits::PAIR_WINDOW).unwrap_or(tx.now);
    let resumed = resumed(tx, &pair_subject(one, other))?.max(after);
    let (one, other) = (names_of(tx, one), names_of(tx, other));
    // What lies ahead was written before the clock was set back.
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

/// The replies of a conversation since a person last spoke in it, counted no further than they matter.
fn thread_replies(tx: &Work<'_>, message: &Message) -> Result<u32, HubError> {
    let resumed = resumed(tx, &thread_subject(message.thread))?;
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

/// All names of an agent, as a JSON list.
fn names_of(tx: &Work<'_>, agent: &AgentId) -> String {
    let local = agent.realm.is_none();
    let aliases = tx.directory.value.aliases().filter(|(_, of)| local && **of == agent.name);
    let mut names = vec![agent.to_string()];
    names.extend(aliases.map(|(alias, _)| alias.to_string()));
    rows::json(&names)
}

/// Whether the sender's budget stops a message.
fn over_budget(tx: &Work<'_>, message: &Message, planned: &[Decided]) -> Result<Option<Stop>, HubError> {
    // What an agent has to say to the person ends the chain, and may be that it has no budget left.
    if planned.iter().all(|(planned, _)| planned.agent.is_human()) {
        return Ok(None);
    }
    let sender = tx.directory.value.canonical(&message.from);
    let budget = tx.config.budgets.of(&sender);
    if !budget.is_limited() {
        return Ok(None);
    }
    let spent = spent(tx, &sender)?;
    let spent = Spent { messages: spent.messages + 1, tokens: spent.tokens + tokens_of(&message.body) };
    Ok(check_budget(&sender, spent, budget).err())
}

/// Whether the budget of one that it is for stops a message: it would be used up by reading it.
fn too_dear(tx: &Work<'_>, message: &Message, agent: &AgentId) -> Result<Option<Stop>, HubError> {
    let budget = Budget { messages_per_hour: None, ..tx.config.budgets.of(agent) };
    if !budget.is_limited() {
        return Ok(None);
    }
    let tokens = spent(tx, agent)?.tokens + tokens_of(&message.body);
    Ok(check_budget(agent, Spent { messages: 0, tokens }, budget).err())
}

/// What an agent has spent in the last hour and day, or since a person let it go on.
fn spent(tx: &Work<'_>, agent: &AgentId) -> Result<Spent, HubError> {
    let minute = |time: Timestamp| time.as_second().div_euclid(60);
    let before = |span| minute(tx.now.saturating_sub(span).unwrap_or(tx.now));
    let resumed: i64 = tx
        .db
        .prepare_cached("SELECT at FROM resumed WHERE subject = ?1")?
        .query_row([agent_subject(agent)], |row| row.get(0))
        .optional()?
        .map_or(i64::MIN, |at: i64| at.div_euclid(60_000_000));
    // What lies ahead was written before the clock was set back.
    Ok(tx
        .db
        .prepare_cached(
            "SELECT coalesce(sum(messages) FILTER (WHERE minute > ?2), 0), coalesce(sum(tokens), 0) FROM spending \
             WHERE agent = ?1 AND minute > ?3 AND minute > ?4 AND minute <= ?5",
        )?
        .query_row(
            params![agent.to_string(), before(Budget::HOUR), before(Budget::DAY), resumed, minute(tx.now)],
            |row| Ok(Spent { messages: row.get(0)?, tokens: row.get(1)? }),
        )?)
}

/// Counts a message that goes out: for its sender, and for those that get it, as far as they have a budget.
pub(crate) fn spend(tx: &Work<'_>, message: &Message, deliveries: &[Delivery]) -> Result<(), HubError> {
    if tx.config.budgets.is_unlimited() {
        return Ok(());
    }
    let tokens = tokens_of(&message.body);
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

/// Adds to what an agent has spent.
pub(crate) fn charge(tx: &Work<'_>, agent: &AgentId, messages: u64, tokens: u64) -> Result<(), HubError> {
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
        .execute(params![name, minute - REMEMBERED])?;
    Ok(())
}

/// Writes down what was stopped and tells those concerned; returns why nobody gets the message, if so.
pub(crate) fn note(
    tx: &mut Work<'_>,
    seq: i64,
    message: &Message,
    stops: Stops,
) -> Result<Option<Stop>, HubError> {
    for stop in stops.whole.iter().chain(&stops.some) {
        let (subject, reason) = (subject(stop, message), stop.to_string());
        let person_knows = person_knows(tx, message, stop, &subject)?;
        let sender_knows = sender_knows(tx, message, stop)?;
        tx.db
            .prepare_cached("INSERT OR IGNORE INTO stops (seq, subject, reason, at) VALUES (?1, ?2, ?3, ?4)")?
            .execute(params![seq, subject, reason, tx.now.as_microsecond()])?;
        if !person_knows {
            tell_person(tx, message, stop)?;
        }
        if !sender_knows {
            let body = format!(
                "Your message to {} was stopped: {stop}. It is kept, and delivered when the person lets it go on.",
                message.to
            );
            notice::write_to_sender(tx, message, body, Map::new())?;
        }
        tx.after.events.push(HubEvent::Stopped { id: message.id, from: message.from.clone(), reason });
    }
    Ok(stops.whole)
}

/// Whether the person knows. They hear of a storm, not of each of its drops; and again after they let it go on.
fn person_knows(tx: &Work<'_>, message: &Message, stop: &Stop, subject: &str) -> Result<bool, HubError> {
    let window = match stop {
        Stop::Messages { .. } => Budget::HOUR,
        Stop::Tokens { .. } => Budget::DAY,
        Stop::Hops { .. } | Stop::Cycle { .. } | Stop::Thread { .. } | Stop::Pair { .. } => {
            let resumed = resumed(tx, subject)?;
            // Notices of mail that nobody has looked at carry metadata, and are another matter.
            return Ok(tx.db.query_row(
                "SELECT EXISTS (SELECT 1 FROM messages WHERE thread = ?1 AND thread <> id AND sender = ?2 AND verified \
                 AND metadata IS NULL AND seq > ?3)",
                params![message.thread.as_bytes(), HUB_NAME, resumed],
                |row| row.get(0),
            )?);
        }
    };
    // By when they were told, not by what was stopped last: an agent that never pauses would be told of once for ever.
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

/// Whether the sender was told a moment ago of another message: of the same conversation, or beyond the same budget.
fn sender_knows(tx: &Work<'_>, message: &Message, stop: &Stop) -> Result<bool, HubError> {
    let since = tx.now.saturating_sub(SENDER_TOLD).unwrap_or(tx.now).as_microsecond();
    let sender = tx.directory.value.canonical(&message.from).to_string();
    let thread = (!stop.is_of_a_budget()).then_some(message.thread);
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

fn tell_person(tx: &mut Work<'_>, stopped: &Message, stop: &Stop) -> Result<(), HubError> {
    let id = stopped.id;
    let or = if stop.yields_to_a_word() {
        " A word of yours in the thread lets the agents go on without it."
    } else {
        ""
    };
    let body = format!(
        "Stopped a message from {} to {}: {stop}. The message is kept. To let it go on: switchboard resume {id}.{or}",
        stopped.from, stopped.to
    );
    notice::write(tx, stopped, AgentId::human(), body, Map::new())?;
    Ok(())
}

#[cfg(test)]
#[path = "breakers_tests.rs"]
mod tests;
