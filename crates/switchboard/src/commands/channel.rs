//! `switchboard channel`

mod archive;
mod list;
mod post;
mod read;
mod tail;

use clap::{Args, Subcommand};
use door_channels::Reading;
use door_channels::wire::ChannelMessage;
use jiff::Timestamp;
use switchboard_core::Name;
use switchboard_hub::clock::ago;

use crate::context::Context;
use crate::failure::Failure;
use crate::show;

/// Post to channels and read them: folders of message files that a team shares.
#[derive(Debug, Args)]
pub(crate) struct Channel {
    #[command(subcommand)]
    command: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Put a message into a channel; the first one makes it
    Post(post::Post),
    /// Show the messages of a channel, oldest first
    Read(read::Read),
    /// List the channels
    List(list::List),
    /// Show the newest messages of a channel, and go on as they come
    Tail(tail::Tail),
    /// Move old messages of a channel out of the way
    Archive(archive::Archive),
}

pub(crate) async fn run(args: Channel, context: Context) -> Result<(), Failure> {
    match args.command {
        Verb::Post(args) => post::run(args, context).await,
        Verb::Read(args) => read::run(args, context).await,
        Verb::List(args) => list::run(args, context).await,
        Verb::Tail(args) => tail::run(args, context).await,
        Verb::Archive(args) => archive::run(args, context).await,
    }
}

/// The channel of this name.
pub(crate) fn channel_named(text: &str) -> Result<Name, Failure> {
    Name::parse(text).map_err(|error| {
        let failure = Failure::from(error);
        let message = format!("--channel: {}", failure.message);
        Failure { message, ..failure }
    })
}

/// Prints messages as they are in their files, or as text; says on stderr what was left out.
fn print(context: &Context, reading: &Reading, now: Timestamp) {
    for message in &reading.messages {
        if context.printer.is_json() {
            context.printer.object(message);
        } else {
            context.printer.line(text(message, now));
        }
    }
    for (file, reason) in &reading.left_out {
        tracing::warn!("{}: {}", show::plain(file), show::plain(reason));
    }
}

/// One line of facts, then the text, indented.
fn text(message: &ChannelMessage, now: Timestamp) -> String {
    let (bold, dim) = (anstyle::Style::new().bold(), anstyle::Style::new().dimmed());
    let when = message.timestamp.parse().map_or_else(|_| message.timestamp.clone(), |at| ago(now, at));
    let parent = message.in_reply_to().map(|parent| format!("  in reply to {parent}")).unwrap_or_default();
    let head = show::plain(&format!("{} → {}", message.from, message.to)).replace('\n', " ");
    let facts = show::plain(&format!("{}  {when}", message.kind)).replace('\n', " ");
    let id = show::plain(&format!("{}{parent}", message.id)).replace('\n', " ");
    let mut text = format!("{bold}{head}{bold:#}  {facts}\n{dim}{id}{dim:#}");
    let code = message.content.code.as_ref().map_or_else(String::new, |code| format!("\n{code}"));
    for line in show::plain(&format!("{}{code}", message.content.text)).lines() {
        text.push_str("\n    ");
        text.push_str(line);
    }
    text
}
