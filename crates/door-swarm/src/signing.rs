//! What is signed, and how (§4.4), and the signature over a whole envelope that goes beyond it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::canonical::canonical;
use crate::keys::{PublicKey, SecretKey};
use crate::wire::{Envelope, MessageType};

/// Where in the metadata the signature over the whole envelope travels.
pub(crate) const ENVELOPE_SIGNATURE: &str = "envelope_signature";

/// How `/info` says that an agent makes such signatures and expects them of those who have begun to.
pub(crate) const ENVELOPE_CAPABILITY: &str = "envelope-signature-v1";

/// What the signed bytes of a whole envelope begin with. The NUL keeps them apart from a token's, which has none, and
/// their length from a message's, whose digest has 32 bytes.
const ENVELOPE_DOMAIN: &[u8] = b"asp-envelope-v1\0";

/// What a message's signature says something of, in the order in which it is signed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Payload<'a> {
    pub(crate) message_id: &'a str,
    pub(crate) timestamp: &'a str,
    pub(crate) swarm_id: &'a str,
    pub(crate) recipient: &'a str,
    pub(crate) kind: MessageType,
    pub(crate) content: &'a str,
}

impl<'a> Payload<'a> {
    pub(crate) fn of(envelope: &'a Envelope) -> Self {
        Self {
            message_id: &envelope.message_id,
            timestamp: &envelope.timestamp,
            swarm_id: &envelope.swarm_id,
            recipient: &envelope.recipient,
            kind: envelope.kind,
            content: &envelope.content,
        }
    }

    /// The signed bytes: the fields one after the other, with nothing between them.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        [self.message_id, self.timestamp, self.swarm_id, self.recipient, self.kind.as_str(), self.content]
            .concat()
            .into_bytes()
    }

    /// Signs it: Ed25519 over the 32 bytes of its SHA-256, base64.
    pub(crate) fn sign(&self, key: &SecretKey) -> String {
        let digest: [u8; 32] = Sha256::digest(self.bytes()).into();
        STANDARD.encode(key.sign(&digest))
    }

    /// Whether the signature is that key's over it.
    pub(crate) fn verify(&self, key: &PublicKey, signature: &str) -> bool {
        let Ok(signature) = STANDARD.decode(signature) else { return false };
        let bytes = self.bytes();
        let digest: [u8; 32] = Sha256::digest(&bytes).into();
        key.verify_digest(&bytes, &digest, &signature)
    }
}

/// Signs a whole envelope, as it is apart from its signatures; `None` where a number in it has no exact form.
pub(crate) fn sign_envelope(key: &SecretKey, envelope: &Value) -> Option<String> {
    Some(STANDARD.encode(key.sign(&envelope_bytes(envelope)?)))
}

/// Whether a whole envelope is signed, and rightly. `None` where it carries no such signature.
pub(crate) fn verify_envelope(key: &PublicKey, envelope: &Value) -> Option<bool> {
    let signature = envelope.get("metadata")?.get(ENVELOPE_SIGNATURE)?;
    let verified = key.ed25519().is_some()
        && signature.as_str().and_then(|text| STANDARD.decode(text).ok()).is_some_and(|signature| {
            envelope_bytes(envelope).is_some_and(|bytes| key.verify_bytes(&bytes, &signature))
        });
    Some(verified)
}

/// The canonical form of an envelope without its two signatures.
fn envelope_bytes(envelope: &Value) -> Option<Vec<u8>> {
    let mut bare = envelope.as_object()?.clone();
    bare.remove("signature");
    if let Some(Value::Object(metadata)) = bare.get_mut("metadata") {
        metadata.remove(ENVELOPE_SIGNATURE);
        if metadata.is_empty() {
            bare.remove("metadata");
        }
    }
    let mut bytes = ENVELOPE_DOMAIN.to_vec();
    bytes.extend(canonical(&Value::Object(bare))?);
    Some(bytes)
}

#[cfg(test)]
#[path = "signing_tests.rs"]
pub(crate) mod tests;
