//! Records of state.json: agents and teams as JSON objects.

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use switchboard_core::{AgentRecord, Directory, Name, OFFLINE};
use switchboard_sys::process_identity::ProcessIdentity;

use super::{HEARTBEAT_INTERVAL, OWNER};
use crate::translate::{iso, time_of};

/// State of one agent in `state.json`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentState {
    /// Name of the agent.
    pub name: Name,
    /// Role of the agent.
    pub role: Option<String>,
    /// Team of the agent.
    pub team: Option<Name>,
    /// Status that the agent reported.
    pub status: Option<String>,
    /// Text that the agent reported with the status.
    pub message: Option<String>,
    /// Time of the agent's last heartbeat.
    pub last_seen: Option<Timestamp>,
}

/// Returns true if an agent's record shows no recent heartbeat.
pub(crate) fn is_heartbeat_due(state: &Map<String, Value>, name: &Name, now: Timestamp) -> bool {
    let Some(record) = record(state, name) else { return false };
    let agent = agent(name.clone(), record);
    // An agent that reported offline and then returned must not stay offline.
    agent.status.as_deref() == Some(OFFLINE)
        || agent.last_seen.is_none_or(|at| now.duration_since(at) >= HEARTBEAT_INTERVAL)
}

/// Finds a section of the file that has the wrong JSON type.
///
/// Each section that Switchboard writes must be an object of records.
pub(super) fn misshapen(state: &Map<String, Value>) -> Option<&'static str> {
    let fits = |section: &&str| matches!(state.get(*section), None | Some(Value::Null | Value::Object(_)));
    ["session", "terminals", "chatAgents", "teams"].into_iter().find(|section| !fits(section))
}

/// Fills missing keys with the protocol's initial state.
pub(super) fn fill_in(state: &mut Map<String, Value>) {
    let first = json!({
        "session": {
            "id": null, "activeWorkflow": null, "suspendedWorkflows": [], "status": "IDLE", "startTime": null,
            "activePersona": null, "currentStep": 0, "activeWorkflowPhase": 0, "workflowToolInvocations": [],
        },
        "context": {}, "tasks": [], "terminals": {}, "chatAgents": {}, "teams": {},
    });
    if let Value::Object(first) = first {
        for (key, value) in first {
            let member = state.entry(key).or_insert(Value::Null);
            if member.is_null() {
                *member = value;
            }
        }
    }
}

pub(crate) fn objects<'s>(
    state: &'s Map<String, Value>,
    section: &str,
) -> impl Iterator<Item = (&'s String, &'s Map<String, Value>)> {
    let records = state.get(section).and_then(Value::as_object);
    records.into_iter().flatten().filter_map(|(name, record)| Some((name, record.as_object()?)))
}

pub(super) fn agent(name: Name, record: &Map<String, Value>) -> AgentState {
    let own = (text(record, "statusState").or_else(|| text(record, "status")), text(record, "statusMessage"));
    let (status, message) = match own {
        // An agent whose process was killed could not report offline.
        (status, _) if status.as_deref() != Some(OFFLINE) && has_ended_owner(record) => {
            (Some(OFFLINE.to_owned()), Some("its terminal was killed".to_owned()))
        }
        own => own,
    };
    AgentState {
        name,
        role: text(record, "role").filter(|role| role != "none"),
        team: text(record, "team").and_then(|team| Name::parse(&team).ok()),
        status,
        message,
        last_seen: time(record, "lastSeen"),
    }
}

/// Returns true if the owner process of an agent's terminal has exited.
fn has_ended_owner(record: &Map<String, Value>) -> bool {
    let owner = record.get(OWNER).and_then(Value::as_str);
    owner.and_then(|owner| owner.parse::<ProcessIdentity>().ok()).is_some_and(|owner| owner.has_exited())
}

/// Records a heartbeat in an agent's record.
///
/// A heartbeat after the terminal ended shows that the agent runs elsewhere, so the owner is removed.
pub(crate) fn touch_record(record: &mut Map<String, Value>, now: &str) {
    record.insert("lastSeen".into(), now.into());
    if has_ended_owner(record) {
        record.remove(OWNER);
    }
}

/// Returns a field of a record as text, if the field contains text.
pub fn text(record: &Map<String, Value>, key: &str) -> Option<String> {
    record.get(key)?.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

/// Parses a timestamp: ISO 8601, or milliseconds since 1970 as in JavaScript.
pub(super) fn time(record: &Map<String, Value>, key: &str) -> Option<Timestamp> {
    match record.get(key)? {
        Value::String(text) => time_of(text),
        Value::Number(millis) => Timestamp::from_millisecond(millis.as_i64()?).ok(),
        _ => None,
    }
}

/// Returns an agent's record.
pub fn record<'s>(state: &'s Map<String, Value>, name: &Name) -> Option<&'s Map<String, Value>> {
    ["terminals", "chatAgents"].into_iter().find_map(|section| {
        let key = spelling(state, section, name)?;
        state.get(section)?.get(&key)?.as_object()
    })
}

/// Returns an agent's record for modification, with the record's section.
pub(crate) fn find<'s>(
    state: &'s mut Map<String, Value>,
    name: &Name,
) -> Option<(&'static str, &'s mut Map<String, Value>)> {
    let section =
        ["terminals", "chatAgents"].into_iter().find(|section| spelling(state, section, name).is_some())?;
    let key = spelling(state, section, name)?;
    state.get_mut(section)?.get_mut(&key)?.as_object_mut().map(|record| (section, record))
}

pub(crate) fn remove_record(state: &mut Map<String, Value>, section: &str, name: &Name) -> Option<Value> {
    let key = spelling(state, section, name)?;
    state.get_mut(section)?.as_object_mut()?.remove(&key)
}

/// Returns the spelling of a name in a section of the file.
///
/// Names that differ only in case are equal.
fn spelling(state: &Map<String, Value>, section: &str, name: &Name) -> Option<String> {
    let records = state.get(section)?.as_object()?;
    records.keys().find(|key| key.eq_ignore_ascii_case(name.as_str())).cloned()
}

/// Writes all local agents and all teams of the hub into the state.
pub(super) fn write_all(state: &mut Map<String, Value>, directory: &Directory) {
    for agent in directory.agents().filter(|agent| agent.id.realm.is_none()) {
        write_agent(state, agent);
    }
    write_teams(state, directory);
}

/// Writes an agent's record.
///
/// A registration is not a heartbeat: `lastSeen` stays empty until the first heartbeat.
pub(crate) fn write_agent(state: &mut Map<String, Value>, agent: &AgentRecord) {
    let name = &agent.id.name;
    if find(state, name).is_none() {
        let record = json!({
            "type": "chat", "interface": "cli", "role": "none", "status": "active", "statusMessage": null,
            "capabilities": ["chat"], "friendlyName": name.as_str(), "icon": "comment-discussion",
            "color": "purple", "registeredAt": iso(agent.registered_at), "lastSeen": null,
            "activeWorkflow": null, "currentStep": 0, "activeWorkflowPhase": 0, "activePersona": null,
            "workflowToolInvocations": [],
        });
        if let Some(agents) = state.get_mut("chatAgents").and_then(Value::as_object_mut) {
            agents.insert(name.to_string(), record);
        }
    }
    if let Some((_, record)) = find(state, name) {
        if let Some(role) = &agent.role {
            record.insert("role".into(), role.as_str().into());
        }
        match &agent.team {
            Some(team) => drop(record.insert("team".into(), team.as_str().into())),
            None => drop(record.remove("team")),
        }
    }
}

/// Writes every team of the hub with its members.
///
/// Other keys in a team's record are retained.
pub(crate) fn write_teams(state: &mut Map<String, Value>, directory: &Directory) {
    let Some(teams) = state.get_mut("teams").and_then(Value::as_object_mut) else { return };
    for team in directory.teams() {
        let members: Vec<&str> = directory.members(&team.id).map(|agent| agent.id.name.as_str()).collect();
        let record = teams
            .entry(team.id.to_string())
            .or_insert_with(|| json!({ "capabilities": [], "createdAt": iso(team.created_at) }));
        if let Some(record) = record.as_object_mut() {
            record.insert("name".into(), team.title.as_str().into());
            record.insert("isComposite".into(), team.composite.into());
            record.insert("members".into(), members.into());
        }
    }
}
