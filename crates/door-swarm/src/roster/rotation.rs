//! A member's new key: who may say it, and the proof that it has it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use uuid::Uuid;

use super::{Applied, NoAuthority, Said};
use crate::agent_id::PeerId;
use crate::contest::KeyProof;
use crate::keys::{PublicKey, SecretKey};
use crate::ledger::{Member, Swarm};
use crate::wire::SystemContent;

/// What the proof of a new key begins with.
const KEY_DOMAIN: &str = "asp-key-v1\0";

/// Most replaced keys that are remembered of a member. The master has counted earlier ones by then.
const MOST_REPLACED: usize = 8;

impl Member {
    /// Replaces its key on its own word, or on a person's: no roster brings the key before back.
    pub(crate) fn replace_key(&mut self, key: PublicKey) {
        let extra = (self.replaced_keys.len() + 1).saturating_sub(MOST_REPLACED);
        self.replaced_keys.drain(..extra);
        self.replaced_keys.push(std::mem::replace(&mut self.public_key, key));
        self.replaced_keys.retain(|replaced| *replaced != self.public_key);
    }
}

impl Swarm {
    /// A member's new key, on its own word with the old one, or on the master's.
    pub(super) fn on_key_rotated(
        &mut self,
        said: &Said<'_>,
        content: &SystemContent,
    ) -> Result<Applied, NoAuthority> {
        let id = match content.subject() {
            Some(id) => PeerId::parse(id).map_err(|_| NoAuthority::Field { field: "agent_id" })?,
            None => said.sender.clone(),
        };
        if id != *said.sender {
            self.only_master(said, "key_rotated")?;
        }
        let key = content.public_key.as_deref().ok_or(NoAuthority::Field { field: "public_key" })?;
        let key = PublicKey::parse(key).map_err(|_| NoAuthority::Field { field: "public_key" })?;
        let proof = content.proof.as_deref().unwrap_or_default();
        if !verify_key_proof(&key, self.swarm_id, &id, proof) {
            return Err(NoAuthority::NoProof);
        }
        // The proof is by the new key: provisional members that name it give way.
        if self.key_holder(&key, &id).is_some() {
            return Err(NoAuthority::Taken);
        }
        let is_own = id == *said.sender;
        let is_old = is_own && self.orders.rekeyed_at(&id).is_some_and(|last| said.at <= last);
        if is_old || (!is_own && self.is_overtaken(said, content, &id, false)) {
            return Ok(Applied::Nothing);
        }
        // Where the master counts it, what was counted before is old; a member's own word is not counted.
        let mut step = Applied::Changed;
        if *said.sender == self.master && content.epoch.is_some() {
            let Some(counted) = self.step(content.epoch) else { return Ok(Applied::Nothing) };
            step = counted;
        }
        if is_own {
            self.orders.note_rekeyed(said, &id);
        } else {
            self.orders.note_ordered(said, &id);
        }
        let unchanged = if step == Applied::Behind { Applied::Behind } else { Applied::Nothing };
        let Some(member) = self.members.get_mut(&id) else { return Ok(unchanged) };
        member.offered_key = None;
        if member.public_key == key {
            return Ok(unchanged);
        }
        let wire = key.to_wire();
        if is_own {
            member.replace_key(key);
        } else if member.replaced_keys.contains(&key) {
            // The master passes on an earlier change than the last one that the member has told us itself.
            return Ok(unchanged);
        } else {
            member.public_key = key;
        }
        member.confirmed_at = Some(said.now);
        self.settle_key(said.me, &id, KeyProof::Signature);
        if id == *said.sender {
            self.end_invites_of(&id);
            let told = SystemContent {
                agent_id: Some(id.to_string()),
                public_key: Some(wire),
                proof: content.proof.clone(),
                ..SystemContent::new("key_rotated")
            };
            self.pass_on(said, told);
        }
        Ok(step)
    }

    /// Ends the open invites of somebody whose key has changed: they are signed with the one before. Says how many.
    pub(crate) fn end_invites_of(&mut self, issuer: &PeerId) -> usize {
        let open = self.invites.values_mut().filter(|invite| invite.issuer == *issuer && !invite.revoked);
        open.map(|invite| invite.revoked = true).count()
    }
}

/// Bytes that the owner of a new key signs with it: that this agent of this swarm has it.
fn key_statement(key: &PublicKey, swarm: Uuid, agent: &PeerId) -> Vec<u8> {
    format!("{KEY_DOMAIN}{swarm}\0{agent}\0{}", key.to_wire()).into_bytes()
}

/// The proof that an agent has its new key.
pub(crate) fn prove_key(key: &SecretKey, swarm: Uuid, agent: &PeerId) -> String {
    let signature = key.sign(&key_statement(&key.public(), swarm, agent));
    STANDARD.encode(signature)
}

fn verify_key_proof(key: &PublicKey, swarm: Uuid, agent: &PeerId, proof: &str) -> bool {
    let proof = STANDARD.decode(proof);
    proof.is_ok_and(|proof| key.verify_bytes(&key_statement(key, swarm, agent), &proof))
}
