//! Queries on the journal: mailboxes, conversations, and pages after a cursor.

use std::cmp::Ordering;
use std::collections::HashSet;

use jiff::Timestamp;
use rusqlite::{CachedStatement, Connection, OptionalExtension, Row, params};
use switchboard_core::{AgentId, Delivery, Door, MessageId, Name, NativeId, Receipt};

use crate::error::HubError;
use crate::store::open::damage;
use crate::store::rows::{self, DELIVERY_COLUMNS, MESSAGE_COLUMNS, MESSAGE_WIDTH, SPREAD, Stored};

/// Query for a part of a mailbox.
#[derive(Debug, Clone)]
pub struct MailboxQuery {
    /// Agent that owns the mailbox.
    pub agent: AgentId,
    /// Cursor: only messages after this journal number are returned.
    pub after: i64,
    /// Maximum number of messages to return.
    pub limit: usize,
    /// Part of the mailbox.
    pub part: Part,
}

/// Part of a mailbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Messages that have not been shown to the reader.
    Unseen,
    /// Messages that the reader has not acknowledged.
    Waiting,
    /// Messages that the reader has acknowledged, or that expired.
    Done,
}

impl Part {
    /// Returns the SQL index for this part, with the matching condition on the delivery state.
    fn index(self) -> (&'static str, &'static str) {
        match self {
            Self::Unseen => ("deliveries_waiting", "state IN (2, 3) AND state = 2"),
            Self::Waiting => ("deliveries_waiting", "state IN (2, 3)"),
            Self::Done => ("deliveries_done", "state IN (4, 7)"),
        }
    }
}

/// Message in a mailbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MailboxMessage {
    /// The message.
    pub stored: Stored,
    /// Delivery of the message to this reader.
    pub delivery: Delivery,
}

/// A page of messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    /// The messages, oldest first.
    pub items: Vec<T>,
    /// True if there are more messages after the last one of the page.
    pub more: bool,
    /// Number of messages that were left out because their row is damaged.
    pub damaged: usize,
}

/// Message, without its body, that must have a mailbox file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpectedFile {
    /// The message.
    pub id: MessageId,
    /// Native id in the protocol through which the message arrived.
    pub native: NativeId,
}

impl<T> Page<T> {
    fn new() -> Self {
        Self { items: Vec::new(), more: false, damaged: 0 }
    }

    /// Adds a row; returns true while the page has room.
    fn push_row(&mut self, item: Result<T, HubError>, limit: usize) -> Result<bool, HubError> {
        match item {
            Ok(_) if self.items.len() == limit => self.more = true,
            Ok(item) => self.items.push(item),
            Err(HubError::DamagedMessage { id }) => {
                tracing::warn!(%id, "skipped a damaged message; `switchboard doctor` says more");
                self.damaged += 1;
            }
            Err(other) => return Err(other),
        }
        Ok(!self.more)
    }
}

/// Returns a message by id.
pub(crate) fn message(db: &Connection, id: MessageId) -> Result<Option<Stored>, HubError> {
    let sql = format!("SELECT {MESSAGE_COLUMNS} FROM messages m WHERE m.id = ?1");
    let mut statement = db.prepare_cached(&sql)?;
    let mut rows = statement.query([id.as_bytes()])?;
    rows.next()?.map(Stored::read).transpose()
}

/// Returns a message by id if its content matches its digest.
///
/// The row's seal may be broken.
pub(crate) fn message_unsealed(db: &Connection, id: MessageId) -> Result<Option<Stored>, HubError> {
    let sql = format!("SELECT {MESSAGE_COLUMNS} FROM messages m WHERE m.id = ?1");
    let mut statement = db.prepare_cached(&sql)?;
    let mut rows = statement.query([id.as_bytes()])?;
    rows.next()?.map(|row| Stored::read_unsealed(row).map(|(stored, _)| stored)).transpose()
}

/// Returns the deliveries of a message.
pub(crate) fn deliveries(db: &Connection, seq: i64, id: MessageId) -> Result<Vec<Delivery>, HubError> {
    let mut statement = deliveries_statement(db)?;
    let mut rows = statement.query(rows::delivery_ids(seq))?;
    let mut deliveries = Vec::new();
    while let Some(row) = rows.next()? {
        deliveries.push(rows::delivery(row, 0, id)?);
    }
    Ok(deliveries)
}

/// Prepares a query for deliveries in order, from one number up to but excluding another.
pub(crate) fn deliveries_statement(db: &Connection) -> rusqlite::Result<CachedStatement<'_>> {
    let sql =
        format!("SELECT {DELIVERY_COLUMNS} FROM deliveries d WHERE d.id >= ?1 AND d.id < ?2 ORDER BY d.id");
    db.prepare_cached(&sql)
}

/// Returns a message with its receipt.
pub(crate) fn receipt(db: &Connection, id: MessageId) -> Result<Option<(Stored, Receipt)>, HubError> {
    let Some(stored) = message(db, id)? else { return Ok(None) };
    let deliveries = deliveries(db, stored.seq, id)?;
    let receipt = Receipt::of(id, stored.message.to.clone(), deliveries);
    Ok(Some((stored, receipt)))
}

/// Finds messages by native id, in any scope.
pub(crate) fn find_by_native(
    db: &Connection,
    door: Option<Door>,
    native: &str,
) -> Result<Vec<(String, MessageId)>, HubError> {
    let mut found = Vec::new();
    let doors = door.map_or(Door::ALL.to_vec(), |door| vec![door]);
    for door in doors {
        let mut statement = db.prepare_cached(
            "SELECT n.scope, m.id FROM native_ids n JOIN messages m ON m.seq = n.seq \
             WHERE n.door = ?1 AND n.id = ?2 ORDER BY n.seq DESC",
        )?;
        let rows = statement.query_map(params![door.as_str(), native], |row| {
            Ok((row.get(0)?, MessageId::from_bytes(row.get(1)?)))
        })?;
        for row in rows {
            found.push(row?);
        }
    }
    Ok(found)
}

/// Returns all native ids of a protocol within a scope.
pub(crate) fn native_ids(db: &Connection, door: Door, scope: &str) -> Result<HashSet<String>, HubError> {
    let mut statement = db.prepare_cached("SELECT id FROM native_ids WHERE door = ?1 AND scope = ?2")?;
    let rows = statement.query_map(params![door.as_str(), scope], |row| row.get(0))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Returns the scopes in which a protocol has used native ids. Scans all ids of the protocol.
pub(crate) fn scopes(db: &Connection, door: Door) -> Result<Vec<String>, HubError> {
    let mut statement =
        db.prepare_cached("SELECT DISTINCT scope FROM native_ids WHERE door = ?1 AND scope <> ''")?;
    let rows = statement.query_map([door.as_str()], |row| row.get(0))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Lists messages that still have no native id in their door's protocol.
///
/// Their file or its equivalent was never created. Returns messages accepted before `before`, oldest first.
pub(crate) fn without_native_id(
    db: &Connection,
    door: Door,
    before: Timestamp,
) -> Result<Vec<MessageId>, HubError> {
    let mut statement = db.prepare_cached(
        "SELECT id FROM messages WHERE door = ?1 AND scope = '' AND accepted_at < ?2 \
         AND seq NOT IN (SELECT seq FROM native_ids WHERE door = ?1 AND scope <> '') ORDER BY seq",
    )?;
    let rows = statement.query_map(params![door.as_str(), before.as_microsecond()], |row| row.get(0))?;
    Ok(rows.map(|id| id.map(MessageId::from_bytes)).collect::<rusqlite::Result<_>>()?)
}

/// Returns the native id of a message within a scope of a protocol.
///
/// The message arrived or left through that protocol.
pub(crate) fn native_id_in(
    db: &Connection,
    door: Door,
    scope: &str,
    id: MessageId,
) -> Result<Option<String>, HubError> {
    Ok(db
        .prepare_cached(
            "SELECT n.id FROM messages m JOIN native_ids n ON n.seq = m.seq \
             WHERE m.id = ?1 AND n.door = ?2 AND n.scope = ?3 LIMIT 1",
        )?
        .query_row(params![id.as_bytes(), door.as_str(), scope], |row| row.get(0))
        .optional()?)
}

/// Returns a page of an agent's mailbox, oldest first.
pub(crate) fn mailbox(
    db: &Connection,
    query: &MailboxQuery,
    now: Timestamp,
) -> Result<Page<MailboxMessage>, HubError> {
    Ok(mailbox_within(db, query, now, usize::MAX)?.unwrap_or_else(Page::new))
}

/// Returns a page of an agent's mailbox.
///
/// Returns `None` if the bodies of its messages exceed `most_bytes`.
pub(crate) fn mailbox_within(
    db: &Connection,
    query: &MailboxQuery,
    now: Timestamp,
    most_bytes: usize,
) -> Result<Option<Page<MailboxMessage>>, HubError> {
    let (index, states) = query.part.index();
    // An expired message is hidden at once, before housekeeping marks it as expired.
    let sql = format!(
        "SELECT {MESSAGE_COLUMNS}, {DELIVERY_COLUMNS} FROM deliveries d INDEXED BY {index} \
         JOIN messages m ON m.seq = d.id / {SPREAD} WHERE d.agent = ?1 AND d.id >= ?2 AND {states} \
         AND (d.expires_at IS NULL OR d.expires_at > ?3 OR d.state > 3) ORDER BY d.id"
    );
    let (mut page, mut bytes) = (Page::new(), 0_usize);
    let mut statement = db.prepare_cached(&sql)?;
    let first = query.after.saturating_add(1).saturating_mul(SPREAD);
    let mut rows = statement.query(params![query.agent.to_string(), first, now.as_microsecond()])?;
    while let Some(row) = rows.next()? {
        let mail = Stored::read(row).and_then(|stored| {
            let delivery = rows::delivery(row, MESSAGE_WIDTH, stored.message.id)?;
            Ok(MailboxMessage { stored, delivery })
        });
        bytes = bytes.saturating_add(mail.as_ref().map_or(0, |mail| mail.stored.message.body.len()));
        if bytes > most_bytes {
            return Ok(None);
        }
        if !page.push_row(mail, query.limit)? {
            break;
        }
    }
    Ok(Some(page))
}

/// Returns the journal number of the newest message that waits for an agent.
pub(crate) fn newest_waiting(db: &Connection, agent: &AgentId) -> Result<Option<i64>, HubError> {
    let id: Option<i64> = db
        .prepare_cached(
            "SELECT max(id) FROM deliveries INDEXED BY deliveries_waiting WHERE agent = ?1 AND state IN (2, 3)",
        )?
        .query_row([agent.to_string()], |row| row.get(0))?;
    Ok(id.map(|id| id / SPREAD))
}

/// Counts the messages in a part of an agent's mailbox, up to `most`.
pub(crate) fn count(
    db: &Connection,
    agent: &AgentId,
    part: Part,
    most: usize,
    now: Timestamp,
) -> Result<usize, HubError> {
    let waiting = match part {
        Part::Unseen => "unseen",
        Part::Waiting => "waiting",
        Part::Done => return count_done(db, agent, most),
    };
    let kept: i64 = db
        .prepare_cached(&format!("SELECT {waiting} FROM mailboxes WHERE agent = ?1"))?
        .query_row([agent.to_string()], |row| row.get(0))
        .optional()?
        .unwrap_or(0);
    if kept <= 0 {
        return Ok(0);
    }
    // Subtracts expired messages, which the triggers count until housekeeping marks them as expired.
    let expired: i64 = db
        .prepare_cached(
            "SELECT count(*) FROM deliveries INDEXED BY deliveries_expiring WHERE expires_at <= ?2 AND agent = ?1 \
             AND expires_at IS NOT NULL AND (state < 4 OR state = 6) AND (state = 2 OR (?3 AND state = 3))",
        )?
        .query_row(params![agent.to_string(), now.as_microsecond(), part == Part::Waiting], |row| row.get(0))?;
    Ok(usize::try_from(kept - expired).unwrap_or(0).min(most))
}

fn count_done(db: &Connection, agent: &AgentId, most: usize) -> Result<usize, HubError> {
    Ok(db
        .prepare_cached(
            "SELECT count(*) FROM (SELECT 1 FROM deliveries INDEXED BY deliveries_done WHERE agent = ?1 \
             AND state IN (4, 7) LIMIT ?2)",
        )?
        .query_row(params![agent.to_string(), i64::try_from(most).unwrap_or(i64::MAX)], |row| row.get(0))?)
}

/// Returns the journal number of the first message that a peer has not received yet.
pub(crate) fn first_unsent(db: &Connection, agent: &AgentId) -> Result<Option<i64>, HubError> {
    let first: Option<i64> = db
        .prepare_cached(
            "SELECT min(id) FROM deliveries WHERE agent = ?1 AND door = 'swarm' AND (state < 2 OR state = 6)",
        )?
        .query_row([agent.to_string()], |row| row.get(0))?;
    Ok(first.map(|id| id / SPREAD))
}

/// Returns true if the first undelivered message of a peer waits for a retry.
pub(crate) fn first_waits(db: &Connection, agent: &AgentId, now: Timestamp) -> Result<bool, HubError> {
    Ok(db
        .prepare_cached(
            "SELECT state = 6 AND due_at > ?2 FROM deliveries WHERE agent = ?1 AND door = 'swarm' \
             AND (state < 2 OR state = 6) ORDER BY id LIMIT 1",
        )?
        .query_row(params![agent.to_string(), now.as_microsecond()], |row| row.get(0))
        .optional()?
        .unwrap_or(false))
}

/// Lists messages after a journal number that must have a file in an agent's mailbox folder.
///
/// The messages are returned without their bodies.
pub(crate) fn expected_files_after(
    db: &Connection,
    agent: &AgentId,
    after: i64,
    most: usize,
) -> Result<Vec<(i64, ExpectedFile)>, HubError> {
    let sql = format!(
        "SELECT m.id, m.door, m.scope, m.native_id, m.seq FROM deliveries d INDEXED BY deliveries_waiting \
         JOIN messages m ON m.seq = d.id / {SPREAD} WHERE d.agent = ?1 AND d.state IN (2, 3) AND d.id >= ?2 \
         AND d.door = 'workspace' ORDER BY d.id LIMIT ?3"
    );
    let first = after.saturating_add(1).saturating_mul(SPREAD);
    let values = params![agent.to_string(), first, i64::try_from(most).unwrap_or(i64::MAX)];
    waiting_rows(db, &sql, agent, values, |row| row.get(4))
}

fn waiting_rows<T>(
    db: &Connection,
    sql: &str,
    agent: &AgentId,
    values: impl rusqlite::Params,
    more: impl Fn(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<Vec<(T, ExpectedFile)>, HubError> {
    let read = |row: &Row<'_>| -> rusqlite::Result<(T, ExpectedFile)> {
        let door = Door::from_name(&row.get::<_, String>(1)?).unwrap_or(Door::Workspace);
        let native = NativeId { door, scope: row.get(2)?, id: row.get(3)? };
        Ok((more(row)?, ExpectedFile { id: MessageId::from_bytes(row.get(0)?), native }))
    };
    let mut statement = db.prepare_cached(sql)?;
    let mut rows = statement.query(values)?;
    let mut waiting = Vec::new();
    while let Some(row) = rows.next()? {
        match read(row) {
            Ok(one) => waiting.push(one),
            Err(error) => tracing::warn!(%agent, error = %error, "skipped a damaged message"),
        }
    }
    Ok(waiting)
}

/// Lists messages in transit to an agent's mailbox folder, whose files may already exist.
pub(crate) fn pending_files(db: &Connection, agent: &AgentId) -> Result<Vec<ExpectedFile>, HubError> {
    let sql = format!(
        "SELECT m.id, m.door, m.scope, m.native_id FROM deliveries d INDEXED BY deliveries_due \
         JOIN messages m ON m.seq = d.id / {SPREAD} \
         WHERE d.door = 'workspace' AND (d.state < 2 OR d.state = 6) AND d.agent = ?1"
    );
    let found = waiting_rows(db, &sql, agent, [agent.to_string()], |_| Ok(()))?;
    Ok(found.into_iter().map(|((), waiting)| waiting).collect())
}

/// Returns a page of the journal after a cursor, in order of acceptance.
pub(crate) fn journal(db: &Connection, after: i64, limit: usize) -> Result<Page<Stored>, HubError> {
    let oldest = oldest_retained(db)?;
    // A reader that starts at 0 gets all messages that are retained; a reader with a cursor must not miss any.
    if after > 0 && after < oldest - 1 {
        return Err(HubError::CursorExpired { cursor: after, oldest });
    }
    stored_page(db, "WHERE m.seq > ?1 ORDER BY m.seq", [after], limit)
}

/// Returns a page of the messages that an SQL query selects.
///
/// `rest` is the end of the query.
fn stored_page(
    db: &Connection,
    rest: &str,
    values: impl rusqlite::Params,
    limit: usize,
) -> Result<Page<Stored>, HubError> {
    let mut page = Page::new();
    let mut statement = db.prepare_cached(&format!("SELECT {MESSAGE_COLUMNS} FROM messages m {rest}"))?;
    let mut rows = statement.query(values)?;
    let (mut last, mut direction) = (None, None);
    while let Some(row) = rows.next()? {
        // A database page that is linked twice looks intact; only the order of its rows reveals it.
        let seq: i64 = row.get(0)?;
        let step = last.replace(seq).map(|last: i64| seq.cmp(&last));
        if step == Some(Ordering::Equal) || (direction.is_some() && step != direction) {
            return Err(damage("the messages are not in order"));
        }
        direction = step;
        if !page.push_row(Stored::read(row), limit)? {
            break;
        }
    }
    Ok(page)
}

/// Returns the first journal number after all messages that retention has removed.
pub(crate) fn oldest_retained(db: &Connection) -> Result<i64, HubError> {
    Ok(db
        .prepare_cached("SELECT CAST(value AS INTEGER) + 1 FROM meta WHERE key = 'pruned'")?
        .query_row([], |row| row.get(0))
        .optional()?
        .unwrap_or(0))
}

/// Returns the last journal number.
pub(crate) fn last(db: &Connection) -> Result<i64, HubError> {
    Ok(db.prepare_cached("SELECT coalesce(max(seq), 0) FROM messages")?.query_row([], |row| row.get(0))?)
}

/// Returns the newest `count` messages of the journal, oldest first.
pub(crate) fn newest(db: &Connection, count: usize) -> Result<Page<Stored>, HubError> {
    let mut page = stored_page(db, "ORDER BY m.seq DESC", [], count)?;
    page.items.reverse();
    Ok(page)
}

/// Returns the newest `count` messages of one swarm, oldest first.
///
/// These are the messages that arrived through the swarm, and those to its members.
pub(crate) fn newest_of_swarm(
    db: &Connection,
    scope: &str,
    realm: &Name,
    count: usize,
) -> Result<Page<Stored>, HubError> {
    let rest = "WHERE (m.door = 'swarm' AND substr(m.scope, 1, length(?1)) = ?1) \
                OR substr(m.recipient, -length(?2)) = ?2 COLLATE NOCASE ORDER BY m.seq DESC";
    let mut page = stored_page(db, rest, [scope, &format!("@{realm}")], count)?;
    page.items.reverse();
    Ok(page)
}

/// Returns all messages of a conversation, in order of acceptance.
pub(crate) fn thread(db: &Connection, root: MessageId, limit: usize) -> Result<Page<Stored>, HubError> {
    let rest = "WHERE m.seq IN (SELECT seq FROM messages WHERE id = ?1 \
                UNION SELECT seq FROM messages WHERE thread = ?1 AND thread <> id) ORDER BY m.seq";
    stored_page(db, rest, [root.as_bytes()], limit)
}

/// Returns the replies to a message, in order of acceptance.
pub(crate) fn replies(db: &Connection, id: MessageId, limit: usize) -> Result<Page<Stored>, HubError> {
    stored_page(db, "WHERE m.in_reply_to = ?1 ORDER BY m.seq", [id.as_bytes()], limit)
}

/// Finds the newest messages before number `before` that contain all terms, newest first.
pub(crate) fn search(
    db: &Connection,
    terms: &str,
    before: Option<i64>,
    limit: usize,
) -> Result<Page<Stored>, HubError> {
    // Each term is quoted, so that query operators count as plain text. NUL is a separator, because it would end the
    // query in the middle of a quoted term.
    let terms = terms.split(|c: char| c.is_whitespace() || c == '\0').filter(|term| !term.is_empty());
    let query: Vec<String> = terms.map(|term| format!("\"{}\"", term.replace('"', "\"\""))).collect();
    if query.is_empty() {
        return Ok(Page::new());
    }
    let rest =
        "JOIN search s ON s.rowid = m.seq WHERE search MATCH ?1 AND s.rowid < ?2 ORDER BY s.rowid DESC";
    stored_page(db, rest, params![query.join(" "), before.unwrap_or(i64::MAX)], limit)
}

#[cfg(test)]
#[path = "reads_tests.rs"]
mod tests;
