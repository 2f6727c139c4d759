//! Key rotation of a member: authority and proof of possession.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use uuid::Uuid;

use super::{UpdateContext, UpdateError, UpdateOutcome};
use crate::agent_id::PeerId;
use crate::contested_key::KeyProof;
use crate::keys::{PublicKey, SecretKey};
use crate::model::{Member, Swarm};
use crate::wire::SystemContent;

/// Domain separator of the proof of possession.
const KEY_DOMAIN: &str = "asp-key-v1\0";

/// Maximum number of replaced keys that are stored per member. The master has counted older rotations by then.
const MAX_REPLACED_KEYS: usize = 8;

impl Member {
    /// Replaces the member's key after the member's own message or a person's decision. No roster restores the old key.
    pub(crate) fn replace_key(&mut self, key: PublicKey) {
        let extra = (self.replaced_keys.len() + 1).saturating_sub(MAX_REPLACED_KEYS);
        self.replaced_keys.drain(..extra);
        self.replaced_keys.push(std::mem::replace(&mut self.public_key, key));
        self.replaced_keys.retain(|replaced| *replaced != self.public_key);
    }
}

impl Swarm {
    /// Applies a member's key rotation, signed with its old key or announced by the master.
    pub(super) fn on_key_rotated(
        &mut self,
        context: &UpdateContext<'_>,
        content: &SystemContent,
    ) -> Result<UpdateOutcome, UpdateError> {
        let id = context.subject_of(content)?;
        if id != *context.sender {
            self.require_master(context, "key_rotated")?;
        }
        let key = content.public_key.as_deref().ok_or(UpdateError::Field { field: "public_key" })?;
        let key = PublicKey::parse(key).map_err(|_| UpdateError::Field { field: "public_key" })?;
        let proof = content.proof.as_deref().unwrap_or_default();
        if !verify_key_proof(&key, self.swarm_id, &id, proof) {
            return Err(UpdateError::NoProof);
        }
        // The rotation proves the new key, so provisional members that name this key give way.
        if self.key_holder(&key, &id).is_some() {
            return Err(UpdateError::Taken);
        }
        let is_own = id == *context.sender;
        let is_old = is_own && self.orders.rekeyed_at(&id).is_some_and(|last| context.at <= last);
        if is_old || (!is_own && self.is_superseded(context, content, &id, false)) {
            return Ok(UpdateOutcome::Nothing);
        }
        // An update of the master advances the epoch; a member's own message has no epoch.
        let mut step = UpdateOutcome::Changed;
        if *context.sender == self.master && content.epoch.is_some() {
            let Some(counted) = self.advance_epoch(content.epoch) else { return Ok(UpdateOutcome::Nothing) };
            step = counted;
        }
        if is_own {
            self.orders.record_rekey(context, &id);
        } else {
            self.orders.record_master_update(context, &id);
        }
        let unchanged =
            if step == UpdateOutcome::Behind { UpdateOutcome::Behind } else { UpdateOutcome::Nothing };
        let Some(member) = self.members.get_mut(&id) else { return Ok(unchanged) };
        member.offered_key = None;
        if member.public_key == key {
            return Ok(unchanged);
        }
        let wire = key.to_wire();
        if is_own {
            member.replace_key(key);
        } else if member.replaced_keys.contains(&key) {
            // The master relays a rotation that is older than the last one that the member itself announced.
            return Ok(unchanged);
        } else {
            member.public_key = key;
        }
        member.confirmed_at = Some(context.now);
        self.settle_key(context.me, &id, KeyProof::Signature);
        if id == *context.sender {
            self.revoke_invites_of(&id);
            let notice = SystemContent {
                agent_id: Some(id.to_string()),
                public_key: Some(wire),
                proof: content.proof.clone(),
                ..SystemContent::new("key_rotated")
            };
            self.announce_as_master(context, notice);
        }
        Ok(step)
    }

    /// Revokes the open invites of a member whose key has changed, and returns their number.
    ///
    /// The old key signed these invites.
    pub(crate) fn revoke_invites_of(&mut self, issuer: &PeerId) -> usize {
        let open = self.invites.values_mut().filter(|invite| invite.issuer == *issuer && !invite.revoked);
        open.map(|invite| invite.revoked = true).count()
    }
}

/// Returns the bytes that a new key signs to state that it belongs to this agent of this swarm.
fn key_statement(key: &PublicKey, swarm: Uuid, agent: &PeerId) -> Vec<u8> {
    format!("{KEY_DOMAIN}{swarm}\0{agent}\0{}", key.to_wire()).into_bytes()
}

/// Signs the proof that an agent possesses its new key.
pub(crate) fn prove_key(key: &SecretKey, swarm: Uuid, agent: &PeerId) -> String {
    let signature = key.sign(&key_statement(&key.public(), swarm, agent));
    STANDARD.encode(signature)
}

fn verify_key_proof(key: &PublicKey, swarm: Uuid, agent: &PeerId, proof: &str) -> bool {
    let proof = STANDARD.decode(proof);
    proof.is_ok_and(|proof| key.verify_bytes(&key_statement(key, swarm, agent), &proof))
}
