//! `switchboard search`

use clap::Args;

use crate::commands::inbox::seq_of;
use crate::commands::tail::print_messages;
use crate::context::Context;
use crate::failure::Failure;

/// Find messages that hold all of the words, newest first.
#[derive(Debug, Args)]
pub(crate) struct Search {
    /// The words
    #[arg(required = true)]
    words: Vec<String>,

    /// Most messages to show
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: usize,

    /// Only what came before this message
    #[arg(long, value_name = "ID")]
    before: Option<String>,

    /// Whole bodies, however long
    #[arg(long)]
    full: bool,
}

/// So many messages take longer to index than anybody waits without being told why: about half a second.
const MANY: u64 = 10_000;

pub(crate) async fn run(args: Search, context: Context) -> Result<(), Failure> {
    let workspace = context.open().await?;
    let before = match &args.before {
        Some(id) => Some(seq_of(&workspace, None, id).await?),
        None => None,
    };
    let working = context.printer.working("searching");
    // Without a terminal, one line says why it takes long.
    let told = std::cell::Cell::new(context.printer.is_json() || working.is_some());
    let progress = |missing: u64| match &working {
        Some(bar) => bar.set_message(format!("indexing {missing} messages that were never searched")),
        None if missing >= MANY && !told.replace(true) => {
            context.printer.note(format_args!("Indexing {missing} messages that were never searched."));
        }
        None => {}
    };
    let page = workspace.hub().search_with(&args.words.join(" "), before, args.limit, progress).await?;
    if let Some(bar) = &working {
        bar.finish_and_clear();
    }
    print_messages(&workspace, &context, &page.items, args.full).await?;
    if page.items.is_empty() {
        context.printer.note("Nothing found.");
    } else if page.more {
        context.printer.note("There is more; continue with --before ID.");
    }
    workspace.close().await;
    Ok(())
}
