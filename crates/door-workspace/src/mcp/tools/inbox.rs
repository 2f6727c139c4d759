//! Reading one's mail and being done with it.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use switchboard_core::{AgentId, DeliveryState, MessageId};
use switchboard_hub::{DisplayMode, MailboxMessage, MailboxQuery, Page, Part};

use super::ToolContext;
use crate::mcp::answer::{Answer, Outcome, ToolError};
use crate::registration::check_title;
use crate::render::{BodyLimit, PREVIEW, RESULT, Shown, render_mail};
use crate::snapshot::INBOX_PAGE;

pub(super) const CHECK_INBOX: &str = "Read your mail, oldest first. Nothing is consumed: ack_message is what ends a \
     message. Long payloads are cut unless verbose.";

pub(super) const ACK_MESSAGE: &str = "Say that you are done with messages. They move to your archive and their senders are \
     told the status. Answer first where an answer is expected.";

/// Most messages in one result, whatever the caller asks for.
const MOST: usize = 100;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CheckInbox {
    /// Your own name; may be left out.
    agent: Option<String>,
    /// Only this action.
    filter: Option<Filter>,
    /// Only what is newer: an ISO time or a message id.
    since: Option<String>,
    /// How many messages [20].
    limit: Option<usize>,
    /// Continue a listing: its cursor.
    cursor: Option<String>,
    /// Whole payloads, metadata and personas.
    verbose: Option<bool>,
    /// archive: what you are done with.
    r#box: Option<Mailbox>,
    /// Only this message, whole.
    id: Option<String>,
    /// With id: characters to leave out at the start.
    offset: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Mailbox {
    Inbox,
    Archive,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Filter {
    All,
    DelegateTask,
    RequestReview,
    SubmitResult,
    StatusUpdate,
    Execute,
}

impl Filter {
    fn takes(self, kind: &str) -> bool {
        kind == match self {
            Self::All => return true,
            Self::DelegateTask => "delegate_task",
            Self::RequestReview => "request_review",
            Self::SubmitResult => "submit_result",
            Self::StatusUpdate => "status_update",
            Self::Execute => "execute",
        }
    }
}

impl CheckInbox {
    /// Whether this asks for the first page of what waits, as almost every call does.
    fn asks_for_a_page(&self) -> bool {
        let Self { agent: _, filter, since, limit, cursor, verbose: _, r#box, id, offset: _ } = self;
        matches!(filter, None | Some(Filter::All))
            && matches!(r#box, None | Some(Mailbox::Inbox))
            && (since.is_none() && cursor.is_none() && id.is_none())
            && limit.is_none_or(|limit| limit == INBOX_PAGE)
    }
}

/// From where on a listing goes: after a place in the journal, and after a time.
#[derive(Debug, Clone, Copy, Default)]
struct Since {
    seq: i64,
    time: Option<Timestamp>,
}

pub(super) async fn check_inbox(ctx: &ToolContext<'_>, given: CheckInbox) -> Outcome {
    let me = ctx.require_self(given.agent.as_deref(), "agent")?;
    let workspace = ctx.workspace;
    if given.asks_for_a_page()
        && let Some(mailbox) = &ctx.now.mailbox
        && let Some(inbox) = &mailbox.inbox
        && workspace.is_unchanged(&me, &inbox.last_scan).await.unwrap_or(false)
    {
        let Page { items, more, .. } = inbox.page.clone();
        let only_reads = !items.iter().any(is_unseen);
        let answer = show(ctx, &me, Part::Waiting, (items, more), given.verbose.unwrap_or(false)).await?;
        return Ok(if only_reads { answer.leaving_mail_alone() } else { answer });
    }
    // What was dropped into the folder a moment ago counts; without `serve` nobody else may have looked.
    workspace.scan_mailbox(&me).await?;
    if let Some(id) = &given.id {
        return one(ctx, &me, id, given.offset.unwrap_or(0)).await;
    }
    let verbose = given.verbose.unwrap_or(false);
    let part = if given.r#box == Some(Mailbox::Archive) { Part::Done } else { Part::Waiting };
    let filter = given.filter.unwrap_or(Filter::All);
    let limit = given.limit.unwrap_or(INBOX_PAGE).clamp(1, MOST);
    let since = since(ctx, &me, &given).await?;
    let found = take(ctx, &me, part, since, limit, filter).await?;
    show(ctx, &me, part, found, verbose).await
}

/// Shows a page of messages; `more` follow it.
async fn show(
    ctx: &ToolContext<'_>,
    me: &AgentId,
    part: Part,
    (mut mail, more): (Vec<MailboxMessage>, bool),
    verbose: bool,
) -> Outcome {
    let workspace = ctx.workspace;
    let mut hold = None;
    if mail.iter().any(is_unseen) {
        let held = workspace.lease_unseen_of(me, &mail, DisplayMode::Pull).await?;
        // Messages that another adapter shows to the same reader at this moment are left to it.
        mail.retain(|mail| !is_unseen(mail) || held.contains(mail.stored.message.id));
        hold = Some(held);
    }
    let listing = Listing::of(ctx, me, &mail, verbose).await?;
    let more = more || listing.shown.len() < mail.len();
    if part == Part::Waiting {
        if let Some(hold) = hold {
            workspace.finish_showing_if(hold, listing.seen.clone(), ctx.session.is_there()).await?;
        }
        workspace.record_heartbeat_in(&ctx.now.state, me).await;
    }
    let cursor = more.then(|| listing.last.map(|seq| seq.to_string())).flatten();
    Ok(listing.answer(me, part, cursor))
}

fn is_unseen(mail: &MailboxMessage) -> bool {
    mail.delivery.state == DeliveryState::Delivered
}

async fn since(ctx: &ToolContext<'_>, me: &AgentId, given: &CheckInbox) -> Result<Since, ToolError> {
    let mut since = Since::default();
    if let Some(cursor) = &given.cursor {
        since.seq = cursor.parse().map_err(|_| {
            ToolError::new(format!("'{}' is no cursor", cursor.escape_debug()))
                .next("Use the cursor of the last result as it is.")
        })?;
    }
    if let Some(text) = &given.since {
        if let Ok(time) = text.parse::<Timestamp>() {
            since.time = Some(time);
        } else {
            let id = ctx.workspace.resolve_id_for(me, text).await.map_err(|error| {
                ToolError::from(error)
                    .next("since is a time such as 2026-01-31T12:00:00Z, or the id of a message.")
            })?;
            let seq = ctx.workspace.hub().message(id).await?.map_or(0, |stored| stored.seq);
            since.seq = since.seq.max(seq);
        }
    }
    Ok(since)
}

/// The messages that a listing may show, and whether there are more.
async fn take(
    ctx: &ToolContext<'_>,
    me: &AgentId,
    part: Part,
    since: Since,
    limit: usize,
    filter: Filter,
) -> Result<(Vec<MailboxMessage>, bool), ToolError> {
    let mut taken = Vec::new();
    let mut after = since.seq;
    loop {
        let query = MailboxQuery { agent: me.clone(), after, limit: limit + 1, part };
        let page = ctx.workspace.hub().mailbox(query).await?;
        let Some(last) = page.items.last() else { return Ok((taken, false)) };
        after = last.stored.seq;
        for mail in page.items {
            let message = &mail.stored.message;
            if filter.takes(message.kind.as_str()) && since.time.is_none_or(|time| message.sent_at > time) {
                if taken.len() == limit {
                    return Ok((taken, true));
                }
                taken.push(mail);
            }
        }
        if !page.more {
            return Ok((taken, false));
        }
    }
}

/// What one result shows.
pub(super) struct Listing {
    shown: Vec<Shown>,
    /// Those of which everything was shown.
    pub(super) seen: Vec<MessageId>,
    last: Option<i64>,
}

impl Listing {
    /// As many of these as fit into one result. The first one always does, in part if need be.
    pub(super) async fn of(
        ctx: &ToolContext<'_>,
        me: &AgentId,
        mail: &[MailboxMessage],
        verbose: bool,
    ) -> Result<Self, ToolError> {
        let mut listing = Self { shown: Vec::new(), seen: Vec::new(), last: None };
        let mut room = RESULT;
        for one in mail {
            let most = if verbose { room } else { PREVIEW.min(room) };
            let shown =
                render_mail(ctx.workspace, me, one, BodyLimit { from: 0, most, everything: verbose }).await?;
            if !listing.shown.is_empty() && (shown.size > room || (verbose && !shown.whole)) {
                break;
            }
            room = room.saturating_sub(shown.size);
            listing.last = Some(one.stored.seq);
            if shown.whole {
                listing.seen.push(one.stored.message.id);
            }
            listing.shown.push(shown);
        }
        Ok(listing)
    }

    pub(super) fn answer(self, me: &AgentId, part: Part, cursor: Option<String>) -> Answer {
        let what = if part == Part::Done { "archived messages" } else { "messages" };
        let mut text = match self.shown.len() {
            0 => format!("No {what} for {me}."),
            1 => String::new(),
            n => format!("{n} {what}, oldest first.\n\n"),
        };
        let texts: Vec<&str> = self.shown.iter().map(|shown| shown.text.as_str()).collect();
        text.push_str(&texts.join("\n\n"));
        if let Some(cursor) = &cursor {
            text.push_str("\n\nThere is more: call again with cursor \"");
            text.push_str(cursor);
            text.push_str("\".");
        }
        let messages: Vec<Value> = self.shown.into_iter().map(|shown| shown.data).collect();
        let mut data = json!({ "agent": me.to_string(), "messages": messages });
        if let Some(cursor) = cursor {
            data["cursor"] = cursor.into();
        }
        Answer::new(text, data)
    }
}

/// One message of the caller's, from a place in its payload on.
async fn one(ctx: &ToolContext<'_>, me: &AgentId, id: &str, offset: usize) -> Outcome {
    let workspace = ctx.workspace;
    let id = workspace.resolve_id_for(me, id).await?;
    let (stored, delivery) = own(ctx, me, id).await?;
    let mail = MailboxMessage { stored, delivery };
    let extent = BodyLimit { from: offset, most: RESULT, everything: true };
    let shown = render_mail(workspace, me, &mail, extent).await?;
    // Whoever reads on to the end has been shown it all.
    if shown.is_at_end && mail.delivery.state.is_waiting() {
        workspace.mark_seen_if(me, vec![id], ctx.session.is_there()).await?;
    }
    Ok(Answer::new(shown.text, json!({ "agent": me.to_string(), "messages": [shown.data] })))
}

/// A message that the caller is a recipient of, and how far it got with it.
async fn own(
    ctx: &ToolContext<'_>,
    me: &AgentId,
    id: MessageId,
) -> Result<(switchboard_hub::Stored, switchboard_core::Delivery), ToolError> {
    let hub = ctx.workspace.hub();
    let me = hub.directory().await?.canonical(me);
    let found = hub.receipt(id).await?;
    found
        .and_then(|(stored, receipt)| {
            let mine = receipt.deliveries.into_iter().find(|delivery| delivery.agent == me)?;
            Some((stored, mine))
        })
        .ok_or_else(|| {
            ToolError::new(format!(
                "There is no message {} in the mailbox of '{me}'",
                crate::ids::to_native(id)
            ))
            .next("check_inbox lists what is there.")
        })
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AckMessage {
    /// Ids of the messages.
    ids: Vec<String>,
    /// How it ended [completed].
    status: Option<Status>,
    /// One line for the sender.
    summary: Option<String>,
    /// Your own name; may be left out.
    agent: Option<String>,
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Status {
    Completed,
    Failed,
    NeedsClarification,
    Error,
}

impl Status {
    fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::NeedsClarification => "needs_clarification",
            Self::Error => "error",
        }
    }
}

pub(super) async fn ack_message(ctx: &ToolContext<'_>, given: AckMessage) -> Outcome {
    let me = ctx.require_self(given.agent.as_deref(), "agent")?;
    if given.ids.is_empty() {
        return Err(
            ToolError::new("The argument 'ids' is empty").next("Give the ids that check_inbox showed.")
        );
    }
    let status = given.status.unwrap_or(Status::Completed).as_str();
    // Models write more than one line where one is asked for. It stays one in everybody's receipts.
    let summary = given.summary.map(|text| text.split_whitespace().collect::<Vec<_>>().join(" "));
    let note = match summary.filter(|summary| !summary.is_empty()) {
        Some(summary) => {
            check_title("summary", &summary)?;
            format!("{status}: {summary}")
        }
        None => status.to_owned(),
    };
    let mut lines = Vec::new();
    let mut results = Vec::new();
    let mut done = 0;
    for text in &given.ids {
        let (line, result) = match acknowledge(ctx, &me, text, &note).await {
            Ok(line) => {
                done += 1;
                (line.clone(), json!({ "id": text, "status": status, "result": line }))
            }
            Err(problem) => {
                let problem = problem.into_text();
                (problem.clone(), json!({ "id": text, "error": problem }))
            }
        };
        lines.push(format!("{text}: {line}"));
        results.push(result);
    }
    if done == 0 {
        return Err(ToolError::new(lines.join("\n")));
    }
    Ok(Answer::new(lines.join("\n"), json!({ "acknowledged": done, "results": results })))
}

async fn acknowledge(
    ctx: &ToolContext<'_>,
    me: &AgentId,
    text: &str,
    note: &str,
) -> Result<String, ToolError> {
    let id = ctx.workspace.resolve_id_for(me, text).await?;
    own(ctx, me, id).await?;
    let changed = ctx.workspace.acknowledge(me, id, Some(note.to_owned())).await?;
    Ok(match changed {
        Some(_) => "archived".to_owned(),
        None => "was done before".to_owned(),
    })
}
