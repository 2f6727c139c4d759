//! Cached tool lists of children, so that listing tools starts no process.

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

/// Largest catalogue stored in a file. 1,000 tools of real servers have about 1 MB.
const MAX_FILE: u64 = 16 * 1024 * 1024;
/// Most tools that are read of one child; bounds memory and the time of comparisons.
const MAX_TOOLS: usize = 10_000;
/// Age from which a catalogue is refreshed if possible; if not, its age is shown.
const MAX_AGE: SignedDuration = SignedDuration::from_hours(24);

/// Minimum age difference before an unchanged catalogue is written again.
const REWRITE_AFTER: SignedDuration = SignedDuration::from_hours(1);

/// Tools of one child, in the child's order.
#[derive(Debug)]
pub(crate) struct Catalogue {
    pub(crate) tools: Vec<Tool>,
    by_name: HashMap<String, usize>,
    pub(crate) instructions: Option<String>,
    pub(crate) taken_at: Timestamp,
    /// True if the child lists more tools than the limit.
    pub(crate) is_cut: bool,
}

impl Catalogue {
    /// Builds a catalogue from a listing. Tools without a usable name are dropped, and so are duplicate names, since no
    /// call could reach the second tool.
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

    /// Returns a note for the model if the tool list is truncated.
    pub(crate) fn truncation_note(&self, child: &str) -> Option<String> {
        let count = self.tools.len();
        let note = format!("{child} lists too many tools; only the first {count} can be used");
        self.is_cut.then_some(note)
    }

    /// Returns a tool by its exact name.
    pub(crate) fn get(&self, name: &str) -> Option<&Tool> {
        self.by_name.get(name).and_then(|&position| self.tools.get(position))
    }

    /// Returns the tools as the child listed them.
    pub(crate) fn raws(&self) -> Vec<Box<RawValue>> {
        self.tools.iter().map(|tool| tool.raw.clone()).collect()
    }

    /// True if a host would see no difference between the two lists.
    pub(crate) fn has_same_tools(&self, other: &Self) -> bool {
        self.tools.len() == other.tools.len()
            && self.tools.iter().zip(&other.tools).all(|(one, two)| one.raw.get() == two.raw.get())
    }

    /// True if storing `newer` would add nothing. Prevents constant disk writes by a child that announces changes all
    /// the time.
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

/// On-disk store for the catalogues of a workspace. Unreadable and unwritable files count as missing.
#[derive(Debug, Clone)]
pub(crate) struct CatalogueStore {
    dir: Option<Dir>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Stored {
    /// Hash of the launch settings. A different command may have different tools.
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

    /// Returns the store's folder.
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

    /// Stores a catalogue, unless it is too large.
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

/// Hashes the launch settings without the values of variables and headers: they may be secret, and not even their hash
/// belongs in a file.
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
