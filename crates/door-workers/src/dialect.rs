//! The words of the older router, `swarm_launch` and its kin, in ours.

use serde_json::{Map, Value, json};

use crate::intake::{bad_field, typed};
use crate::wire::command::{Command, Nothing};
use crate::wire::event::CommandRejected;

/// Whether a command is in the older router's words: then its answers are as well.
pub(crate) fn is_dialect(command: &str, payload: Option<&Value>) -> bool {
    match command {
        "swarm_launch" | "swarm_list" | "swarm_status" | "swarm_terminate" | "approve_execution" => true,
        "inject" => payload.is_some_and(|payload| payload.get("swarm_id").is_some()),
        _ => false,
    }
}

/// A command in the older router's words; nothing where it is in ours.
pub(crate) fn read(command: &str, payload: &Map<String, Value>) -> Result<Option<Command>, CommandRejected> {
    Ok(Some(match command {
        "swarm_launch" => Command::Launch(Box::new(typed(launch(payload))?)),
        "swarm_list" => Command::JobsList(Nothing {}),
        "swarm_status" => Command::JobStatus(typed(payload.clone())?),
        "swarm_terminate" => Command::Terminate(typed(payload.clone())?),
        "approve_execution" => Command::Approve(typed(approve(payload)?)?),
        _ => return Ok(None),
    }))
}

/// What both routers have, and by other names: ours and theirs.
const NAMES: [(&str, &str); 3] =
    [("job_id", "swarm_id"), ("approval_id", "call_id"), ("instructions", "system_prompt")];

/// Makes one of what is said in both routers' words, as long as it is the same.
pub(crate) fn unite(payload: &mut Map<String, Value>) -> Result<(), CommandRejected> {
    for (ours, theirs) in NAMES {
        if !payload.contains_key(ours) {
            continue;
        }
        if let Some(said) = payload.remove(theirs)
            && payload.get(ours) != Some(&said)
        {
            return Err(bad_field(format!("payload.{theirs}"), &format!("it is not the same as {ours}")));
        }
    }
    Ok(())
}

/// A rejection for whoever speaks the older router's words: it names the field as they do.
pub(crate) fn reworded(rejected: CommandRejected) -> CommandRejected {
    let Some(field) = &rejected.field else { return rejected };
    let ours = field.strip_prefix("payload.");
    let Some((_, theirs)) = NAMES.iter().find(|(known, _)| ours == Some(*known)) else { return rejected };
    let theirs = format!("payload.{theirs}");
    let reason = match rejected.reason.strip_prefix(field.as_str()) {
        Some(rest) => format!("{theirs}{rest}"),
        None => rejected.reason.clone(),
    };
    CommandRejected { reason, field: Some(theirs), ..rejected }
}

/// Which agent it is stood among the parameters of the provider, `codex` where it did not.
fn launch(payload: &Map<String, Value>) -> Map<String, Value> {
    let mut launch = payload.clone();
    let parameters = payload.get("provider_params");
    let mode = parameters.and_then(|parameters| parameters.get("worker_mode"));
    launch.entry("agent").or_insert_with(|| mode.cloned().unwrap_or_else(|| json!("codex")));
    launch
}

/// A yes or no, where ours has four answers.
fn approve(payload: &Map<String, Value>) -> Result<Map<String, Value>, CommandRejected> {
    let mut approve = payload.clone();
    if !approve.contains_key("decision") {
        let Some(yes) = payload.get("approved").and_then(Value::as_bool) else {
            return Err(bad_field("payload.approved".to_owned(), "must be true or false"));
        };
        approve.insert("decision".to_owned(), json!(if yes { "accept" } else { "decline" }));
    }
    Ok(approve)
}

#[cfg(test)]
#[path = "dialect_tests.rs"]
mod tests;
