//! `switchboard team`

use clap::{Args, Subcommand};
use door_workspace::{OutgoingTeamMessage, Workspace};
use serde_json::json;
use switchboard_core::{Name, TeamRecord};

use crate::cli::help::examples;
use crate::context::Context;
use crate::failure::Failure;
use crate::show;

/// Create teams, and add or remove members.
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
    /// Send a separate message to each member of a team, with the persona of its role
    #[command(after_long_help = examples!["switchboard team message backend 'Please rebase' --role 'coder 1'"])]
    Message {
        /// The team
        id: String,
        /// The text
        #[arg(allow_hyphen_values = true)]
        text: String,
        /// Send only to members with this role
        #[arg(long)]
        role: Option<String>,
        /// Set the kind of message: delegate_task, request_review, submit_result, status_update or execute
        #[arg(long, default_value = "delegate_task")]
        kind: String,
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
    if let Some(Verb::Message { id, text, role, kind }) = args.command {
        let mut letter = OutgoingTeamMessage::new(
            Name::parse(&id)?,
            context.identity()?,
            super::send::kind_named(&kind)?,
            text,
        );
        letter.role_filter = role;
        return message(&context, letter).await;
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
            let team = workspace.create_team(Name::parse(&id)?, title, composite).await?;
            print(&workspace, &context, &team).await?;
        }
        Verb::Add { id, agents } => {
            let id = Name::parse(&id)?;
            for agent in &agents {
                workspace.assign(Name::parse(agent)?, Some(id.clone())).await?;
            }
            print_id(&workspace, &context, &id).await?;
        }
        Verb::Message { .. } => {}
        Verb::Remove { id, agents } => {
            let id = Name::parse(&id)?;
            for agent in &agents {
                let record = super::agents::known(&workspace, agent).await?;
                if record.team.as_ref() == Some(&id) {
                    workspace.assign(record.id.name, None).await?;
                } else {
                    context.printer.note(format_args!("{} is not in {id}", record.id));
                }
            }
            print_id(&workspace, &context, &id).await?;
        }
    }
    workspace.close().await;
    Ok(())
}

/// Sends the messages to the members and prints the result for each.
async fn message(context: &Context, letter: OutgoingTeamMessage) -> Result<(), Failure> {
    let open = context.open_door().await?;
    let sent = open.workspace.send_team_message(letter).await?;
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

async fn print_id(workspace: &Workspace, context: &Context, id: &Name) -> Result<(), Failure> {
    let directory = workspace.hub().directory().await?;
    let Some(team) = directory.team(id) else {
        let near =
            switchboard_core::suggest_similar(id.as_str(), directory.teams().map(|team| team.id.as_str()));
        return Err(switchboard_core::ResolveError::UnknownTeam { team: id.clone(), near }.into());
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
