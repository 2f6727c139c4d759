//! Manifest of the files that `wrap` created, so that `unwrap` removes exactly these.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use switchboard_sys::files::{Dir, FileError};

use crate::paths::hex;

/// Name of the manifest file, in the folder of the original.
const NAME: &str = "wrapped.json";

/// Maximum size of the manifest, in bytes: enough for the descriptions in it.
const LIMIT: u64 = 1 << 20;

/// Manifest of everything that `wrap` created.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Manifest {
    /// Content hash of the role file, if `wrap` created it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) role: Option<String>,
    /// True if `wrap` created the descriptions file.
    pub(super) made_descriptions: bool,
    /// Description for calling models, if `wrap` added it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) switchboard: Option<String>,
    /// Description for the wrapper's model, if `wrap` added it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) claude: Option<String>,
}

impl Manifest {
    /// Reads the manifest; returns an empty one if the file is missing or damaged.
    pub(super) fn read(original: &Dir) -> Result<Self, FileError> {
        let found = original.read(NAME, LIMIT)?;
        Ok(found.and_then(|found| serde_json::from_slice(&found.bytes).ok()).unwrap_or_default())
    }

    pub(super) fn write(&self, original: &Dir) -> Result<(), FileError> {
        // Serializing a struct of strings cannot fail.
        let text = serde_json::to_string_pretty(self).unwrap_or_default();
        original.replace(NAME, format!("{text}\n").as_bytes(), 0o600)
    }

    pub(super) fn remove(original: &Dir) -> Result<(), FileError> {
        original.remove(NAME).map(drop)
    }
}

/// Returns the hash that identifies a file's content.
pub(super) fn content_hash(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}
