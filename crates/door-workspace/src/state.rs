//! `state.json`: the agent state that is shared with other programs.
//!
//! Read without a lock, changed under the lock that Node's proper-lockfile uses, replaced as a whole.
//! Keys we do not know are kept. A file that is no JSON is moved aside and never overwritten.

mod read_cache;

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};
use switchboard_core::{AgentRecord, Directory, Name, NameError, OFFLINE, TeamRecord};
use switchboard_hub::Hub;
use switchboard_sys::files::{Dir, FileStamp, Moved};
use switchboard_sys::lock::{DirLock, LockOptions};
use switchboard_sys::owner::Owner;

use self::read_cache::ReadCache;
use crate::error::WorkspaceError;
use crate::translate::{iso, time_of};

const FILE: &str = "state.json";

/// The key of a terminal's record for the process that it is over with.
pub(crate) const OWNER: &str = "owner";

/// Larger than any state a workspace has; a file beyond it is not one.
const LIMIT: u64 = 64 << 20;

/// Signs of life are written at most this often: each costs a rewrite of the file.
const ALIVE_EVERY: SignedDuration = SignedDuration::from_mins(1);

/// A handle on the file.
#[derive(Clone)]
pub struct StateFile {
    root: Dir,
    read_cache: ReadCache,
    /// Who is known, for a file that has to be made anew.
    hub: Option<Hub>,
}

/// What the file says of agents and teams, as far as it concerns the hub.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) agents: Vec<AgentState>,
    pub(crate) teams: Vec<TeamRecord>,
}

/// What the file says of one agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentState {
    /// Its name.
    pub name: Name,
    /// What it is there for.
    pub role: Option<String>,
    /// Its team.
    pub team: Option<Name>,
    /// What it said it is doing.
    pub status: Option<String>,
    /// The sentence that came with it.
    pub message: Option<String>,
    /// When it was last heard.
    pub last_seen: Option<Timestamp>,
}

impl StateFile {
    pub(crate) fn new(root: Dir) -> Self {
        Self { root, read_cache: ReadCache::default(), hub: None }
    }

    /// The file of a hub: made anew, it has everyone whom the hub knows.
    pub(crate) fn with_hub(self, hub: Hub) -> Self {
        Self { hub: Some(hub), ..self }
    }

    /// Makes the file with the protocol's first state, where there is none.
    pub fn create(&self) -> Result<(), WorkspaceError> {
        if self.root.stat(FILE)?.is_none() {
            self.update(|_| true)?;
        }
        Ok(())
    }

    /// What the file says, without a lock: it is always replaced as a whole.
    pub(crate) fn read(&self) -> Result<Known, WorkspaceError> {
        let state = self.read_all()?;
        let mut known = Known::default();
        for section in ["terminals", "chatAgents"] {
            for (name, record) in objects(&state, section) {
                match Name::parse(name) {
                    Ok(name) => known.agents.push(agent(name, record)),
                    // `inspect` tells; said by every command, it would only be in the way.
                    Err(error) => {
                        tracing::debug!(section, name, error = %error, "an agent in state.json was left out");
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

    /// The agents that the file has under names which are none, and why they are not.
    pub(crate) fn invalid_names(&self) -> Result<Vec<(String, NameError)>, WorkspaceError> {
        let state = self.read_all()?;
        let names = ["terminals", "chatAgents"].into_iter().flat_map(|section| objects(&state, section));
        Ok(names.filter_map(|(name, _)| Some((name.clone(), Name::parse(name).err()?))).collect())
    }

    /// Changes the file under the lock; it is left alone where `change` says that nothing changed.
    ///
    /// Waits for the lock, so never call it from a task that must not wait.
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

    /// Changes the file under the lock, by a rule that may refuse or have something to say.
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
                tracing::error!(%problem, moved_to = %aside, "state.json was damaged and is moved aside");
                (Map::new(), true)
            }
        };
        fill_in(&mut state);
        match change(&mut state)? {
            Change::Keep(answer) => Ok(answer),
            Change::Write(answer) => {
                // After the change: whoever is registered by it gets the record that it says.
                if let Some(hub) = self.hub.as_ref().filter(|_| is_new) {
                    write_all(&mut state, &*hub.directory_blocking()?);
                }
                let mut bytes = serde_json::to_vec_pretty(&state).unwrap_or_default();
                bytes.push(b'\n');
                // Whoever took the lock over meanwhile has read what is there, and would overwrite or lose this.
                if !lock.is_held() {
                    return Err(WorkspaceError::LockLost);
                }
                self.root.replace(FILE, &bytes, 0o600)?;
                Ok(answer)
            }
        }
    }

    /// The whole of it, without a lock, with the protocol's first state for whatever is missing.
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

    /// The same, where the file has not changed since it was last read: that costs a look at its stamp.
    pub(crate) fn read_cached(&self) -> Option<Arc<Map<String, Value>>> {
        self.read_cache.get(self.root.stat(FILE).ok()??)
    }

    /// Moves a damaged file aside under a name that says when.
    fn quarantine(&self) -> Result<String, WorkspaceError> {
        let when = self.root.stat(FILE)?.map_or(0, |stamp| stamp.mtime_ns / 1_000_000);
        for number in 0..100 {
            let suffix = if number == 0 { String::new() } else { format!(".{number}") };
            let aside = format!("{FILE}.corrupt.{when}{suffix}");
            if self.root.move_new(FILE, &self.root, &aside)? != Moved::AlreadyThere {
                return Ok(aside);
            }
        }
        Err(WorkspaceError::DamagedState { problem: "there is no free name to move it aside to".into() })
    }

    pub(crate) fn load(&self) -> Result<Loaded, WorkspaceError> {
        self.load_stamped().map(|(_, loaded)| loaded)
    }

    /// Reads the file; the stamp is the one that it had before.
    fn load_stamped(&self) -> Result<(Option<FileStamp>, Loaded), WorkspaceError> {
        let Some(found) = self.root.read(FILE, LIMIT)? else { return Ok((None, Loaded::Missing)) };
        let loaded = match serde_json::from_slice(&found.bytes) {
            Ok(state) => match misshapen(&state) {
                None => Loaded::State(state),
                Some(section) => Loaded::Damaged { problem: format!("'{section}' is not an object") },
            },
            Err(error) => Loaded::Damaged { problem: error.to_string() },
        };
        Ok((Some(found.stamp), loaded))
    }

    /// Writes what the hub knows of an agent, and its team's list of members.
    pub(crate) fn put_agent(&self, agent: &AgentRecord, directory: &Directory) -> Result<(), WorkspaceError> {
        self.update(|state| {
            write_agent(state, agent);
            write_teams(state, directory);
            true
        })
    }

    /// Writes everything the hub knows.
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

    /// Writes what an agent says it is doing, in the words its kind of record has for it. An agent that the hub knows
    /// and the file does not gets its record first.
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

    /// Notes a sign of life, unless that was done a short while ago or somebody else has the lock.
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

/// Whether an agent's record does not show that it is there now.
pub(crate) fn is_heartbeat_due(state: &Map<String, Value>, name: &Name, now: Timestamp) -> bool {
    let Some(record) = record(state, name) else { return false };
    let agent = agent(name.clone(), record);
    // An agent that said goodbye and is there again must not go on counting as gone.
    agent.status.as_deref() == Some(OFFLINE)
        || agent.last_seen.is_none_or(|at| now.duration_since(at) >= ALIVE_EVERY)
}

/// What follows from a rule that was applied under the lock.
pub(crate) enum Change<T> {
    /// Nothing changed; the file is left alone.
    Keep(T),
    /// The file is to be written.
    Write(T),
}

pub(crate) enum Loaded {
    Missing,
    Damaged { problem: String },
    State(Map<String, Value>),
}

/// A section that we write to and that is something else than an object of records.
fn misshapen(state: &Map<String, Value>) -> Option<&'static str> {
    let fits = |section: &&str| matches!(state.get(*section), None | Some(Value::Null | Value::Object(_)));
    ["session", "terminals", "chatAgents", "teams"].into_iter().find(|section| !fits(section))
}

/// The protocol's first state, for whatever is missing.
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
            let there = state.entry(key).or_insert(Value::Null);
            if there.is_null() {
                *there = value;
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
        // Who was killed has said no goodbye.
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

/// Whether the process is gone that an agent's terminal is over with.
fn has_ended_owner(record: &Map<String, Value>) -> bool {
    let owner = record.get(OWNER).and_then(Value::as_str);
    owner.and_then(|owner| owner.parse::<Owner>().ok()).is_some_and(|owner| owner.is_gone())
}

/// Writes down a sign of life. Who gives one after its terminal is over lives elsewhere.
pub(crate) fn touch_record(record: &mut Map<String, Value>, now: &str) {
    record.insert("lastSeen".into(), now.into());
    if has_ended_owner(record) {
        record.remove(OWNER);
    }
}

pub(crate) fn text(record: &Map<String, Value>, key: &str) -> Option<String> {
    record.get(key)?.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

/// ISO 8601, or milliseconds since 1970 as JavaScript counts.
fn time(record: &Map<String, Value>, key: &str) -> Option<Timestamp> {
    match record.get(key)? {
        Value::String(text) => time_of(text),
        Value::Number(millis) => Timestamp::from_millisecond(millis.as_i64()?).ok(),
        _ => None,
    }
}

/// An agent's record.
pub(crate) fn record<'s>(state: &'s Map<String, Value>, name: &Name) -> Option<&'s Map<String, Value>> {
    ["terminals", "chatAgents"].into_iter().find_map(|section| {
        let key = spelling(state, section, name)?;
        state.get(section)?.get(&key)?.as_object()
    })
}

/// An agent's record, to be changed, and the section it stands in.
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

/// How a section spells a name: names that differ only in case are one.
fn spelling(state: &Map<String, Value>, section: &str, name: &Name) -> Option<String> {
    let records = state.get(section)?.as_object()?;
    records.keys().find(|key| key.eq_ignore_ascii_case(name.as_str())).cloned()
}

/// Writes everyone whom the hub knows.
fn write_all(state: &mut Map<String, Value>, directory: &Directory) {
    for agent in directory.agents().filter(|agent| agent.id.realm.is_none()) {
        write_agent(state, agent);
    }
    write_teams(state, directory);
}

/// Writes an agent's record. Being registered is no sign of life: `lastSeen` stays open until one comes.
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

/// Every team the hub knows, with its members; what else a team's record holds is kept.
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
