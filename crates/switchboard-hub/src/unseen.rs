//! Telling senders that nobody has looked at what they sent.
//!
//! The journal is gone through once, behind a cursor that is kept in the database: each message is judged when it has
//! waited for as long as is set, by whichever process comes by first, and never again.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use rusqlite::{Connection, OptionalExtension, params};
use switchboard_core::{AgentId, Awareness, Directory, Message, MessageId, Presence, Route, label_inline};

use crate::directory::HUB_NAME;
use crate::error::HubError;
use crate::notice;
use crate::reads;
use crate::store::rows::SPREAD;
use crate::store::writer::Work;

/// Under this key of `meta` stands the number of the last message that was judged.
const CURSOR: &str = "unseen";

/// Most messages that are judged at once, so that nobody waits for it.
const STEP: usize = 1000;

/// The deliveries of a message whose readers tell when they have seen it, and that are not the person's.
const TELLING: &str = "door IN ('workspace', 'workers') AND agent <> 'human'";

/// What is due to be judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Due {
    /// The cursor that it follows on.
    after: i64,
    /// The last message that it covers.
    last: i64,
    /// The messages among them that nobody has seen.
    unseen: Vec<MessageId>,
}

/// One message that nobody has seen.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Unseen {
    message: Message,
    agents: Vec<AgentId>,
}

/// Begins at the end of the journal, where nobody has begun: what lies there from before is old news.
pub(crate) fn begin(tx: &Work<'_>) -> Result<(), HubError> {
    tx.db
        .prepare_cached(
            "INSERT OR IGNORE INTO meta (key, value) SELECT ?1, coalesce(max(seq), 0) FROM messages",
        )?
        .execute([CURSOR])?;
    Ok(())
}

/// What is due; nothing where it is not worth a look yet.
pub(crate) fn due(db: &Connection, now: Timestamp, after: SignedDuration) -> Result<Option<Due>, HubError> {
    let Some(cursor) = cursor(db)? else { return Ok(None) };
    let latest = now.saturating_sub(after).unwrap_or(now);
    let ahead = now.saturating_add(after).unwrap_or(now);
    let mut statement =
        db.prepare_cached("SELECT seq, accepted_at FROM messages WHERE seq > ?1 ORDER BY seq LIMIT ?2")?;
    let mut rows = statement.query(params![cursor, STEP])?;
    let (mut last, mut count) = (cursor, 0_usize);
    while let Some(row) = rows.next()? {
        let accepted = switchboard_sys::clock::from_micros(row.get(1)?);
        // What lies a little ahead came while this was looked for. What lies far ahead was accepted before the clock was
        // set back, and has waited long enough.
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
         AND {TELLING} AND state IN (0, 1, 2, 6)) \
         AND NOT EXISTS (SELECT 1 FROM deliveries WHERE id >= m.seq * {SPREAD} AND id < (m.seq + 1) * {SPREAD} \
         AND state IN (3, 4))"
    );
    let mut statement = db.prepare_cached(&sql)?;
    let unseen = statement.query_map([cursor, last], |row| row.get(0).map(MessageId::from_bytes))?;
    let unseen: Vec<_> = unseen.collect::<rusqlite::Result<_>>()?;
    // Going over a few again costs less than writing down that all is well with them.
    Ok((!unseen.is_empty() || count == STEP).then_some(Due { after: cursor, last, unseen }))
}

/// Tells the senders, each once for all that they sent to the same agent, and moves the cursor on.
pub(crate) fn tell(
    tx: &mut Work<'_>,
    due: &Due,
    presence: &dyn Fn(&AgentId) -> Presence,
    after: SignedDuration,
) -> Result<(), HubError> {
    if cursor(tx.db)? != Some(due.after) {
        return Ok(());
    }
    let directory = tx.directory.value.clone();
    let mut letters: BTreeMap<(AgentId, Vec<AgentId>), Vec<Message>> = BTreeMap::new();
    for id in &due.unseen {
        if let Some(Unseen { message, agents }) = still_unseen(tx, *id)?
            && wants_to_know(&message.from, &directory)
        {
            letters.entry((message.from.clone(), agents)).or_default().push(message);
        }
    }
    for ((_, agents), messages) in letters {
        let Some(oldest) = messages.first() else { continue };
        let body = words(&messages, &agents, &|agent| heard(tx, presence, agent), after);
        let metadata = serde_json::json!({
            "notice": "unseen",
            "messages": messages.iter().map(|message| message.id.to_string()).collect::<Vec<_>>(),
        });
        let metadata = metadata.as_object().cloned().unwrap_or_default();
        match notice::write(tx, oldest, oldest.from.clone(), body, metadata) {
            // A sender that cannot be reached any more cannot be told either.
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

/// A message that nobody has looked at even now, and those who should.
fn still_unseen(tx: &Work<'_>, id: MessageId) -> Result<Option<Unseen>, HubError> {
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
    Ok((!agents.is_empty()).then_some(Unseen { message: stored.message, agents }))
}

/// Whether a sender is told: notices of hubs are not answered with notices, another owner need not know who sits at a
/// desk here, and to a worker it would be a prompt, which its model would be paid to read.
fn wants_to_know(sender: &AgentId, directory: &Directory) -> bool {
    if sender.name.as_str().eq_ignore_ascii_case(HUB_NAME) {
        return false;
    }
    let record = directory.agent(sender);
    let is_worker =
        record.is_some_and(|record| record.routes.iter().any(|route| matches!(route, Route::Worker(_))));
    (sender.realm.is_none() && !is_worker) || record.is_some_and(|record| record.hub().is_some())
}

/// What a sender is told.
fn words(
    messages: &[Message],
    agents: &[AgentId],
    presence: &dyn Fn(&AgentId) -> Presence,
    after: SignedDuration,
) -> String {
    /// Most agents whose whereabouts are told.
    const NAMED: usize = 5;
    let seconds = after.as_secs();
    let what = match messages {
        [one] => format!("Not seen yet after {seconds} s: your message to {}.", one.to),
        [first, ..] => {
            let count = messages.len();
            format!("Not seen yet after {seconds} s: {count} messages to {}, this the oldest.", first.to)
        }
        [] => String::new(),
    };
    let mut where_they_are: Vec<String> =
        agents.iter().take(NAMED).map(|agent| whereabouts(&presence(agent))).collect();
    if agents.len() > NAMED {
        where_they_are.push(format!("{} others have not seen it either", agents.len() - NAMED));
    }
    format!(
        "{what} {}. It is kept, and shown as soon as the agent can be reached.",
        where_they_are.join("; ")
    )
}

/// What is known of an agent. One that this process has not heard may have written, which the journal knows.
fn heard(tx: &Work<'_>, presence: &dyn Fn(&AgentId) -> Presence, agent: &AgentId) -> Presence {
    /// How far back the journal is looked at: some hours of a busy hub, some milliseconds to read.
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
    // That nothing is known is no reason to tell the sender nothing.
    Presence { since: wrote.ok().map(switchboard_sys::clock::from_micros), ..presence }
}

/// Since when an agent has been idle, as far as anybody has heard.
fn whereabouts(presence: &Presence) -> String {
    let Presence { agent, awareness, status, since, .. } = presence;
    let Some(since) = since else { return format!("{agent} was not heard lately") };
    let since = since.strftime("%Y-%m-%d %H:%M:%S UTC");
    match (awareness, status.as_deref()) {
        (Awareness::Awake, Some(status)) if status != "idle" => {
            format!("{agent} is awake ({}), last heard {since}", label_inline(status))
        }
        (_, Some(switchboard_core::OFFLINE)) => format!("{agent} is offline since {since}"),
        _ => format!("{agent} idle since {since}"),
    }
}

#[cfg(test)]
#[path = "unseen_tests.rs"]
mod tests;
