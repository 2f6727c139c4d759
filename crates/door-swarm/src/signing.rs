//! Message signatures (§4.4), and an extension: the signature over the whole envelope.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::keys::{PublicKey, SecretKey};
use crate::wire::{Envelope, MessageType};
use switchboard_core::json::canonicalize;

/// Metadata key of the envelope signature.
pub(crate) const ENVELOPE_SIGNATURE: &str = "envelope_signature";

/// Capability in `/info`: the agent signs whole envelopes.
///
/// The agent also requires such signatures from members that have once sent one.
pub(crate) const ENVELOPE_CAPABILITY: &str = "envelope-signature-v1";

/// Domain separator of the envelope signature.
///
/// The NUL byte distinguishes the signed bytes from a token, which has no NUL. The length distinguishes them from a
/// message digest, which has 32 bytes.
const ENVELOPE_DOMAIN: &[u8] = b"asp-envelope-v1\0";

/// The fields that a message signature covers, in signing order.
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

    /// Returns the signed bytes: the fields concatenated without separators.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        [self.message_id, self.timestamp, self.swarm_id, self.recipient, self.kind.as_str(), self.content]
            .concat()
            .into_bytes()
    }

    /// Signs the SHA-256 of the payload with Ed25519 and returns base64.
    pub(crate) fn sign(&self, key: &SecretKey) -> String {
        let digest: [u8; 32] = Sha256::digest(self.bytes()).into();
        STANDARD.encode(key.sign(&digest))
    }

    /// Verifies a signature over the payload.
    pub(crate) fn verify(&self, key: &PublicKey, signature: &str) -> bool {
        let Ok(signature) = STANDARD.decode(signature) else { return false };
        let bytes = self.bytes();
        let digest: [u8; 32] = Sha256::digest(&bytes).into();
        key.verify_digest(&bytes, &digest, &signature)
    }
}

/// Signs a whole envelope without its signatures.
///
/// Returns `None` if the envelope contains a number without an exact form.
pub(crate) fn sign_envelope(key: &SecretKey, envelope: &Value) -> Option<String> {
    Some(STANDARD.encode(key.sign(&envelope_bytes(envelope)?)))
}

/// Verifies an envelope signature. Returns `None` if the envelope has no such signature.
pub(crate) fn verify_envelope(key: &PublicKey, envelope: &Value) -> Option<bool> {
    let signature = envelope.get("metadata")?.get(ENVELOPE_SIGNATURE)?;
    let verified = key.ed25519().is_some()
        && signature.as_str().and_then(|text| STANDARD.decode(text).ok()).is_some_and(|signature| {
            envelope_bytes(envelope).is_some_and(|bytes| key.verify_bytes(&bytes, &signature))
        });
    Some(verified)
}

/// Returns the canonical bytes of an envelope without its two signatures.
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
    bytes.extend(canonicalize(&Value::Object(bare))?);
    Some(bytes)
}

#[cfg(test)]
#[path = "signing_tests.rs"]
pub(crate) mod tests;
