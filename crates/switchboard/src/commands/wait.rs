//! `switchboard wait`

use clap::Args;
use switchboard_core::AgentId;
use switchboard_hub::{Mail, MailboxQuery, Part};

use crate::commands::inbox::seq_of;
use crate::commands::send::seconds_from;
use crate::context::{Context, Open};
use crate::failure::Failure;
use crate::show;

/// Wait until a mailbox has a message nobody has seen, and print what it has.
#[derive(Debug, Args)]
pub(crate) struct Wait {
    /// Whose mailbox [default: yours]
    agent: Option<String>,

    /// How many seconds [default: until something comes]
    #[arg(long, value_name = "S")]
    timeout: Option<f64>,

    /// Only what comes after this message
    #[arg(long, value_name = "ID")]
    since: Option<String>,
}

pub(crate) async fn run(args: Wait, context: Context) -> Result<(), Failure> {
    let open = context.open_running().await?;
    let workspace = &open.workspace;
    let directory = workspace.hub().directory().await?;
    let owner = context.mailbox_owner(args.agent.as_deref(), &directory)?;
    let after = match &args.since {
        Some(id) => seq_of(workspace, workspace.find(id).await?).await?,
        None => 0,
    };
    let arrived = arrival(&open, &owner, after);
    let limit = args.timeout.map(seconds_from).transpose()?;
    let arrived = async {
        match limit {
            None => arrived.await.map(Some),
            Some(limit) => tokio::time::timeout(limit, arrived).await.ok().transpose(),
        }
    };
    let Some(mail) = arrived.await? else {
        open.close().await;
        let seconds = args.timeout.unwrap_or_default();
        return Err(Failure::temporary("timeout", format!("no message for {owner} within {seconds} s"))
            .hint("wait again, or look at everything with `switchboard inbox`"));
    };
    for mail in &mail {
        if context.printer.is_json() {
            context.printer.object(&show::MessageLine::new(&mail.stored, mail.delivery.state.as_str()));
        } else {
            let state = mail.delivery.state.as_str();
            context.printer.line(show::message_text(&mail.stored, state, workspace.hub().now(), false));
        }
    }
    if context.reads_own(&owner, &directory)? {
        let shown = mail.iter().map(|mail| mail.stored.message.id).collect();
        workspace.mark_seen(&owner, shown).await?;
        workspace.note_alive(&owner).await;
    }
    open.close().await;
    Ok(())
}

async fn arrival(open: &Open, owner: &AgentId, after: i64) -> Result<Vec<Mail>, Failure> {
    let hub = open.workspace.hub();
    let mut changes = hub.changes();
    loop {
        let query = MailboxQuery { agent: owner.clone(), after, limit: 20, part: Part::Unseen };
        let page = hub.mailbox(query).await?;
        if !page.items.is_empty() {
            return Ok(page.items);
        }
        changes.next().await;
    }
}
