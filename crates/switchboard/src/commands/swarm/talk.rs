//! The verbs `switchboard swarm send`, `notify`, `messages` and `context`.

use std::io::Read as _;

use clap::Args;
use door_swarm::wire::{Action, Attachment, AttachmentType, MessageType, Priority, Reference, ReferenceType};
use door_swarm::{OutgoingMessage, Swarms};
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use switchboard_core::describe_json_error;
use switchboard_hub::Accepted;
use switchboard_sys::clock::format_ago;

use super::{InSwarm, OwnAgent};
use crate::cli::help::examples;
use crate::cli::options::{Limit, Metadata, ReplyTo};
use crate::cli::values::{number, timestamp};
use crate::context::Context;
use crate::failure::{Exit, Failure};
use crate::show;

/// Send a message to a member, or to all of them.
///
/// The command returns when the message is in the journal; `switchboard serve` sends it.
#[derive(Debug, Args)]
#[command(after_long_help = examples![
    "switchboard swarm send 'The dataset is ready' --swarm research",
    "switchboard swarm send 'Please review' --to bob --priority high --attach report.md",
])]
pub(crate) struct Send {
    /// The text; read from stdin if omitted or `-`
    #[arg(allow_hyphen_values = true)]
    text: Option<String>,

    /// Send only to this member [default: all members]
    #[arg(long, value_name = "AGENT")]
    to: Option<String>,

    #[command(flatten)]
    scope: InSwarm,

    #[command(flatten)]
    reply: ReplyTo,

    /// Set the thread that groups a conversation
    #[arg(long, value_name = "UUID")]
    thread: Option<String>,

    /// Set the priority: low, normal or high
    #[arg(long, default_value = "normal")]
    priority: String,

    /// Let the message expire at this moment, such as 2026-02-05T14:30:00Z
    #[arg(long, value_name = "TIMESTAMP", value_parser = timestamp)]
    expires_at: Option<Timestamp>,

    /// Refer to something, as JSON: {"type":"github_issue","repo":"o/r","number":1,"action":"claimed"} (repeatable)
    #[arg(long = "reference", value_name = "JSON")]
    references: Vec<String>,

    /// Attach content, as JSON: {"type":"url","mime_type":"text/plain","content":"https://…"} (repeatable)
    #[arg(long = "attachment", value_name = "JSON")]
    attachments: Vec<String>,

    /// Attach this file (repeatable)
    #[arg(long, value_name = "FILE")]
    attach: Vec<std::path::PathBuf>,

    #[command(flatten)]
    metadata: Metadata,

    /// Send it as a notification
    #[arg(long)]
    notification: bool,
}

/// Notify a swarm about something on GitHub, as a webhook would.
#[derive(Debug, Args)]
#[command(after_long_help = examples![
    "switchboard swarm notify 'I take this one' --repo octo/parser --issue 12 --action claimed",
])]
pub(crate) struct Notify {
    /// The text
    text: String,

    /// Name the repository, as owner/name
    #[arg(long, value_name = "REPO")]
    repo: String,

    /// Name an issue
    #[arg(long, value_name = "NUMBER", conflicts_with = "pr", value_parser = number::<u64>)]
    issue: Option<u64>,

    /// Name a pull request
    #[arg(long, value_name = "NUMBER", value_parser = number::<u64>)]
    pr: Option<u64>,

    /// Set the action: claimed, completed, blocked, unblocked, assigned, mention or review_requested
    #[arg(long, default_value = "mention")]
    action: String,

    #[command(flatten)]
    scope: InSwarm,

    /// Send only to this member [default: all members]
    #[arg(long, value_name = "AGENT")]
    to: Option<String>,
}

/// Show the newest messages of a swarm.
#[derive(Debug, Args)]
#[command(after_long_help = examples!["switchboard swarm messages research -n 50"])]
pub(crate) struct Messages {
    /// The swarm [default: the only one]
    swarm: Option<String>,

    #[command(flatten)]
    limit: Limit<20>,
}

/// Show what a subagent needs to know: recent messages of each swarm, members, mutes and pending joins.
#[derive(Debug, Args)]
#[command(after_long_help = examples!["switchboard swarm context -n 10"])]
pub(crate) struct ForSubagent {
    #[command(flatten)]
    own: OwnAgent,

    #[command(flatten)]
    limit: Limit<20>,
}

pub(super) async fn send(args: Send, context: &Context, swarms: &Swarms) -> Result<(), Failure> {
    let mut message = OutgoingMessage::new(text(args.text.as_deref())?);
    message.from = context.named()?;
    message.swarm = args.scope.swarm;
    message.to = args.to;
    message.in_reply_to = args.reply.reply_to;
    message.expires_at = args.expires_at;
    message.priority = parse_name::<Priority>("--priority", &args.priority)?;
    if args.notification {
        message.kind = MessageType::Notification;
    }
    if let Some(thread) = &args.thread {
        let id = parse_name("--thread", thread).map_err(|failure: Failure| Failure {
            message: format!("--thread: '{}' is not a UUID", show::inline(thread)),
            ..failure
        });
        message.thread = Some(id?);
    }
    for reference in &args.references {
        message.references.push(parse_json("--reference", reference)?);
    }
    for attachment in &args.attachments {
        message.attachments.push(parse_json("--attachment", attachment)?);
    }
    for path in &args.attach {
        message.attachments.push(attached(path)?);
    }
    if let Some(metadata) = &args.metadata.metadata {
        message.metadata = parse_json::<Map<String, Value>>("--metadata", metadata)?;
    }
    let accepted = swarms.send(message).await?;
    print_accepted(context, swarms, &accepted)
}

pub(super) async fn notify(args: Notify, context: &Context, swarms: &Swarms) -> Result<(), Failure> {
    let (kind, number) = match (args.issue, args.pr) {
        (Some(number), _) => (ReferenceType::GithubIssue, Some(number)),
        (None, Some(number)) => (ReferenceType::GithubPr, Some(number)),
        (None, None) => (ReferenceType::GithubRepo, None),
    };
    let page = match kind {
        ReferenceType::GithubIssue => format!("/issues/{}", number.unwrap_or_default()),
        ReferenceType::GithubPr => format!("/pull/{}", number.unwrap_or_default()),
        _ => String::new(),
    };
    let mut message = OutgoingMessage::new(args.text);
    message.kind = MessageType::Notification;
    message.swarm = args.scope.swarm;
    message.to = args.to;
    message
        .metadata
        .insert("github_url".to_owned(), format!("https://github.com/{}{page}", args.repo).into());
    message.metadata.insert("action".to_owned(), args.action.clone().into());
    message.references.push(Reference {
        kind,
        repo: Some(args.repo),
        number,
        sha: None,
        url: None,
        action: Some(parse_name::<Action>("--action", &args.action)?),
    });
    let accepted = swarms.send(message).await?;
    print_accepted(context, swarms, &accepted)
}

pub(super) async fn messages(args: Messages, context: &Context, swarms: &Swarms) -> Result<(), Failure> {
    let (now, reader) = (swarms.hub().now(), context.reader()?);
    for seen in swarms.messages(args.swarm.as_deref(), args.limit.limit).await? {
        if context.printer.is_json() {
            context.printer.object(&seen.to_json());
            continue;
        }
        let message = &seen.message;
        let when = format_ago(now, message.sent_at);
        let (kind, trust) = (&message.kind, message.trust());
        let doubt = trust.label().map(|label| format!(" ({label})")).unwrap_or_default();
        let mut text = format!("{}{doubt} → {}  {kind}  {when}", message.from, message.to);
        show::push_lines(&mut text, &show::rendered(trust, &show::body_text(message, reader), reader));
        context.printer.line(text);
    }
    Ok(())
}

pub(super) async fn for_subagent(
    args: ForSubagent,
    context: &Context,
    swarms: &Swarms,
) -> Result<(), Failure> {
    let shown = swarms.context(args.own.agent.as_deref(), args.limit.limit).await?;
    if context.printer.is_json() {
        context.printer.object(&shown);
    } else {
        context.printer.json_line(&serde_json::to_string_pretty(&shown).unwrap_or_default());
    }
    Ok(())
}

fn print_accepted(context: &Context, swarms: &Swarms, accepted: &Accepted) -> Result<(), Failure> {
    if context.printer.is_json() {
        let deliveries: Vec<_> = accepted
            .deliveries
            .iter()
            .map(|d| json!({ "agent": d.agent.to_string(), "route": d.route.to_string(), "state": d.state.as_str() }))
            .collect();
        context
            .printer
            .object(&json!({ "id": accepted.id.to_string(), "seq": accepted.seq, "deliveries": deliveries }));
    } else {
        let to: Vec<_> = accepted.deliveries.iter().map(|delivery| delivery.agent.to_string()).collect();
        context.printer.line(format_args!("{}  queued for {}", accepted.id, to.join(", ")));
        if swarms.hub().services().holder("serve")?.is_none() {
            context.printer.note("No server is running: it is sent when `switchboard serve` runs.");
        }
    }
    match &accepted.stopped {
        Some(stop) => Err(Failure::stopped(stop, "the message is kept, but not sent")),
        None => Ok(()),
    }
}

fn text(argument: Option<&str>) -> Result<String, Failure> {
    match argument {
        Some(text) if text != "-" => Ok(text.to_owned()),
        _ => {
            let mut text = String::new();
            std::io::stdin().lock().read_to_string(&mut text).map_err(anyhow::Error::from)?;
            Ok(text.trim_end_matches('\n').to_owned())
        }
    }
}

/// Parses an enum value by its name in JSON.
fn parse_name<T: serde::de::DeserializeOwned>(option: &str, text: &str) -> Result<T, Failure> {
    serde_json::from_value(Value::String(text.to_owned())).map_err(|error| bad(option, &error))
}

fn parse_json<T: serde::de::DeserializeOwned>(option: &str, text: &str) -> Result<T, Failure> {
    serde_json::from_str(text).map_err(|error| bad(option, &error))
}

fn bad(option: &str, error: &serde_json::Error) -> Failure {
    Failure::new("bad_field", Exit::Usage, format!("{option}: {}", describe_json_error(error)))
}

/// Reads a file as an inline attachment.
fn attached(path: &std::path::Path) -> Result<Attachment, Failure> {
    /// Maximum size of a message's input, larger than any message may be.
    const LIMIT: u64 = 1 << 20;
    let mut bytes = Vec::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(LIMIT).read_to_end(&mut bytes));
    read.map_err(|error| {
        Failure::new("file", Exit::NotFound, format!("cannot read {}: {error}", path.display()))
    })?;
    let is_text = std::str::from_utf8(&bytes).is_ok();
    let mime_type = if is_text { "text/plain" } else { "application/octet-stream" };
    let content = door_swarm::encode_base64(&bytes);
    Ok(Attachment { kind: AttachmentType::Inline, mime_type: mime_type.to_owned(), content })
}
