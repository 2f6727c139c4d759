//! Cache of the children's tool lists, so that listing tools starts no process.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use switchboard_sys::files::Dir;

use crate::child::Listing;
use crate::paths::SuitePaths;
use crate::spec::{ChildSpec, Launch};
use crate::tool::Tool;

/// Maximum size of a stored catalogue, in bytes. A catalogue of 1,000 tools of real servers takes about 1 MB.
const MAX_FILE: u64 = 16 * 1024 * 1024;
/// Maximum number of tools read from one child. Bounds memory and the time for comparing tools.
const MAX_TOOLS: usize = 10_000;
/// Age at which a catalogue is stale. A stale catalogue is refreshed; if that fails, it is shown with a note of its
/// age.
const MAX_AGE: SignedDuration = SignedDuration::from_hours(24);

/// Minimum interval before an unchanged catalogue is stored again with a newer timestamp.
const REWRITE_AFTER: SignedDuration = SignedDuration::from_hours(1);

/// Tool list of one child, in the order in which the child listed the tools.
#[derive(Debug)]
pub(crate) struct Catalogue {
    pub(crate) tools: Vec<Tool>,
    by_name: HashMap<String, usize>,
    pub(crate) instructions: Option<String>,
    pub(crate) taken_at: Timestamp,
    /// True if the list was truncated because the child has more tools than the limit.
    pub(crate) is_cut: bool,
}

impl Catalogue {
    /// Builds a catalogue from a listing.
    ///
    /// Tools without a usable name are dropped. Duplicates of a name are dropped too, because no call could reach them.
    pub(crate) fn new(listed: Listing, instructions: Option<String>, taken_at: Timestamp) -> Self {
        let Listing { items: listed, is_cut } = listed;
        let is_cut = is_cut || listed.len() > MAX_TOOLS;
        let mut tools: Vec<Tool> = Vec::new();
        let mut by_name = HashMap::new();
        for tool in listed.into_iter().take(MAX_TOOLS).filter_map(Tool::read) {
            if !by_name.contains_key(&tool.name) {
                by_name.insert(tool.name.clone(), tools.len());
                tools.push(tool);
            }
        }
        Self { tools, by_name, instructions, taken_at, is_cut }
    }

    /// Returns a note for the model if the tool list was truncated.
    pub(crate) fn truncation_note(&self, child: &str) -> Option<String> {
        let count = self.tools.len();
        let note = format!("{child} lists too many tools; only the first {count} can be used");
        self.is_cut.then_some(note)
    }

    /// Returns a tool by its exact name.
    pub(crate) fn get(&self, name: &str) -> Option<&Tool> {
        self.by_name.get(name).and_then(|&position| self.tools.get(position))
    }

    /// Returns the raw JSON of all tools, as the child listed them.
    pub(crate) fn raws(&self) -> Vec<Box<RawValue>> {
        self.tools.iter().map(|tool| tool.raw.clone()).collect()
    }

    /// Returns true if both catalogues contain the same tools in the same order.
    pub(crate) fn has_same_tools(&self, other: &Self) -> bool {
        self.tools.len() == other.tools.len()
            && self.tools.iter().zip(&other.tools).all(|(one, two)| one.raw.get() == two.raw.get())
    }

    /// Returns true if storing `newer` can be skipped because nothing relevant changed.
    ///
    /// This avoids constant disk writes for a child that announces list changes all the time.
    pub(crate) fn is_equivalent_to(&self, newer: &Self) -> bool {
        self.has_same_tools(newer)
            && self.is_cut == newer.is_cut
            && self.instructions == newer.instructions
            && newer.taken_at.duration_since(self.taken_at) < REWRITE_AFTER
    }

    pub(crate) fn is_stale(&self, now: Timestamp) -> bool {
        now.duration_since(self.taken_at) > MAX_AGE
    }
}

/// On-disk cache of the catalogues of a workspace. Files that cannot be read or written count as missing.
#[derive(Debug, Clone)]
pub(crate) struct CatalogueStore {
    dir: Option<Dir>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Stored {
    /// Hash of the launch settings. It invalidates the catalogue when the command changes, since the tools may differ.
    launch: String,
    taken_at: Timestamp,
    instructions: Option<String>,
    tools: Vec<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_cut: bool,
}

impl CatalogueStore {
    pub(crate) fn open(positions: &SuitePaths) -> Self {
        let dir = positions.create_catalogues();
        let dir = dir.inspect_err(|error| tracing::debug!(%error, "catalogues are not cached")).ok();
        Self { dir }
    }

    /// Returns the folder that contains the stored catalogues, if it can be opened.
    pub(crate) fn folder(&self) -> Option<&Dir> {
        self.dir.as_ref()
    }

    /// Loads the stored catalogue of a child, if its launch settings have not changed since.
    pub(crate) fn load(&self, spec: &ChildSpec) -> Option<Catalogue> {
        let read = self.dir.as_ref()?.read(&file_name(spec), MAX_FILE);
        let contents = read.inspect_err(|error| tracing::debug!(%error, "no catalogue")).ok().flatten()?;
        let stored: Stored = serde_json::from_slice(&contents.bytes).ok()?;
        let is_current = stored.launch == launch_hash(spec);
        let listing = Listing { items: stored.tools, is_cut: stored.is_cut };
        is_current.then(|| Catalogue::new(listing, stored.instructions, stored.taken_at))
    }

    /// Stores a catalogue, unless it exceeds the maximum size.
    pub(crate) fn save(&self, spec: &ChildSpec, catalogue: &Catalogue) {
        let Some(dir) = &self.dir else { return };
        let stored = Stored {
            launch: launch_hash(spec),
            taken_at: catalogue.taken_at,
            instructions: catalogue.instructions.clone(),
            tools: catalogue.tools.iter().map(|tool| tool.raw.clone()).collect(),
            is_cut: catalogue.is_cut,
        };
        let bytes = serde_json::to_vec(&stored).unwrap_or_default();
        if bytes.len() as u64 > MAX_FILE {
            tracing::warn!(
                child = spec.name,
                bytes = bytes.len(),
                "the catalogue is too large for the cache"
            );
        } else if let Err(error) = dir.replace(&file_name(spec), &bytes, 0o600) {
            tracing::warn!(child = spec.name, %error, "cannot cache the catalogue");
        }
    }
}

fn file_name(spec: &ChildSpec) -> String {
    format!("{}.json", spec.name)
}

/// Hashes the launch settings without the values of variables and headers.
///
/// The values may be secret, and even their hash must not be stored in a file.
fn launch_hash(spec: &ChildSpec) -> String {
    let parts: Vec<&str> = match &spec.launch {
        Launch::Stdio { command, args, env, cwd, .. } => {
            let command = ["stdio", command].into_iter().chain(args.iter().map(String::as_str));
            command.chain(["\n"]).chain(env.keys().map(String::as_str)).chain(cwd.to_str()).collect()
        }
        Launch::Http { url, headers } => {
            ["http", url].into_iter().chain(headers.keys().map(String::as_str)).collect()
        }
        Launch::Sse { url, headers } => {
            ["sse", url].into_iter().chain(headers.keys().map(String::as_str)).collect()
        }
        Launch::Ws { url, headers } => {
            ["ws", url].into_iter().chain(headers.keys().map(String::as_str)).collect()
        }
    };
    crate::paths::hex(&Sha256::digest(serde_json::to_vec(&parts).unwrap_or_default()))
}

#[cfg(test)]
#[path = "catalogue_tests.rs"]
mod tests;
