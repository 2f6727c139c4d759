//! The verb `switchboard send`.

mod answer;

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;
use door_workspace::Workspace;
use jiff::SignedDuration;
use switchboard_actions::{self as actions, Actor, Sent};
use switchboard_core::{
    Address, AgentId, Delivery, DeliveryState, Door, Name, PresenceState, Receipt, Route,
};
use switchboard_hub::Stored;

use crate::cli::help::examples;
use crate::cli::options::{IdempotencyKey, MessageText, Metadata, ReplyTo};
use crate::cli::values::{duration, lifetime};
use crate::commands::who::load_presence;
use crate::context::Context;
use crate::failure::{Exit, Failure};
use crate::show;

/// Timeout for delivery to the recipient's mailbox. It expires only if the disk hangs.
const ARRIVAL: Duration = Duration::from_secs(10);

/// Send a message to an agent, a team, a channel or everyone.
///
/// The message is on disk when it is accepted. The command then waits up to 10 seconds for its delivery, which is
/// retried later if it takes longer.
#[derive(Debug, Args)]
#[command(after_long_help = examples![
    "switchboard send codex 'Please review src/parser.rs'",
    "switchboard send team:backend --file notes.md --kind request_review",
    "switchboard send codex 'Which port?' --wait --timeout 90s",
    "switchboard --from codex send claude 'done' --reply-to msg_1a2b3c",
    "switchboard send codex 'Run the nightly build' --idempotency-key nightly-0412",
])]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub(crate) struct Send {
    /// The recipient: codex · team:backend · #general · alice@research · job:7/0 · all · or a role
    #[arg(required_unless_present = "routed")]
    to: Option<String>,

    #[command(flatten)]
    text: MessageText,

    /// Send to the recipient that the active workflow names; omit TO
    #[arg(long)]
    routed: bool,

    /// Set the kind of message: delegate_task, request_review, submit_result, status_update, or execute, which is typed
    /// into the recipient's terminal [default: submit_result for a reply, else delegate_task]
    #[arg(long)]
    kind: Option<String>,

    #[command(flatten)]
    reply: ReplyTo,

    #[command(flatten)]
    metadata: Metadata,

    /// Send only while your claim on TASK with fence number NUMBER is in force
    #[arg(long, value_name = "TASK:NUMBER")]
    claim: Option<String>,

    /// Let the message expire after this long; it moves to the archive
    #[arg(long, value_name = "DURATION", value_parser = lifetime)]
    ttl: Option<SignedDuration>,

    /// Replace your delegate_task messages to the same recipient that are still waiting
    #[arg(long)]
    replace: bool,

    #[command(flatten)]
    key: IdempotencyKey,

    /// Accept a recipient that is not registered, such as a program that reads its mailbox files
    #[arg(long)]
    allow_unregistered: bool,

    /// Wait for the reply and print it
    #[arg(long)]
    wait: bool,

    /// Stop waiting after this long [default: wait forever]
    #[arg(
        long,
        value_name = "DURATION",
        allow_negative_numbers = true,
        requires = "wait",
        value_parser = duration
    )]
    timeout: Option<Duration>,
}

impl Send {
    /// Returns true if the command waits for the reply.
    pub(crate) fn waits(&self) -> bool {
        self.wait
    }
}

pub(crate) async fn run(mut args: Send, context: Context) -> Result<(), Failure> {
    let from = context.identity()?;
    if args.routed {
        route_text(&mut args)?;
    }
    // Validate the address before opening the workspace, because an invalid address needs none.
    if let Some(to) = &args.to {
        to.parse::<Address>()?;
    }
    let request = request(&args)?;
    let refused = |error| unknown_to_files(Failure::of_action("send", error));
    request.check().map_err(refused)?;
    let mut open = if args.wait { context.open_running().await? } else { context.open_door().await? };
    let workspace = &open.workspace.clone();
    if args.wait {
        answer::check_sender(workspace, &from).await?;
    }
    let now = workspace.snapshot().await?;
    let Sent { accepted, persona_problem, .. } =
        actions::send(Actor::new(workspace, &from), &now, None, request).await.map_err(refused)?;
    if let Some(problem) = persona_problem {
        context
            .printer
            .note(format_args!("note: the message is sent without a persona: {}", show::plain(&problem)));
    }
    let mut unmounted = None;
    if accepted.deliveries.iter().any(|delivery| delivery.route.door() == Door::Channels) {
        match open.deliver_to_channels(&context).await {
            Err(failure) if failure.is_unmounted() => unmounted = Some(failure),
            delivering => delivering?,
        }
    }
    if unmounted.is_none() {
        // The message is already accepted: if the mailbox does not respond in time, the outbox retries.
        let settled =
            tokio::time::timeout(ARRIVAL, workspace.hub().deliveries().wait_until_settled(accepted.id)).await;
        drop(settled);
    }
    let Some((stored, receipt)) = workspace.hub().journal().receipt(accepted.id).await? else {
        return Err(switchboard_hub::HubError::UnknownMessage { id: accepted.id.to_string() }.into());
    };
    print_receipt(&context, workspace, &stored, &receipt).await?;
    let unmounted = unmounted.map(|failure| {
        let message = format!("accepted, but not delivered yet: {}", failure.message);
        Failure::temporary("not_delivered", message)
            .hint("do not send it again: `switchboard serve` delivers it when the folder is mounted")
    });
    let result = match (accepted.stopped, unmounted.or_else(|| undelivered(&receipt, args.wait))) {
        (Some(stop), _) => Err(Failure::stopped(&stop, "the message is kept, but not delivered")),
        (None, Some(problem)) => Err(problem),
        (None, None) if args.wait => answer::wait(&context, &open, &from, accepted.id, args.timeout).await,
        (None, None) => Ok(()),
    };
    workspace.record_heartbeat(&from).await;
    open.close().await;
    result
}

/// Adds a hint to the error of an unknown recipient: `--allow-unregistered` addresses an agent that only reads files.
fn unknown_to_files(failure: Failure) -> Failure {
    let hint = failure.hint.clone().unwrap_or_default();
    match failure.code {
        "unknown_recipient" if hint.starts_with("known") => {
            failure.hint(format!("{hint}; for one that only reads files, add --allow-unregistered"))
        }
        _ => failure,
    }
}

/// Moves the first argument of a routed message, which has no recipient, into its text.
fn route_text(args: &mut Send) -> Result<(), Failure> {
    match (args.to.take(), &args.text.text) {
        (Some(_), Some(_)) => Err(Failure::new("usage", Exit::Usage, "--routed takes no recipient")
            .hint("leave out the recipient, or --routed")),
        (text, _) => {
            args.text.text = text;
            Ok(())
        }
    }
}

/// Builds the request of the action `send`.
fn request(args: &Send) -> Result<actions::Send, Failure> {
    Ok(actions::Send {
        metadata: args.metadata.parse()?,
        to: args.to.clone(),
        kind: args.kind.clone(),
        reply_to: args.reply.reply_to.clone(),
        claim: args.claim.clone(),
        expires_in: args.ttl,
        replace: args.replace,
        allow_unregistered: args.allow_unregistered,
        key: args.key.key.clone(),
        text: args.text.read()?,
    })
}

async fn print_receipt(
    context: &Context,
    workspace: &Workspace,
    stored: &Stored,
    receipt: &Receipt,
) -> Result<(), Failure> {
    let printer = context.printer;
    if printer.is_json() {
        printer.object(&show::receipt_object(&stored.message, receipt, false));
        return Ok(());
    }
    printer.line(format_args!("{}", door_workspace::native_id(&stored.message)));
    // Only agents without a mailbox need this: the presence of the others is already known to this process.
    if receipt.deliveries.iter().any(|delivery| delivery.route.door() != Door::Workspace) {
        load_presence(workspace.hub()).await?;
    }
    let watched = watched(context, workspace, receipt).await?;
    for delivery in &receipt.deliveries {
        let presence = workspace.hub().agents().presence(&delivery.agent).state;
        let awake = match presence {
            _ if delivery.agent.is_human() => "",
            PresenceState::Awake | PresenceState::Unknown => "",
            PresenceState::Stale => ", stale",
            PresenceState::Offline => ", offline",
        };
        match watched.get(&delivery.agent).filter(|_| delivery.route.door() == Door::Workspace) {
            // The agent is awake, but it reads a channel and not its mailbox.
            Some(channel) => printer.note(format_args!(
                "{0}: {1}; its watcher answers in a channel: `switchboard send '#{channel}' \"@{0} …\"`",
                delivery.agent, delivery.state
            )),
            None => printer.note(format_args!("{}: {}{awake}", delivery.agent, delivery.state)),
        }
    }
    let from = &stored.message.from;
    if !from.is_human() && workspace.hub().directory().await?.agent(from).is_none() {
        printer.note(format_args!(
            "note: '{from}' is not registered and cannot receive a reply; `switchboard agents register \"{from}\"`"
        ));
    }
    Ok(())
}

/// Returns the channels that recipients watch now. Reads the heartbeats only if a recipient reads channels.
async fn watched(
    context: &Context,
    workspace: &Workspace,
    receipt: &Receipt,
) -> Result<BTreeMap<AgentId, String>, Failure> {
    let directory = workspace.hub().directory().await?;
    let reads_channels = |delivery: &Delivery| {
        let routes =
            directory.agent(&delivery.agent).map(|record| record.routes.as_slice()).unwrap_or_default();
        routes.iter().any(|route| matches!(route, Route::Channel { .. }))
    };
    if !receipt.deliveries.iter().any(reads_channels) {
        return Ok(BTreeMap::new());
    }
    let entries = context.presence_entries(workspace).await?;
    let awake = entries.into_iter().filter(|entry| entry.awareness == PresenceState::Awake);
    Ok(awake
        .filter_map(|entry| {
            let channel = Name::parse(&entry.channel?).ok()?;
            Some((directory.canonical(&AgentId::local(entry.agent)), channel.to_string()))
        })
        .collect())
}

/// Returns a failure if a message was accepted but not delivered. With `waits`, a delivery to a disconnected peer is
/// not a failure: the sender waits for the reply anyway.
fn undelivered(receipt: &Receipt, waits: bool) -> Option<Failure> {
    if let Some(failure) = undeliverable(receipt) {
        return Some(failure);
    }
    let is_far = |d: &Delivery| matches!(d.route.door(), Door::Swarm | Door::Nats);
    let late = |d: &&Delivery| match d.state {
        DeliveryState::Failed { .. } => !(waits && is_far(d)),
        // A local delivery was already waited for, so if it is still pending, the disk has a problem.
        DeliveryState::Queued | DeliveryState::InFlight => d.route.door() == Door::Workspace,
        _ => false,
    };
    let stuck = receipt.deliveries.iter().find(late)?;
    let reason = stuck.note.as_deref().unwrap_or("its mailbox did not answer in time");
    let message = format!("accepted, but not delivered to {} yet: {reason}", stuck.agent);
    Some(Failure::temporary("not_delivered", message).hint(match stuck.route.door() {
        Door::Workspace | Door::Channels => {
            "do not send it again: it is kept and retried by the next `switchboard` command or `switchboard serve`"
        }
        Door::Workers | Door::Swarm | Door::Nats => {
            "do not send it again: it is kept, and `switchboard serve` retries it"
        }
    }))
}

/// Returns a failure if every delivery has ended and no recipient received the message.
fn undeliverable(receipt: &Receipt) -> Option<Failure> {
    let is_over = |d: &Delivery| matches!(d.state, DeliveryState::Refused | DeliveryState::Expired);
    let first = receipt.deliveries.first().filter(|_| receipt.deliveries.iter().all(is_over))?;
    let reason = first.note.as_deref().unwrap_or(first.state.as_str());
    let message = format!("{} does not get it: {reason}", first.agent);
    let id = door_workspace::to_native(receipt.id);
    Some(
        Failure::new("not_delivered", Exit::Failed, show::plain(&message))
            .hint(format!("`switchboard receipt {id}` shows its delivery status")),
    )
}
