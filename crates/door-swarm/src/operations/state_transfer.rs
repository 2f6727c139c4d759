//! Export and import of an agent's state (§9.5). Private keys are never included.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use uuid::Uuid;

use crate::agent_id::PeerId;
use crate::endpoint::Endpoint;
use crate::error::SwarmError;
use crate::keys::PublicKey;
use crate::members::{ExcludedMembers, MemberConflict, RosterEntry, filter_roster};
use crate::model::{Identity, LearnedKey, MembershipStatus, Swarm, build_state};
use crate::state::{MembershipState, StateError, StateMember, SwarmMembership};
use crate::store;
use crate::swarms::{STATE_FILE, Swarms, blocking, open_home};
use crate::timestamp;

/// How an import treats existing data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImportMode {
    /// Keeps existing data and adds new entries.
    Add,
    /// Removes entries that the imported state does not have.
    Replace,
    /// Adds only swarms that are new to this hub, and no mutes.
    ///
    /// This mode is for a state file that is read without a user's request, because its other content may be outdated.
    UnknownOnly,
}

/// Maximum size of a state file, larger than any state within the limits.
const MAX_STATE_BYTES: u64 = 64 << 20;

/// Result of an import.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImportSummary {
    /// Number of swarms that were imported.
    pub swarms: usize,
    /// Members whose pinned key was kept although the imported state has another key.
    pub kept_keys: Vec<KeyConflict>,
    /// Members of the imported state that were excluded, with the reason.
    pub left_out: ExcludedMembers,
}

/// A member whose pinned key was kept although an imported state has another key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyConflict {
    /// The member.
    pub agent: PeerId,
    /// The pinned key, which stays in force.
    pub pinned: PublicKey,
    /// The key in the state.
    pub found: PublicKey,
}

/// A parsed state and the options of its import.
struct ImportRequest {
    state: MembershipState,
    mode: ImportMode,
    /// Members whose pinned key the state may replace.
    accepted: BTreeSet<PeerId>,
    now: Timestamp,
}

impl Swarms {
    /// Returns an agent's state, marked as an export.
    pub fn export(&self, agent: Option<&str>) -> Result<MembershipState, SwarmError> {
        let identity = self.identity(agent)?;
        let snapshot = self.snapshot();
        let state = build_state(&identity, snapshot.swarms_of(&identity.agent).map(AsRef::as_ref));
        Ok(state.exported(self.hub().now()))
    }

    /// Imports a state. Pinned keys are kept except for members in `accept`.
    pub async fn import(
        &self,
        agent: Option<&str>,
        bytes: &[u8],
        mode: ImportMode,
        accept: &[String],
    ) -> Result<ImportSummary, SwarmError> {
        let state = MembershipState::parse(bytes)?;
        let identity = self.identity(agent.or(Some(&state.agent_id)))?;
        if state.agent_id != identity.agent.as_str() {
            let (found, expected) = (state.agent_id, identity.agent.to_string());
            return Err(StateError::Owner { found, expected }.into());
        }
        let mut accepted = BTreeSet::new();
        for id in accept {
            let has_it = |swarm: &SwarmMembership| swarm.members.iter().any(|member| member.agent_id == *id);
            if !state.swarms.values().any(has_it) && !state.public_keys.contains_key(id) {
                return Err(SwarmError::field(
                    "accept-key",
                    format!("names '{id}', but the file has no key for it; use the agent_id of a member"),
                ));
            }
            accepted.insert(PeerId::parse(id)?);
        }
        let now = self.hub().now();
        self.apply_import(&identity, ImportRequest { state, mode, accepted, now }).await
    }

    /// Imports the state file in the agent's folder, for instance when the hub is new.
    pub(crate) async fn import_state_file(&self, agent: &PeerId, mode: ImportMode) -> Result<(), SwarmError> {
        let identity = self.identity(Some(agent.as_str()))?;
        let home = identity.home.clone();
        let found = blocking(move || Ok(open_home(&home)?.read(STATE_FILE, MAX_STATE_BYTES)?)).await?;
        let Some(found) = found else { return Ok(()) };
        let state = MembershipState::parse(&found.bytes)?;
        if state.agent_id != agent.as_str() {
            return Ok(());
        }
        let import = ImportRequest { state, mode, accepted: <_>::default(), now: self.hub().now() };
        let imported = self.apply_import(&identity, import).await?;
        for (id, reason) in &imported.left_out {
            tracing::warn!(%agent, member = %id, "a member in state.json was excluded: {reason}");
        }
        for kept in &imported.kept_keys {
            tracing::warn!(
                %agent, member = %kept.agent, pinned = %kept.pinned.fingerprint(), found = %kept.found.fingerprint(),
                "state.json has another key for a member; the pinned key is kept"
            );
        }
        Ok(())
    }

    async fn apply_import(
        &self,
        identity: &Arc<Identity>,
        import: ImportRequest,
    ) -> Result<ImportSummary, SwarmError> {
        let (agent, now) = (&identity.agent, self.hub().now());
        let mut imported = ImportSummary::default();
        // All swarms are built before the first change, because a refused state must change nothing.
        let mut swarms = Vec::new();
        for membership in import.state.swarms.values() {
            swarms.extend(self.build_swarm(identity, membership, &import, &mut imported).await?);
        }
        if import.mode == ImportMode::Replace {
            for swarm in self.snapshot().swarms_of(agent) {
                if !import.state.swarms.contains_key(&swarm.swarm_id.to_string()) && swarm.is_active() {
                    // The departure is not announced, because the agent continues elsewhere.
                    self.edit_swarm(agent, swarm.swarm_id, |swarm| {
                        swarm.status = MembershipStatus::Left;
                        Ok(())
                    })
                    .await?;
                }
            }
        }
        imported.swarms = swarms.len();
        for swarm in swarms {
            let id = swarm.swarm_id;
            store::edit_swarm(self.hub(), agent, id, move |slot| {
                *slot = Some(swarm);
                Ok(())
            })
            .await?;
            self.refresh().await?;
            self.send_announcements(agent, id).await?;
            self.sync_directory(agent, id).await?;
        }
        self.edit_identity(agent, move |identity| {
            import_lists(identity, &import, now);
            Ok(())
        })
        .await?;
        Ok(imported)
    }

    /// Builds a swarm from a state, if the mode imports it.
    async fn build_swarm(
        &self,
        identity: &Identity,
        membership: &SwarmMembership,
        import: &ImportRequest,
        imported: &mut ImportSummary,
    ) -> Result<Option<Swarm>, SwarmError> {
        let (agent, now) = (&identity.agent, self.hub().now());
        let Ok(id) = Uuid::try_parse(&membership.swarm_id) else { return Ok(None) };
        if !membership.members.iter().any(|member| member.agent_id == agent.as_str()) {
            return Ok(None);
        }
        let known = self.snapshot().swarms.get(&(agent.clone(), id)).cloned();
        let is_kept = known.as_ref().is_some_and(|known| match import.mode {
            ImportMode::Replace => false,
            ImportMode::Add => known.is_active(),
            ImportMode::UnknownOnly => true,
        });
        if is_kept {
            return Ok(None);
        }
        let master = PeerId::parse(&membership.master)?;
        let refuse = |clash: MemberConflict| StateError::Shape {
            path: format!("swarms.{id}.members"),
            problem: clash.to_string(),
        };
        let mut entries = read_members(membership, now)?;
        mark_provisional(&mut entries, known.as_deref(), master == *agent);
        let (entries, left_out) = filter_roster(agent, &master, entries).map_err(refuse)?;
        // The epoch of a file is unknown. With 0, the next message shows that the roster is behind, and the roster is
        // requested; a master has no other source for the roster and keeps its own epoch.
        let counted = known.as_ref().filter(|_| master == *agent).map_or(0, |known| known.epoch);
        let kept = known.as_deref();
        let mut swarm = Swarm {
            swarm_id: id,
            realm: self.choose_realm(agent, id, None, &membership.name).await?,
            name: membership.name.clone(),
            master,
            epoch: counted,
            members: <_>::default(),
            joined_at: timestamp::parse(&membership.joined_at).unwrap_or(now),
            settings: membership.settings,
            status: MembershipStatus::Active,
            former: kept.map(|known| known.former.clone()).unwrap_or_default(),
            invites: kept.map(|known| known.invites.clone()).unwrap_or_default(),
            announced: <_>::default(),
            banned: kept.map(|known| known.banned.clone()).unwrap_or_default(),
            pending: kept.map(|known| known.pending.clone()).unwrap_or_default(),
            announcements: kept.map(|known| known.announcements.clone()).unwrap_or_default(),
            rotations: kept.map(|known| known.rotations.clone()).unwrap_or_default(),
            handover: None,
            invites_since: kept.map_or(now, |known| known.invites_since),
            orders: kept.map(|known| known.orders.clone()).unwrap_or_default(),
            left_out,
        };
        for member in entries {
            if let Some(reason) = swarm.import_member(identity, kept, import, member, imported) {
                return Err(refuse(reason).into());
            }
        }
        imported.left_out.extend(swarm.left_out.clone());
        Ok(Some(swarm))
    }
}

impl Swarm {
    /// Adds a member of a state with its pinned key. Returns the conflict if the member is our agent or the master.
    fn import_member(
        &mut self,
        identity: &Identity,
        known: Option<&Self>,
        import: &ImportRequest,
        entries: RosterEntry,
        imported: &mut ImportSummary,
    ) -> Option<MemberConflict> {
        let RosterEntry { id, endpoint, public_key: found, joined_at, provisional } = entries;
        if self.banned.contains_key(&id) {
            // A state file does not undo a ban, whatever dates it contains.
            self.left_out.insert(id.to_string(), "it was removed from the swarm; invite it again".to_owned());
            return None;
        }
        let kept = known.and_then(|known| known.members.get(&id).or_else(|| known.former.get(&id)));
        let pinned = if id == identity.agent {
            Some(&identity.public_key)
        } else {
            kept.map(|kept| &kept.public_key).filter(|_| !import.accepted.contains(&id))
        };
        let key = pinned.unwrap_or(&found).clone();
        if key != found && id != identity.agent {
            imported.kept_keys.push(KeyConflict { agent: id.clone(), pinned: key.clone(), found });
        }
        if let Err(clash) = self.members.check(&id, &key, provisional) {
            if id == self.master || id == identity.agent {
                return Some(clash);
            }
            self.left_out.insert(id.to_string(), clash.to_string());
            return None;
        }
        self.insert_entry(RosterEntry { id: id.clone(), endpoint, public_key: key, joined_at, provisional });
        if let (Some(kept), Some(member)) = (kept, self.members.get_mut(&id)) {
            let is_same = kept.public_key == member.public_key;
            let accepted = std::mem::replace(&mut member.public_key, kept.public_key.clone());
            member.replaced_keys.clone_from(&kept.replaced_keys);
            if !is_same {
                member.replace_key(accepted);
            }
            member.name = kept.name.clone();
            member.signs_envelopes = kept.signs_envelopes && is_same;
            member.confirmed_at = kept.confirmed_at.filter(|_| is_same);
            member.proved_by_message = kept.proved_by_message && is_same;
            member.signed_at = kept.signed_at.filter(|_| is_same);
            member.endpoint_change = kept.endpoint_change_to(&member.endpoint, import.now);
        }
        None
    }
}

/// Marks members of a state file as provisional.
///
/// These are known provisional members, members that share a key and, in a swarm led by another agent, unknown members.
fn mark_provisional(entries: &mut [RosterEntry], known: Option<&Swarm>, is_led: bool) {
    let keys: Vec<PublicKey> = entries.iter().map(|member| member.public_key.clone()).collect();
    for member in entries {
        let kept =
            known.and_then(|known| known.members.get(&member.id).or_else(|| known.former.get(&member.id)));
        let is_shared = keys.iter().filter(|key| **key == member.public_key).count() > 1;
        member.provisional = match kept.filter(|kept| kept.public_key == member.public_key) {
            Some(kept) => kept.provisional,
            None => is_shared || !is_led,
        };
    }
}

/// Parses the members of a state.
fn read_members(membership: &SwarmMembership, now: Timestamp) -> Result<Vec<RosterEntry>, SwarmError> {
    let read = |member: &StateMember| {
        Ok(RosterEntry {
            id: PeerId::parse(&member.agent_id)?,
            endpoint: Endpoint::parse(&member.endpoint)?,
            public_key: PublicKey::parse(&member.public_key)?,
            joined_at: timestamp::parse(&member.joined_at).unwrap_or(now),
            // The state file does not contain this value; `mark_provisional` sets it.
            provisional: false,
        })
    };
    membership.members.iter().map(read).collect()
}

fn import_lists(identity: &mut Identity, import: &ImportRequest, now: Timestamp) {
    let ImportRequest { state, mode, accepted, .. } = import;
    if *mode == ImportMode::UnknownOnly {
        return;
    }
    if *mode == ImportMode::Replace {
        identity.muted_agents.clear();
        identity.muted_swarms.clear();
        identity.known_keys.retain(|id, _| state.public_keys.contains_key(id.as_str()));
    }
    identity.muted_swarms.extend(state.muted_swarms.iter().filter_map(|id| Uuid::try_parse(id).ok()));
    identity.muted_agents.extend(state.muted_agents.iter().filter_map(|id| PeerId::parse(id).ok()));
    for (id, key) in &state.public_keys {
        let (Ok(id), Ok(public_key)) = (PeerId::parse(id), PublicKey::parse(&key.public_key)) else {
            continue;
        };
        let fetched_at = timestamp::parse(&key.fetched_at).unwrap_or(now);
        let known = LearnedKey { public_key, fetched_at, endpoint: key.endpoint.clone() };
        if accepted.contains(&id) {
            identity.known_keys.insert(id, known);
        } else {
            identity.known_keys.entry(id).or_insert(known);
        }
    }
}
