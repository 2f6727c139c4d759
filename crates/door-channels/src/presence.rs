//! Heartbeat files: presence of agents in the shared folder ("Presence Protocol").
//!
//! The time in a heartbeat file comes from another machine's clock. The reader therefore judges presence by its own
//! clock, by the modification time of the file and, on the writer's host, by whether the writer still runs.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use switchboard_core::{AgentId, Heartbeat, Name, OFFLINE, PresenceState, PresenceTimeouts, error_chain};
use switchboard_sys::debounce::{Debounce, Debouncer};
use switchboard_sys::file_watcher::Depth;
use switchboard_sys::files::{Dir, Durability};
use switchboard_sys::process_identity::ProcessIdentity;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::channels::Channels;
use crate::error::ChannelError;
use crate::folder_watcher::FolderWatcher;
use crate::ids::current_id;
use crate::tree::{Tree, blocking};
use crate::wire::{PresenceFile, iso, time};

/// Poll interval for checking that the processes of awake watchers still run. A check costs one read of `/proc` per
/// watcher.
const OWNER_POLL: Duration = Duration::from_millis(500);

/// Maximum size of a heartbeat file that is read.
const MAX_FILE: u64 = 64 << 10;

/// File mode of heartbeat files, which every user may read.
const MODE: u32 = 0o644;

/// Presence of an agent, judged from its heartbeat file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PresenceEntry {
    /// Name of the agent.
    pub agent: Name,
    /// Awake, stale or offline.
    pub awareness: PresenceState,
    /// Activity: `IDLE` or `WORKING`.
    pub substate: Option<String>,
    /// Time of the last credible heartbeat.
    pub since: Timestamp,
    /// Channel that the agent watches.
    pub channel: Option<String>,
    /// Process id of the agent's watcher, valid on its own host.
    pub pid: Option<u32>,
    /// Last error that the watcher reported.
    pub error: Option<String>,
    /// Unique identity of the watcher's process.
    owner: Option<ProcessIdentity>,
}

impl PresenceEntry {
    /// Returns true if the watcher's process ran on this host and has ended since its heartbeat was read.
    fn has_died(&self) -> bool {
        self.awareness != PresenceState::Offline
            && self.owner.as_ref().is_some_and(ProcessIdentity::has_exited)
    }
}

impl Channels {
    /// Reads the heartbeat files, sorted by agent. A file that is invalid, or whose name differs from its agent, is
    /// skipped with a warning.
    pub async fn presence_entries(&self) -> Result<Vec<PresenceEntry>, ChannelError> {
        let (tree, now) = (self.tree().clone(), self.hub().now());
        let after = self.hub().config().presence;
        blocking(move || {
            let Some(dir) = tree.existing_presence()? else { return Ok(Vec::new()) };
            let names = dir.names()?;
            let agents = names.iter().filter_map(|name| name.strip_suffix(".json"));
            let mut seen: BTreeMap<Name, PresenceEntry> = BTreeMap::new();
            for entry in agents.filter_map(|agent| read_entry(&dir, agent, now, after)) {
                // An agent may also have a file under its deprecated id; the later heartbeat counts.
                if seen.get(&entry.agent).is_none_or(|other| other.since < entry.since) {
                    seen.insert(entry.agent.clone(), entry);
                }
            }
            Ok(seen.into_values().collect())
        })
        .await
    }

    /// Reports the presence from the heartbeat files to the hub.
    pub async fn report_presence(&self) -> Result<(), ChannelError> {
        self.publish_presence().await.map(drop)
    }

    /// Reports the presence to the hub and returns the entries.
    async fn publish_presence(&self) -> Result<Vec<PresenceEntry>, ChannelError> {
        let entries = self.presence_entries().await?;
        for read_entry in &entries {
            let status = match read_entry.awareness {
                PresenceState::Offline => OFFLINE.to_owned(),
                _ => read_entry.substate.as_deref().unwrap_or_default().to_lowercase(),
            };
            let agent = AgentId::local(read_entry.agent.clone());
            let message = read_entry.error.clone();
            self.hub().agents().record_heartbeat(Heartbeat { agent, at: read_entry.since, status, message });
        }
        Ok(entries)
    }
}

/// Reports presence as soon as a heartbeat file changes or a watcher's process ends, because linked hubs show it.
pub(crate) async fn follow(channels: &Channels) -> Result<Infallible, ChannelError> {
    let tree = channels.tree().clone();
    let folder = blocking(move || tree.presence()).await?;
    let is_heartbeat = |name: &str| name.strip_suffix(".json").is_some();
    let mut watcher = FolderWatcher::open(&folder, Depth::Folder, is_heartbeat, channels.config()).await;
    let mut debouncer = Debouncer::new(Debounce::STATUS_FILES);
    loop {
        let began = Instant::now();
        let entries = channels.publish_presence().await.unwrap_or_else(|error| {
            tracing::warn!(error = %error, "cannot read the heartbeat files");
            Vec::new()
        });
        // Debounce: every change reads all files, so a folder with many files is read less often.
        debouncer.record_round(began);
        debouncer.wait().await;
        // Poll the processes too, because a killed process changes no file.
        while watcher.next(false, OWNER_POLL).await.is_none() && !entries.iter().any(PresenceEntry::has_died)
        {
        }
    }
}

fn read_entry(dir: &Dir, stem: &str, now: Timestamp, after: PresenceTimeouts) -> Option<PresenceEntry> {
    let agent = Name::parse(current_id(stem)).ok()?;
    let refused = |reason: &str| {
        tracing::warn!(%agent, reason, "ignored a heartbeat file");
        None
    };
    let read = match dir.read(&format!("{stem}.json"), MAX_FILE) {
        Ok(read) => read?,
        Err(error) => return refused(&error_chain(&error)),
    };
    let file = match PresenceFile::parse(&read.bytes) {
        Ok(file) => file,
        Err(error) => return refused(&error.to_string()),
    };
    if Name::parse(current_id(&file.agent_id)).ok().as_ref() != Some(&agent) {
        return refused("it is of another agent than its file name");
    }
    let changed = Timestamp::from_nanosecond(read.stat.mtime_ns).unwrap_or(Timestamp::UNIX_EPOCH);
    let since = last_sign(time(&file.timestamp), changed, now);
    let owner = file.owner.as_deref().and_then(|owner| owner.parse::<ProcessIdentity>().ok());
    let gone = owner.as_ref().is_some_and(ProcessIdentity::has_exited);
    let awareness = awareness(&file.state, gone, since, now, after);
    Some(PresenceEntry {
        agent,
        awareness,
        substate: file.substate,
        since: since.unwrap_or(now),
        channel: file.channel,
        pid: file.watcher_pid,
        error: file.error,
        owner,
    })
}

/// Returns the time of the last heartbeat: the earlier of the time in the file and the file's modification time.
///
/// Either time may be too late, but hardly too early. A time in the future is ignored; returns `None` if both are.
fn last_sign(written: Option<Timestamp>, changed: Timestamp, now: Timestamp) -> Option<Timestamp> {
    /// Maximum clock skew that is tolerated between machines that share a folder.
    const SKEW: SignedDuration = SignedDuration::from_mins(2);
    let believable = |at: &Timestamp| now.duration_since(*at) > -SKEW;
    let written = written.filter(believable);
    let changed = Some(changed).filter(believable);
    match (written, changed) {
        // If the writer's clock is skewed by more, the modification time counts.
        (Some(written), Some(changed)) if changed.duration_since(written).abs() > SKEW => {
            Some(changed.min(now))
        }
        (Some(written), Some(changed)) => Some(written.min(changed).min(now)),
        (one, other) => one.or(other).map(|at| at.min(now)),
    }
}

fn awareness(
    state: &str,
    is_gone: bool,
    since: Option<Timestamp>,
    now: Timestamp,
    after: PresenceTimeouts,
) -> PresenceState {
    let Some(since) = since else { return PresenceState::Stale };
    let silence = now.duration_since(since);
    if is_gone || state.eq_ignore_ascii_case("OFFLINE") || silence >= after.offline {
        PresenceState::Offline
    } else if silence >= after.stale {
        PresenceState::Stale
    } else {
        PresenceState::Awake
    }
}

/// Writer of an agent's heartbeat file. The agent is awake while [`HeartbeatWriter::run`] runs.
#[derive(Debug, Clone)]
pub(crate) struct HeartbeatWriter {
    agent: Name,
    channel: String,
    tree: Tree,
    now: Arc<Mutex<Activity>>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Activity {
    working: usize,
    error: Option<String>,
}

impl HeartbeatWriter {
    pub(crate) fn new(tree: Tree, agent: Name, channel: String) -> Self {
        Self { agent, channel, tree, now: Arc::default() }
    }

    /// Changes AWAKE/IDLE to AWAKE/WORKING.
    pub(crate) async fn start_work(&self, now: Timestamp) {
        self.now.lock().working += 1;
        self.write("AWAKE", now).await;
    }

    /// Changes AWAKE/WORKING to AWAKE/IDLE, with the error, if any.
    pub(crate) async fn finish_work(&self, error: Option<String>, now: Timestamp) {
        {
            let mut doing = self.now.lock();
            doing.working = doing.working.saturating_sub(1);
            doing.error = error;
        }
        self.write("AWAKE", now).await;
    }

    /// Adds an error to the heartbeat.
    pub(crate) async fn report_error(&self, error: &str, now: Timestamp) {
        self.now.lock().error = Some(error.to_owned());
        self.write("AWAKE", now).await;
    }

    /// Writes heartbeats until `shutdown`, then marks the agent offline.
    pub(crate) async fn run(&self, every: Duration, hub: &switchboard_hub::Hub, shutdown: CancellationToken) {
        let mut beats = tokio::time::interval(every);
        beats.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = shutdown.cancelled() => break,
                _ = beats.tick() => self.write("AWAKE", hub.now()).await,
            }
        }
        self.write_offline(hub).await;
    }

    async fn write_offline(&self, hub: &switchboard_hub::Hub) {
        self.now.lock().working = 0;
        if !self.is_owned_by_other().await {
            self.write(OFFLINE.to_uppercase().as_str(), hub.now()).await;
        }
    }

    /// Returns true if the last heartbeat is from another watcher of the agent that still runs.
    async fn is_owned_by_other(&self) -> bool {
        let (tree, name) = (self.tree.clone(), format!("{}.json", self.agent));
        let read = blocking(move || Ok(tree.presence()?.read(&name, MAX_FILE)?)).await;
        let file = read.ok().flatten().and_then(|read| PresenceFile::parse(&read.bytes).ok());
        let owner = file.filter(|file| !file.state.eq_ignore_ascii_case(OFFLINE)).and_then(|file| file.owner);
        let owner = owner.and_then(|owner| owner.parse::<ProcessIdentity>().ok());
        owner.is_some_and(|owner| owner != ProcessIdentity::this_process() && !owner.has_exited())
    }

    async fn write(&self, state: &str, now: Timestamp) {
        let doing = self.now.lock().clone();
        let owner = ProcessIdentity::this_process();
        let file = PresenceFile {
            agent_id: self.agent.to_string(),
            timestamp: iso(now),
            state: state.to_owned(),
            substate: Some(if doing.working > 0 { "WORKING" } else { "IDLE" }.to_owned()),
            watcher_pid: Some(owner.pid()),
            channel: Some(self.channel.clone()),
            owner: Some(owner.to_string()),
            error: doing.error,
            extra: serde_json::Map::new(),
        };
        let (tree, name) = (self.tree.clone(), format!("{}.json", self.agent));
        // Written without fsync: no agent is awake after a power failure, so a heartbeat need not survive one.
        let written = blocking(move || {
            let bytes = file.to_bytes();
            Ok(tree.presence()?.replace_with(&name, &bytes, MODE, Durability::Unsynced)?)
        });
        let written = written.await;
        // An unmounted folder is reported once, elsewhere.
        if let Err(error) = written
            && !error.is_unmounted()
        {
            tracing::warn!(agent = %self.agent, error = %error_chain(&error), "cannot write the heartbeat file");
        }
    }
}

#[cfg(test)]
#[path = "presence_tests.rs"]
mod tests;
