//! Pins: fingerprints of tools at first use, to detect later changes (tool poisoning, rug pulls).
//!
//! A server can describe its tools harmlessly until it is trusted, and differently afterwards. Therefore the name,
//! description, schemas and annotations of every tool are stored outside the workspace. A changed tool is not called
//! until its owner has reviewed the change.

mod file;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use serde_json::value::RawValue;
use serde_json::{Map, Value};
use switchboard_sys::lock::{DirLock, LockOptions};

use self::file::{Pin, PinFile};
use crate::content_hash::hash_content;
use crate::diff::line_diff;
use crate::error::SuiteError;
use crate::paths::SuitePaths;

/// Pinned parts of a tool: all parts that a model reads or that a host bases decisions on.
const PARTS: [&str; 6] = ["name", "title", "description", "inputSchema", "outputSchema", "annotations"];

/// Time limit for comparing tools for display. A typical tool takes 1 ms, a large one up to 200 ms.
const COMPARE_LIMIT: Duration = Duration::from_secs(2);

/// A tool that differs from its pin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedTool {
    /// Name of the tool.
    pub tool: String,
    /// Line diff of the change; for a renamed tool, the former and the new name.
    pub diff: String,
}

/// Pins of one child's tools.
#[derive(Debug)]
pub struct Pins {
    paths: SuitePaths,
    child: String,
    file: PinFile,
    /// Pinned parts of the tools in the last listing, by name.
    listed: BTreeMap<String, Value>,
    fresh: BTreeSet<String>,
}

impl Pins {
    /// Loads a child's pins. The pins are empty if the child was never used.
    pub fn load(paths: &SuitePaths, child: &str) -> Result<Self, SuiteError> {
        let file = match paths.pins()? {
            Some(dir) => PinFile::read(&dir, child)?,
            None => PinFile::default(),
        };
        let (paths, child) = (paths.clone(), child.to_owned());
        Ok(Self { paths, child, file, listed: BTreeMap::new(), fresh: BTreeSet::new() })
    }

    /// Compares a listing with the pins and returns the names of changed tools.
    ///
    /// A changed tool must not be called. [`pending`](Self::pending) returns the changes themselves.
    ///
    /// The child's first listing is pinned as a whole. A tool that appears later is offered as new and pinned at its
    /// first use. The pin of a removed tool is kept, in case the tool reappears with changes.
    pub fn check(&mut self, tools: &[Box<RawValue>]) -> Result<Vec<String>, SuiteError> {
        self.refresh()?;
        self.listed = tools.iter().filter_map(|tool| pinned_parts(tool)).collect();
        self.fresh.clear();
        if self.file.tools.is_empty() && !self.listed.is_empty() {
            let pins: Vec<(String, Pin)> =
                self.listed.iter().map(|(name, tool)| (name.clone(), Pin::of(tool))).collect();
            self.update(|file| {
                // If another process has pinned a tool first, its pin is kept.
                for (name, pin) in pins {
                    file.tools.entry(name).or_insert(pin);
                }
            })?;
        }
        let former = self.former_names();
        let mut changed = Vec::new();
        for (name, tool) in &self.listed {
            let is_changed = match self.file.tools.get(name) {
                Some(pin) => pin.hash != hash_content(tool),
                None => former.of(tool).is_some(),
            };
            if is_changed {
                changed.push(name.clone());
            } else if !self.file.tools.contains_key(name) {
                self.fresh.insert(name.clone());
            }
        }
        self.store_pending(&changed)?;
        Ok(changed)
    }

    /// Returns the tools of the last listing that have no pin yet.
    pub fn new_tools(&self) -> &BTreeSet<String> {
        &self.fresh
    }

    /// Pins a new tool. Called just before its first use.
    pub fn pin_new(&mut self, tool: &str) -> Result<(), SuiteError> {
        if self.fresh.remove(tool) {
            self.pin(&[tool.to_owned()])?;
        }
        Ok(())
    }

    /// Approves one changed tool, or all of them, and returns their names.
    ///
    /// The approving process has usually not listed the tools itself. It approves the changes that the listing process
    /// stored as pending.
    pub fn approve(&mut self, tool: Option<&str>) -> Result<Vec<String>, SuiteError> {
        self.refresh()?;
        let waiting: Vec<String> = self.file.waiting.keys().cloned().collect();
        let approved: Vec<String> = match tool {
            Some(tool) if waiting.iter().any(|name| name == tool) => vec![tool.to_owned()],
            Some(tool) => {
                let (child, tool) = (self.child.clone(), tool.to_owned());
                return Err(SuiteError::NothingToApprove { child, tool });
            }
            None => waiting,
        };
        let names = approved.clone();
        self.update(|file| {
            for name in names {
                if let Some(tool) = file.waiting.remove(&name) {
                    file.tools.insert(name, Pin::of(&tool));
                }
            }
        })?;
        Ok(approved)
    }

    /// Stores the changed tools as pending, unless the same changes are already stored.
    ///
    /// `switchboard suite pins` can then show and approve the changes without starting the child.
    fn store_pending(&mut self, changed: &[String]) -> Result<(), SuiteError> {
        let waiting: BTreeMap<String, Value> =
            changed.iter().filter_map(|name| Some((name.clone(), self.listed.get(name)?.clone()))).collect();
        if waiting != self.file.waiting {
            self.update(|file| file.waiting = waiting)?;
        }
        Ok(())
    }

    /// Removes all pins of a child, as if the child had never been used.
    pub fn forget(paths: &SuitePaths, child: &str) -> Result<(), SuiteError> {
        if let Some(dir) = paths.pins()? {
            let _lock = DirLock::acquire(&dir, &file::name(child), LockOptions::default())?;
            dir.remove(&file::name(child))?;
        }
        Ok(())
    }

    /// Returns the names of the pinned tools, and the time at which each was pinned.
    pub fn pinned(&self) -> impl Iterator<Item = (&str, &str)> {
        self.file.tools.iter().map(|(name, pin)| (name.as_str(), pin.at.as_str()))
    }

    /// Returns the names of the tools that are pending approval.
    pub fn pending_names(&self) -> impl Iterator<Item = &str> {
        self.file.waiting.keys().map(String::as_str)
    }

    /// Returns the tools that are pending approval, with their diffs.
    ///
    /// Comparing has a time limit. A tool that was not compared in time gets a placeholder instead of a diff.
    pub fn pending(&self) -> Vec<ChangedTool> {
        let former = self.former_names();
        let until = Instant::now() + COMPARE_LIMIT;
        let compare = |before: &str, after: &Value| {
            if Instant::now() < until {
                line_diff(before, &lines(after))
            } else {
                "  (not compared: too many tools changed at once)".to_owned()
            }
        };
        let problem = |(name, tool): (&String, &Value)| {
            let diff = match self.file.tools.get(name) {
                Some(pin) => compare(&lines(&pin.tool), tool),
                None => match former.of(tool) {
                    Some(former) => {
                        format!("- name: {former}\n+ name: {name}\n  renamed; otherwise unchanged")
                    }
                    None => compare("", tool),
                },
            };
            ChangedTool { tool: name.clone(), diff }
        };
        self.file.waiting.iter().map(problem).collect()
    }

    fn pin(&mut self, names: &[String]) -> Result<(), SuiteError> {
        let pins: Vec<(String, Pin)> =
            names.iter().filter_map(|name| Some((name.clone(), Pin::of(self.listed.get(name)?)))).collect();
        self.update(|file| file.tools.extend(pins))
    }

    /// Returns the names of pinned tools that are no longer listed.
    ///
    /// The key of each name is the hash of everything but the name.
    fn former_names(&self) -> FormerNames {
        let mut by_body = HashMap::new();
        for (name, pin) in &self.file.tools {
            if !self.listed.contains_key(name) {
                by_body.entry(body_hash(&pin.tool)).or_insert_with(|| name.clone());
            }
        }
        FormerNames(by_body)
    }

    /// Reloads the pin file if another process has changed it.
    fn refresh(&mut self) -> Result<(), SuiteError> {
        if let Some(dir) = self.paths.pins()?
            && dir.stat(&file::name(&self.child))? != self.file.stamp
        {
            self.file = PinFile::read(&dir, &self.child)?;
        }
        Ok(())
    }

    /// Updates the pin file under its lock, preserving the changes of other processes.
    fn update(&mut self, how: impl FnOnce(&mut PinFile)) -> Result<(), SuiteError> {
        let dir = self.paths.create_pins()?;
        let _lock = DirLock::acquire(&dir, &file::name(&self.child), LockOptions::default())?;
        let mut file = PinFile::read(&dir, &self.child)?;
        how(&mut file);
        file.workspace = self.paths.workspace_key();
        file.child.clone_from(&self.child);
        file.write(&dir)?;
        self.file = file;
        Ok(())
    }
}

/// Names of removed tools, keyed by the hash of everything but the name. Detects renamed tools.
struct FormerNames(HashMap<String, String>);

impl FormerNames {
    /// Returns the former name of a tool, if the tool was renamed.
    fn of(&self, tool: &Value) -> Option<&str> {
        self.0.get(&body_hash(tool)).map(String::as_str)
    }
}

/// Returns a tool's name and pinned parts; `None` if the JSON is not a tool.
fn pinned_parts(tool: &RawValue) -> Option<(String, Value)> {
    let mut tool: Map<String, Value> = serde_json::from_str(tool.get()).ok()?;
    let kept: Map<String, Value> =
        PARTS.iter().filter_map(|part| Some(((*part).to_owned(), tool.remove(*part)?))).collect();
    let name = kept.get("name")?.as_str()?.to_owned();
    Some((name, Value::Object(kept)))
}

/// Hashes all pinned parts of a tool except the name.
fn body_hash(tool: &Value) -> String {
    let mut body = tool.clone();
    if let Value::Object(body) = &mut body {
        body.remove("name");
    }
    hash_content(&body)
}

/// Renders a tool as lines for a diff: descriptions unchanged, schemas pretty-printed.
fn lines(tool: &Value) -> String {
    let mut text = String::new();
    for part in PARTS {
        let spread = match &tool[part] {
            Value::Null => continue,
            Value::String(value) => value.clone(),
            value => serde_json::to_string_pretty(value).unwrap_or_default(),
        };
        for line in spread.lines() {
            text.extend([part, ": ", line, "\n"]);
        }
    }
    text
}

#[cfg(test)]
#[path = "pins_tests.rs"]
mod tests;
