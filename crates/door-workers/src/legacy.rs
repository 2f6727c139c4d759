//! Legacy dialect of the protocol (`swarm_launch` and related commands), translated at the edge of a session.
//!
//! This module translates legacy commands into current ones, and [`translate_lines`] translates current events into
//! legacy ones. The behaviour follows the existing clients: what each command sends, which events a client waits for,
//! and which event ends the wait. `fixtures/router/older.ndjson` contains these exchanges as frames.

mod events;

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

pub(crate) use self::events::translate_lines;
use crate::intake::{bad_field, parse_payload, reject};
use crate::wire::PROTOCOL;
use crate::wire::command::{AgentKind, Command, EmptyPayload};
use crate::wire::event::{
    CommandRejected, ProjectList, Provider, ProviderField, ProviderOption, ProvidersList, RejectCode,
};

/// The only provider, by the name that clients of the legacy dialect use.
pub(crate) const PROVIDER: &str = "local";

/// Dialect of a client, as known before the client's next line is read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LegacyMode {
    /// The client has used the legacy dialect: all later lines are parsed and answered in it.
    pub(crate) is_legacy: bool,
    /// The client connected without a token: only the legacy dialect is accepted.
    pub(crate) is_restricted: bool,
}

/// Returns true for a command of the legacy dialect.
pub(crate) fn is_legacy_command(command: &str, payload: Option<&Value>) -> bool {
    match command {
        "swarm_launch" | "swarm_list" | "swarm_status" | "swarm_terminate" | "approve_execution"
        | "providers_list" => true,
        "inject" => payload.is_some_and(|payload| payload.get("swarm_id").is_some()),
        _ => is_legacy_only(command),
    }
}

/// Returns true for a command that exists only in the legacy dialect. This router rejects all of them as unknown except
/// `project_list`.
fn is_legacy_only(command: &str) -> bool {
    command == "enqueue_inject" || command.starts_with("project_")
}

/// Returns true if a line has a command of the legacy dialect, even if its other fields are invalid.
pub(crate) fn has_legacy_command(line: &[u8]) -> bool {
    let Ok(line) = serde_json::from_slice::<Value>(line) else { return false };
    let command = line.get("command").and_then(Value::as_str).unwrap_or_default();
    line.get("protocol").is_some_and(|protocol| protocol == PROTOCOL)
        && is_legacy_command(command, line.get("payload"))
}

/// Returns true for a command that has the same name in both dialects.
pub(crate) fn is_shared(command: &str) -> bool {
    matches!(command, "queue_list" | "approvals_list")
}

/// Parses a legacy command, or `inject` in either dialect; returns `None` for any other command.
pub(crate) fn parse_command(
    command: &str,
    payload: &Map<String, Value>,
    mode: LegacyMode,
) -> Result<Option<Command>, CommandRejected> {
    Ok(Some(match command {
        "swarm_launch" => Command::Launch(Box::new(parse_payload(launch(payload, mode)?)?)),
        "swarm_list" => Command::JobsList(EmptyPayload {}),
        "swarm_status" => Command::JobStatus(parse_payload(payload.clone())?),
        "swarm_terminate" => Command::Terminate(parse_payload(payload.clone())?),
        "approve_execution" => Command::Approve(parse_payload(approve(payload)?)?),
        "providers_list" => Command::ProvidersList(EmptyPayload {}),
        "project_list" => Command::ProjectList(EmptyPayload {}),
        "inject" => Command::Inject(parse_payload(inject(payload))?),
        _ => return Ok(None),
    }))
}

/// Pairs of current and legacy field name.
type Names = &'static [(&'static str, &'static str)];

/// Returns the legacy name of a command whose legacy fields have different names.
pub(crate) fn legacy_name(command: &Command) -> &'static str {
    if matches!(command, Command::Launch(_)) { "swarm_launch" } else { "" }
}

/// Returns the pairs of current and legacy field names of a command.
fn names(command: &str) -> Names {
    match command {
        "swarm_launch" => &[
            ("job_id", "swarm_id"),
            ("prompt", "system_prompt"),
            ("instructions", "agents_md_content"),
            ("agent", "provider_params.worker_mode"),
            ("model", "provider_params.model"),
            ("sandbox", "provider_params.sandbox_mode"),
            ("approval_policy", "provider_params.approval_policy"),
        ],
        _ => &[("job_id", "swarm_id"), ("approval_id", "call_id"), ("instructions", "system_prompt")],
    }
}

/// Merges fields that are given under both names. Equal values become one field; different values are rejected.
pub(crate) fn merge_aliases(command: &str, payload: &mut Map<String, Value>) -> Result<(), CommandRejected> {
    for (ours, theirs) in names(command) {
        if !payload.contains_key(*ours) {
            continue;
        }
        if let Some(value) = payload.remove(*theirs)
            && payload.get(*ours) != Some(&value)
        {
            return Err(bad_field(format!("payload.{theirs}"), &format!("it differs from {ours}")));
        }
    }
    Ok(())
}

/// Translates a rejection into the legacy dialect.
///
/// The translated rejection names the field as the client spelled it. For an unknown job, the legacy text is used,
/// because a client compares it.
pub(crate) fn translate_rejection(command: &str, rejected: CommandRejected) -> CommandRejected {
    let Some(field) = &rejected.field else { return rejected };
    let ours = field.strip_prefix("payload.");
    let Some((_, theirs)) = names(command).iter().find(|(known, _)| ours == Some(*known)) else {
        return rejected;
    };
    let theirs = format!("payload.{theirs}");
    let reason = match rejected.reason.strip_prefix(field.as_str()) {
        _ if rejected.code == RejectCode::UnknownJob => "unknown swarm_id".to_owned(),
        Some(rest) => format!("{theirs}{rest}"),
        None => rejected.reason.clone(),
    };
    CommandRejected { reason, field: Some(theirs), ..rejected }
}

/// Translates a launch. A `system_prompt` that is not blank becomes the first prompt of every node.
fn launch(payload: &Map<String, Value>, mode: LegacyMode) -> Result<Map<String, Value>, CommandRejected> {
    const LEGACY_FIELDS: [&str; 5] =
        ["system_prompt", "agents_md_content", "agents_bundle", "provider", "provider_params"];
    let is_native = |key: &str| {
        let is_legacy = LEGACY_FIELDS.contains(&key);
        !is_legacy && (key == "nodes" || !mode.is_restricted)
    };
    let mut launch: Map<_, _> = payload
        .iter()
        .filter(|(key, _)| is_native(key))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    if let Some(provider) = payload.get("provider").filter(|provider| !provider.is_null())
        && provider != PROVIDER
    {
        let problem = format!("there is no provider {provider}; omit it, or write \"{PROVIDER}\"");
        return Err(bad_field("payload.provider".to_owned(), &problem));
    }
    let is_blank = |text: &Value| text.is_null() || text.as_str().is_some_and(|text| text.trim().is_empty());
    if let Some(prompt) = payload.get("system_prompt").filter(|prompt| !is_blank(prompt)) {
        launch.entry("prompt").or_insert_with(|| prompt.clone());
    }
    if let Some(instructions) = instructions(payload)?.filter(|text| !is_blank(text)) {
        launch.entry("instructions").or_insert(instructions);
    }
    let parameters = payload.get("provider_params").and_then(Value::as_object);
    let parameter = |name: &str| parameters.and_then(|parameters| parameters.get(name)).cloned();
    let kind = parameter("worker_mode").or_else(|| parameter("agent_runtime"));
    let kind = match kind {
        Some(kind) if kind == "mock" => json!(AgentKind::Echo.as_str()),
        Some(kind) => kind,
        None => json!(AgentKind::Codex.as_str()),
    };
    let agent = launch.entry("agent").or_insert(kind).clone();
    let model = parameter("model").or_else(|| parameter("claude_model").filter(|_| agent == "claude"));
    if let Some(model) = model {
        launch.entry("model").or_insert(model);
    }
    for (theirs, ours) in [("sandbox_mode", "sandbox"), ("approval_policy", "approval_policy")] {
        let Some(value) = parameter(theirs) else { continue };
        if mode.is_restricted {
            let field = format!("payload.provider_params.{theirs}");
            let reason =
                format!("{field}: a client without a token cannot set it; the agent's own settings decide");
            return Err(reject(RejectCode::NotAllowed, Some(&field), reason));
        }
        launch.entry(ours).or_insert(value);
    }
    Ok(launch)
}

/// Returns the text of the `AGENTS.md` in a launch.
fn instructions(payload: &Map<String, Value>) -> Result<Option<Value>, CommandRejected> {
    let bundle = payload.get("agents_bundle");
    let skills = bundle.and_then(|bundle| bundle.get("skills_files")).and_then(Value::as_array);
    if skills.is_some_and(|skills| !skills.is_empty()) {
        let field = "payload.agents_bundle.skills_files".to_owned();
        return Err(bad_field(
            field,
            "skills are not supported here; put them into the agent's own folder for skills",
        ));
    }
    let of_bundle = bundle.and_then(|bundle| bundle.get("agents_md_content"));
    Ok(of_bundle.or_else(|| payload.get("agents_md_content")).cloned())
}

/// Translates an injection; without a node, the injection goes to all nodes.
fn inject(payload: &Map<String, Value>) -> Map<String, Value> {
    let mut inject = payload.clone();
    if !inject.contains_key("node_id") && inject.contains_key("swarm_id") {
        inject.entry("nodes").or_insert_with(|| json!("all"));
    }
    inject
}

/// Translates a decision on an approval. If `decision` is not a known value, `approved` decides.
fn approve(payload: &Map<String, Value>) -> Result<Map<String, Value>, CommandRejected> {
    const DECISIONS: [(&str, &str); 11] = [
        ("accept", "accept"),
        ("approve", "accept"),
        ("approved", "accept"),
        ("accept_for_session", "accept_for_session"),
        ("acceptForSession", "accept_for_session"),
        ("approved_for_session", "accept_for_session"),
        ("decline", "decline"),
        ("deny", "decline"),
        ("denied", "decline"),
        ("cancel", "cancel"),
        ("abort", "cancel"),
    ];
    let mut approve = payload.clone();
    let text = payload.get("decision").and_then(Value::as_str);
    let known = DECISIONS.iter().find(|(theirs, _)| text == Some(*theirs)).map(|(_, ours)| *ours);
    let approved = payload.get("approved");
    let decision = match (known, approved.and_then(Value::as_bool)) {
        (Some(known), _) => known,
        (None, Some(true)) => "accept",
        (None, Some(false)) => "decline",
        // The parser of the current command reports what is wrong with the value.
        (None, None) if approved.is_none() && payload.contains_key("decision") => return Ok(approve),
        (None, None) => return Err(bad_field("payload.approved".to_owned(), "must be true or false")),
    };
    approve.insert("decision".to_owned(), json!(decision));
    Ok(approve)
}

/// Returns the launch options of `providers_list`.
pub(crate) fn providers(request_id: String) -> ProvidersList {
    let option = |kind: AgentKind| ProviderOption { label: kind.as_str().to_owned(), value: kind };
    let worker_mode = ProviderField {
        key: "worker_mode".to_owned(),
        label: "Agent".to_owned(),
        kind: "select".to_owned(),
        default: AgentKind::Codex.as_str().to_owned(),
        options: AgentKind::ALL.map(option).to_vec(),
    };
    let local = Provider {
        id: PROVIDER.to_owned(),
        label: "Switchboard".to_owned(),
        backend: PROVIDER.to_owned(),
        defaults: [("worker_mode".to_owned(), AgentKind::Codex.as_str().to_owned())].into(),
        launch_fields: vec![worker_mode],
    };
    ProvidersList { request_id, providers: vec![local] }
}

/// Returns the answer to `project_list`: this router has no projects.
pub(crate) fn no_projects(request_id: String) -> ProjectList {
    ProjectList { request_id, projects: BTreeMap::new() }
}

#[cfg(test)]
#[path = "legacy_tests.rs"]
mod tests;
