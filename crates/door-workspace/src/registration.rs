//! Registration of terminals and chat agents, with their records in `state.json`.
//!
//! The records follow the protocol's section "Agent Registration". Keys of other programs are retained. Role, team and
//! workflow survive a second registration.

use serde_json::{Map, Value, json};
use switchboard_core::{AgentRecord, Directory, Door, Name};
use switchboard_hub::Registration;
use switchboard_sys::platform;
use switchboard_sys::process_identity::ProcessIdentity;

use crate::error::WorkspaceError;
use crate::mailbox::merge_spellings;
use crate::roles::Role;
use crate::state::{OWNER, find, remove_record, text, touch_record, write_agent, write_teams};
use crate::terminal::{PANES, Pane, pane_key};
use crate::translate::iso;
use crate::tree::Section;
use crate::workspace::{Workspace, blocking};

/// Maximum length of a text in a record, in bytes; longer texts are refused.
const MAX_TITLE: usize = 500;

/// A terminal to register.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TerminalRegistration {
    /// Name of the agent.
    pub name: Name,
    /// Id of the process that runs in the terminal.
    pub pid: u32,
    /// Purpose of the terminal: `coding`, `review` …
    pub purpose: String,
    /// The agent's role.
    pub role: Option<String>,
    /// Display name; defaults to the agent's name.
    pub friendly_name: Option<String>,
    /// Icon colour; the default depends on the purpose.
    pub color: Option<String>,
    /// Icon; the default depends on the purpose.
    pub icon: Option<String>,
    /// The agent's team.
    pub team: Option<Name>,
    /// True if the process is on another machine or in a container.
    ///
    /// `pid` is then meaningless on this machine.
    pub external: bool,
    /// The tmux pane of the terminal: `%7`, or `session:window.pane`.
    pub pane: Option<String>,
    /// The process whose exit, for any reason, ends the terminal.
    pub owner: Option<ProcessIdentity>,
}

/// A chat agent to register.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatRegistration {
    /// Name of the agent.
    pub name: Name,
    /// The program in which the agent chats.
    pub interface: String,
    /// Capabilities of the agent; the default is `chat`.
    pub capabilities: Vec<String>,
    /// The agent's role.
    pub role: Option<String>,
    /// Display name; defaults to the agent's name.
    pub friendly_name: Option<String>,
    /// The agent's team.
    pub team: Option<Name>,
}

impl TerminalRegistration {
    /// Creates a terminal registration without optional fields.
    pub fn new(name: Name, pid: u32, purpose: impl Into<String>) -> Self {
        Self {
            name,
            pid,
            purpose: purpose.into(),
            role: None,
            friendly_name: None,
            color: None,
            icon: None,
            team: None,
            external: false,
            pane: None,
            owner: None,
        }
    }
}

impl ChatRegistration {
    /// Creates a chat registration without optional fields.
    pub fn new(name: Name, interface: impl Into<String>) -> Self {
        Self {
            name,
            interface: interface.into(),
            capabilities: Vec::new(),
            role: None,
            friendly_name: None,
            team: None,
        }
    }
}

impl Workspace {
    /// Registers a terminal with the hub and in `state.json`.
    ///
    /// The terminal's process must be running, unless the terminal is external.
    pub async fn register_terminal(&self, new: TerminalRegistration) -> Result<AgentRecord, WorkspaceError> {
        check_title("purpose", &new.purpose)?;
        for (field, value) in
            [("friendlyName", &new.friendly_name), ("color", &new.color), ("icon", &new.icon)]
        {
            value.as_deref().map_or(Ok(()), |value| check_title(field, value))?;
        }
        if let Some(pane) = &new.pane {
            Pane::parse(pane)?;
        }
        let process = Process::of(&new)?;
        let registration = Registration {
            role: parse_role(new.role.as_deref())?,
            team: new.team.clone(),
            ..Registration::mailbox(new.name.clone())
        };
        let now = iso(self.hub().now());
        let pane = new.pane.clone();
        let record = self
            .put_record(registration, move |state, name| {
                let old = remove_record(state, "terminals", name)
                    .or_else(|| remove_record(state, "chatAgents", name));
                let record = terminal_record(&new, name, &process, old, &now);
                insert(state, "terminals", name, record);
            })
            .await?;
        if let Some(pane) = pane {
            let key = pane_key(&record.id);
            self.hub().notes(Door::Workspace).edit(move |notes| notes.put(PANES, &key, Some(&pane))).await?;
        }
        Ok(record)
    }

    /// Registers a chat agent with the hub and in `state.json`.
    ///
    /// A terminal that also chats remains registered as a terminal.
    pub async fn register_chat_agent(&self, new: ChatRegistration) -> Result<AgentRecord, WorkspaceError> {
        check_title("interface", &new.interface)?;
        new.friendly_name.as_deref().map_or(Ok(()), |value| check_title("friendlyName", value))?;
        for capability in &new.capabilities {
            check_title("capabilities", capability)?;
        }
        let registration = Registration {
            role: parse_role(new.role.as_deref())?,
            team: new.team.clone(),
            ..Registration::mailbox(new.name.clone())
        };
        let now = iso(self.hub().now());
        let record = self
            .put_record(registration, move |state, name| {
                if let Some(("terminals", record)) = find(state, name) {
                    put_chat_fields(record, &new);
                    touch_record(record, &now);
                    return;
                }
                let old = remove_record(state, "chatAgents", name);
                let record = chat_record(&new, name, old, &now);
                insert(state, "chatAgents", name, record);
            })
            .await?;
        self.hub().agents().announce(record.id.clone(), "active", None);
        Ok(record)
    }

    /// Registers an agent with the hub, then writes the agent's record to `state.json`.
    ///
    /// The hub validates the registration before the record is written.
    async fn put_record(
        &self,
        registration: Registration,
        write: impl FnOnce(&mut Map<String, Value>, &Name) + Send + 'static,
    ) -> Result<AgentRecord, WorkspaceError> {
        let record = self.hub().agents().register(registration).await?;
        let directory = self.hub().directory().await?;
        let (tree, state, agent) = (self.tree().clone(), self.state().clone(), record.clone());
        blocking(move || {
            tree.create_own_folder(Section::Inbox, &agent.id.name)?;
            merge_spellings(&tree, &agent.id.name)?;
            state.update(|state| {
                write(state, &agent.id.name);
                write_roles_and_teams(state, &agent, &directory);
                true
            })
        })
        .await?;
        Ok(record)
    }
}

/// Parses a role into its canonical spelling.
///
/// The role can then be used as a recipient.
pub(crate) fn parse_role(text: Option<&str>) -> Result<Option<String>, WorkspaceError> {
    let role = text.map(Role::parse).transpose()?.flatten();
    Ok(role.map(|role| role.to_string()))
}

/// Writes the hub's role, team and team members of an agent into `state.json`.
fn write_roles_and_teams(state: &mut Map<String, Value>, agent: &AgentRecord, directory: &Directory) {
    write_agent(state, agent);
    write_teams(state, directory);
}

/// Process of a terminal, as stored in its record.
struct Process {
    started_at: Option<String>,
    /// Start time of the process, which distinguishes it from a later process with the same pid. Empty if unknown.
    mark: String,
}

impl Process {
    fn of(new: &TerminalRegistration) -> Result<Self, WorkspaceError> {
        let bad = |problem: String| WorkspaceError::Field { field: "pid", problem };
        if new.pid == 0 {
            return Err(bad("is 0; give the id of the process in the terminal".into()));
        }
        if new.external {
            return Ok(Self { started_at: None, mark: String::new() });
        }
        let Some(mark) = platform::process_started(new.pid) else {
            return Err(bad(format!(
                "is {}, and no such process runs here; give the id of the process in the terminal, or set 'external' if it runs elsewhere",
                new.pid
            )));
        };
        let started_at = platform::process_start_time(new.pid).map(iso);
        Ok(Self { started_at, mark: mark.to_string() })
    }
}

/// Checks that a text for the roster is short and on one line.
pub fn check_title(field: &'static str, value: &str) -> Result<(), WorkspaceError> {
    let problem = if value.trim().is_empty() {
        "is empty; give it a value".to_owned()
    } else if value.len() > MAX_TITLE {
        format!("has {} bytes and the limit is {MAX_TITLE}; shorten it", value.len())
    } else if value.chars().any(char::is_control) {
        "holds a control character; use plain text on one line".to_owned()
    } else {
        return Ok(());
    };
    Err(WorkspaceError::Field { field, problem })
}

fn insert(state: &mut Map<String, Value>, section: &str, name: &Name, record: Map<String, Value>) {
    if let Some(records) = state.get_mut(section).and_then(Value::as_object_mut) {
        records.insert(name.to_string(), Value::Object(record));
    }
}

fn terminal_record(
    new: &TerminalRegistration,
    name: &Name,
    process: &Process,
    old: Option<Value>,
    now: &str,
) -> Map<String, Value> {
    let mut record = object(old);
    let was_terminal = record.get("type").is_none() && record.contains_key("pid");
    // The existing icon belongs to a chat agent or another purpose, so replace it.
    if !was_terminal || text(&record, "purpose").as_deref() != Some(&new.purpose) {
        for key in ["type", "icon", "color"] {
            record.remove(key);
        }
    }
    let (icon, color) = icon_and_color(&new.purpose);
    set(&mut record, "friendlyName", new.friendly_name.as_deref(), name.as_str());
    set(&mut record, "icon", new.icon.as_deref(), icon);
    set(&mut record, "color", new.color.as_deref(), color);
    fill_in(&mut record, json!({ "role": "none", "childPid": null, "commandId": null, "ideName": null }));
    let fresh = json!({
        "purpose": new.purpose, "pid": new.pid, "startTime": process.started_at.as_deref().unwrap_or(now),
        "processStart": process.mark, "status": "active", "lastSeen": now, "external": new.external,
    });
    record.extend(object(Some(fresh)));
    for key in ["statusState", "statusMessage", "statusUpdatedAt"] {
        record.remove(key);
    }
    for (key, value) in
        [("pane", new.pane.clone()), (OWNER, new.owner.as_ref().map(ProcessIdentity::to_string))]
    {
        match value {
            Some(value) => drop(record.insert(key.into(), value.into())),
            None => drop(record.remove(key)),
        }
    }
    fill_in(&mut record, workflow_fields());
    record
}

fn chat_record(new: &ChatRegistration, name: &Name, old: Option<Value>, now: &str) -> Map<String, Value> {
    let mut record = object(old);
    put_chat_fields(&mut record, new);
    set(&mut record, "friendlyName", new.friendly_name.as_deref(), name.as_str());
    record.extend(object(Some(json!({ "type": "chat", "status": "active", "lastSeen": now }))));
    fill_in(
        &mut record,
        json!({
            "role": "none", "statusMessage": null, "icon": "comment-discussion", "color": "purple",
            "registeredAt": now,
        }),
    );
    fill_in(&mut record, workflow_fields());
    record
}

fn put_chat_fields(record: &mut Map<String, Value>, new: &ChatRegistration) {
    record.insert("interface".into(), new.interface.as_str().into());
    if !new.capabilities.is_empty() {
        record.insert("capabilities".into(), new.capabilities.clone().into());
    }
    fill_in(record, json!({ "capabilities": ["chat"] }));
    if let Some(friendly) = &new.friendly_name {
        record.insert("friendlyName".into(), friendly.as_str().into());
    }
}

/// Builds the workflow fields of an agent without an active workflow.
fn workflow_fields() -> Value {
    json!({
        "activeWorkflow": null, "currentStep": 0, "activeWorkflowPhase": 0, "activePersona": null,
        "workflowToolInvocations": [],
    })
}

/// Returns the icon and colour for a terminal's purpose.
fn icon_and_color(purpose: &str) -> (&'static str, &'static str) {
    let purpose = purpose.to_ascii_lowercase();
    if purpose.contains("review") {
        ("eye", "orange")
    } else if purpose.contains("jules") {
        ("rocket", "purple")
    } else if purpose.contains("coding") {
        ("code", "blue")
    } else {
        ("terminal", "cyan")
    }
}

fn object(value: Option<Value>) -> Map<String, Value> {
    match value {
        Some(Value::Object(map)) => map,
        _ => Map::new(),
    }
}

/// Sets a key to the given value.
///
/// If no value is given and the key is missing, sets the default.
fn set(record: &mut Map<String, Value>, key: &str, value: Option<&str>, default: &str) {
    match value {
        Some(value) => drop(record.insert(key.to_owned(), value.into())),
        None => fill_in(record, json!({ key: default })),
    }
}

fn fill_in(record: &mut Map<String, Value>, defaults: Value) {
    for (key, value) in object(Some(defaults)) {
        record.entry(key).or_insert(value);
    }
}

#[cfg(test)]
#[path = "registration_tests.rs"]
mod tests;
