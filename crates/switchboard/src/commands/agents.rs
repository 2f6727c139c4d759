//! The verb `switchboard agents`.

use clap::{Args, Subcommand};
use door_workspace::Workspace;
use serde_json::json;
use switchboard_actions::{self as actions, RegisterAgent, SetStatus};
use switchboard_core::{AgentId, AgentRecord, Door, Route};
use switchboard_hub::Part;
use switchboard_sys::clock::format_ago;

use crate::cli::help::examples;
use crate::commands::who::load_presence;
use crate::context::Context;
use crate::failure::Failure;
use crate::holdings::Holdings;
use crate::show;

/// List, register, rename or remove agents, or set an agent's role or status.
#[derive(Debug, Args)]
#[command(after_long_help = examples![
    "switchboard agents",
    "switchboard agents register codex --role reviewer --team backend",
])]
pub(crate) struct Agents {
    #[command(subcommand)]
    command: Option<Verb>,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List all agents (the default)
    #[command(after_long_help = examples!["switchboard agents list"])]
    List,
    /// Register an agent, or change the role or team of a registered one
    #[command(after_long_help = examples![
        "switchboard agents register codex",
        "switchboard agents register codex --role reviewer --team backend",
    ])]
    Register {
        /// The agent's name: letters, digits, space, '.', '_' and '-'
        name: String,
        /// Set its role: lead, coder 1, coder 2, reviewer, tester, researcher, execution, planner, analyst …
        #[arg(long)]
        role: Option<String>,
        /// Add it to this team, which is created if it does not exist
        #[arg(long)]
        team: Option<String>,
        /// Set the client program, such as codex or cursor
        #[arg(long, value_name = "PROGRAM")]
        interface: Option<String>,
        /// Add a capability (repeatable)
        #[arg(long = "capability", value_name = "NAME", requires = "interface")]
        capabilities: Vec<String>,
        /// Set the name shown to people
        #[arg(long, value_name = "TEXT", requires = "interface")]
        friendly_name: Option<String>,
    },
    /// Rename an agent; messages to the old name still reach it
    #[command(after_long_help = examples!["switchboard agents rename codex codex-2"])]
    Rename {
        /// The current name
        from: String,
        /// The new name
        to: String,
    },
    /// Set an agent's role
    #[command(after_long_help = examples!["switchboard agents role codex reviewer"])]
    Role {
        /// The agent
        name: String,
        /// Its role: lead, coder 1, coder 2, reviewer, tester, researcher, execution … or none
        role: String,
    },
    /// Set what an agent is doing
    #[command(after_long_help = examples!["switchboard agents status codex working 'refactoring the parser'"])]
    Status {
        /// The agent
        name: String,
        /// One word: working, thinking, idle, error, active, away …
        status: String,
        /// A sentence with details
        message: Option<String>,
    },
    /// Remove an agent; its messages stay
    #[command(after_long_help = examples!["switchboard agents remove codex"])]
    Remove {
        /// The agent
        name: String,
    },
}

pub(crate) async fn run(args: Agents, context: Context) -> Result<(), Failure> {
    let workspace = context.open().await?;
    match args.command.unwrap_or(Verb::List) {
        Verb::List => list(&workspace, &context).await?,
        Verb::Register { name, role, team, interface, capabilities, friendly_name } => {
            let request = RegisterAgent { name, interface, capabilities, role, friendly_name, team };
            let record = actions::register_agent(&workspace, request)
                .await
                .map_err(|error| Failure::of_action("register", error))?;
            if context.named()?.is_some_and(|agent| agent == record.id) {
                workspace.record_heartbeat(&record.id).await;
            }
            print_agent(&workspace, &context, &record).await?;
            let agent = &record.id;
            context.printer.note(format_args!(
                "In its shell: export SWITCHBOARD_AGENT_NAME=\"{agent}\", then `switchboard inbox` and `switchboard wait`."
            ));
        }
        Verb::Rename { from, to } => {
            let record = actions::rename_agent(&workspace, &from, &to)
                .await
                .map_err(|error| Failure::of_action("rename", error))?;
            print_agent(&workspace, &context, &record).await?;
        }
        Verb::Role { name, role } => {
            let record = actions::assign_role(&workspace, &name, &role)
                .await
                .map_err(|error| Failure::of_action("assign_role", error))?;
            print_agent(&workspace, &context, &record).await?;
        }
        Verb::Status { name, status, message } => {
            let agent = actions::set_status(&workspace, &name, SetStatus { status, message })
                .await
                .map_err(|error| Failure::of_action("set_status", error))?;
            print_agent(&workspace, &context, &agent).await?;
        }
        Verb::Remove { name } => {
            let agent = actions::remove_agent(&workspace, &name)
                .await
                .map_err(|error| Failure::of_action("remove", error))?;
            if context.printer.is_json() {
                context.printer.object(&json!({ "name": agent.id.to_string(), "removed": true }));
            } else {
                context.printer.line(format_args!("{} removed; its mail stays", agent.id));
            }
        }
    }
    workspace.close().await;
    Ok(())
}

async fn list(workspace: &Workspace, context: &Context) -> Result<(), Failure> {
    load_presence(workspace.hub()).await?;
    context.load_watchers(workspace).await?;
    let directory = workspace.hub().directory().await?;
    let holdings = Holdings::load(workspace.hub()).await?;
    let mut rows = Vec::new();
    for record in directory.agents() {
        if context.printer.is_json() {
            print_agent(workspace, context, record).await?;
        } else {
            rows.push(row(workspace, record, &holdings).await?);
        }
    }
    if !context.printer.is_json() {
        if rows.is_empty() {
            context.printer.note("No agents yet; `switchboard agents register NAME` makes one known.");
        } else {
            rows.insert(0, ["NAME", "PRESENCE", "ROLE", "TEAM", "UNREAD", "DOING"].map(str::to_owned));
            print_table(context, &rows);
        }
    }
    Ok(())
}

async fn row(
    workspace: &Workspace,
    record: &AgentRecord,
    holdings: &Holdings,
) -> Result<[String; 6], Failure> {
    let hub = workspace.hub();
    let presence = hub.agents().presence(&record.id);
    let since = presence.since.map(|at| format_ago(hub.now(), at)).unwrap_or_default();
    let doing = [presence.status, presence.message].into_iter().flatten().collect::<Vec<_>>().join(": ");
    let doing = [Some(doing).filter(|doing| !doing.is_empty()), holdings.describe(&record.id)];
    let doing = doing.into_iter().flatten().collect::<Vec<_>>().join("; ");
    Ok([
        record.id.to_string(),
        format!("{} {since}", presence.state).trim_end().to_owned(),
        show::inline(record.role.as_deref().unwrap_or("-")),
        record.team.as_ref().map_or_else(|| "-".into(), ToString::to_string),
        unread(workspace, &record.id).await?.to_string(),
        show::inline(&doing),
    ])
}

fn print_table(context: &Context, rows: &[[String; 6]]) {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..6).map(width).collect();
    for row in rows {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        context.printer.line(cells.join("  ").trim_end());
    }
}

/// Counts the unseen messages of an agent of this hub, up to 100,000. Returns 0 for an agent of another hub, because
/// only that hub knows the count.
pub(crate) async fn unread(workspace: &Workspace, agent: &AgentId) -> Result<usize, Failure> {
    if agent.realm.is_some() {
        return Ok(0);
    }
    Ok(workspace.hub().mailboxes().count(agent.clone(), Part::Unseen, 100_000).await?)
}

async fn print_agent(workspace: &Workspace, context: &Context, record: &AgentRecord) -> Result<(), Failure> {
    if !context.printer.is_json() {
        let role = record.role.as_ref().map(|role| format!(", {}", show::inline(role))).unwrap_or_default();
        let team = record.team.as_ref().map(|team| format!(", team {team}")).unwrap_or_default();
        context.printer.line(format_args!("{}{role}{team}", record.id));
        return Ok(());
    }
    let presence = workspace.hub().agents().presence(&record.id);
    let mut doors: Vec<&str> = record.routes.iter().map(Route::door).map(Door::as_str).collect();
    doors.sort_unstable();
    doors.dedup();
    let holdings = Holdings::load(workspace.hub()).await?;
    let mut object = json!({
        "name": record.id.to_string(),
        "doors": doors,
        "role": record.role,
        "team": record.team.as_ref().map(ToString::to_string),
        "presence": presence.state.as_str(),
        "since": presence.since.map(|at| at.to_string()),
        "unread": unread(workspace, &record.id).await?,
        "status": presence.status,
        "status_message": presence.message,
    });
    for (key, things) in
        [("claims", holdings.tasks(&record.id)), ("reservations", holdings.files(&record.id))]
    {
        if !things.is_empty() {
            object[key] = things.into();
        }
    }
    context.printer.object(&object);
    Ok(())
}
