//! Unread reminders: notices to senders of messages that no recipient has seen.
//!
//! One process at a time scans the journal from a cursor in the database. Each message is checked once, after it has
//! waited for the configured time.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use rusqlite::{Connection, OptionalExtension, params};
use switchboard_core::{
    AgentId, Directory, Message, MessageId, Presence, PresenceState, Route, label_inline,
};

use crate::delivery::notice;
use crate::directory::HUB_NAME;
use crate::error::HubError;
use crate::journal::reads;
use crate::store::rows::SPREAD;
use crate::store::writer::Transaction;

/// Key in `meta` of the cursor: the number of the last message that was checked.
const CURSOR: &str = "unseen";

/// Maximum number of messages per scan, so that a scan delays no sender.
const STEP: usize = 1000;

/// SQL condition for deliveries whose readers report what they have seen, except the person's.
const REPORTING_DOORS: &str = "door IN ('workspace', 'workers') AND agent <> 'human'";

/// Messages that are due for a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Due {
    /// The cursor before the scan.
    after: i64,
    /// Number of the last message of the scan.
    last: i64,
    /// Messages of the scan that are unread.
    unseen: Vec<MessageId>,
}

/// Unread message and the recipients that should read it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct UnreadMessage {
    message: Message,
    agents: Vec<AgentId>,
}

/// Sets the cursor to the end of the journal, unless a cursor exists.
///
/// Older messages therefore get no reminders.
pub(crate) fn start_reminding(tx: &Transaction<'_>) -> Result<(), HubError> {
    tx.db
        .prepare_cached(
            "INSERT OR IGNORE INTO meta (key, value) SELECT ?1, coalesce(max(seq), 0) FROM messages",
        )?
        .execute([CURSOR])?;
    Ok(())
}

/// Finds messages that are due for a check.
///
/// Returns `None` if a write does not pay off yet.
pub(crate) fn due(db: &Connection, now: Timestamp, after: SignedDuration) -> Result<Option<Due>, HubError> {
    let Some(cursor) = cursor(db)? else { return Ok(None) };
    let latest = now.saturating_sub(after).unwrap_or(now);
    let ahead = now.saturating_add(after).unwrap_or(now);
    let mut statement =
        db.prepare_cached("SELECT seq, accepted_at FROM messages WHERE seq > ?1 ORDER BY seq LIMIT ?2")?;
    let mut rows = statement.query(params![cursor, STEP])?;
    let (mut last, mut count) = (cursor, 0_usize);
    while let Some(row) = rows.next()? {
        let accepted = switchboard_sys::clock::timestamp_from_micros(row.get(1)?);
        // A time slightly ahead means that the message arrived during the scan. A time far ahead was written before the
        // clock was set back, and its message has waited long enough.
        if accepted > latest && accepted <= ahead {
            break;
        }
        last = row.get(0)?;
        count += 1;
    }
    if last == cursor {
        return Ok(None);
    }
    let sql = format!(
        "SELECT id FROM messages m WHERE seq > ?1 AND seq <= ?2 AND length(id) = 16 \
         AND EXISTS (SELECT 1 FROM deliveries WHERE id >= m.seq * {SPREAD} AND id < (m.seq + 1) * {SPREAD} \
         AND {REPORTING_DOORS} AND state IN (0, 1, 2, 6)) \
         AND NOT EXISTS (SELECT 1 FROM deliveries WHERE id >= m.seq * {SPREAD} AND id < (m.seq + 1) * {SPREAD} \
         AND state IN (3, 4))"
    );
    let mut statement = db.prepare_cached(&sql)?;
    let unseen = statement.query_map([cursor, last], |row| row.get(0).map(MessageId::from_bytes))?;
    let unseen: Vec<_> = unseen.collect::<rusqlite::Result<_>>()?;
    // Scanning a few messages again costs less than writing the cursor.
    Ok((!unseen.is_empty() || count == STEP).then_some(Due { after: cursor, last, unseen }))
}

/// Sends the reminders and advances the cursor.
///
/// A sender gets one reminder for all its messages to the same agents.
pub(crate) fn send_reminders(
    tx: &mut Transaction<'_>,
    due: &Due,
    presence: &dyn Fn(&AgentId) -> Presence,
    after: SignedDuration,
) -> Result<(), HubError> {
    if cursor(tx.db)? != Some(due.after) {
        return Ok(());
    }
    let directory = tx.directory.value.clone();
    let mut reminders: BTreeMap<(AgentId, Vec<AgentId>), Vec<Message>> = BTreeMap::new();
    for id in &due.unseen {
        if let Some(UnreadMessage { message, agents }) = find_unread(tx, *id)?
            && is_remindable(&message.from, &directory)
        {
            reminders.entry((message.from.clone(), agents)).or_default().push(message);
        }
    }
    for ((_, agents), messages) in reminders {
        let Some(oldest) = messages.first() else { continue };
        let body = render_reminder(&messages, &agents, &|agent| presence_of(tx, presence, agent), after);
        let metadata = serde_json::json!({
            "notice": "unseen",
            "messages": messages.iter().map(|message| message.id.to_string()).collect::<Vec<_>>(),
        });
        let metadata = metadata.as_object().cloned().unwrap_or_default();
        match notice::write(tx, oldest, oldest.from.clone(), body, metadata) {
            // A sender without a route gets no reminder.
            Ok(_) | Err(HubError::Unresolved(_)) => {}
            Err(error) => return Err(error),
        }
    }
    tx.db
        .prepare_cached("UPDATE meta SET value = ?2 WHERE key = ?1")?
        .execute(params![CURSOR, due.last.to_string()])?;
    Ok(())
}

fn cursor(db: &Connection) -> Result<Option<i64>, HubError> {
    Ok(db
        .prepare_cached("SELECT CAST(value AS INTEGER) FROM meta WHERE key = ?1")?
        .query_row([CURSOR], |row| row.get(0))
        .optional()?)
}

/// Returns a message if it is still unread, with the recipients that should read it.
fn find_unread(tx: &Transaction<'_>, id: MessageId) -> Result<Option<UnreadMessage>, HubError> {
    let found = match reads::receipt(tx.db, id) {
        Err(HubError::DamagedMessage { .. }) => None,
        found => found?,
    };
    let Some((stored, receipt)) = found else { return Ok(None) };
    if receipt
        .deliveries
        .iter()
        .any(|delivery| delivery.milestones.seen.or(delivery.milestones.acknowledged).is_some())
    {
        return Ok(None);
    }
    let waits = receipt.deliveries.into_iter().filter(|delivery| {
        let is_open = delivery.state.is_waiting() || delivery.state.is_pending();
        let tells = matches!(
            delivery.route.door(),
            switchboard_core::Door::Workspace | switchboard_core::Door::Workers
        );
        is_open && tells && !delivery.agent.is_human()
    });
    let agents: Vec<AgentId> = waits.map(|delivery| delivery.agent).collect();
    Ok((!agents.is_empty()).then_some(UnreadMessage { message: stored.message, agents }))
}

/// Returns true if a sender gets reminders.
///
/// Notices of hubs get no reminder, so that notices are not answered with notices. Other owners get none, because they
/// need not know who is active here. Workers get none, because a reminder would be a prompt that their model is paid to
/// read.
fn is_remindable(sender: &AgentId, directory: &Directory) -> bool {
    if sender.name.as_str().eq_ignore_ascii_case(HUB_NAME) {
        return false;
    }
    let record = directory.agent(sender);
    let is_worker =
        record.is_some_and(|record| record.routes.iter().any(|route| matches!(route, Route::Worker(_))));
    (sender.realm.is_none() && !is_worker) || record.is_some_and(|record| record.hub().is_some())
}

/// Renders the text of a reminder.
fn render_reminder(
    messages: &[Message],
    agents: &[AgentId],
    presence: &dyn Fn(&AgentId) -> Presence,
    after: SignedDuration,
) -> String {
    /// Maximum number of agents whose presence is described.
    const NAMED: usize = 5;
    let seconds = after.as_secs();
    let subject = match messages {
        [one] => format!("Not seen yet after {seconds} s: your message to {}.", one.to),
        [first, ..] => {
            let count = messages.len();
            format!("Not seen yet after {seconds} s: {count} messages to {}, this the oldest.", first.to)
        }
        [] => String::new(),
    };
    let mut presences: Vec<String> =
        agents.iter().take(NAMED).map(|agent| describe_presence(&presence(agent))).collect();
    if agents.len() > NAMED {
        presences.push(format!("{} others have not seen it either", agents.len() - NAMED));
    }
    format!("{subject} {}. It is kept, and shown as soon as the agent can be reached.", presences.join("; "))
}

/// Returns the presence of an agent.
///
/// If this process has received no heartbeat from the agent, the time comes from the agent's last message in the
/// journal.
fn presence_of(tx: &Transaction<'_>, presence: &dyn Fn(&AgentId) -> Presence, agent: &AgentId) -> Presence {
    /// Number of recent messages that are searched: some hours of a busy hub, read in some milliseconds.
    const RECENT: i64 = 5000;
    let presence = presence(agent);
    if presence.since.is_some() {
        return presence;
    }
    let wrote = tx.db.query_row(
        "SELECT accepted_at FROM messages WHERE seq > (SELECT max(seq) FROM messages) - ?1 AND sender = ?2 \
         ORDER BY seq DESC LIMIT 1",
        params![RECENT, agent.to_string()],
        |row| row.get(0),
    );
    // The reminder is sent even if the agent's last activity is unknown.
    Presence { since: wrote.ok().map(switchboard_sys::clock::timestamp_from_micros), ..presence }
}

/// Describes how long an agent has been idle or offline, or when it was last active.
fn describe_presence(presence: &Presence) -> String {
    let Presence { agent, state: awareness, status, since, .. } = presence;
    let Some(since) = since else { return format!("{agent} gave no sign of life lately") };
    let since = since.strftime("%Y-%m-%d %H:%M:%S UTC");
    match (awareness, status.as_deref()) {
        (PresenceState::Awake, Some(status)) if status != "idle" => {
            format!("{agent} is awake ({}), last active {since}", label_inline(status))
        }
        (_, Some(switchboard_core::OFFLINE)) => format!("{agent} is offline since {since}"),
        _ => format!("{agent} idle since {since}"),
    }
}

#[cfg(test)]
#[path = "unread_reminders_tests.rs"]
mod tests;
