//! The verb `switchboard adopt`.

use clap::Args;
use door_workspace::Tree;
use serde_json::json;
use switchboard_hub::ForeignDatabase;

use crate::cli::help::examples;
use crate::commands::inbox::count;
use crate::context::Context;
use crate::failure::{Exit, Failure};
use crate::ownership;
use crate::person::{Consent, require_person};
use crate::show::plain;

/// Adopt a database from another machine or a backup, after showing whose messages it holds.
///
/// A database that was copied, restored or moved is not used until a person adopts it. From then on its messages are
/// trusted as this hub's own. The database used in between is kept beside it, and the mailbox files are read again.
#[derive(Debug, Args)]
#[command(after_long_help = examples![
    "switchboard adopt",
    "switchboard adopt hub.db.foreign.20260205  # one of several, as `switchboard doctor` lists them",
])]
pub(crate) struct Adopt {
    /// The database file in `.switchboard/` [default: the only one from elsewhere]
    #[arg(value_name = "FILE")]
    file: Option<String>,
    #[command(flatten)]
    consent: Consent,
}

pub(crate) async fn run(args: Adopt, context: Context) -> Result<(), Failure> {
    let folder = context.workspace_folder()?;
    let root = Tree::open(&folder)?.root().clone();
    let key = ownership::hub_key(&folder)?.ok_or_else(|| {
        Failure::new(
            "others_workspace",
            Exit::NotAllowed,
            "only the owner of a workspace adopts its database",
        )
    })?;
    let names = ForeignDatabase::list(root.clone(), key.clone()).await?;
    let name = choose(args.file, &names)?;
    let found = ForeignDatabase::describe(root.clone(), name.clone()).await?;
    show(&context, &found);
    require_person(&context, &format!("adopt {name}"), args.consent.yes)?;
    let replaced = ForeignDatabase::adopt(root, name.clone(), key).await?;
    let replaced = replaced.map(|path| path.display().to_string());
    if context.printer.is_json() {
        context.printer.object(&json!({ "adopted": name, "replaced": replaced }));
        return Ok(());
    }
    context.printer.line(format_args!("{name} is this workspace's database now."));
    if let Some(replaced) = replaced {
        context.printer.line(format_args!("  The one that was there meanwhile is kept as {replaced}."));
    }
    Ok(())
}

/// Selects the database with the given name, or the only database there is.
fn choose(named: Option<String>, names: &[String]) -> Result<String, Failure> {
    let missing = |message: String| Failure::new("nothing_to_adopt", Exit::NotFound, message);
    match (named, names) {
        (Some(name), _) if names.contains(&name) => Ok(name),
        (Some(name), _) => Err(missing(format!("there is no database '{}' from elsewhere", plain(&name)))
            .hint("`switchboard doctor` names the existing ones")),
        (None, [name]) => Ok(name.clone()),
        (None, []) => Err(missing("there is no database from elsewhere here".to_owned())
            .hint("the workspace's own is in use already")),
        (None, names) => Err(Failure::new("which_database", Exit::Usage, "there is more than one database")
            .hint(format!("name one of {}", names.join(", ")))),
    }
}

fn show(context: &Context, found: &ForeignDatabase) {
    if context.printer.is_json() {
        for sender in &found.senders {
            context.printer.object(&json!({
                "sender": sender.sender, "messages": sender.messages, "verified": sender.verified,
                "first": sender.first.to_string(), "last": sender.last.to_string(),
            }));
        }
        return;
    }
    context.printer.line(format_args!("{} holds messages of:", found.name));
    if found.senders.is_empty() {
        context.printer.line("  (no messages)");
    }
    for sender in &found.senders {
        let messages = count(usize::try_from(sender.messages).unwrap_or(usize::MAX), "message");
        let (first, last) = (sender.first.strftime("%F"), sender.last.strftime("%F"));
        context.printer.line(format_args!(
            "  {}: {messages} from {first} to {last}, {} of them as {}'s own word",
            plain(&sender.sender),
            sender.verified,
            plain(&sender.sender),
        ));
    }
}
