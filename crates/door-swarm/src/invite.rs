//! Invites (§5.2): tokens signed by the master, or by a member where the swarm allows it.
//!
//! The parser is written by hand and strict: it accepts one algorithm and one encoding, and uses no keys or URLs from
//! the token's own header.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use switchboard_core::{describe_field_error, describe_json_error};
use uuid::Uuid;

use crate::agent_id::PeerId;
use crate::endpoint::Endpoint;
use crate::keys::{PublicKey, SecretKey};
use crate::timestamp;

/// The JWT header of our tokens.
const HEADER: &str = r#"{"alg":"EdDSA","typ":"JWT"}"#;

/// Maximum token size. Our own tokens have about 500 bytes.
const MAX_BYTES: usize = 4096;

/// The claims of an invite.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Invite {
    /// The swarm.
    pub swarm_id: Uuid,
    /// The master.
    pub master: PeerId,
    /// The master's endpoint, which receives the join request.
    pub endpoint: Endpoint,
    /// Creation time, as a Unix time.
    pub iat: i64,
    /// Expiry time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// The registered JWT claim for the expiry time, which other programs may write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exp: Option<i64>,
    /// Maximum number of agents that may join with the invite.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_uses: Option<u32>,
    /// The master's key, with which the invited agent can verify the token before sending it. This field is an
    /// extension.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub master_key: Option<PublicKey>,
    /// The inviting member, if it is not the master. This field is an extension.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<PeerId>,
}

/// A parsed token whose signature is not verified yet.
#[derive(Debug, Clone)]
pub(crate) struct Token {
    pub(crate) invite: Invite,
    signed: String,
    signature: Vec<u8>,
}

/// An invite link, `swarm://<swarm_id>@<host>?token=<jwt>`. The token is redacted when the link is displayed.
#[derive(Clone, PartialEq, Eq)]
pub struct InviteLink {
    /// The swarm.
    pub swarm_id: Uuid,
    /// The master's host and port.
    pub authority: String,
    /// The invite token. Any agent that has the token can join.
    pub token: String,
}

/// Reason why an invite is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InviteError {
    /// The link is malformed.
    #[error("the invite is not of the form swarm://SWARM_ID@HOST?token=TOKEN: {problem}")]
    Link {
        /// The rule that the link breaks.
        problem: &'static str,
    },
    /// The token is malformed.
    #[error("the invite's token is refused: {problem}")]
    Token {
        /// The rule that the token breaks.
        problem: String,
    },
    /// Link and token disagree.
    #[error("the invite's link and its token name different {what}; ask for a new invite")]
    Mismatch {
        /// The field that differs.
        what: &'static str,
    },
    /// The token is not signed by the inviter.
    #[error("the invite's signature is not its issuer's")]
    Signature,
    /// The invite has expired.
    #[error("the invite expired at {at}; ask for a new one")]
    Expired {
        /// Expiry time.
        at: String,
    },
}

impl Invite {
    /// Returns the expiry time: the earlier of `expires_at` and `exp`.
    pub fn ends_at(&self) -> Result<Option<Timestamp>, InviteError> {
        let bad = |field: &str| InviteError::Token { problem: format!("'{field}' is not a time in UTC") };
        let named = match &self.expires_at {
            Some(text) => Some(timestamp::parse(text).ok_or_else(|| bad("expires_at"))?),
            None => None,
        };
        let counted = match self.exp {
            Some(seconds) => Some(Timestamp::from_second(seconds).map_err(|_| bad("exp"))?),
            None => None,
        };
        Ok([named, counted].into_iter().flatten().min())
    }

    /// Checks that the invite has not expired.
    pub fn check_time(&self, now: Timestamp) -> Result<(), InviteError> {
        match self.ends_at()? {
            Some(end) if end <= now => Err(InviteError::Expired { at: timestamp::render(end) }),
            _ => Ok(()),
        }
    }

    /// Returns the agent that must have signed the invite.
    pub fn signer(&self) -> &PeerId {
        self.issuer.as_ref().unwrap_or(&self.master)
    }

    /// Signs the invite and returns the token.
    pub(crate) fn sign(&self, key: &SecretKey) -> String {
        // A struct of strings and numbers always serializes.
        let claims = serde_json::to_string(self).unwrap_or_default();
        let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(HEADER), URL_SAFE_NO_PAD.encode(claims));
        let signature = URL_SAFE_NO_PAD.encode(key.sign(signed.as_bytes()));
        format!("{signed}.{signature}")
    }

    /// Builds the link that carries a token of this invite.
    pub(crate) fn link(&self, token: String) -> InviteLink {
        InviteLink { swarm_id: self.swarm_id, authority: self.endpoint.authority(), token }
    }
}

impl Token {
    /// Parses a token without verifying its signature.
    pub(crate) fn read(text: &str) -> Result<Self, InviteError> {
        let refuse = |problem: &str| InviteError::Token { problem: problem.to_owned() };
        if text.len() > MAX_BYTES {
            return Err(refuse("it is too long"));
        }
        let (signed, signature) =
            text.rsplit_once('.').ok_or_else(|| refuse("it does not have three parts"))?;
        let (header, claims) =
            signed.split_once('.').ok_or_else(|| refuse("it does not have three parts"))?;
        // The encoding has no padding and its trailing bits are zero, so that every token has exactly one spelling.
        let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).map_err(|_| refuse("it is not base64url"));
        check_header(&decode(header)?)?;
        let claims = crate::wire::parse_json(&decode(claims)?)
            .map_err(|error| refuse(&format!("its claims are not JSON: {}", describe_json_error(&error))))?;
        if !claims.is_object() {
            return Err(refuse("its claims are not an object"));
        }
        let invite: Invite = serde_path_to_error::deserialize(claims).map_err(|error| {
            refuse(&format!("its claim '{}' {}", error.path(), describe_field_error(error.inner())))
        })?;
        if invite.max_uses == Some(0) {
            return Err(refuse("its claim 'max_uses' is 0; it must be 1 or more"));
        }
        invite.ends_at()?;
        Ok(Self { invite, signed: signed.to_owned(), signature: decode(signature)? })
    }

    /// Verifies the signature.
    pub(crate) fn verify(&self, key: &PublicKey) -> Result<(), InviteError> {
        let good = key.ed25519().is_some() && key.verify_bytes(self.signed.as_bytes(), &self.signature);
        if good { Ok(()) } else { Err(InviteError::Signature) }
    }

    /// Returns the digest under which the uses of the invite are counted.
    ///
    /// The digest covers only the signed part, so that a token with another encoding of its signature does not count as
    /// another token.
    pub(crate) fn digest(&self) -> String {
        let digest: [u8; 32] = Sha256::digest(&self.signed).into();
        hex(&digest)
    }
}

/// Encodes bytes in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a String does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Checks that the header names `EdDSA` and has no `crit`. Keys in the header are ignored.
fn check_header(bytes: &[u8]) -> Result<(), InviteError> {
    let refuse = |problem: &str| InviteError::Token { problem: problem.to_owned() };
    let header = crate::wire::parse_json(bytes)
        .map_err(|error| refuse(&format!("its header is not JSON: {}", describe_json_error(&error))))?;
    if header.get("alg").and_then(Value::as_str) != Some("EdDSA") {
        return Err(refuse("its algorithm is not EdDSA"));
    }
    if header.get("crit").is_some() {
        return Err(refuse("its header has 'crit'"));
    }
    match header.get("typ") {
        None => Ok(()),
        Some(typ) if typ.as_str() == Some("JWT") => Ok(()),
        Some(_) => Err(refuse("its type is not JWT")),
    }
}

impl InviteLink {
    /// Parses a link.
    pub fn parse(text: &str) -> Result<Self, InviteError> {
        let bad = |problem| InviteError::Link { problem };
        let rest = text.trim().strip_prefix("swarm://").ok_or(bad("it does not begin with swarm://"))?;
        let (place, token) = rest.split_once("?token=").ok_or(bad("it has no ?token="))?;
        let (swarm, authority) = place.split_once('@').ok_or(bad("it has no @"))?;
        let swarm_id = Uuid::try_parse(swarm).map_err(|_| bad("the swarm id is not a UUID"))?;
        let authority = authority.trim_end_matches('/');
        if authority.is_empty() || Endpoint::parse(&format!("https://{authority}")).is_err() {
            return Err(bad("the host is invalid"));
        }
        Ok(Self { swarm_id, authority: authority.to_ascii_lowercase(), token: token.to_owned() })
    }

    /// Returns the whole link, including its token.
    pub fn reveal(&self) -> String {
        format!("swarm://{}@{}?token={}", self.swarm_id, self.authority, self.token)
    }

    /// Parses the token and checks that it matches the link.
    ///
    /// The signature is verified if the token contains the master's key and the master is the issuer.
    pub(crate) fn open(&self) -> Result<Token, InviteError> {
        let token = Token::read(&self.token)?;
        if token.invite.swarm_id != self.swarm_id {
            return Err(InviteError::Mismatch { what: "swarms" });
        }
        if !token.invite.endpoint.authority().eq_ignore_ascii_case(&self.authority) {
            return Err(InviteError::Mismatch { what: "hosts" });
        }
        if let (Some(key), None) = (&token.invite.master_key, &token.invite.issuer) {
            token.verify(key)?;
        }
        Ok(token)
    }
}

impl fmt::Display for InviteLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "swarm://{}@{}?token=(secret)", self.swarm_id, self.authority)
    }
}

impl fmt::Debug for InviteLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
#[path = "invite_tests.rs"]
mod tests;
