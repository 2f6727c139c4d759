//! `state.json`: agent state that is shared with other programs.
//!
//! Reads take no lock. Writes take the lock that Node's proper-lockfile uses and replace the whole file. Unknown keys
//! are retained. A file that is not JSON is moved aside and never overwritten.

mod read_cache;

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};
use switchboard_core::{AgentRecord, Directory, Name, NameError, OFFLINE, TeamRecord, describe_json_error};
use switchboard_hub::Hub;
use switchboard_sys::files::{Dir, FileStat, Moved};
use switchboard_sys::lock::{DirLock, LockOptions};
use switchboard_sys::process_identity::ProcessIdentity;

use self::read_cache::ReadCache;
use crate::error::WorkspaceError;
use crate::translate::{iso, time_of};

const FILE: &str = "state.json";

/// Key in a terminal's record: the process whose exit ends the terminal.
pub(crate) const OWNER: &str = "owner";

/// Larger than the state of any workspace; a larger file is rejected.
const LIMIT: u64 = 64 << 20;

/// Minimum interval between two heartbeats of an agent: each rewrites the file.
const HEARTBEAT_INTERVAL: SignedDuration = SignedDuration::from_mins(1);

/// A handle on the file.
#[derive(Clone)]
pub struct StateFile {
    root: Dir,
    read_cache: ReadCache,
    /// Source of the agents and teams when the file must be rebuilt.
    hub: Option<Hub>,
}

/// Agents and teams in the file, as far as the hub needs them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) agents: Vec<AgentState>,
    pub(crate) teams: Vec<TeamRecord>,
}

/// One agent in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentState {
    /// Its name.
    pub name: Name,
    /// Its role.
    pub role: Option<String>,
    /// Its team.
    pub team: Option<Name>,
    /// The status that it reported.
    pub status: Option<String>,
    /// The text that it reported with the status.
    pub message: Option<String>,
    /// Its last heartbeat.
    pub last_seen: Option<Timestamp>,
}

impl StateFile {
    pub(crate) fn new(root: Dir) -> Self {
        Self { root, read_cache: ReadCache::default(), hub: None }
    }

    /// Sets the hub whose agents and teams fill a file that must be rebuilt.
    pub(crate) fn with_hub(self, hub: Hub) -> Self {
        Self { hub: Some(hub), ..self }
    }

    /// Creates the file with the protocol's initial state, if there is none.
    pub fn create(&self) -> Result<(), WorkspaceError> {
        if self.root.stat(FILE)?.is_none() {
            self.update(|_| true)?;
        }
        Ok(())
    }

    /// Reads agents and teams without a lock: the file is always replaced as a whole.
    pub(crate) fn read(&self) -> Result<Known, WorkspaceError> {
        let state = self.read_all()?;
        let mut known = Known::default();
        for section in ["terminals", "chatAgents"] {
            for (name, record) in objects(&state, section) {
                match Name::parse(name) {
                    Ok(name) => known.agents.push(agent(name, record)),
                    // `inspect` reports it; a warning in every command would be noise.
                    Err(error) => {
                        tracing::debug!(section, name, error = %error, "an agent in state.json was skipped");
                    }
                }
            }
        }
        for (id, record) in objects(&state, "teams") {
            if let Ok(id) = Name::parse(id) {
                let title = text(record, "name").unwrap_or_else(|| id.to_string());
                let composite = record.get("isComposite").and_then(Value::as_bool).unwrap_or(false);
                let created_at = time(record, "createdAt").unwrap_or(Timestamp::UNIX_EPOCH);
                known.teams.push(TeamRecord { id, title, composite, created_at });
            }
        }
        Ok(known)
    }

    /// Lists entries whose name is no valid agent name, with the error.
    pub(crate) fn invalid_names(&self) -> Result<Vec<(String, NameError)>, WorkspaceError> {
        let state = self.read_all()?;
        let names = ["terminals", "chatAgents"].into_iter().flat_map(|section| objects(&state, section));
        Ok(names.filter_map(|(name, _)| Some((name.clone(), Name::parse(name).err()?))).collect())
    }

    /// Changes the file under the lock. Writes nothing if `change` returns false.
    ///
    /// Blocks while it waits for the lock, so do not call it on an async thread.
    pub fn update(&self, change: impl FnOnce(&mut Map<String, Value>) -> bool) -> Result<(), WorkspaceError> {
        self.update_with(LockOptions::default(), change)
    }

    fn update_with(
        &self,
        options: LockOptions,
        change: impl FnOnce(&mut Map<String, Value>) -> bool,
    ) -> Result<(), WorkspaceError> {
        self.change_with(options, |state| {
            Ok(if change(state) { Change::Write(()) } else { Change::Keep(()) })
        })
    }

    /// Changes the file under the lock, by a rule that may fail or return a value.
    pub(crate) fn change<T>(
        &self,
        change: impl FnOnce(&mut Map<String, Value>) -> Result<Change<T>, WorkspaceError>,
    ) -> Result<T, WorkspaceError> {
        self.change_with(LockOptions::default(), change)
    }

    fn change_with<T>(
        &self,
        options: LockOptions,
        change: impl FnOnce(&mut Map<String, Value>) -> Result<Change<T>, WorkspaceError>,
    ) -> Result<T, WorkspaceError> {
        let lock = DirLock::acquire(&self.root, FILE, options)?;
        let (mut state, is_new) = match self.load()? {
            Loaded::State(state) => (state, false),
            Loaded::Missing => (Map::new(), true),
            Loaded::Damaged { problem } => {
                let aside = self.quarantine()?;
                tracing::error!(%problem, moved_to = %aside, "state.json was damaged and was moved aside");
                (Map::new(), true)
            }
        };
        fill_in(&mut state);
        match change(&mut state)? {
            Change::Keep(answer) => Ok(answer),
            Change::Write(answer) => {
                // After the change, so that a newly registered agent gets the record that the change wrote.
                if let Some(hub) = self.hub.as_ref().filter(|_| is_new) {
                    write_all(&mut state, &*hub.directory_blocking()?);
                }
                let mut bytes = serde_json::to_vec_pretty(&state).unwrap_or_default();
                bytes.push(b'\n');
                // Another program took the lock over: it has read the old file, and one of the two writes would be
                // lost.
                if !lock.is_held() {
                    return Err(WorkspaceError::LockLost);
                }
                self.root.replace(FILE, &bytes, 0o600)?;
                Ok(answer)
            }
        }
    }

    /// Reads the whole file without a lock and fills missing keys with the protocol's initial state.
    pub(crate) fn read_all(&self) -> Result<Arc<Map<String, Value>>, WorkspaceError> {
        if let Some(state) = self.read_cached() {
            return Ok(state);
        }
        let (stamp, loaded) = self.load_stamped()?;
        let mut state = match loaded {
            Loaded::State(state) => state,
            Loaded::Missing => Map::new(),
            Loaded::Damaged { problem } => return Err(WorkspaceError::DamagedState { problem }),
        };
        fill_in(&mut state);
        let state = Arc::new(state);
        if let Some(stamp) = stamp {
            self.read_cache.store(stamp, &state);
        }
        Ok(state)
    }

    /// Returns the cached content if the file's fingerprint has not changed since it was read.
    pub(crate) fn read_cached(&self) -> Option<Arc<Map<String, Value>>> {
        self.read_cache.get(self.root.stat(FILE).ok()??)
    }

    /// Moves a damaged file aside under a name with its modification time.
    fn quarantine(&self) -> Result<String, WorkspaceError> {
        let when = self.root.stat(FILE)?.map_or(0, |stamp| stamp.mtime_ns / 1_000_000);
        for number in 0..100 {
            let suffix = if number == 0 { String::new() } else { format!(".{number}") };
            let aside = format!("{FILE}.corrupt.{when}{suffix}");
            if self.root.move_new(FILE, &self.root, &aside)? != Moved::AlreadyExists {
                return Ok(aside);
            }
        }
        Err(WorkspaceError::DamagedState { problem: "there is no free name to move it aside to".into() })
    }

    pub(crate) fn load(&self) -> Result<Loaded, WorkspaceError> {
        self.load_stamped().map(|(_, loaded)| loaded)
    }

    /// Reads the file, and its fingerprint from before the read.
    fn load_stamped(&self) -> Result<(Option<FileStat>, Loaded), WorkspaceError> {
        let Some(found) = self.root.read(FILE, LIMIT)? else { return Ok((None, Loaded::Missing)) };
        let loaded = match serde_json::from_slice(&found.bytes) {
            Ok(state) => match misshapen(&state) {
                None => Loaded::State(state),
                Some(section) => Loaded::Damaged { problem: format!("'{section}' is not an object") },
            },
            Err(error) => Loaded::Damaged { problem: describe_json_error(&error) },
        };
        Ok((Some(found.stat), loaded))
    }

    /// Writes the hub's record of an agent, and the members of the teams.
    pub(crate) fn put_agent(&self, agent: &AgentRecord, directory: &Directory) -> Result<(), WorkspaceError> {
        self.update(|state| {
            write_agent(state, agent);
            write_teams(state, directory);
            true
        })
    }

    /// Writes all agents and teams of the hub.
    pub(crate) fn rewrite(&self, directory: &Directory) -> Result<(), WorkspaceError> {
        self.update(|state| {
            write_all(state, directory);
            true
        })
    }

    pub(crate) fn put_teams(&self, directory: &Directory) -> Result<(), WorkspaceError> {
        self.update(|state| {
            write_teams(state, directory);
            true
        })
    }

    pub(crate) fn remove_agent(&self, name: &Name) -> Result<(), WorkspaceError> {
        self.update(|state| {
            let mut removed = false;
            for section in ["terminals", "chatAgents"] {
                removed |= remove_record(state, section, name).is_some();
            }
            removed
        })
    }

    pub(crate) fn rename_agent(
        &self,
        old: &Name,
        agent: &AgentRecord,
        directory: &Directory,
    ) -> Result<(), WorkspaceError> {
        self.update(|state| {
            for section in ["terminals", "chatAgents"] {
                if let Some(record) = remove_record(state, section, old)
                    && find(state, &agent.id.name).is_none()
                    && let Some(records) = state.get_mut(section).and_then(Value::as_object_mut)
                {
                    records.insert(agent.id.to_string(), record);
                }
            }
            write_agent(state, agent);
            write_teams(state, directory);
            true
        })
    }

    /// Writes the status that an agent reports, under the keys of its kind of record. An agent that the hub knows and
    /// the file lacks gets a record first.
    pub(crate) fn set_status(
        &self,
        name: &Name,
        known: Option<&AgentRecord>,
        status: &str,
        message: Option<&str>,
        now: Timestamp,
    ) -> Result<(), WorkspaceError> {
        self.update(|state| {
            if let (None, Some(known)) = (find(state, name), known) {
                write_agent(state, known);
            }
            let Some((section, record)) = find(state, name) else { return false };
            let (status_key, time_key) = match section {
                "terminals" => ("statusState", "statusUpdatedAt"),
                _ => ("status", "lastSeen"),
            };
            record.insert(status_key.into(), status.into());
            record.insert("statusMessage".into(), message.map_or(Value::Null, Value::from));
            record.insert(time_key.into(), iso(now).into());
            touch_record(record, &iso(now));
            true
        })
    }

    /// Records a heartbeat, unless one was recorded a short while ago or another process holds the lock.
    pub(crate) fn touch(&self, name: &Name, now: Timestamp) -> Result<(), WorkspaceError> {
        if !is_heartbeat_due(&*self.read_all()?, name, now) {
            return Ok(());
        }
        let options = LockOptions { wait: std::time::Duration::from_millis(50), ..LockOptions::default() };
        self.update_with(options, |state| match find(state, name) {
            Some((_, record)) => {
                touch_record(record, &iso(now));
                for key in ["statusState", "status"] {
                    if record.get(key).is_some_and(|status| status == OFFLINE) {
                        record.insert(key.into(), "active".into());
                    }
                }
                true
            }
            None => false,
        })
    }
}

/// True if an agent's record shows no recent heartbeat.
pub(crate) fn is_heartbeat_due(state: &Map<String, Value>, name: &Name, now: Timestamp) -> bool {
    let Some(record) = record(state, name) else { return false };
    let agent = agent(name.clone(), record);
    // An agent that reported offline and then returned must not count as offline.
    agent.status.as_deref() == Some(OFFLINE)
        || agent.last_seen.is_none_or(|at| now.duration_since(at) >= HEARTBEAT_INTERVAL)
}

/// Result of a rule that was applied under the lock.
pub(crate) enum Change<T> {
    /// Nothing changed; the file is not written.
    Keep(T),
    /// The file must be written.
    Write(T),
}

pub(crate) enum Loaded {
    Missing,
    Damaged { problem: String },
    State(Map<String, Value>),
}

/// Finds a section that we write and that is not an object of records.
fn misshapen(state: &Map<String, Value>) -> Option<&'static str> {
    let fits = |section: &&str| matches!(state.get(*section), None | Some(Value::Null | Value::Object(_)));
    ["session", "terminals", "chatAgents", "teams"].into_iter().find(|section| !fits(section))
}

/// Fills missing keys with the protocol's initial state.
fn fill_in(state: &mut Map<String, Value>) {
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

fn agent(name: Name, record: &Map<String, Value>) -> AgentState {
    let own = (text(record, "statusState").or_else(|| text(record, "status")), text(record, "statusMessage"));
    let (status, message) = match own {
        // An agent whose process was killed did not report offline.
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

/// True if the process whose exit ends an agent's terminal has exited.
fn has_ended_owner(record: &Map<String, Value>) -> bool {
    let owner = record.get(OWNER).and_then(Value::as_str);
    owner.and_then(|owner| owner.parse::<ProcessIdentity>().ok()).is_some_and(|owner| owner.has_exited())
}

/// Records a heartbeat. A heartbeat after the terminal's end shows that the agent runs elsewhere, so the owner is
/// removed.
pub(crate) fn touch_record(record: &mut Map<String, Value>, now: &str) {
    record.insert("lastSeen".into(), now.into());
    if has_ended_owner(record) {
        record.remove(OWNER);
    }
}

/// Returns a field of a record as text, if it has any.
pub fn text(record: &Map<String, Value>, key: &str) -> Option<String> {
    record.get(key)?.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

/// Parses ISO 8601, or milliseconds since 1970 as JavaScript counts.
fn time(record: &Map<String, Value>, key: &str) -> Option<Timestamp> {
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

/// Returns an agent's record for a change, and its section.
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

/// Returns a section's spelling of a name: names that differ only in case are equal.
fn spelling(state: &Map<String, Value>, section: &str, name: &Name) -> Option<String> {
    let records = state.get(section)?.as_object()?;
    records.keys().find(|key| key.eq_ignore_ascii_case(name.as_str())).cloned()
}

/// Writes all local agents and all teams of the hub.
fn write_all(state: &mut Map<String, Value>, directory: &Directory) {
    for agent in directory.agents().filter(|agent| agent.id.realm.is_none()) {
        write_agent(state, agent);
    }
    write_teams(state, directory);
}

/// Writes an agent's record. Registration is no heartbeat: `lastSeen` stays empty until one arrives.
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

/// Writes every team of the hub with its members. Other keys of a team's record are retained.
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

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
