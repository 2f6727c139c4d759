//! The verb `switchboard search`.

use clap::Args;
use switchboard_actions::{self as actions, Actor};
use switchboard_hub::Stored;

use crate::cli::help::examples;
use crate::cli::options::{FullBodies, Limit};
use crate::commands::inbox::seq_of;
use crate::commands::tail::print_messages;
use crate::context::Context;
use crate::failure::Failure;

/// Search messages by their words.
///
/// It shows the messages that contain all of the words, newest first.
#[derive(Debug, Args)]
#[command(after_long_help = examples![
    "switchboard search flaky test",
    "switchboard search deadlock -n 5 --full",
])]
pub(crate) struct Search {
    /// The words to search for
    #[arg(required = true)]
    words: Vec<String>,

    #[command(flatten)]
    limit: Limit<20>,

    /// Show only what came before this message
    #[arg(long, value_name = "ID")]
    before: Option<String>,

    #[command(flatten)]
    bodies: FullBodies,
}

/// Number of messages from which indexing takes about half a second, so that the delay is explained.
const MANY: u64 = 10_000;

pub(crate) async fn run(args: Search, context: Context) -> Result<(), Failure> {
    let workspace = context.open().await?;
    let before = match &args.before {
        Some(id) => Some(seq_of(&workspace, None, id).await?),
        None => None,
    };
    let working = context.printer.working("searching");
    // Without a spinner, one line explains the delay.
    let is_explained = std::cell::Cell::new(context.printer.is_json() || working.is_some());
    let progress = |missing: u64| match &working {
        Some(bar) => bar.set_message(format!("indexing {missing} messages that were never searched")),
        None if missing >= MANY && !is_explained.replace(true) => {
            context.printer.note(format_args!("Indexing {missing} messages that were never searched."));
        }
        None => {}
    };
    let request = actions::Search { query: args.words.join(" "), before, limit: args.limit.limit };
    let me = context.identity()?;
    let found = actions::search(Actor::new(&workspace, &me), request, progress)
        .await
        .map_err(|error| Failure::of_action("search", error))?;
    if let Some(bar) = &working {
        bar.finish_and_clear();
    }
    let messages: Vec<Stored> = found.messages.into_iter().map(|(stored, _)| stored).collect();
    print_messages(&workspace, &context, &messages, args.bodies.full).await?;
    if messages.is_empty() && found.next.is_none() {
        context.printer.note("Nothing found.");
    } else if found.next.is_some() {
        context.printer.note("There is more; continue with --before ID.");
    }
    workspace.close().await;
    Ok(())
}
