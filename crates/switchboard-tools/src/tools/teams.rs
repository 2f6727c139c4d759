//! Tools for teams and roles.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use switchboard_actions as actions;
use switchboard_core::Name;

use super::ToolContext;
use crate::answer::{Answer, Outcome, ToolError};

pub(super) const CREATE_TEAM: &str = "Create a team. A composite team is one agent acting as a whole team.";
pub(super) const ASSIGN_TO_TEAM: &str = "Move an agent into a team; without team, remove it from its own.";
pub(super) const ASSIGN_ROLE: &str = "Assign an agent a role.";

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CreateTeam {
    /// Its id, used as team:ID.
    id: String,
    /// A title for people.
    name: Option<String>,
    /// One agent is the whole team.
    composite: Option<bool>,
}

pub(super) async fn create_team(ctx: &ToolContext<'_>, input: CreateTeam) -> Outcome {
    ctx.me()?;
    let request =
        actions::CreateTeam { id: input.id, title: input.name, composite: input.composite.unwrap_or(false) };
    let team = actions::create_team(ctx.workspace, request)
        .await
        .map_err(|error| ToolError::of("create_team", error))?;
    let kind = if team.composite { "composite team" } else { "team" };
    Ok(Answer::new(
        format!("{kind} team:{} is there.", team.id),
        json!({ "id": team.id.to_string(), "name": team.title, "isComposite": team.composite }),
    ))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AssignToTeam {
    /// Its name.
    agent: String,
    /// The team's id.
    team: Option<String>,
}

pub(super) async fn assign_to_team(ctx: &ToolContext<'_>, input: AssignToTeam) -> Outcome {
    ctx.me()?;
    let record = actions::assign_to_team(ctx.workspace, &input.agent, input.team.as_deref())
        .await
        .map_err(|error| ToolError::of("assign_to_team", error))?;
    let team = record.team.as_ref().map(Name::as_str);
    let text = match team {
        Some(team) => format!("{} is in team:{team}.", record.id),
        None => format!("{} is in no team.", record.id),
    };
    Ok(Answer::new(text, json!({ "agent": record.id.to_string(), "team": team })))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AssignRole {
    /// Its name.
    agent: String,
    /// lead, coder 1, coder 2, reviewer, tester, researcher, execution, or none.
    role: String,
}

pub(super) async fn assign_role(ctx: &ToolContext<'_>, input: AssignRole) -> Outcome {
    ctx.me()?;
    let record = actions::assign_role(ctx.workspace, &input.agent, &input.role)
        .await
        .map_err(|error| ToolError::of("assign_role", error))?;
    let text = match &record.role {
        Some(role) => format!("{} has the role {role}.", record.id),
        None => format!("{} has no role.", record.id),
    };
    Ok(Answer::new(text, json!({ "agent": record.id.to_string(), "role": record.role })))
}
