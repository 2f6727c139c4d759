//! [`Swarms`], the API of the command line, the tools and the running door.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::{Mutex, RwLock};
use switchboard_core::{AgentId, Name, error_chain, suggest_similar};
use switchboard_https::Client;
use switchboard_hub::{Hub, Peer, Registration};
use switchboard_sys::files::{Dir, FileError};
use uuid::Uuid;

use crate::agent_id::PeerId;
use crate::config::Config;
use crate::error::SwarmError;
use crate::keys::{KeyError, SecretKey};
use crate::model::{Identity, Swarm, build_state};
use crate::store::{self, StoreSnapshot};

/// File name of an agent's key.
pub(crate) const KEY_FILE: &str = "agent.key";

/// File name of an agent's state.
pub(crate) const STATE_FILE: &str = "state.json";

/// The swarms of this hub's agents. Clones share their state.
#[derive(Clone)]
pub struct Swarms {
    inner: Arc<Inner>,
}

struct Inner {
    hub: Hub,
    config: Config,
    snapshot: RwLock<Arc<StoreSnapshot>>,
    client: Mutex<Option<Client>>,
    /// Last failure of each unreachable peer. There is at most one for each member of our swarms.
    failures: Mutex<HashMap<AgentId, String>>,
    /// `Retry-After` times of peers. There is at most one for each member of our swarms.
    retry_times: Mutex<HashMap<AgentId, Timestamp>>,
    /// Consecutive "unknown sender" answers per peer. There is at most one count for each member of our swarms.
    unknown: Mutex<HashMap<AgentId, u32>>,
    /// Lock that is held during a reload, so that an older snapshot never replaces a newer one.
    reading: tokio::sync::Mutex<()>,
}

impl Swarms {
    /// Opens the swarms of a hub.
    pub async fn open(config: Config, hub: Hub) -> Result<Self, SwarmError> {
        let inner = Inner {
            hub,
            config,
            snapshot: RwLock::default(),
            client: Mutex::default(),
            failures: Mutex::default(),
            retry_times: Mutex::default(),
            unknown: Mutex::default(),
            reading: tokio::sync::Mutex::default(),
        };
        let swarms = Self { inner: Arc::new(inner) };
        swarms.refresh().await?;
        Ok(swarms)
    }

    /// Returns the hub.
    pub fn hub(&self) -> &Hub {
        &self.inner.hub
    }

    /// Returns the settings of the door.
    pub fn config(&self) -> &Config {
        &self.inner.config
    }

    /// Returns the client for other agents' endpoints, which is created at first use.
    pub(crate) fn client(&self) -> Result<Client, SwarmError> {
        let mut client = self.inner.client.lock();
        if let Some(client) = &*client {
            return Ok(client.clone());
        }
        let made = Client::new(self.inner.config.client.clone())?;
        *client = Some(made.clone());
        Ok(made)
    }

    /// Records why a peer was unreachable, or clears the record if the peer was reached.
    pub(crate) fn record_failure(&self, peer: &AgentId, trouble: Option<&str>) {
        let mut failures = self.inner.failures.lock();
        match trouble {
            Some(reason) => drop(failures.insert(peer.clone(), reason.to_owned())),
            None => drop(failures.remove(peer)),
        }
    }

    /// Returns why the last call to a peer failed.
    pub(crate) fn last_failure(&self, peer: &AgentId) -> Option<String> {
        self.inner.failures.lock().get(peer).cloned()
    }

    /// Records until when a peer refuses calls, or clears the record if the peer accepts them.
    pub(crate) fn set_retry_after(&self, peer: &AgentId, until: Option<Timestamp>) {
        let mut retry_times = self.inner.retry_times.lock();
        match until {
            Some(until) => drop(retry_times.insert(peer.clone(), until)),
            None => drop(retry_times.remove(peer)),
        }
    }

    /// Returns until when a peer refuses calls, if that is in the future.
    pub(crate) fn retry_after(&self, peer: &AgentId) -> Option<Timestamp> {
        let until = self.inner.retry_times.lock().get(peer).copied();
        until.filter(|until| *until > self.inner.hub.now())
    }

    /// Counts an "unknown sender" answer of a peer, or resets the count after any other answer. Returns the count.
    pub(crate) fn count_unknown_answers(&self, peer: &AgentId, is_unknown_sender: bool) -> u32 {
        let mut unknown = self.inner.unknown.lock();
        if !is_unknown_sender {
            unknown.remove(peer);
            return 0;
        }
        let times = unknown.entry(peer.clone()).or_insert(0);
        *times = times.saturating_add(1);
        *times
    }

    /// Returns true if any peer is unreachable.
    pub(crate) fn has_failures(&self) -> bool {
        !self.inner.failures.lock().is_empty()
    }

    /// Returns the snapshot that this process has loaded.
    pub(crate) fn snapshot(&self) -> Arc<StoreSnapshot> {
        self.inner.snapshot.read().clone()
    }

    /// Returns a snapshot with all changes that any process has committed by now.
    ///
    /// Every request and every delivery uses such a snapshot, so that a command such as `swarm mute` is in force when
    /// the command returns. If nothing has changed, the call reads one row.
    pub(crate) async fn current(&self) -> Result<Arc<StoreSnapshot>, SwarmError> {
        let known = self.snapshot();
        if known.version > 0 && store::version(self.hub()).await? == known.version {
            return Ok(known);
        }
        self.refresh().await?;
        Ok(self.snapshot())
    }

    /// Reloads the store if any process has changed it. Returns whether the store was reloaded.
    pub(crate) async fn refresh(&self) -> Result<bool, SwarmError> {
        let _reading = self.inner.reading.lock().await;
        let known = self.snapshot();
        let version = store::version(self.hub()).await?;
        if known.version == version && version > 0 {
            return Ok(false);
        }
        let mut fresh = store::load(self.hub()).await?;
        for identity in fresh.identities.values() {
            let kept = known.keys.get(&identity.agent).filter(|key| key.public() == identity.public_key);
            let key = match kept {
                Some(key) => Some(key.clone()),
                None => match read_key(identity).await {
                    Ok(key) => Some(Arc::new(key)),
                    Err(error) => {
                        tracing::error!(agent = %identity.agent, error = %error_chain(&error), "cannot sign");
                        None
                    }
                },
            };
            if let Some(key) = key {
                fresh.keys.insert(identity.agent.clone(), key);
            }
        }
        *self.inner.snapshot.write() = Arc::new(fresh);
        Ok(true)
    }

    /// Returns the signing key of one of our agents.
    ///
    /// A key that was unreadable is read again, because the owner may have fixed the file. Otherwise the error is
    /// returned.
    pub(crate) async fn key(&self, agent: &PeerId) -> Result<Arc<SecretKey>, SwarmError> {
        let snapshot = self.snapshot();
        if let Some(key) = snapshot.keys.get(agent) {
            return Ok(key.clone());
        }
        let unknown = || SwarmError::NoIdentity { agent: Some(agent.to_string()) };
        read_key(snapshot.identities.get(agent).ok_or_else(unknown)?).await.map(Arc::new)
    }

    /// Edits a swarm and propagates the change.
    pub(crate) async fn edit_swarm<T: Send + 'static>(
        &self,
        agent: &PeerId,
        swarm: Uuid,
        change: impl FnOnce(&mut Swarm) -> Result<T, SwarmError> + Send + 'static,
    ) -> Result<T, SwarmError> {
        let answer = store::edit_swarm(self.hub(), agent, swarm, move |slot| match slot {
            Some(swarm) => change(swarm),
            None => Err(SwarmError::UnknownSwarm { swarm: swarm.to_string(), near: Vec::new() }),
        })
        .await?;
        self.propagate_change(agent, swarm).await?;
        Ok(answer)
    }

    /// Adds a swarm. Fails if our agent already is an active member of it.
    pub(crate) async fn insert_swarm(&self, agent: &PeerId, mut new: Swarm) -> Result<Swarm, SwarmError> {
        let id = new.swarm_id;
        let put = store::edit_swarm(self.hub(), agent, id, move |slot| {
            if let Some(known) = slot.as_ref() {
                if known.is_active() {
                    return Err(SwarmError::AlreadyMember { swarm: known.realm.clone() });
                }
                new.realm = known.realm.clone();
                // A replayed update from the earlier membership must still be recognized as a replay.
                new.orders = known.orders.clone();
            }
            *slot = Some(new.clone());
            Ok(new)
        })
        .await?;
        self.propagate_change(agent, id).await?;
        Ok(put)
    }

    /// Edits the record of one of our agents.
    pub(crate) async fn edit_identity<T: Send + 'static>(
        &self,
        agent: &PeerId,
        change: impl FnOnce(&mut Identity) -> Result<T, SwarmError> + Send + 'static,
    ) -> Result<T, SwarmError> {
        let name = agent.to_string();
        let answer = store::edit_identity(self.hub(), agent, move |slot| match slot {
            Some(identity) => change(identity),
            None => Err(SwarmError::NoIdentity { agent: Some(name) }),
        })
        .await?;
        self.refresh().await?;
        self.write_state(agent).await?;
        Ok(answer)
    }

    /// Propagates a change of a swarm to the announcements, the directory and the state file.
    async fn propagate_change(&self, agent: &PeerId, swarm: Uuid) -> Result<(), SwarmError> {
        self.refresh().await?;
        // Announcements are sent before the directory forgets their recipients.
        self.send_announcements(agent, swarm).await?;
        self.sync_directory(agent, swarm).await?;
        self.write_state(agent).await
    }

    /// Reconciles the hub's directory with the members of a swarm.
    pub(crate) async fn sync_directory(&self, agent: &PeerId, swarm: Uuid) -> Result<(), SwarmError> {
        let snapshot = self.snapshot();
        let Some(swarm) = snapshot.swarms.get(&(agent.clone(), swarm)) else { return Ok(()) };
        if !swarm.announcements.is_empty() {
            // Another task is about to send these announcements to members that the directory would forget now. That
            // task syncs the directory afterwards.
            return Ok(());
        }
        let others = swarm.members.iter().filter(|(id, _)| *id != agent);
        let role = |id: &PeerId| (*id == swarm.master).then(|| "master".to_owned());
        let peers = others.map(|(id, member)| Peer { name: member.name.clone(), role: role(id) }).collect();
        self.hub().agents().put_peers(swarm.realm.clone(), swarm.is_active().then_some(peers)).await?;
        Ok(())
    }

    /// Registers one of our agents in the hub, so that it has a mailbox.
    pub(crate) async fn register_mailbox(&self, agent: &PeerId) -> Result<(), SwarmError> {
        let Some(name) = agent.name() else { return Ok(()) };
        self.hub().agents().register(Registration::mailbox(name)).await?;
        Ok(())
    }

    /// Writes an agent's `state.json` from the store.
    pub(crate) async fn write_state(&self, agent: &PeerId) -> Result<(), SwarmError> {
        let snapshot = self.snapshot();
        let Some(identity) = snapshot.identities.get(agent).cloned() else { return Ok(()) };
        let state = build_state(&identity, snapshot.swarms_of(agent).map(AsRef::as_ref));
        let bytes = state.to_bytes();
        blocking(move || {
            let folder = open_home(&identity.home)?;
            Ok(folder.replace(STATE_FILE, &bytes, 0o600)?)
        })
        .await
    }

    /// Finds one of our agents by id, or the only agent if no id is given.
    pub fn identity(&self, named: Option<&str>) -> Result<Arc<Identity>, SwarmError> {
        let snapshot = self.snapshot();
        let found = match named {
            Some(name) => snapshot
                .identities
                .values()
                .find(|identity| identity.agent.as_str().eq_ignore_ascii_case(name)),
            None if snapshot.identities.len() > 1 => {
                let agents = snapshot.identities.keys().map(PeerId::to_string).collect();
                return Err(SwarmError::WhichIdentity { agents });
            }
            None => snapshot.identities.values().next(),
        };
        found.cloned().ok_or_else(|| SwarmError::NoIdentity { agent: named.map(str::to_owned) })
    }

    /// Returns all local agents that take part in swarms.
    pub fn identities(&self) -> Vec<Arc<Identity>> {
        self.snapshot().identities.values().cloned().collect()
    }

    /// Returns all swarms, each with the local agent that is a member.
    pub fn swarms(&self) -> Vec<(PeerId, Arc<Swarm>)> {
        self.snapshot().swarms.iter().map(|((agent, _), swarm)| (agent.clone(), swarm.clone())).collect()
    }

    /// Finds a swarm by local name, display name or id, or the only swarm if none is given.
    pub fn find_swarm(&self, named: Option<&str>) -> Result<(PeerId, Arc<Swarm>), SwarmError> {
        let all = self.swarms();
        let active: Vec<_> = all.iter().filter(|(_, swarm)| swarm.is_active()).collect();
        let Some(named) = named else {
            if let [one] = active.as_slice() {
                return Ok((*one).clone());
            }
            let mut swarms: Vec<_> = active.iter().map(|(_, swarm)| swarm.realm.to_string()).collect();
            swarms.sort_unstable();
            return Err(SwarmError::WhichSwarm { swarms });
        };
        let is_meant = |swarm: &Swarm| {
            swarm.realm.as_str().eq_ignore_ascii_case(named)
                || swarm.name == named
                || swarm.swarm_id.to_string().eq_ignore_ascii_case(named)
        };
        // A swarm that has ended can be shown, but an active swarm takes precedence.
        let found = active.iter().copied().find(|(_, swarm)| is_meant(swarm));
        let found = found.or_else(|| all.iter().find(|(_, swarm)| is_meant(swarm)));
        found.cloned().ok_or_else(|| SwarmError::UnknownSwarm {
            swarm: named.to_owned(),
            near: suggest_similar(named, all.iter().map(|(_, swarm)| swarm.realm.as_str())),
        })
    }

    /// Finds a swarm that our agent is an active member of.
    pub fn find_active_swarm(&self, named: Option<&str>) -> Result<(PeerId, Arc<Swarm>), SwarmError> {
        let (agent, swarm) = self.find_swarm(named)?;
        if swarm.is_active() {
            return Ok((agent, swarm));
        }
        Err(SwarmError::NotActive { swarm: swarm.realm.clone(), status: swarm.status })
    }

    /// Chooses an unused local name for a swarm.
    ///
    /// The name is the requested one, or one derived from the swarm's display name.
    pub(crate) async fn choose_realm(
        &self,
        agent: &PeerId,
        id: Uuid,
        wanted: Option<&Name>,
        called: &str,
    ) -> Result<Name, SwarmError> {
        let (snapshot, directory) = (self.snapshot(), self.hub().directory().await?);
        if let Some(known) = snapshot.swarms.get(&(agent.clone(), id)) {
            return Ok(known.realm.clone());
        }
        let is_taken = |name: &Name| {
            snapshot.by_realm(name).is_some()
                || directory.agents().any(|agent| agent.id.realm.as_ref() == Some(name))
        };
        if let Some(wanted) = wanted {
            return if is_taken(wanted) {
                Err(SwarmError::RealmTaken { realm: wanted.clone() })
            } else {
                Ok(wanted.clone())
            };
        }
        let legal =
            |c: char| if c.is_ascii_alphanumeric() || c == '_' { c.to_ascii_lowercase() } else { '-' };
        let stem: String = called.chars().take(40).map(legal).collect();
        let stem = stem.trim_matches('-');
        let stem = if stem.is_empty() { "swarm" } else { stem };
        let first = Name::parse(stem).ok().filter(|name| !is_taken(name));
        let more = || {
            (2..10_000_u32)
                .filter_map(|n| Name::parse(&format!("swarm-{stem}-{n}")).ok())
                .find(|name| !is_taken(name))
        };
        first
            .or_else(more)
            .ok_or_else(|| SwarmError::field("name", "yields no name for addresses; set one with --as"))
    }
}

async fn read_key(identity: &Identity) -> Result<SecretKey, SwarmError> {
    let home = identity.home.clone();
    let key = blocking(move || {
        let folder = Dir::open_root(&home)?;
        Ok(SecretKey::read(&folder, KEY_FILE)?)
    })
    .await?;
    match key {
        Some(key) if key.public() != identity.public_key => {
            let path = identity.home.join(KEY_FILE).display().to_string();
            Err(SwarmError::field(
                "key",
                format!("in {path} is not the announced key; restore the original file"),
            ))
        }
        Some(key) => Ok(key),
        None => {
            let path = identity.home.join(KEY_FILE).display().to_string();
            Err(KeyError::Seed { path, bytes: 0 }.into())
        }
    }
}

/// Opens the folder of an agent's key and state. A missing folder is created for its owner only.
pub(crate) fn open_home(path: &Path) -> Result<Dir, SwarmError> {
    if let (Some(parent), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str()))
        && !path.exists()
    {
        // A missing parent folder is created with the same restriction.
        let above = if parent.exists() { Dir::open_root(parent)? } else { open_home(parent)? };
        return Ok(above.ensure_subdir(name)?);
    }
    Ok(Dir::open_root(path)?)
}

/// Runs blocking file operations outside the async threads.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, SwarmError> + Send + 'static,
) -> Result<T, SwarmError> {
    let closed = |_| SwarmError::Hub(switchboard_hub::HubError::Closed);
    switchboard_sys::blocking::run(work).await.map_err(closed)?
}

/// Restricts a folder to its owner.
pub(crate) fn restrict_home(folder: &Dir) -> Result<(), FileError> {
    use std::os::unix::fs::PermissionsExt as _;
    let path = folder.path();
    let failed = |source| FileError::Io { action: "set the mode of", path: path.to_owned(), source };
    let mode = std::fs::metadata(path).map_err(failed)?.permissions().mode();
    if mode & 0o077 != 0 {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700)).map_err(failed)?;
    }
    Ok(())
}
