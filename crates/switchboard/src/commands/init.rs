//! The verb `switchboard init`.

mod import;

use std::path::PathBuf;

use clap::Args;
use door_workspace::{Finding, Tree, Workspace, inspect};
use serde_json::json;
use switchboard_core::Name;
use switchboard_hub::Registration;
use switchboard_sys::files::Created;

use crate::cli::help::examples;
use crate::config;
use crate::context::Context;
use crate::failure::Failure;
use crate::ownership;

/// Create a workspace in this folder, and import the MCP servers of `.mcp.json`.
///
/// Existing files stay as they are, except `.mcp.json`: its servers become suites, Switchboard replaces them in it, and
/// the old file is kept in `.switchboard/backups`. Running it again completes a workspace.
#[derive(Debug, Args)]
#[command(after_long_help = examples![
    "switchboard init codex claude",
    "switchboard init --from cursor --yes",
])]
pub(crate) struct Init {
    /// Agents to register
    #[arg(value_name = "AGENT")]
    agents: Vec<String>,

    /// Do not import the servers of `.mcp.json`
    #[arg(long)]
    no_import: bool,

    /// Import the servers of a client as well: claude-code, claude-desktop, cursor, vscode, codex, gemini, windsurf or
    /// zed; its settings are only read
    #[arg(long, value_name = "CLIENT")]
    from: Option<String>,

    /// Read the settings of that client from this file
    #[arg(long, value_name = "FILE", requires = "from")]
    file: Option<PathBuf>,

    /// Trust every imported server without asking
    #[arg(short, long)]
    yes: bool,
}

pub(crate) async fn run(args: Init, context: Context) -> Result<(), Failure> {
    let agents = args.agents.iter().map(|name| Name::parse(name)).collect::<Result<Vec<_>, _>>()?;
    let folder = context.new_workspace_folder()?;
    let settings = config::load(&folder)?;
    // Parse the import before anything is created, so that an invalid import changes nothing.
    let plan = import::Plan::read(&args, &folder)?;
    let (tree, made) = Tree::create(&folder)?;
    let key = ownership::hub_key(&folder)?;
    let workspace =
        Workspace::open(&folder, settings.workspace.clone(), |hub| settings.apply_to(hub, key)).await?;
    context.note_quarantine(&workspace);
    let state = workspace.state().clone();
    tokio::task::spawn_blocking(move || state.create()).await.map_err(anyhow::Error::from)??;
    for name in agents {
        workspace.register(Registration::mailbox(name)).await?;
    }
    let names: Vec<String> = workspace.hub().directory().await?.agents().map(|a| a.id.to_string()).collect();
    let exposed = inspect(&workspace).await?.into_iter().find_map(|finding| match finding {
        Finding::Exposed { path, problem } | Finding::Readable { path, problem } => Some((path, problem)),
        _ => None,
    });
    workspace.close().await;

    let printer = context.printer;
    if let Some((path, problem)) = exposed {
        printer.note(format_args!("note: {path} {problem}; `switchboard doctor --fix` makes it private"));
    }
    if !printer.is_json() {
        match made {
            Created::Created => printer.line(format_args!("Made {}.", tree.root().path().display())),
            Created::AlreadyExists => {
                printer.line(format_args!("{} is complete.", tree.root().path().display()));
            }
        }
    }
    let imported = match plan {
        Some(plan) => {
            let import = move || plan.apply(args.yes, &context);
            Some(tokio::task::spawn_blocking(import).await.map_err(anyhow::Error::from)??)
        }
        None => None,
    };
    if printer.is_json() {
        let path = tree.root().path().display().to_string();
        let mut object = json!({ "path": path, "created": made == Created::Created, "agents": names });
        if let Some(imported) = imported {
            object["import"] = imported.to_json();
        }
        printer.object(&object);
        return Ok(());
    }
    // The printed command must be safe to paste into a shell, and a name may contain spaces.
    let first = names.first().map_or("codex", String::as_str);
    let first = if first.contains(' ') { format!("\"{first}\"") } else { first.to_owned() };
    printer.line("Next:");
    if names.is_empty() {
        printer.line(format_args!("  {:<38} make an agent known", "switchboard agents register codex"));
    }
    let mut verbs = vec![
        (format!("switchboard send {first} \"hello\""), "write to it"),
        (format!("switchboard inbox {first}"), "see what it has"),
        ("switchboard mcp".to_owned(), "what an agent's client starts: its tools (docs/mcp.md)"),
        ("switchboard serve".to_owned(), "keep going: MCP over HTTP, files, deliveries"),
    ];
    if imported.is_some() {
        verbs.push(("switchboard suite list".to_owned(), "see the servers that are now suites"));
    }
    for (verb, what) in verbs {
        printer.line(format_args!("  {verb:<38} {what}"));
    }
    Ok(())
}
