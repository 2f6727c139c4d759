//! `switchboard send`

mod answer;

use std::collections::BTreeMap;
use std::io::{IsTerminal, Read};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use door_workspace::{OutgoingMessage, Persona, Workspace, WorkspaceError};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value};
use switchboard_core::{
    Address, AgentId, Delivery, DeliveryState, Door, Kind, Name, PresenceState, Receipt, Route, TaskName,
    describe_json_error, suggest_similar,
};
use switchboard_hub::Stored;

use crate::cli::help::examples;
use crate::cli::options::{Metadata, ReplyTo};
use crate::cli::values::{duration, lifetime};
use crate::commands::who::load_presence;
use crate::context::Context;
use crate::failure::{Exit, Failure};
use crate::show;

/// How long `send` waits for the recipient's mailbox file. It takes longer only if the disk hangs.
const ARRIVAL: Duration = Duration::from_secs(10);

/// Send a message to an agent, a team, a channel or everyone.
///
/// The command returns when the message is on disk.
#[derive(Debug, Args)]
#[command(after_long_help = examples![
    "switchboard send codex 'Please review src/parser.rs'",
    "switchboard send team:backend --file notes.md --kind request_review",
    "switchboard send codex 'Which port?' --wait --timeout 90s",
    "switchboard --from codex send claude 'done' --reply-to msg_1a2b3c",
])]
pub(crate) struct Send {
    /// codex · team:backend · #general · alice@research · job:7/0 · all · or a role
    to: String,

    /// The text; `-` or nothing reads it from stdin
    #[arg(allow_hyphen_values = true)]
    text: Option<String>,

    /// Read the text from this file
    #[arg(long, value_name = "FILE", conflicts_with = "text")]
    file: Option<PathBuf>,

    /// Set the kind of message: delegate_task, request_review, submit_result, status_update or execute
    /// [default: submit_result for a reply, else delegate_task]
    #[arg(long)]
    kind: Option<String>,

    #[command(flatten)]
    reply: ReplyTo,

    #[command(flatten)]
    metadata: Metadata,

    /// Send under this claim; refused if the claim is no longer in force
    #[arg(long, value_name = "TASK:NUMBER")]
    claim: Option<String>,

    /// Let the message expire to the archive after this long
    #[arg(long, value_name = "DURATION", value_parser = lifetime)]
    ttl: Option<SignedDuration>,

    /// Replace your earlier tasks for the same recipient that are still waiting
    #[arg(long)]
    replace: bool,

    /// Accept a recipient that is not registered and reads its mailbox as files
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
    /// True if it waits for the reply.
    pub(crate) fn waits(&self) -> bool {
        self.wait
    }
}

pub(crate) async fn run(args: Send, context: Context) -> Result<(), Failure> {
    let from = context.identity()?;
    // Before the workspace is opened: an invalid address needs none.
    let mut to: Address = args.to.parse()?;
    let kind = kind(&args)?;
    let mut metadata = metadata(args.metadata.metadata.as_deref())?;
    if let Some(claim) = &args.claim {
        metadata.insert("claim".to_owned(), claim_of(claim)?);
    }
    let body = body(&args)?;
    if body.trim().is_empty() && metadata.is_empty() {
        return Err(Failure::new("no_text", Exit::Usage, "the text is empty")
            .hint("say something, or carry data with --metadata"));
    }
    if args.replace && kind != Kind::delegate_task() {
        return Err(Failure::new(
            "bad_kind",
            Exit::Usage,
            format!("--replace is for tasks, and this is {kind}"),
        )
        .hint("leave out --replace, or send it as delegate_task"));
    }
    let mut open = if args.wait { context.open_running().await? } else { context.open_door().await? };
    let workspace = &open.workspace.clone();
    if !args.allow_unregistered {
        to = workspace.resolve_recipient(&args.to).await.map_err(unknown_to_files)?;
    }
    workspace.check_execute(&kind, &to).await?;
    if args.wait {
        answer::check_sender(workspace, &from).await?;
    }
    let now = workspace.hub().now();
    let expires_at = args.ttl.map(|ttl| expiry(ttl, now)).transpose()?;
    let in_reply_to = match &args.reply.reply_to {
        Some(id) => Some(workspace.resolve_id_for(&from, id).await?),
        None => None,
    };
    let persona = match &to {
        Address::Agent(agent) if agent.realm.is_none() => workspace.persona_for(agent, &metadata).await?,
        _ => Persona::default(),
    };
    let mut letter = OutgoingMessage {
        in_reply_to,
        expires_at,
        replace_earlier: args.replace,
        metadata,
        allow_unregistered: args.allow_unregistered,
        ..OutgoingMessage::new(from.clone(), to, kind, body)
    };
    if let Some(text) = persona.text {
        letter = letter.with_persona(text);
    }
    let accepted = workspace.send(letter).await.map_err(unknown_to_files)?;
    if let Some(problem) = persona.problem {
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
        // The message is accepted either way: if the mailbox does not respond in time, the outbox retries.
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

/// Adds to an unknown recipient that it may be one that only reads files.
fn unknown_to_files(error: WorkspaceError) -> Failure {
    let failure = Failure::from(error);
    let hint = failure.hint.clone().unwrap_or_default();
    match failure.code {
        "unknown_recipient" if hint.starts_with("known") => {
            failure.hint(format!("{hint}; for one that only reads files, add --allow-unregistered"))
        }
        _ => failure,
    }
}

fn kind(args: &Send) -> Result<Kind, Failure> {
    let default = if args.reply.reply_to.is_some() { "submit_result" } else { "delegate_task" };
    kind_named(args.kind.as_deref().unwrap_or(default))
}

/// Parses one of the five kinds.
pub(crate) fn kind_named(text: &str) -> Result<Kind, Failure> {
    if Kind::ACTIONS.contains(&text)
        && let Ok(kind) = Kind::parse(text)
    {
        return Ok(kind);
    }
    let failure =
        Failure::new("bad_kind", Exit::Usage, format!("'{}' is not a kind of message", text.escape_debug()));
    Err(match suggest_similar(text, Kind::ACTIONS).first() {
        Some(near) => failure.hint(format!("did you mean '{near}'?")),
        None => failure.hint(format!("use one of {}", Kind::ACTIONS.join(", "))),
    })
}

fn metadata(text: Option<&str>) -> Result<Map<String, Value>, Failure> {
    let Some(text) = text else { return Ok(Map::new()) };
    serde_json::from_str(text).map_err(|error| {
        let problem = describe_json_error(&error);
        Failure::new("bad_metadata", Exit::Usage, format!("--metadata is not a JSON object: {problem}"))
            .hint("for example --metadata '{\"ticket\": 7}'")
    })
}

/// Parses a claim into the form that the hub reads in a message.
fn claim_of(text: &str) -> Result<Value, Failure> {
    let parts = text.rsplit_once(':').and_then(|(task, fence)| Some((task, fence.parse::<i64>().ok()?)));
    let Some((task, fence)) = parts else {
        let message = format!("--claim '{}' is not TASK:NUMBER", text.escape_debug());
        return Err(Failure::new("bad_claim", Exit::Usage, message)
            .hint("the number is the one that `switchboard claim` gave"));
    };
    Ok(serde_json::json!({ "task": TaskName::parse(task)?.as_str(), "fence": fence }))
}

fn body(args: &Send) -> Result<String, Failure> {
    let unreadable = |error: std::io::Error, from: &str| {
        Failure::new("unreadable", Exit::Failed, format!("the text cannot be read from {from}: {error}"))
            .hint("a message is UTF-8 text")
    };
    match (&args.file, args.text.as_deref()) {
        (Some(path), _) => {
            std::fs::read_to_string(path).map_err(|e| unreadable(e, &path.display().to_string()))
        }
        (None, Some(text)) if text != "-" => Ok(text.to_owned()),
        (None, text) => {
            if text.is_none() && std::io::stdin().is_terminal() {
                return Err(Failure::new("no_text", Exit::Usage, "there is no text to send")
                    .hint("give it as an argument, with --file PATH, or on stdin"));
            }
            let mut body = String::new();
            std::io::stdin().read_to_string(&mut body).map_err(|error| unreadable(error, "stdin"))?;
            Ok(body)
        }
    }
}

fn expiry(ttl: SignedDuration, now: Timestamp) -> Result<Timestamp, Failure> {
    now.checked_add(ttl).map_err(|_| {
        Failure::new("bad_ttl", Exit::Usage, "--ttl is longer than a timestamp can hold")
            .hint("write 30m, 8h or 2d")
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
    // The presence of agents with a mailbox is already known to this process.
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
            // The agent is awake, but does not read its mailbox.
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

/// Returns the channels that recipients watch now, for those that read channels.
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

/// Returns the failure if a message was accepted but not delivered. A sender that waits for a reply also waits for a
/// disconnected peer.
fn undelivered(receipt: &Receipt, waits: bool) -> Option<Failure> {
    if let Some(failure) = undeliverable(receipt) {
        return Some(failure);
    }
    let is_far = |d: &Delivery| matches!(d.route.door(), Door::Swarm | Door::Nats);
    let late = |d: &&Delivery| match d.state {
        DeliveryState::Failed { .. } => !(waits && is_far(d)),
        // The delivery is local, and it was awaited: the disk has a problem.
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

/// Returns the failure if every delivery has ended and no recipient has the message.
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
