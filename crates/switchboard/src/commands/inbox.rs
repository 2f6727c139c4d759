//! The verb `switchboard inbox`.

use clap::Args;
use door_workspace::{Workspace, WorkspaceError};
use switchboard_core::{AgentId, MessageId};
use switchboard_hub::{HubError, MailboxQuery, Part};

use crate::cli::help::examples;
use crate::cli::options::{FullBodies, Limit};
use crate::context::Context;
use crate::failure::{Exit, Failure};
use crate::show;

/// Upper bound of the message count. The difference between 5,000 and 6,000 unread messages does not matter.
const COUNTED: usize = 1000;

/// Read a mailbox, oldest message first.
///
/// Messages that you read in your own mailbox count as seen. They stay there until you `ack` them.
#[derive(Debug, Args)]
#[command(after_long_help = examples![
    "switchboard inbox",
    "switchboard inbox codex --unseen --full",
])]
pub(crate) struct Inbox {
    /// The agent whose mailbox to read [default: yours]
    agent: Option<String>,

    #[command(flatten)]
    limit: Limit<20>,

    /// Show only what came after this message
    #[arg(long, value_name = "ID")]
    since: Option<String>,

    /// Show only unseen messages
    #[arg(long)]
    unseen: bool,

    /// Show acknowledged and expired messages instead of waiting ones
    #[arg(long, conflicts_with = "unseen")]
    archived: bool,

    #[command(flatten)]
    bodies: FullBodies,
}

pub(crate) async fn run(args: Inbox, context: Context) -> Result<(), Failure> {
    let workspace = context.open().await?;
    let hub = workspace.hub();
    let directory = hub.directory().await?;
    let owner = context.mailbox_owner(args.agent.as_deref(), &directory)?;
    known_mailbox(&workspace, &owner, &directory).await?;
    workspace.scan_mailbox(&owner).await?;
    // The sender's process may have been killed before it delivered the message, so deliver pending files first.
    if !hub.mailboxes().pending_files(owner.clone()).await?.is_empty() {
        workspace.drain_deliveries().await?;
    }
    let after = match &args.since {
        Some(id) => seq_of(&workspace, Some(&owner), id).await?,
        None => 0,
    };
    let part = match (args.archived, args.unseen) {
        (true, _) => Part::Done,
        (_, true) => Part::Unseen,
        _ => Part::Waiting,
    };
    let page = hub
        .mailboxes()
        .page(MailboxQuery { agent: owner.clone(), after, limit: args.limit.limit, part })
        .await?;
    let (printer, reader) = (context.printer, context.reader()?);
    for mail in &page.items {
        let state = mail.delivery.state.as_str();
        if printer.is_json() {
            printer.object(&show::MessageLine::new(&mail.stored, state));
        } else {
            printer.line(show::message_text(&mail.stored, state, hub.now(), args.bodies.full, reader));
        }
    }
    summarise(&context, &workspace, &owner, &args, page.items.len(), page.more).await?;
    if page.damaged > 0 {
        printer.note(format_args!(
            "{} damaged; `switchboard doctor` shows details",
            count(page.damaged, "message")
        ));
    }
    if context.reads_own(&owner, &directory)? && !args.archived {
        // A message that is shown truncated does not count as seen.
        let whole = |mail: &&switchboard_hub::MailboxMessage| {
            printer.is_json() || show::shows_all(&mail.stored, args.bodies.full, reader)
        };
        let shown = page.items.iter().filter(whole).map(|mail| mail.stored.message.id).collect();
        workspace.mark_seen(&owner, shown).await?;
        workspace.record_heartbeat(&owner).await;
    }
    workspace.close().await;
    Ok(())
}

async fn summarise(
    context: &Context,
    workspace: &Workspace,
    owner: &AgentId,
    args: &Inbox,
    shown: usize,
    more: bool,
) -> Result<(), Failure> {
    let printer = context.printer;
    if args.archived {
        if more {
            printer.note("There is more; continue with --since ID.");
        }
    } else if shown == 0 && args.limit.limit > 0 {
        printer.note(format_args!("No messages for {owner}."));
    } else if more {
        let waiting = workspace.hub().mailboxes().unread(owner.clone(), COUNTED).await?;
        let waiting = if waiting == COUNTED { format!("{COUNTED} or more") } else { waiting.to_string() };
        printer
            .note(format_args!("{shown} of {waiting} shown; continue with --since ID or a higher --limit."));
    }
    let folder = format!("inbox/{}", owner.name);
    let problems = workspace.rejected_files().await?;
    let count_rejected =
        problems.iter().filter(|p| p.path == folder || p.path.starts_with(&format!("{folder}/"))).count();
    if count_rejected > 0 {
        printer.note(format_args!(
            "{} could not be ingested; `switchboard doctor` shows why",
            count(count_rejected, "file")
        ));
    }
    Ok(())
}

/// Rejects the mailbox of an unknown agent, which is most likely a typing error.
pub(crate) async fn known_mailbox(
    workspace: &Workspace,
    owner: &AgentId,
    directory: &switchboard_core::Directory,
) -> Result<(), Failure> {
    let known = owner.is_human()
        || directory.agent(owner).is_some()
        || workspace.hub().mailboxes().unread(owner.clone(), 1).await? > 0;
    if known {
        return Ok(());
    }
    Err(match switchboard_core::resolve(&owner.clone().into(), &AgentId::human(), directory) {
        Err(error) => error.into(),
        Ok(_) => return Ok(()),
    })
}

/// Returns the journal position of the message that `--since` names.
pub(crate) async fn seq_of(
    workspace: &Workspace,
    owner: Option<&AgentId>,
    text: &str,
) -> Result<i64, Failure> {
    let unknown = || HubError::UnknownMessage { id: text.to_owned() };
    let found = match owner {
        Some(owner) => workspace.resolve_id_for(owner, text).await,
        None => workspace.resolve_id(text).await,
    };
    match found {
        Ok(id) => Ok(workspace.hub().journal().message(id).await?.ok_or_else(unknown)?.seq),
        Err(WorkspaceError::Hub(HubError::UnknownMessage { .. })) => {
            Err(expired(workspace, text).await?.unwrap_or_else(|| unknown().into()))
        }
        Err(error) => Err(error.into()),
    }
}

/// Returns a failure if retention may have removed the message: continuing after it might skip messages.
async fn expired(workspace: &Workspace, text: &str) -> Result<Option<Failure>, Failure> {
    let hub = workspace.hub();
    let oldest = hub.journal().oldest_retained().await?;
    let Some(id) = text.parse().ok().or_else(|| door_workspace::from_native(text)).filter(|_| oldest > 0)
    else {
        return Ok(None);
    };
    // An id contains its time, and all removed messages were accepted before the oldest entry that remains.
    let first = hub.journal().entries(oldest - 1, 1).await?.items.into_iter().next();
    let (made, _) = MessageId::parts(id);
    let is_older = first.is_none_or(|first| {
        u64::try_from(first.accepted_at.as_millisecond()).is_ok_and(|accepted| made <= accepted)
    });
    Ok(is_older.then(|| {
        let message = format!("'{}' has expired; later messages may have expired too", text.escape_debug());
        Failure::new("cursor_expired", Exit::Failed, message).hint("start again without --since")
    }))
}

/// Formats a count with its noun: "1 message", "2 messages".
pub(crate) fn count(number: usize, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}
