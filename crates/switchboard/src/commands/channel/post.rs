//! The verb `switchboard channel post`.

use std::io::{BufRead, Read};
use std::time::Duration;

use clap::Args;
use door_channels::{Channels, PostedMessage};
use serde_json::json;
use switchboard_core::{AgentId, Door, Name};

use super::channel_named;
use crate::cli::help::examples;
use crate::cli::options::ReplyTo;
use crate::context::Context;
use crate::failure::{Exit, Failure};
use crate::show;

/// Timeout for delivery to the mailboxes of the recipients. It expires only if the disk hangs.
const ARRIVAL: Duration = Duration::from_secs(10);

/// Kind of message that is typed into an agent's terminal.
const EXECUTE: &str = "execute";

/// Post a message to a channel.
///
/// The command returns when the message is in the journal and its file is on disk. The first post creates the channel.
#[derive(Debug, Args)]
#[command(after_long_help = examples![
    "switchboard channel post --channel general --text 'the build is green'",
    "switchboard channel post --channel general --to codex --kind task_assign --text 'fix the flaky test'",
])]
pub(crate) struct Post {
    /// Post as this agent [default: --from, SWITCHBOARD_AGENT_NAME, or the person]
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,

    /// The channel
    #[arg(long, value_name = "NAME")]
    channel: String,

    /// The agent to address, or all
    #[arg(long, default_value = "all")]
    to: String,

    /// The text; read from stdin if omitted or `-`
    #[arg(long, allow_hyphen_values = true)]
    text: Option<String>,

    #[command(flatten)]
    reply: ReplyTo,

    /// Set the kind of message: chat, task_assign, task_result, review_vote, incident … or any other word
    #[arg(long, default_value = "chat")]
    kind: String,

    /// Add a block of code
    #[arg(long, allow_hyphen_values = true)]
    code: Option<String>,

    /// Name a file that the message is about (repeatable)
    #[arg(long, value_name = "FILE", allow_hyphen_values = true)]
    artifact: Vec<String>,

    /// Post each line of stdin as a message of its own
    #[arg(long, conflicts_with_all = ["text", "code", "artifact"])]
    each_line: bool,
}

pub(super) async fn run(args: Post, context: Context) -> Result<(), Failure> {
    let from = match &args.agent {
        Some(name) => Context::identity_of(name)?,
        None => context.identity()?,
    };
    let channel = channel_named(&args.channel)?;
    check_kind(&args.kind)?;
    let open = context.open_door().await?;
    let channels = context.channels(&open.workspace).await?;
    if args.each_line {
        for line in std::io::stdin().lock().lines() {
            let line = line.map_err(anyhow::Error::from)?;
            if !line.is_empty() {
                post(&context, &channels, &args, &from, &channel, line).await?;
            }
        }
    } else {
        let text = text(&args)?;
        post(&context, &channels, &args, &from, &channel, text).await?;
    }
    open.workspace.record_heartbeat(&from).await;
    open.close().await;
    Ok(())
}

/// Rejects the kind `execute`: a channel message is never typed into a terminal.
fn check_kind(kind: &str) -> Result<(), Failure> {
    if !kind.eq_ignore_ascii_case(EXECUTE) {
        return Ok(());
    }
    let message = "an execute message is typed into a terminal, and a post in a channel is not";
    Err(Failure::new("no_terminal", Exit::Usage, message)
        .hint("send it with `switchboard send AGENT TEXT --kind execute`, or post it with another --kind"))
}

async fn post(
    context: &Context,
    channels: &Channels,
    args: &Post,
    from: &AgentId,
    channel: &Name,
    text: String,
) -> Result<(), Failure> {
    let post = door_channels::Post {
        to: args.to.clone(),
        kind: args.kind.clone(),
        code: args.code.clone(),
        artifacts: args.artifact.clone(),
        in_reply_to: args.reply.reply_to.clone(),
        ..door_channels::Post::new(from.clone(), channel.clone(), text)
    };
    let PostedMessage { message, path, accepted } = channels.post(post).await?;
    // The message is already accepted: if a mailbox does not respond in time, the outbox retries.
    let settled =
        tokio::time::timeout(ARRIVAL, channels.hub().deliveries().wait_until_settled(accepted.id)).await;
    if context.printer.is_json() {
        let receipt = match settled {
            Ok(receipt) => receipt?.deliveries,
            Err(_) => accepted.deliveries,
        };
        let deliveries: Vec<_> = receipt
            .iter()
            .map(|d| json!({ "agent": d.agent.to_string(), "route": d.route.to_string(), "state": d.state.as_str() }))
            .collect();
        context.printer.object(&json!({
            "id": message.id,
            "channel": channel.as_str(),
            "file_path": path.display().to_string(),
            "message_id": accepted.id.to_string(),
            "seq": accepted.seq,
            "deliveries": deliveries,
        }));
    } else {
        context.printer.line(show::plain(&message.id));
        let deliveries = settled.ok().and_then(Result::ok).map_or(accepted.deliveries, |it| it.deliveries);
        // Other agents read the message in the channel; only delivery to a single agent of another hub takes longer.
        if let [one] = deliveries.as_slice()
            && one.route.door() == Door::Nats
        {
            context.printer.note(format_args!("{}: {}", one.agent, one.state));
        }
    }
    match accepted.stopped {
        Some(stop) => Err(Failure::stopped(&stop, "the message is in the channel, but wakes no agent")),
        None => Ok(()),
    }
}

fn text(args: &Post) -> Result<String, Failure> {
    match args.text.as_deref() {
        Some(text) if text != "-" => Ok(text.to_owned()),
        None if args.code.is_some() => Ok(String::new()),
        _ => {
            let mut text = String::new();
            std::io::stdin().lock().read_to_string(&mut text).map_err(anyhow::Error::from)?;
            Ok(text.trim_end_matches('\n').to_owned())
        }
    }
}
