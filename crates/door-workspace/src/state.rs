//! `state.json`: agent state that is shared with other programs.
//!
//! Reads take no lock. Writes take the lock that Node's proper-lockfile uses, and replace the whole file. Unknown keys
//! are retained. A file that is not JSON is quarantined (moved aside) and never overwritten.

mod read_cache;
mod records;

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value};
use switchboard_core::{AgentRecord, Directory, Name, NameError, OFFLINE, TeamRecord, describe_json_error};
use switchboard_hub::Hub;
use switchboard_sys::files::{Dir, FileStat, Moved};
use switchboard_sys::lock::{DirLock, LockOptions};

use self::read_cache::ReadCache;
pub use self::records::{AgentState, record, text};
use self::records::{agent, fill_in, misshapen, time, write_all};
pub(crate) use self::records::{
    find, is_heartbeat_due, objects, remove_record, touch_record, write_agent, write_teams,
};
use crate::error::WorkspaceError;
use crate::translate::iso;

const FILE: &str = "state.json";

/// Key in a terminal's record for its owner: the process whose exit ends the terminal.
pub(crate) const OWNER: &str = "owner";

/// Maximum size of the file in bytes; larger files are rejected.
///
/// The limit exceeds the state of any real workspace.
const LIMIT: u64 = 64 << 20;

/// Minimum interval between two heartbeats of an agent, because each one rewrites the file.
const HEARTBEAT_INTERVAL: SignedDuration = SignedDuration::from_mins(1);

/// A handle to `state.json`.
#[derive(Clone)]
pub struct StateFile {
    root: Dir,
    read_cache: ReadCache,
    /// The hub whose agents and teams fill the file when it must be rebuilt.
    hub: Option<Hub>,
}

/// Agents and teams in `state.json` that the hub imports.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) agents: Vec<AgentState>,
    pub(crate) teams: Vec<TeamRecord>,
}

impl StateFile {
    pub(crate) fn new(root: Dir) -> Self {
        Self { root, read_cache: ReadCache::default(), hub: None }
    }

    /// Sets the hub whose agents and teams fill a file that must be rebuilt.
    pub(crate) fn with_hub(self, hub: Hub) -> Self {
        Self { hub: Some(hub), ..self }
    }

    /// Creates the file with the protocol's initial state, unless it exists.
    pub fn create(&self) -> Result<(), WorkspaceError> {
        if self.root.stat(FILE)?.is_none() {
            self.update(|_| true)?;
        }
        Ok(())
    }

    /// Reads agents and teams without a lock, because the file is always replaced as a whole.
    pub(crate) fn read(&self) -> Result<Known, WorkspaceError> {
        let state = self.read_all()?;
        let mut known = Known::default();
        for section in ["terminals", "chatAgents"] {
            for (name, record) in objects(&state, section) {
                match Name::parse(name) {
                    Ok(name) => known.agents.push(agent(name, record)),
                    // `inspect` reports this error; a warning in every command would be noise.
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

    /// Lists entries whose name is not a valid agent name, with the error.
    pub(crate) fn invalid_names(&self) -> Result<Vec<(String, NameError)>, WorkspaceError> {
        let state = self.read_all()?;
        let names = ["terminals", "chatAgents"].into_iter().flat_map(|section| objects(&state, section));
        Ok(names.filter_map(|(name, _)| Some((name.clone(), Name::parse(name).err()?))).collect())
    }

    /// Changes the file under the lock. Writes nothing if `change` returns false.
    ///
    /// Blocks while waiting for the lock, so do not call this function on an async thread.
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

    /// Changes the file under the lock with a closure that may fail or return a value.
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
                // Add the hub's agents after the change, so that a newly registered agent gets the record written by
                // the change.
                if let Some(hub) = self.hub.as_ref().filter(|_| is_new) {
                    write_all(&mut state, &*hub.directory_blocking()?);
                }
                let mut bytes = serde_json::to_vec_pretty(&state).unwrap_or_default();
                bytes.push(b'\n');
                // Another program took over the lock and has read the old file, so one of the two writes would be lost.
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

    /// Quarantines a damaged file: renames it, with its modification time in the new name.
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

    /// Reads the file, together with the fingerprint that it had before the read.
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

    /// Writes the hub's record of an agent, and the members of all teams.
    pub(crate) fn put_agent(&self, agent: &AgentRecord, directory: &Directory) -> Result<(), WorkspaceError> {
        self.update(|state| {
            write_agent(state, agent);
            write_teams(state, directory);
            true
        })
    }

    /// Writes all agents and teams of the hub into the file.
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

    /// Writes the status that an agent reports, under the keys of the agent's kind of record.
    ///
    /// An agent that is known to the hub but missing in the file gets a record first.
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

    /// Records a heartbeat of an agent.
    ///
    /// Does nothing if a heartbeat was recorded a short while ago or another process holds the lock.
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

/// Result of a closure that ran under the lock.
pub(crate) enum Change<T> {
    /// The closure changed nothing, so the file is not written.
    Keep(T),
    /// The closure changed the state, so the file must be written.
    Write(T),
}

pub(crate) enum Loaded {
    Missing,
    Damaged { problem: String },
    State(Map<String, Value>),
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
