//! The verb `switchboard channel`.

mod archive;
mod list;
mod post;
mod read;
mod root;
mod tail;

use std::fmt::Write as _;

use clap::{Args, Subcommand};
use door_channels::Transcript;
use door_channels::wire::ChannelMessage;
use jiff::Timestamp;
use switchboard_core::{Name, Trust, label_inline};
use switchboard_sys::clock::format_ago;

use crate::cli::help::examples;
use crate::context::Context;
use crate::failure::Failure;
use crate::show::{self, Reader};

/// Post to channels, read them and archive old messages.
///
/// A channel is a folder of message files that a team shares.
#[derive(Debug, Args)]
#[command(after_long_help = examples![
    "switchboard channel post --channel general --text 'the build is green'",
    "switchboard channel read --channel general",
])]
pub(crate) struct Channel {
    #[command(subcommand)]
    command: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Post(post::Post),
    Read(read::Read),
    List(list::List),
    Tail(tail::Tail),
    Archive(archive::Archive),
    Root(root::Root),
}

pub(crate) async fn run(args: Channel, context: Context) -> Result<(), Failure> {
    match args.command {
        Verb::Post(args) => post::run(args, context).await,
        Verb::Read(args) => read::run(args, context).await,
        Verb::List(args) => list::run(args, context).await,
        Verb::Tail(args) => tail::run(args, context).await,
        Verb::Archive(args) => archive::run(args, context).await,
        Verb::Root(args) => root::run(args, context).await,
    }
}

/// Parses the name of a channel.
pub(crate) fn channel_named(text: &str) -> Result<Name, Failure> {
    Name::parse(text).map_err(|error| {
        let failure = Failure::from(error);
        let message = format!("--channel: {}", failure.message);
        Failure { message, ..failure }
    })
}

/// Prints messages, as JSON of their files or as text, and warns of skipped files on stderr.
fn print(context: &Context, reading: &Transcript, now: Timestamp) -> Result<(), Failure> {
    let reader = context.reader()?;
    for message in &reading.messages {
        if context.printer.is_json() {
            context.printer.object(message);
        } else {
            context.printer.line(text(message, now, reader));
        }
    }
    for (file, reason) in &reading.unreadable {
        tracing::warn!("{}: {}", show::plain(file), show::plain(reason));
    }
    Ok(())
}

/// Renders a message as a header line and its indented text. Messages in files are unverified, and the output says so
/// if the reader is a model.
fn text(message: &ChannelMessage, now: Timestamp, reader: Reader) -> String {
    let (bold, dim) = (anstyle::Style::new().bold(), anstyle::Style::new().dimmed());
    let trust = match reader {
        Reader::Person => Trust::Ours,
        Reader::Model => message.from.parse().map_or(Trust::Unverified, |from| Trust::of(&from, false, None)),
    };
    let when = message.time().map_or_else(|| label_inline(&message.timestamp), |at| format_ago(now, at));
    let parent = message.in_reply_to().map(|parent| format!("  in reply to {}", label_inline(parent)));
    let parent = parent.unwrap_or_default();
    let doubt = trust.label().map(|label| format!(" ({label})")).unwrap_or_default();
    let [from, to, kind, id] =
        [&message.from, &message.to, &message.kind, &message.id].map(|text| label_inline(text));
    let mut text = format!("{bold}{from}{doubt} → {to}{bold:#}  {kind}  {when}\n{dim}{id}{parent}{dim:#}");
    let mut content = message.content.text.clone();
    if let Some(code) = &message.content.code {
        let _ = write!(content, "\n{code}");
    }
    for artifact in &message.content.artifacts {
        let _ = write!(
            content,
            "\nfile: {}",
            artifact.as_str().map_or_else(|| artifact.to_string(), str::to_owned)
        );
    }
    let body = show::sanitized(trust, &content, reader);
    show::push_lines(&mut text, &show::rendered(trust, &body, reader));
    text
}
