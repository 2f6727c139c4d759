//! The verb `switchboard wait`.

use std::time::{Duration, Instant};

use clap::Args;
use door_workspace::Workspace;
use switchboard_actions::{self as actions, Arrival};
use switchboard_core::AgentId;

use crate::cli::help::examples;
use crate::cli::values::duration;
use crate::commands::inbox::{known_mailbox, seq_of};
use crate::context::Context;
use crate::failure::Failure;
use crate::show;

/// Wait until an unseen message arrives, and print it.
#[derive(Debug, Args)]
#[command(after_long_help = examples![
    "switchboard wait",
    "switchboard wait codex --timeout 15m",
])]
pub(crate) struct Wait {
    /// The agent whose mailbox to watch [default: yours]
    agent: Option<String>,

    /// Stop waiting after this long [default: wait forever]
    #[arg(long, value_name = "DURATION", allow_negative_numbers = true, value_parser = duration)]
    timeout: Option<Duration>,

    /// Show only what came after this message
    #[arg(long, value_name = "ID")]
    since: Option<String>,
}

pub(crate) async fn run(args: Wait, context: Context) -> Result<(), Failure> {
    let open = context.open_running().await?;
    let workspace = &open.workspace;
    let directory = workspace.hub().directory().await?;
    let owner = context.mailbox_owner(args.agent.as_deref(), &directory)?;
    known_mailbox(workspace, &owner, &directory).await?;
    let after = match &args.since {
        Some(id) => seq_of(workspace, Some(&owner), id).await?,
        None => 0,
    };
    let is_own = context.reads_own(&owner, &directory)?;
    let request = actions::Wait { owner: owner.clone(), after, is_own };
    let mut alive = Alive::new(workspace, is_own.then_some(&owner));
    let arrived = actions::wait(workspace, request, async || alive.note().await);
    let arrived = async {
        match args.timeout {
            None => arrived.await.map(Some),
            Some(limit) => tokio::time::timeout(limit, arrived).await.ok().transpose(),
        }
    };
    let arrived = arrived.await.map_err(|error| Failure::of_action("wait", error))?;
    let Some(Arrival { messages: mail, lease }) = arrived else {
        open.close().await;
        let seconds = args.timeout.unwrap_or_default().as_secs_f64();
        return Err(Failure::temporary("timeout", format!("no message for {owner} within {seconds} s"))
            .hint("wait again, or look at everything with `switchboard inbox`"));
    };
    for mail in &mail {
        if context.printer.is_json() {
            context.printer.object(&show::MessageLine::new(&mail.stored, mail.delivery.state.as_str()));
        } else {
            let state = mail.delivery.state.as_str();
            let (now, reader) = (workspace.hub().now(), context.reader()?);
            context.printer.line(show::message_text(&mail.stored, state, now, true, reader));
        }
    }
    if let Some(lease) = lease {
        let shown = mail.iter().map(|mail| mail.stored.message.id).collect();
        workspace.finish_showing(lease, shown, Vec::new()).await?;
        workspace.record_heartbeat(&owner).await;
    }
    open.close().await;
    Ok(())
}

/// Heartbeat of an agent that waits.
pub(crate) struct Alive<'w> {
    workspace: &'w Workspace,
    agent: Option<&'w AgentId>,
    next: Instant,
}

impl<'w> Alive<'w> {
    /// Creates the heartbeat; without an agent it records nothing.
    pub(crate) fn new(workspace: &'w Workspace, agent: Option<&'w AgentId>) -> Self {
        Self { workspace, agent, next: Instant::now() }
    }

    /// Records a heartbeat of the agent, if one is due.
    pub(crate) async fn note(&mut self) {
        /// Heartbeat interval, well below the time after which an agent counts as stale.
        const EVERY: Duration = Duration::from_secs(30);
        if let Some(agent) = self.agent
            && self.next <= Instant::now()
        {
            self.next = Instant::now() + EVERY;
            self.workspace.record_heartbeat(agent).await;
        }
    }
}
