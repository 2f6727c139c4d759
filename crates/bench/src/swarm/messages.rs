//! Messages of other owners, signed before they are sent, as the owners' programs would sign them.

use anyhow::Context;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::{Signer as _, SigningKey};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::stage::{AGENT, Peer, Stage};
use super::timestamp;
use crate::load::body;

/// Domain separator for the signature of an envelope.
const ENVELOPE: &[u8] = b"asp-envelope-v1\0";

/// Signatures that a message carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seal {
    /// Only the message signature, which the protocol requires.
    Message,
    /// The message signature and a signature of the complete envelope.
    Envelope,
}

/// Signed message, ready to be sent.
pub(super) struct SignedMessage {
    /// Number of the sender of the message.
    pub(super) sender: usize,
    /// Id of the message in the swarm.
    pub(super) id: String,
    /// Bytes that were signed.
    pub(super) signed: Vec<u8>,
    pub(super) digest: [u8; 32],
    pub(super) signature: [u8; 64],
    /// Complete HTTP request, including the body.
    pub(super) request: Vec<u8>,
}

/// Senders of messages: agents with one key each.
pub(super) struct Senders {
    pub(super) senders: Vec<(String, SigningKey)>,
}

impl Senders {
    pub(super) fn new(count: usize, name: &str) -> Self {
        let key = || {
            let halves = [fastrand::u128(..).to_le_bytes(), fastrand::u128(..).to_le_bytes()];
            let mut seed = [0; 32];
            seed[..16].copy_from_slice(&halves[0]);
            seed[16..].copy_from_slice(&halves[1]);
            SigningKey::from_bytes(&seed)
        };
        Self { senders: (0..count).map(|number| (format!("{name}-{number}"), key())).collect() }
    }

    /// Returns the senders as roster entries. The senders receive no messages.
    pub(super) fn peers(&self) -> impl Iterator<Item = Peer> {
        self.senders.iter().map(|(id, key)| Peer {
            id: id.clone(),
            endpoint: format!("https://{id}.example.com/swarm"),
            public_key: public(key),
        })
    }

    /// Builds signed messages to the agent of the stage, with the senders in turn.
    pub(super) fn write(
        &self,
        stage: &Stage,
        count: usize,
        seal: Seal,
    ) -> anyhow::Result<Vec<SignedMessage>> {
        let content = body();
        let senders = self.senders.iter().enumerate().cycle().take(count);
        senders.map(|(number, (id, key))| sign_message(stage, number, id, key, &content, seal)).collect()
    }
}

/// Formats the public key of a sender as in a roster.
pub(super) fn public(key: &SigningKey) -> String {
    STANDARD.encode(key.verifying_key().as_bytes())
}

/// Creates a version 4 UUID.
pub(super) fn new_uuid() -> Uuid {
    uuid::Builder::from_random_bytes(fastrand::u128(..).to_be_bytes()).into_uuid()
}

fn sign_message(
    stage: &Stage,
    sender: usize,
    from: &str,
    key: &SigningKey,
    content: &str,
    seal: Seal,
) -> anyhow::Result<SignedMessage> {
    let (id, now, swarm) = (new_uuid().to_string(), timestamp(), stage.swarm.to_string());
    let signed = [&id, &now, &swarm, AGENT, "message", content].concat().into_bytes();
    let digest: [u8; 32] = Sha256::digest(&signed).into();
    let signature = key.sign(&digest).to_bytes();
    let mut envelope = json!({
        "protocol_version": "0.1.0", "message_id": id, "timestamp": now,
        "sender": { "agent_id": from, "endpoint": format!("https://{from}.example.com/swarm") },
        "recipient": AGENT, "swarm_id": swarm, "type": "message", "content": content,
    });
    if seal == Seal::Envelope {
        let mut bytes = ENVELOPE.to_vec();
        bytes.extend(serde_json_canonicalizer::to_vec(&envelope)?);
        let signature = STANDARD.encode(key.sign(&bytes).to_bytes());
        envelope["metadata"] = json!({ "envelope_signature": signature });
    }
    let fields = envelope.as_object_mut().context("an envelope is an object")?;
    fields.insert("signature".to_owned(), Value::String(STANDARD.encode(signature)));
    let body = envelope.to_string();
    let request = format!(
        "POST /swarm/message HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nContent-Type: application/json\r\n\
         X-Agent-ID: {from}\r\nX-Swarm-Protocol: 0.1.0\r\nContent-Length: {}\r\n\r\n{body}",
        stage.port,
        body.len()
    );
    Ok(SignedMessage { sender, id, signed, digest, signature, request: request.into_bytes() })
}
