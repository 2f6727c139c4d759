//! Keys: an Ed25519 seed for signing, and the public keys of others for verifying.

mod rsa;

use std::fmt;

use aws_lc_rs::signature::{
    ParsedPublicKey, RSA_PKCS1_2048_8192_SHA256, RSA_PSS_2048_8192_SHA256, VerificationAlgorithm,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::{Signer as _, SigningKey, VerifyingKey};
use serde::{Deserialize, Serialize};
use switchboard_sys::files::{Created, Dir, Durability, FileError};

/// DER prefix of an Ed25519 key (RFC 8410).
const ED25519_SPKI: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// Maximum length of a key text. An RSA key of 8192 bits has about 1,060 bytes in DER.
const MAX_BYTES: usize = 2048;

/// The signing key of an agent, redacted in debug output.
#[derive(Clone)]
pub struct SecretKey(SigningKey);

/// The key that verifies an agent's signatures.
#[derive(Clone, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PublicKey {
    bytes: Vec<u8>,
    kind: Kind,
}

#[derive(Clone)]
enum Kind {
    Ed25519(VerifyingKey),
    /// An RSA key, which is parsed at each use: peers with RSA keys are rare, and the library's parsed form cannot be
    /// cloned.
    Rsa,
}

/// Reason why a key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The text is not a public key of a type that the protocol knows.
    #[error("public_key is refused: {problem}")]
    Public {
        /// Why the text is refused.
        problem: &'static str,
    },
    /// The file does not contain a seed.
    #[error(
        "{path} has {bytes} bytes and a key file has 32; restore it, or move it aside and run `switchboard swarm key rotate`"
    )]
    Seed {
        /// The file.
        path: String,
        /// Size of the file in bytes.
        bytes: usize,
    },
    /// Other users can read the file.
    #[error(
        "{path} may be read by others (mode {mode:03o}); set it to 600 and consider `switchboard swarm key rotate`"
    )]
    Exposed {
        /// The file.
        path: String,
        /// Permissions of the file.
        mode: u32,
    },
    /// The system returned no random numbers.
    #[error("the system gave no random numbers")]
    Random,
    /// The file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
}

impl SecretKey {
    /// Generates a new key.
    pub fn generate() -> Result<Self, KeyError> {
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).map_err(|_| KeyError::Random)?;
        Ok(Self::from_seed(&seed))
    }

    /// Builds the key from a seed.
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        Self(SigningKey::from_bytes(seed))
    }

    /// Reads the key from a file, which only its owner may be able to read.
    pub fn read(folder: &Dir, name: &str) -> Result<Option<Self>, KeyError> {
        let path = || folder.path().join(name).display().to_string();
        let Some(found) = folder.read(name, 4096)? else { return Ok(None) };
        if let Some(mode) = folder.mode(name)?.filter(|mode| mode & 0o077 != 0) {
            return Err(KeyError::Exposed { path: path(), mode });
        }
        let seed: &[u8; 32] = found
            .bytes
            .as_slice()
            .try_into()
            .map_err(|_| KeyError::Seed { path: path(), bytes: found.bytes.len() })?;
        Ok(Some(Self::from_seed(seed)))
    }

    /// Writes the key to a new file. Returns false if the file exists.
    pub fn write_new(&self, folder: &Dir, name: &str) -> Result<bool, KeyError> {
        let created = folder.create_new(name, self.0.as_bytes(), Durability::Synced)?;
        Ok(created == Created::Created)
    }

    /// Writes the key and replaces an existing file.
    pub fn replace(&self, folder: &Dir, name: &str) -> Result<(), KeyError> {
        Ok(folder.replace(name, self.0.as_bytes(), 0o600)?)
    }

    /// Returns the public key.
    pub fn public(&self) -> PublicKey {
        let key = self.0.verifying_key();
        PublicKey { bytes: key.to_bytes().to_vec(), kind: Kind::Ed25519(key) }
    }

    /// Signs the bytes without hashing them first.
    pub(crate) fn sign(&self, bytes: &[u8]) -> [u8; 64] {
        self.0.sign(bytes).to_bytes()
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret key)")
    }
}

impl PublicKey {
    /// Parses a key in wire form, which is base64.
    ///
    /// The decoded bytes are an Ed25519 key, either the raw 32 bytes or its DER form, or an RSA key of 2048 to 8192
    /// bits in SPKI or PKCS#1 form. Each key has one canonical form, so that two encodings of one key are equal: raw
    /// bytes for Ed25519, SPKI for RSA.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let refuse = |problem| KeyError::Public { problem };
        if text.len() > MAX_BYTES {
            return Err(refuse("it is too long"));
        }
        let bytes = STANDARD.decode(text).map_err(|_| refuse("it is not padded base64"))?;
        let raw = bytes.strip_prefix(&ED25519_SPKI).filter(|raw| raw.len() == 32).unwrap_or(&bytes);
        if let Ok(raw) = <&[u8; 32]>::try_from(raw) {
            let key = VerifyingKey::from_bytes(raw).map_err(|_| refuse("it is no point of the curve"))?;
            // With a key of small order, any signature verifies. The library's parser also accepts y >= p, a second
            // encoding of a point.
            if key.is_weak() || key.to_edwards().compress().as_bytes() != raw {
                return Err(refuse("it is a weak or non-canonical Ed25519 key"));
            }
            return Ok(Self { bytes: raw.to_vec(), kind: Kind::Ed25519(key) });
        }
        let bytes = rsa::normalize(&bytes).map_err(refuse)?;
        ParsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, &bytes)
            .map_err(|_| refuse("it is no usable RSA key"))?;
        Ok(Self { bytes, kind: Kind::Rsa })
    }

    /// Returns the canonical form in base64.
    pub fn to_wire(&self) -> String {
        STANDARD.encode(&self.bytes)
    }

    /// Returns a short form for people to compare.
    pub fn fingerprint(&self) -> String {
        use sha2::Digest as _;
        let digest: [u8; 32] = sha2::Sha256::digest(&self.bytes).into();
        let pairs: Vec<_> = digest[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        pairs.join(":")
    }

    /// Returns the Ed25519 key, if it is one. Only Ed25519 keys sign whole envelopes and invites.
    pub(crate) fn ed25519(&self) -> Option<&VerifyingKey> {
        match &self.kind {
            Kind::Ed25519(key) => Some(key),
            Kind::Rsa => None,
        }
    }

    /// Verifies a signature over `bytes` without hashing them first.
    ///
    /// The check is strict: it refuses keys of small order and non-canonical encodings.
    pub(crate) fn verify_bytes(&self, bytes: &[u8], signature: &[u8]) -> bool {
        match &self.kind {
            Kind::Ed25519(key) => ed25519_dalek::Signature::from_slice(signature)
                .is_ok_and(|signature| key.verify_strict(bytes, &signature).is_ok()),
            Kind::Rsa => self.verify_rsa(bytes, signature),
        }
    }

    /// Verifies a signature over a message whose SHA-256 is `digest`.
    ///
    /// An Ed25519 signature covers the digest as if it were the message. An RSA signature covers the message with
    /// SHA-256, and so the same digest.
    pub(crate) fn verify_digest(&self, message: &[u8], digest: &[u8; 32], signature: &[u8]) -> bool {
        match &self.kind {
            Kind::Ed25519(_) => self.verify_bytes(digest, signature),
            Kind::Rsa => self.verify_rsa(message, signature),
        }
    }

    fn verify_rsa(&self, message: &[u8], signature: &[u8]) -> bool {
        let ways: [&'static dyn VerificationAlgorithm; 2] =
            [&RSA_PKCS1_2048_8192_SHA256, &RSA_PSS_2048_8192_SHA256];
        ways.iter().any(|way| way.verify_sig(&self.bytes, message, signature).is_ok())
    }
}

impl PartialEq for PublicKey {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl Eq for PublicKey {}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_wire())
    }
}

impl TryFrom<String> for PublicKey {
    type Error = KeyError;

    fn try_from(text: String) -> Result<Self, KeyError> {
        Self::parse(&text)
    }
}

impl From<PublicKey> for String {
    fn from(key: PublicKey) -> Self {
        key.to_wire()
    }
}

#[cfg(test)]
#[path = "keys_tests.rs"]
mod tests;
