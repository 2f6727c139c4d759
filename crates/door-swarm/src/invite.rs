//! §5.2: invites. A token that the master, or a member where the swarm allows it, has signed.
//!
//! Read by hand and strictly: one algorithm, one spelling, no keys or addresses from the token's own header.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::agent_id::PeerId;
use crate::endpoint::Endpoint;
use crate::keys::{PublicKey, SecretKey};
use crate::{stamp, strict};

/// The one header that we write.
const HEADER: &str = r#"{"alg":"EdDSA","typ":"JWT"}"#;

/// A token of ours has about 500 bytes.
const MAX_BYTES: usize = 4096;

/// What an invite says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Invite {
    /// The swarm.
    pub swarm_id: Uuid,
    /// Who leads it.
    pub master: PeerId,
    /// Where to ask.
    pub endpoint: Endpoint,
    /// When it was made, in seconds since 1970.
    pub iat: i64,
    /// When it ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// The same as standard readers of tokens expect it, where somebody wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exp: Option<i64>,
    /// How many may join by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_uses: Option<u32>,
    /// The master's key, so that whoever is invited can check the token before sending it. An extension.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub master_key: Option<PublicKey>,
    /// The member who invites, where it is not the master. An extension.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<PeerId>,
}

/// A token whose parts have been read and whose signature has not been looked at.
#[derive(Debug, Clone)]
pub(crate) struct Token {
    pub(crate) invite: Invite,
    signed: String,
    signature: Vec<u8>,
}

/// `swarm://<swarm_id>@<host>?token=<jwt>`. Shown without its token.
#[derive(Clone, PartialEq, Eq)]
pub struct InviteLink {
    /// The swarm.
    pub swarm_id: Uuid,
    /// The master's host and port.
    pub authority: String,
    /// The token. Whoever has it can join.
    pub token: String,
}

/// Why an invite is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InviteError {
    /// The link has another form.
    #[error("the invite is not of the form swarm://SWARM_ID@HOST?token=TOKEN: {problem}")]
    Link {
        /// What is wrong.
        problem: &'static str,
    },
    /// The token cannot be read.
    #[error("the invite's token is refused: {problem}")]
    Token {
        /// What is wrong.
        problem: String,
    },
    /// Link and token disagree.
    #[error("the invite's link and its token name different {what}; ask for a new invite")]
    Mismatch {
        /// What they disagree on.
        what: &'static str,
    },
    /// The signature is not the inviter's.
    #[error("the invite is not signed by whom it says")]
    Signature,
    /// It has ended.
    #[error("the invite ended at {at}; ask for a new one")]
    Expired {
        /// When.
        at: String,
    },
}

impl Invite {
    /// When it ends, whichever way that is said; the earlier of the two where both are.
    pub fn ends_at(&self) -> Result<Option<Timestamp>, InviteError> {
        let bad = |field: &str| InviteError::Token { problem: format!("'{field}' is not a time in UTC") };
        let named = match &self.expires_at {
            Some(text) => Some(stamp::parse(text).ok_or_else(|| bad("expires_at"))?),
            None => None,
        };
        let counted = match self.exp {
            Some(seconds) => Some(Timestamp::from_second(seconds).map_err(|_| bad("exp"))?),
            None => None,
        };
        Ok([named, counted].into_iter().flatten().min())
    }

    /// Whether it has not ended yet.
    pub fn check_time(&self, now: Timestamp) -> Result<(), InviteError> {
        match self.ends_at()? {
            Some(end) if end <= now => Err(InviteError::Expired { at: stamp::render(end) }),
            _ => Ok(()),
        }
    }

    /// Who must have signed it.
    pub fn signer(&self) -> &PeerId {
        self.issuer.as_ref().unwrap_or(&self.master)
    }

    /// The token, signed.
    pub(crate) fn sign(&self, key: &SecretKey) -> String {
        // A struct of texts and numbers can always be written.
        let claims = serde_json::to_string(self).unwrap_or_default();
        let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(HEADER), URL_SAFE_NO_PAD.encode(claims));
        let signature = URL_SAFE_NO_PAD.encode(key.sign(signed.as_bytes()));
        format!("{signed}.{signature}")
    }

    /// The link that carries a token of this invite.
    pub(crate) fn link(&self, token: String) -> InviteLink {
        InviteLink { swarm_id: self.swarm_id, authority: self.endpoint.authority(), token }
    }
}

impl Token {
    /// Reads a token.
    pub(crate) fn read(text: &str) -> Result<Self, InviteError> {
        let refuse = |problem: &str| InviteError::Token { problem: problem.to_owned() };
        if text.len() > MAX_BYTES {
            return Err(refuse("it is too long"));
        }
        let (signed, signature) = text.rsplit_once('.').ok_or_else(|| refuse("it has no three parts"))?;
        let (header, claims) = signed.split_once('.').ok_or_else(|| refuse("it has no three parts"))?;
        // Without padding and with zero bits at the end: every token has one spelling.
        let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).map_err(|_| refuse("it is not base64url"));
        check_header(&decode(header)?)?;
        let claims =
            strict::parse(&decode(claims)?).map_err(|error| refuse(&format!("its claims: {error}")))?;
        if !claims.is_object() {
            return Err(refuse("its claims are no object"));
        }
        let invite: Invite = serde_path_to_error::deserialize(claims)
            .map_err(|error| refuse(&format!("its claim '{}': {}", error.path(), error.inner())))?;
        if invite.max_uses == Some(0) {
            return Err(refuse("its claim 'max_uses' is 0; it must be 1 or more"));
        }
        invite.ends_at()?;
        Ok(Self { invite, signed: signed.to_owned(), signature: decode(signature)? })
    }

    /// Whether the key has signed it.
    pub(crate) fn verify(&self, key: &PublicKey) -> Result<(), InviteError> {
        let good = key.ed25519().is_some() && key.verify_bytes(self.signed.as_bytes(), &self.signature);
        if good { Ok(()) } else { Err(InviteError::Signature) }
    }

    /// What its uses are counted under: of what is signed, so that no other spelling of the signature is another token.
    pub(crate) fn digest(&self) -> String {
        let digest: [u8; 32] = Sha256::digest(&self.signed).into();
        hex(&digest)
    }
}

/// Bytes in hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a String does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The header says `EdDSA` and asks for nothing; what it says of keys is not even read.
fn check_header(bytes: &[u8]) -> Result<(), InviteError> {
    let refuse = |problem: &str| InviteError::Token { problem: problem.to_owned() };
    let header = strict::parse(bytes).map_err(|error| refuse(&format!("its header: {error}")))?;
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
    /// Reads a link.
    pub fn parse(text: &str) -> Result<Self, InviteError> {
        let bad = |problem| InviteError::Link { problem };
        let rest = text.trim().strip_prefix("swarm://").ok_or(bad("it does not begin with swarm://"))?;
        let (place, token) = rest.split_once("?token=").ok_or(bad("it has no ?token="))?;
        let (swarm, authority) = place.split_once('@').ok_or(bad("it has no @"))?;
        let swarm_id = Uuid::try_parse(swarm).map_err(|_| bad("the swarm is no UUID"))?;
        let authority = authority.trim_end_matches('/');
        if authority.is_empty() || Endpoint::parse(&format!("https://{authority}")).is_err() {
            return Err(bad("the host is none"));
        }
        Ok(Self { swarm_id, authority: authority.to_ascii_lowercase(), token: token.to_owned() })
    }

    /// The whole link, with its token.
    pub fn reveal(&self) -> String {
        format!("swarm://{}@{}?token={}", self.swarm_id, self.authority, self.token)
    }

    /// Reads its token and compares the two. The signature is checked where the key for it is in the token.
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
