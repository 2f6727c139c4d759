//! The verb `switchboard team`.

use clap::{Args, Subcommand};
use door_workspace::Workspace;
use serde_json::json;
use switchboard_actions::{self as actions, Actor, CreateTeam, SendTeam};
use switchboard_core::{Name, TeamRecord};

use crate::cli::help::examples;
use crate::cli::options::{IdempotencyKey, MessageText, Metadata, ReplyTo};
use crate::context::Context;
use crate::failure::Failure;
use crate::show;

/// Create teams, add or remove members, and message each member.
///
/// A message to `team:NAME` goes to every member.
#[derive(Debug, Args)]
#[command(after_long_help = examples![
    "switchboard team",
    "switchboard team create backend --title 'Backend team'",
])]
pub(crate) struct Team {
    #[command(subcommand)]
    command: Option<Verb>,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List all teams and their members (the default)
    #[command(after_long_help = examples!["switchboard team list"])]
    List,
    /// Create a team
    #[command(after_long_help = examples!["switchboard team create backend --title 'Backend team'"])]
    Create {
        /// The team's name in addresses
        id: String,
        /// Set the title shown to people
        #[arg(long)]
        title: Option<String>,
        /// Let one agent play the whole team
        #[arg(long)]
        composite: bool,
    },
    /// Add agents to a team
    #[command(after_long_help = examples!["switchboard team add backend codex claude"])]
    Add {
        /// The team
        id: String,
        /// The agents
        #[arg(required = true)]
        agents: Vec<String>,
    },
    /// Send each member of a team its own message, with the persona (role instructions) of its role
    #[command(after_long_help = examples!["switchboard team message backend 'Please rebase' --role 'coder 1'"])]
    Message {
        /// The team
        id: String,
        #[command(flatten)]
        text: MessageText,
        /// Send only to members with this role
        #[arg(long)]
        role: Option<String>,
        /// Set the kind of message: delegate_task, request_review, submit_result, status_update, or execute, which is typed
        /// into the recipient's terminal [default: submit_result for a reply, else delegate_task]
        #[arg(long)]
        kind: Option<String>,
        #[command(flatten)]
        reply: ReplyTo,
        #[command(flatten)]
        metadata: Metadata,
        #[command(flatten)]
        key: IdempotencyKey,
    },
    /// Remove agents from a team
    #[command(after_long_help = examples!["switchboard team remove backend codex"])]
    Remove {
        /// The team
        id: String,
        /// The agents
        #[arg(required = true)]
        agents: Vec<String>,
    },
}

pub(crate) async fn run(args: Team, context: Context) -> Result<(), Failure> {
    if let Some(Verb::Message { id, text, role, kind, reply, metadata, key }) = args.command {
        let (metadata, reply_to, key) = (metadata.parse()?, reply.reply_to, key.key);
        let request = SendTeam { team: id, text: text.read()?, kind, role, reply_to, metadata, key };
        return message(&context, request).await;
    }
    let workspace = context.open().await?;
    match args.command.unwrap_or(Verb::List) {
        Verb::List => {
            let directory = workspace.hub().directory().await?;
            for team in directory.teams() {
                print(&workspace, &context, team).await?;
            }
            if directory.teams().next().is_none() {
                context.printer.note("No teams yet; `switchboard team create NAME` makes one.");
            }
        }
        Verb::Create { id, title, composite } => {
            let team = actions::create_team(&workspace, CreateTeam { id, title, composite })
                .await
                .map_err(|error| Failure::of_action("create_team", error))?;
            print(&workspace, &context, &team).await?;
        }
        Verb::Add { id, agents } => {
            for agent in &agents {
                actions::assign_to_team(&workspace, agent, Some(&id))
                    .await
                    .map_err(|error| Failure::of_action("assign_to_team", error))?;
            }
            print_id(&workspace, &context, &id).await?;
        }
        Verb::Message { .. } => {}
        Verb::Remove { id, agents } => {
            for agent in &agents {
                let is_member = actions::remove_from_team(&workspace, agent, &id)
                    .await
                    .map_err(|error| Failure::of_action("remove_from_team", error))?;
                if !is_member {
                    context.printer.note(format_args!("{agent} is not in {id}"));
                }
            }
            print_id(&workspace, &context, &id).await?;
        }
    }
    workspace.close().await;
    Ok(())
}

/// Sends a message to each member and prints the result for each.
async fn message(context: &Context, request: SendTeam) -> Result<(), Failure> {
    let me = context.identity()?;
    let open = context.open_door().await?;
    let sent = actions::send_team(Actor::new(&open.workspace, &me), request)
        .await
        .map_err(|error| Failure::of_action("send_team", error))?;
    for copy in &sent.members {
        let id = copy.message.as_ref().ok().map(|id| door_workspace::to_native(*id));
        let problem = match (&copy.message, &copy.stopped) {
            (Err(error), _) => Some(error.to_string()),
            (Ok(_), stopped) => stopped.as_ref().map(ToString::to_string),
        };
        if context.printer.is_json() {
            context.printer.object(&json!({
                "member": copy.member.to_string(),
                "native_id": id,
                "persona": copy.has_persona,
                "error": problem,
            }));
        } else {
            let id = id.unwrap_or_else(|| "not sent".to_owned());
            let problem = problem.map(|problem| format!(": {problem}")).unwrap_or_default();
            context.printer.line(format_args!("{}: {id}{problem}", copy.member));
        }
    }
    open.close().await;
    Ok(())
}

async fn print_id(workspace: &Workspace, context: &Context, id: &str) -> Result<(), Failure> {
    let id = Name::parse(id.strip_prefix("team:").unwrap_or(id))?;
    let directory = workspace.hub().directory().await?;
    let Some(team) = directory.team(&id) else {
        let near =
            switchboard_core::suggest_similar(id.as_str(), directory.teams().map(|team| team.id.as_str()));
        return Err(switchboard_core::ResolveError::UnknownTeam { team: id, near }.into());
    };
    print(workspace, context, team).await
}

async fn print(workspace: &Workspace, context: &Context, team: &TeamRecord) -> Result<(), Failure> {
    let directory = workspace.hub().directory().await?;
    let members: Vec<String> = directory.members(&team.id).map(|agent| agent.id.to_string()).collect();
    if context.printer.is_json() {
        context.printer.object(&json!({
            "id": team.id.to_string(),
            "title": team.title,
            "composite": team.composite,
            "members": members,
        }));
    } else {
        let title = if team.title == team.id.as_str() {
            String::new()
        } else {
            format!(" ({})", show::inline(&team.title))
        };
        let kind = if team.composite { ", composite" } else { "" };
        let members = if members.is_empty() { "no members yet".to_owned() } else { members.join(", ") };
        context.printer.line(format_args!("{}{title}{kind}: {members}", team.id));
    }
    Ok(())
}
