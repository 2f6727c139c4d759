//! What a wrapping made, so that its end takes away exactly that.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use switchboard_sys::files::{Dir, FileError};

use crate::paths::hex;

/// The file's name, beside the original.
const NAME: &str = "wrapped.json";

/// Room for the texts in it.
const LIMIT: u64 = 1 << 20;

/// What a wrapping made.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Manifest {
    /// The role's file, if it was made: the hash of what was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) role: Option<String>,
    /// Whether the file of descriptions was made.
    pub(super) made_descriptions: bool,
    /// The text for the model that asks, if it was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) switchboard: Option<String>,
    /// The text for the model that works, if it was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) claude: Option<String>,
}

impl Manifest {
    /// Reads it; nothing was made where there is none, or where it was damaged.
    pub(super) fn read(original: &Dir) -> Result<Self, FileError> {
        let found = original.read(NAME, LIMIT)?;
        Ok(found.and_then(|found| serde_json::from_slice(&found.bytes).ok()).unwrap_or_default())
    }

    pub(super) fn write(&self, original: &Dir) -> Result<(), FileError> {
        // A struct of texts always serialises.
        let text = serde_json::to_string_pretty(self).unwrap_or_default();
        original.replace(NAME, format!("{text}\n").as_bytes(), 0o600)
    }

    pub(super) fn remove(original: &Dir) -> Result<(), FileError> {
        original.remove(NAME).map(drop)
    }
}

/// By what a file is known again.
pub(super) fn mark(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}
