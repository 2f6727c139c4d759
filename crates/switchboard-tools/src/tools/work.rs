//! Tools for task claims and file reservations.

use jiff::SignedDuration;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use switchboard_actions as actions;
use switchboard_hub::TaskClaim;

use super::ToolContext;
use crate::answer::{Answer, Outcome, ToolError};

pub(super) const CLAIM_TASK: &str = "Claim a task so that no other agent works on it. The claim expires; you get a \
     fence number.";

pub(super) const RENEW_CLAIM: &str =
    "Extend your claim. Refused if it has expired: then stop working on the task.";

pub(super) const RELEASE_CLAIM: &str = "Release your claim.";

pub(super) const RESERVE_FILES: &str = "Reserve files that you are about to change. Refused, with the holder, if they \
     overlap files of another agent.";

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ClaimTask {
    /// Its name; same for all agents.
    task: String,
    /// For how long [10].
    minutes: Option<u32>,
    /// One line about it.
    note: Option<String>,
    /// Across all linked hubs.
    everywhere: Option<bool>,
}

pub(super) async fn claim_task(ctx: &ToolContext<'_>, input: ClaimTask) -> Outcome {
    let me = ctx.me()?;
    let request = actions::Claim {
        task: input.task,
        lease: minutes_from("minutes", input.minutes)?,
        note: input.note,
        everywhere: input.everywhere.unwrap_or(false),
    };
    let claim =
        actions::claim(ctx.actor(me), request).await.map_err(|error| ToolError::of("claim_task", error))?;
    let (task, fence) = (claim.task.as_str(), claim.fence);
    let text = format!(
        "'{task}' is yours until {:.0}, fence {fence}. Renew it before that. A message with claim \
         \"{task}:{fence}\" is refused once it has ended.",
        claim.until,
    );
    Ok(Answer::new(text, object(&claim)))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RenewClaim {
    /// As you claimed it.
    task: String,
    /// The number from claim_task.
    fence: i64,
    /// For how long from now [as before].
    minutes: Option<u32>,
}

pub(super) async fn renew_claim(ctx: &ToolContext<'_>, input: RenewClaim) -> Outcome {
    let lease = minutes_from("minutes", input.minutes)?;
    let claim = actions::renew(ctx.actor(ctx.me()?), &input.task, input.fence, lease)
        .await
        .map_err(|error| ToolError::of("renew_claim", error))?;
    Ok(Answer::new(format!("'{}' is yours until {:.0}.", claim.task, claim.until), object(&claim)))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ReleaseClaim {
    /// As you claimed it.
    task: String,
    /// The number from claim_task.
    fence: i64,
}

pub(super) async fn release_claim(ctx: &ToolContext<'_>, input: ReleaseClaim) -> Outcome {
    let claim = actions::release(ctx.actor(ctx.me()?), &input.task, input.fence)
        .await
        .map_err(|error| ToolError::of("release_claim", error))?;
    Ok(Answer::new(format!("'{}' is free.", claim.task), object(&claim)))
}

fn object(claim: &TaskClaim) -> Value {
    json!({
        "task": claim.task.as_str(),
        "fence": claim.fence,
        "holder": claim.holder.to_string(),
        "until": claim.until.to_string(),
    })
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ReserveFiles {
    /// Files, folders or globs, relative to folder.
    paths: Vec<String>,
    /// For how long [30]; 0 releases them.
    minutes: Option<u32>,
    /// One line about it.
    note: Option<String>,
    /// Also in other worktrees of the repository.
    shared: Option<bool>,
    /// Where you work [the workspace].
    folder: Option<String>,
}

pub(super) async fn reserve_files(ctx: &ToolContext<'_>, input: ReserveFiles) -> Outcome {
    const TOOL: &str = "reserve_files";
    let actor = ctx.actor(ctx.me()?);
    let inner = ctx.workspace.tree().root().path();
    let workspace = inner.parent().unwrap_or(inner);
    let folder = match &input.folder {
        Some(folder) => workspace.join(folder),
        // A stdio server is started in the folder in which its client works.
        None => std::env::current_dir().unwrap_or_else(|_| workspace.to_owned()),
    };
    if input.minutes == Some(0) {
        let count = actions::release_reservations(actor, &folder, &input.paths)
            .await
            .map_err(|error| ToolError::of(TOOL, error))?;
        return Ok(Answer::new(format!("{count} released."), json!({ "released": count })));
    }
    let request = actions::Reserve {
        paths: input.paths,
        lease: minutes_from("minutes", input.minutes)?,
        note: input.note,
        shared: input.shared.unwrap_or(false),
    };
    let made = actions::reserve(actor, &folder, request).await.map_err(|error| ToolError::of(TOOL, error))?;
    let names: Vec<&str> = made.iter().map(|one| one.pattern.as_str()).collect();
    let until = made.first().map(|one| one.until.to_string());
    let text = format!("Reserved until {}: {}.", until.as_deref().unwrap_or("now"), names.join(", "));
    Ok(Answer::new(text, json!({ "patterns": names, "until": until })))
}

/// Parses a duration argument of at least one minute.
pub(super) fn minutes_from(argument: &str, value: Option<u32>) -> Result<Option<SignedDuration>, ToolError> {
    if value == Some(0) {
        return Err(ToolError::new(format!("The argument '{argument}' is 0 and must be at least 1"))
            .next("Omit it, or set it to at least 1."));
    }
    Ok(value.map(|minutes| SignedDuration::from_mins(minutes.into())))
}
