//! The swarms, as the command line, the tools and the running door use them.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::{Mutex, RwLock};
use switchboard_core::{AgentId, Name, nearest};
use switchboard_https::Client;
use switchboard_hub::{Hub, Peer, Registration};
use switchboard_sys::files::{Dir, FileError};
use uuid::Uuid;

use crate::agent_id::PeerId;
use crate::book::{self, Book};
use crate::config::Config;
use crate::error::{SwarmError, describe};
use crate::keys::{KeyError, SecretKey};
use crate::ledger::{Identity, Swarm, state_of};

/// The file of an agent's key, in its folder.
pub(crate) const KEY_FILE: &str = "agent.key";

/// The file of an agent's state, in its folder.
pub(crate) const STATE_FILE: &str = "state.json";

/// The swarms that agents of this hub take part in. Clones are handles on the same.
#[derive(Clone)]
pub struct Swarms {
    inner: Arc<Inner>,
}

struct Inner {
    hub: Hub,
    config: Config,
    book: RwLock<Arc<Book>>,
    client: Mutex<Option<Client>>,
    /// Why each peer that could not be reached could not be: at most one sentence for each member of our swarms.
    troubles: Mutex<HashMap<AgentId, String>>,
    /// Until when peers have asked not to be called: at most one time for each member of our swarms.
    busy: Mutex<HashMap<AgentId, Timestamp>>,
    /// How often in a row peers have answered that they do not know us: at most one number for each member of our swarms.
    unknown: Mutex<HashMap<AgentId, u32>>,
    /// Held while the ledger is read again, so that an older reading never replaces a newer one.
    reading: tokio::sync::Mutex<()>,
}

impl Swarms {
    /// Opens what the hub knows of its swarms.
    pub async fn open(config: Config, hub: Hub) -> Result<Self, SwarmError> {
        let inner = Inner {
            hub,
            config,
            book: RwLock::default(),
            client: Mutex::default(),
            troubles: Mutex::default(),
            busy: Mutex::default(),
            unknown: Mutex::default(),
            reading: tokio::sync::Mutex::default(),
        };
        let swarms = Self { inner: Arc::new(inner) };
        swarms.refresh().await?;
        Ok(swarms)
    }

    /// The hub behind them.
    pub fn hub(&self) -> &Hub {
        &self.inner.hub
    }

    /// The door's settings.
    pub fn config(&self) -> &Config {
        &self.inner.config
    }

    /// The client for other agents' endpoints, made when it is first needed.
    pub(crate) fn client(&self) -> Result<Client, SwarmError> {
        let mut client = self.inner.client.lock();
        if let Some(client) = &*client {
            return Ok(client.clone());
        }
        let made = Client::new(self.inner.config.client.clone())?;
        *client = Some(made.clone());
        Ok(made)
    }

    /// Notes why a peer could not be reached, or that it was.
    pub(crate) fn note_trouble(&self, peer: &AgentId, trouble: Option<&str>) {
        let mut troubles = self.inner.troubles.lock();
        match trouble {
            Some(reason) => drop(troubles.insert(peer.clone(), reason.to_owned())),
            None => drop(troubles.remove(peer)),
        }
    }

    /// Why a peer could not be reached when that was last tried.
    pub(crate) fn trouble_with(&self, peer: &AgentId) -> Option<String> {
        self.inner.troubles.lock().get(peer).cloned()
    }

    /// Notes until when a peer does not want to be called, or that it may be.
    pub(crate) fn note_busy(&self, peer: &AgentId, until: Option<Timestamp>) {
        let mut busy = self.inner.busy.lock();
        match until {
            Some(until) => drop(busy.insert(peer.clone(), until)),
            None => drop(busy.remove(peer)),
        }
    }

    /// Until when a peer does not want to be called, where that is not over.
    pub(crate) fn busy_until(&self, peer: &AgentId) -> Option<Timestamp> {
        let until = self.inner.busy.lock().get(peer).copied();
        until.filter(|until| *until > self.inner.hub.now())
    }

    /// Counts an answer of a peer that does not know us, or forgets those before it; says how many there were in a row.
    pub(crate) fn count_unknown(&self, peer: &AgentId, is_unknown: bool) -> u32 {
        let mut unknown = self.inner.unknown.lock();
        if !is_unknown {
            unknown.remove(peer);
            return 0;
        }
        let times = unknown.entry(peer.clone()).or_insert(0);
        *times = times.saturating_add(1);
        *times
    }

    /// Whether any peer could not be reached.
    pub(crate) fn has_troubles(&self) -> bool {
        !self.inner.troubles.lock().is_empty()
    }

    /// The ledger as this process last read it.
    pub(crate) fn book(&self) -> Arc<Book> {
        self.inner.book.read().clone()
    }

    /// The ledger with every change that any process has committed by now.
    ///
    /// Each request and each delivery reads it through here, so that a verb such as `swarm mute` is in force when it has
    /// returned. Where nothing has changed this reads one row.
    pub(crate) async fn current(&self) -> Result<Arc<Book>, SwarmError> {
        let known = self.book();
        if known.version > 0 && book::version(self.hub()).await? == known.version {
            return Ok(known);
        }
        self.refresh().await?;
        Ok(self.book())
    }

    /// Reads the ledger again, where another process, or this one, has changed it; says whether.
    pub(crate) async fn refresh(&self) -> Result<bool, SwarmError> {
        let _reading = self.inner.reading.lock().await;
        let known = self.book();
        let version = book::version(self.hub()).await?;
        if known.version == version && version > 0 {
            return Ok(false);
        }
        let mut fresh = book::load(self.hub()).await?;
        for identity in fresh.identities.values() {
            let kept = known.keys.get(&identity.agent).filter(|key| key.public() == identity.public_key);
            let key = match kept {
                Some(key) => Some(key.clone()),
                None => match read_key(identity).await {
                    Ok(key) => Some(Arc::new(key)),
                    Err(error) => {
                        tracing::error!(agent = %identity.agent, error = %describe(&error), "cannot sign");
                        None
                    }
                },
            };
            if let Some(key) = key {
                fresh.keys.insert(identity.agent.clone(), key);
            }
        }
        *self.inner.book.write() = Arc::new(fresh);
        Ok(true)
    }

    /// The key that an agent of ours signs with. Where it could not be read before it is looked at again: a person may have
    /// put it right, and is told what is wrong with it otherwise.
    pub(crate) async fn key(&self, agent: &PeerId) -> Result<Arc<SecretKey>, SwarmError> {
        let book = self.book();
        if let Some(key) = book.keys.get(agent) {
            return Ok(key.clone());
        }
        let unknown = || SwarmError::NoIdentity { agent: Some(agent.to_string()) };
        read_key(book.identities.get(agent).ok_or_else(unknown)?).await.map(Arc::new)
    }

    /// Changes a swarm, and makes everything follow that follows from it.
    pub(crate) async fn edit<T: Send + 'static>(
        &self,
        agent: &PeerId,
        swarm: Uuid,
        change: impl FnOnce(&mut Swarm) -> Result<T, SwarmError> + Send + 'static,
    ) -> Result<T, SwarmError> {
        let answer = book::edit_swarm(self.hub(), agent, swarm, move |place| match place {
            Some(swarm) => change(swarm),
            None => Err(SwarmError::UnknownSwarm { swarm: swarm.to_string(), near: Vec::new() }),
        })
        .await?;
        self.follow_up(agent, swarm).await?;
        Ok(answer)
    }

    /// Puts a swarm into the ledger, where it is not there or is over.
    pub(crate) async fn insert(&self, agent: &PeerId, mut new: Swarm) -> Result<Swarm, SwarmError> {
        let id = new.swarm_id;
        let put = book::edit_swarm(self.hub(), agent, id, move |place| {
            if let Some(known) = place.as_ref() {
                if known.is_active() {
                    return Err(SwarmError::AlreadyMember { swarm: known.realm.clone() });
                }
                new.realm = known.realm.clone();
                // An order from before is as old as it was.
                new.orders = known.orders.clone();
            }
            *place = Some(new.clone());
            Ok(new)
        })
        .await?;
        self.follow_up(agent, id).await?;
        Ok(put)
    }

    /// Changes what is known of an agent of ours.
    pub(crate) async fn edit_identity<T: Send + 'static>(
        &self,
        agent: &PeerId,
        change: impl FnOnce(&mut Identity) -> Result<T, SwarmError> + Send + 'static,
    ) -> Result<T, SwarmError> {
        let name = agent.to_string();
        let answer = book::edit_identity(self.hub(), agent, move |place| match place {
            Some(identity) => change(identity),
            None => Err(SwarmError::NoIdentity { agent: Some(name) }),
        })
        .await?;
        self.refresh().await?;
        self.write_state(agent).await?;
        Ok(answer)
    }

    /// After a swarm has changed: says what is to be said, then lets the directory and the state file follow.
    async fn follow_up(&self, agent: &PeerId, swarm: Uuid) -> Result<(), SwarmError> {
        self.refresh().await?;
        // Before the directory forgets whom it is said to.
        self.say_announcements(agent, swarm).await?;
        self.tell_directory(agent, swarm).await?;
        self.write_state(agent).await
    }

    /// Makes the hub's directory know exactly the members of a swarm.
    pub(crate) async fn tell_directory(&self, agent: &PeerId, swarm: Uuid) -> Result<(), SwarmError> {
        let book = self.book();
        let Some(swarm) = book.swarms.get(&(agent.clone(), swarm)) else { return Ok(()) };
        if !swarm.announcements.is_empty() {
            // Somebody is about to say them, to those whom the directory might forget now, and comes here afterwards.
            return Ok(());
        }
        let others = swarm.members.iter().filter(|(id, _)| *id != agent);
        let role = |id: &PeerId| (*id == swarm.master).then(|| "master".to_owned());
        let peers = others.map(|(id, member)| Peer { name: member.name.clone(), role: role(id) }).collect();
        self.hub().put_peers(swarm.realm.clone(), swarm.is_active().then_some(peers)).await?;
        Ok(())
    }

    /// Registers an agent of ours in the hub, so that it has a mailbox.
    pub(crate) async fn register(&self, agent: &PeerId) -> Result<(), SwarmError> {
        let Some(name) = agent.name() else { return Ok(()) };
        self.hub().register(Registration::mailbox(name)).await?;
        Ok(())
    }

    /// Writes an agent's `state.json` as the ledger has it.
    pub(crate) async fn write_state(&self, agent: &PeerId) -> Result<(), SwarmError> {
        let book = self.book();
        let Some(identity) = book.identities.get(agent).cloned() else { return Ok(()) };
        let state = state_of(&identity, book.swarms_of(agent).map(AsRef::as_ref));
        let bytes = state.to_bytes();
        blocking(move || {
            let folder = open_home(&identity.home)?;
            Ok(folder.replace(STATE_FILE, &bytes, 0o600)?)
        })
        .await
    }

    /// The agent of ours that is meant: the one named, or the only one.
    pub fn identity(&self, named: Option<&str>) -> Result<Arc<Identity>, SwarmError> {
        let book = self.book();
        let found = match named {
            Some(name) => {
                book.identities.values().find(|identity| identity.agent.as_str().eq_ignore_ascii_case(name))
            }
            None if book.identities.len() > 1 => {
                let agents = book.identities.keys().map(PeerId::to_string).collect();
                return Err(SwarmError::WhichIdentity { agents });
            }
            None => book.identities.values().next(),
        };
        found.cloned().ok_or_else(|| SwarmError::NoIdentity { agent: named.map(str::to_owned) })
    }

    /// All agents of ours that take part in swarms.
    pub fn identities(&self) -> Vec<Arc<Identity>> {
        self.book().identities.values().cloned().collect()
    }

    /// All swarms, each with the agent of ours that is in it.
    pub fn swarms(&self) -> Vec<(PeerId, Arc<Swarm>)> {
        self.book().swarms.iter().map(|((agent, _), swarm)| (agent.clone(), swarm.clone())).collect()
    }

    /// The swarm that is meant by what addresses call it, by its own name or by its id; the only one where nothing is said.
    pub fn find(&self, named: Option<&str>) -> Result<(PeerId, Arc<Swarm>), SwarmError> {
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
        // One that is over may still be looked at, but stands behind one that is not.
        let found = active.iter().copied().find(|(_, swarm)| is_meant(swarm));
        let found = found.or_else(|| all.iter().find(|(_, swarm)| is_meant(swarm)));
        found.cloned().ok_or_else(|| SwarmError::UnknownSwarm {
            swarm: named.to_owned(),
            near: nearest(named, all.iter().map(|(_, swarm)| swarm.realm.as_str())),
        })
    }

    /// The same, for what can only be done in a swarm that our agent belongs to.
    pub fn find_active(&self, named: Option<&str>) -> Result<(PeerId, Arc<Swarm>), SwarmError> {
        let (agent, swarm) = self.find(named)?;
        if swarm.is_active() {
            return Ok((agent, swarm));
        }
        Err(SwarmError::NotActive { swarm: swarm.realm.clone(), standing: swarm.standing })
    }

    /// A name for a swarm in addresses that nothing else has: the one asked for, or one made from what it is called.
    pub(crate) async fn free_realm(
        &self,
        agent: &PeerId,
        id: Uuid,
        wanted: Option<&Name>,
        called: &str,
    ) -> Result<Name, SwarmError> {
        let (book, directory) = (self.book(), self.hub().directory().await?);
        if let Some(known) = book.swarms.get(&(agent.clone(), id)) {
            return Ok(known.realm.clone());
        }
        let is_taken = |name: &Name| {
            book.by_realm(name).is_some()
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
            .ok_or_else(|| SwarmError::field("name", "leaves no name for addresses; give one with --as"))
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
            Err(SwarmError::field("key", format!("in {path} is not the one that others know; restore it")))
        }
        Some(key) => Ok(key),
        None => {
            let path = identity.home.join(KEY_FILE).display().to_string();
            Err(KeyError::Seed { path, bytes: 0 }.into())
        }
    }
}

/// Opens the folder of an agent's key and state, and makes it first, for its owner alone, where it is missing.
pub(crate) fn open_home(path: &Path) -> Result<Dir, SwarmError> {
    if let (Some(parent), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str()))
        && !path.exists()
    {
        // What lies above is either there or made for the same owner.
        let above = if parent.exists() { Dir::open_root(parent)? } else { open_home(parent)? };
        return Ok(above.make_subdir(name)?);
    }
    Ok(Dir::open_root(path)?)
}

/// Runs what waits for the disk away from the tasks that must not wait.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, SwarmError> + Send + 'static,
) -> Result<T, SwarmError> {
    let closed = |_| SwarmError::Hub(switchboard_hub::HubError::Closed);
    switchboard_sys::blocking::run(work).await.map_err(closed)?
}

/// Whether a folder is for its owner alone.
pub(crate) fn check_home(folder: &Dir) -> Result<(), FileError> {
    use std::os::unix::fs::PermissionsExt as _;
    let path = folder.path();
    let failed = |source| FileError::Io { action: "set the mode of", path: path.to_owned(), source };
    let mode = std::fs::metadata(path).map_err(failed)?.permissions().mode();
    if mode & 0o077 != 0 {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700)).map_err(failed)?;
    }
    Ok(())
}
