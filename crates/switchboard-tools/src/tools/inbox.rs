//! Tools to read and acknowledge messages.

use door_workspace::render::{BodyLimit, PREVIEW, RESULT, Shown, render_mail};
use door_workspace::{INBOX_PAGE, WorkspaceError};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use switchboard_actions::{self as actions, AckStatus, ActionError};
use switchboard_core::{AgentId, DeliveryState, MessageId};
use switchboard_hub::{DisplayMode, HubError, MailboxMessage, MailboxQuery, Page, Part};

use super::ToolContext;
use crate::answer::{Answer, Outcome, ToolError};

pub(super) const CHECK_INBOX: &str = "Read your mail, oldest first. Messages stay until ack_message. Long payloads are \
     truncated unless verbose.";

pub(super) const ACK_MESSAGE: &str = "Acknowledge messages that you have finished. They move to your archive and their senders \
     get the status. Reply first if one is expected.";

/// Maximum number of messages in one result, even if the caller asks for more.
const MAX_MESSAGES: usize = 100;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CheckInbox {
    /// Your own name; optional.
    agent: Option<String>,
    /// Only this action.
    filter: Option<Filter>,
    /// Only newer messages: an ISO time or a message id.
    since: Option<String>,
    /// How many messages [20].
    limit: Option<usize>,
    /// Continue a listing: its cursor.
    cursor: Option<String>,
    /// Full payloads, metadata and personas.
    verbose: Option<bool>,
    /// archive: finished messages.
    r#box: Option<Mailbox>,
    /// Only this message, complete.
    id: Option<String>,
    /// With id: characters to skip at the start.
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
    fn matches(self, kind: &str) -> bool {
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
    /// Returns true for a listing of the first page of waiting messages, which most calls request.
    fn is_plain_listing(&self) -> bool {
        let Self { agent: _, filter, since, limit, cursor, verbose: _, r#box, id, offset: _ } = self;
        matches!(filter, None | Some(Filter::All))
            && matches!(r#box, None | Some(Mailbox::Inbox))
            && (since.is_none() && cursor.is_none() && id.is_none())
            && limit.is_none_or(|limit| limit == INBOX_PAGE)
    }
}

/// Start of a listing: after a journal number, and after a time.
#[derive(Debug, Clone, Copy, Default)]
struct Since {
    seq: i64,
    time: Option<Timestamp>,
}

pub(super) async fn check_inbox(ctx: &ToolContext<'_>, input: CheckInbox) -> Outcome {
    let me = ctx.require_self(input.agent.as_deref(), "agent")?;
    let workspace = ctx.workspace;
    if input.is_plain_listing()
        && let Some(mailbox) = &ctx.now.mailbox
        && let Some(inbox) = &mailbox.inbox
        && workspace.is_unchanged(&me, &inbox.last_scan).await.unwrap_or(false)
    {
        let Page { items, more, .. } = inbox.page.clone();
        let only_reads = !items.iter().any(is_unseen);
        let answer = show(ctx, &me, Part::Waiting, (items, more), input.verbose.unwrap_or(false)).await?;
        return Ok(if only_reads { answer.without_mail_changes() } else { answer });
    }
    // Scan first, because without `serve` there may be no other process that ingests new files.
    workspace.scan_mailbox(&me).await?;
    if let Some(id) = &input.id {
        return show_one(ctx, &me, id, input.offset.unwrap_or(0)).await;
    }
    let verbose = input.verbose.unwrap_or(false);
    let part = if input.r#box == Some(Mailbox::Archive) { Part::Done } else { Part::Waiting };
    let filter = input.filter.unwrap_or(Filter::All);
    let limit = input.limit.unwrap_or(INBOX_PAGE).clamp(1, MAX_MESSAGES);
    let since = parse_since(ctx, &me, &input).await?;
    let found = collect_page(ctx, &me, part, since, limit, filter).await?;
    show(ctx, &me, part, found, verbose).await
}

/// Shows a page of messages. `more` means that more messages follow the page.
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
        // Skip unseen messages that another adapter is currently showing to the same reader.
        mail.retain(|mail| !is_unseen(mail) || held.contains(mail.stored.message.id));
        hold = Some(held);
    }
    let listing = Listing::of(ctx, me, &mail, verbose).await?;
    let more = more || listing.shown.len() < mail.len();
    if part == Part::Waiting {
        if let Some(hold) = hold {
            workspace.finish_showing_if(hold, listing.seen.clone(), ctx.session.connection_check()).await?;
        }
        workspace.record_heartbeat_in(&ctx.now.state, me).await;
    }
    let cursor = more.then(|| listing.last.map(|seq| seq.to_string())).flatten();
    Ok(listing.answer(me, part, cursor))
}

fn is_unseen(mail: &MailboxMessage) -> bool {
    mail.delivery.state == DeliveryState::Delivered
}

async fn parse_since(ctx: &ToolContext<'_>, me: &AgentId, input: &CheckInbox) -> Result<Since, ToolError> {
    let mut since = Since::default();
    if let Some(cursor) = &input.cursor {
        since.seq = cursor.parse().map_err(|_| {
            ToolError::new(format!("'{}' is not a cursor", cursor.escape_debug()))
                .next("Use the cursor of the last result as it is.")
        })?;
    }
    if let Some(text) = &input.since {
        if let Ok(time) = text.parse::<Timestamp>() {
            since.time = Some(time);
        } else {
            let id = ctx.workspace.resolve_id_for(me, text).await.map_err(|error| {
                ToolError::from(error)
                    .next("since is a time such as 2026-01-31T12:00:00Z, or the id of a message.")
            })?;
            let seq = ctx.workspace.hub().journal().message(id).await?.map_or(0, |stored| stored.seq);
            since.seq = since.seq.max(seq);
        }
    }
    Ok(since)
}

/// Returns the messages that match a listing, and whether there are more.
async fn collect_page(
    ctx: &ToolContext<'_>,
    me: &AgentId,
    part: Part,
    since: Since,
    limit: usize,
    filter: Filter,
) -> Result<(Vec<MailboxMessage>, bool), ToolError> {
    let mut collected = Vec::new();
    let mut after = since.seq;
    loop {
        let query = MailboxQuery { agent: me.clone(), after, limit: limit + 1, part };
        let page = ctx.workspace.hub().mailboxes().page(query).await?;
        let Some(last) = page.items.last() else { return Ok((collected, false)) };
        after = last.stored.seq;
        for mail in page.items {
            let message = &mail.stored.message;
            if filter.matches(message.kind.as_str()) && since.time.is_none_or(|time| message.sent_at > time) {
                if collected.len() == limit {
                    return Ok((collected, true));
                }
                collected.push(mail);
            }
        }
        if !page.more {
            return Ok((collected, false));
        }
    }
}

/// Content of one result.
pub(super) struct Listing {
    shown: Vec<Shown>,
    /// Messages that were shown completely.
    pub(super) seen: Vec<MessageId>,
    last: Option<i64>,
}

impl Listing {
    /// Renders as many messages as fit into one result; at least a part of the first.
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

/// Shows one message in the caller's mailbox, from an offset in its payload.
async fn show_one(ctx: &ToolContext<'_>, me: &AgentId, id: &str, offset: usize) -> Outcome {
    let workspace = ctx.workspace;
    let id = workspace.resolve_id_for(me, id).await?;
    let (stored, delivery) = own_message(ctx, me, id).await?;
    let mail = MailboxMessage { stored, delivery };
    let limit = BodyLimit { from: offset, most: RESULT, everything: true };
    let shown = render_mail(workspace, me, &mail, limit).await?;
    // If the shown part reaches the end of the payload, the message counts as seen.
    if shown.is_at_end && mail.delivery.state.is_waiting() {
        workspace.mark_seen_if(me, vec![id], ctx.session.connection_check()).await?;
    }
    Ok(Answer::new(shown.text, json!({ "agent": me.to_string(), "messages": [shown.data] })))
}

/// Returns a message that the caller received, with its delivery.
async fn own_message(
    ctx: &ToolContext<'_>,
    me: &AgentId,
    id: MessageId,
) -> Result<(switchboard_hub::Stored, switchboard_core::Delivery), ToolError> {
    let hub = ctx.workspace.hub();
    let me = hub.directory().await?.canonical(me);
    let found = hub.journal().receipt(id).await?;
    found
        .and_then(|(stored, receipt)| {
            let mine = receipt.deliveries.into_iter().find(|delivery| delivery.agent == me)?;
            Some((stored, mine))
        })
        .ok_or_else(|| no_message(&door_workspace::to_native(id), &me))
}

/// Builds the error for a message that is not in the caller's mailbox.
fn no_message(id: &str, me: &AgentId) -> ToolError {
    ToolError::new(format!("There is no message {} in the mailbox of '{me}'", id.escape_debug()))
        .next("check_inbox lists what is there.")
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AckMessage {
    /// Ids of the messages.
    ids: Vec<String>,
    /// Outcome [completed].
    status: Option<Status>,
    /// One line for the sender.
    summary: Option<String>,
    /// Your own name; optional.
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

impl From<Status> for AckStatus {
    fn from(status: Status) -> Self {
        match status {
            Status::Completed => Self::Completed,
            Status::Failed => Self::Failed,
            Status::NeedsClarification => Self::NeedsClarification,
            Status::Error => Self::Error,
        }
    }
}

pub(super) async fn ack_message(ctx: &ToolContext<'_>, input: AckMessage) -> Outcome {
    const TOOL: &str = "ack_message";
    let me = ctx.require_self(input.agent.as_deref(), "agent")?;
    let status = input.status.map(AckStatus::from);
    let request = actions::Acknowledge { ids: input.ids, status, note: input.summary };
    let acknowledged =
        actions::acknowledge(ctx.actor(&me), request).await.map_err(|error| ToolError::of(TOOL, error))?;
    let status = status.unwrap_or_default().as_str();
    let (mut lines, mut results, mut done) = (Vec::new(), Vec::new(), 0);
    for (text, result) in acknowledged {
        let (line, result) = match result {
            Ok(acknowledged) => {
                done += 1;
                let line = if acknowledged.is_new { "archived" } else { "was acknowledged before" };
                (line.to_owned(), json!({ "id": text, "status": status, "result": line }))
            }
            Err(error) => {
                let problem = match error {
                    // Report the message as missing, so that a model does not learn that another agent has such a
                    // message.
                    ActionError::Workspace(WorkspaceError::Hub(HubError::NotTheRecipient { .. })) => {
                        no_message(&text, &me)
                    }
                    error => ToolError::of(TOOL, error),
                };
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
