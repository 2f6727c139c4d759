//! `switchboard init`

use clap::Args;
use door_workspace::{Tree, Workspace};
use serde_json::json;
use switchboard_core::Name;
use switchboard_hub::Registration;
use switchboard_hub::files::Created;

use crate::config;
use crate::context::Context;
use crate::failure::Failure;

/// Make a workspace here, or complete one. What is there is left alone.
#[derive(Debug, Args)]
pub(crate) struct Init {
    /// Register these agents at once
    #[arg(value_name = "AGENT")]
    agents: Vec<String>,
}

pub(crate) async fn run(args: Init, context: Context) -> Result<(), Failure> {
    let agents = args.agents.iter().map(|name| Name::parse(name)).collect::<Result<Vec<_>, _>>()?;
    let folder = context.new_workspace_folder()?;
    let settings = config::load(&folder)?;
    let (tree, made) = Tree::make(&folder)?;
    let workspace =
        Workspace::open(&folder, settings.workspace.clone(), |hub| settings.apply_to(hub)).await?;
    let state = workspace.state().clone();
    tokio::task::spawn_blocking(move || state.make()).await.map_err(anyhow::Error::from)??;
    for name in agents {
        workspace.register(Registration::mailbox(name)).await?;
    }
    let names: Vec<String> = workspace.hub().directory().await?.agents().map(|a| a.id.to_string()).collect();
    workspace.close().await;

    let printer = context.printer;
    if printer.is_json() {
        let path = tree.root().path().display().to_string();
        printer.object(&json!({ "path": path, "created": made == Created::Created, "agents": names }));
        return Ok(());
    }
    match made {
        Created::Created => printer.line(format_args!("Made {}.", tree.root().path().display())),
        Created::AlreadyThere => printer.line(format_args!("{} is complete.", tree.root().path().display())),
    }
    // A name may hold spaces, and what is printed here is meant to be typed.
    let first = names.first().map_or("codex", String::as_str);
    let first = if first.contains(' ') { format!("\"{first}\"") } else { first.to_owned() };
    printer.line("Next:");
    if names.is_empty() {
        printer.line(format_args!("  {:<38} make an agent known", "switchboard agents register codex"));
    }
    let verbs = [
        (format!("switchboard send {first} \"hello\""), "write to it"),
        (format!("switchboard inbox {first}"), "see what it has"),
        ("switchboard mcp".to_owned(), "what an agent's client starts: its tools (docs/mcp.md)"),
        ("switchboard serve".to_owned(), "keep going: MCP over HTTP, files, deliveries"),
    ];
    for (verb, what) in verbs {
        printer.line(format_args!("  {verb:<38} {what}"));
    }
    Ok(())
}
