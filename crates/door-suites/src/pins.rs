//! What tools were when they were first used, so that a change is noticed.
//!
//! A server can describe its tools harmlessly until it is trusted, and otherwise afterwards. So the name, the
//! description, the schemas and the annotations of every tool are remembered outside the workspace, and a
//! tool that differs is not called until its owner has seen how.

mod file;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use serde_json::value::RawValue;
use serde_json::{Map, Value};
use switchboard_sys::lock::{DirLock, LockOptions};

use self::file::{Pin, PinFile};
use crate::canonical;
use crate::diff::line_diff;
use crate::error::SuiteError;
use crate::paths::SuitePaths;

/// What of a tool is remembered: everything that a model is told, or a host decides by.
const PARTS: [&str; 6] = ["name", "title", "description", "inputSchema", "outputSchema", "annotations"];

/// How long tools are compared for a person at most. A tool takes a millisecond, a large one up to 200.
const COMPARE_LIMIT: Duration = Duration::from_secs(2);

/// A tool that is not what it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedTool {
    /// Its name.
    pub tool: String,
    /// What changed, line by line; or what it was called before.
    pub diff: String,
}

/// What is remembered of one child's tools.
#[derive(Debug)]
pub struct Pins {
    paths: SuitePaths,
    child: String,
    file: PinFile,
    /// The tools as the child last listed them.
    listed: BTreeMap<String, Value>,
    fresh: BTreeSet<String>,
}

impl Pins {
    /// What is remembered of a child's tools; nothing, where it was never used.
    pub fn load(paths: &SuitePaths, child: &str) -> Result<Self, SuiteError> {
        let file = match paths.pins()? {
            Some(dir) => PinFile::read(&dir, child)?,
            None => PinFile::default(),
        };
        let (paths, child) = (paths.clone(), child.to_owned());
        Ok(Self { paths, child, file, listed: BTreeMap::new(), fresh: BTreeSet::new() })
    }

    /// Compares what the child lists with what is remembered and returns the names of the tools that differ, which must
    /// not be called. [`waiting`](Self::pending) says how they differ.
    ///
    /// At the child's very first listing everything is remembered. A tool that appears later is offered as
    /// new and remembered at its first use. What is gone stays remembered, in case it comes back changed.
    pub fn check(&mut self, tools: &[Box<RawValue>]) -> Result<Vec<String>, SuiteError> {
        self.refresh()?;
        self.listed = tools.iter().filter_map(|tool| essence(tool)).collect();
        self.fresh.clear();
        if self.file.tools.is_empty() && !self.listed.is_empty() {
            let pins: Vec<(String, Pin)> =
                self.listed.iter().map(|(name, tool)| (name.clone(), Pin::of(tool))).collect();
            self.change(|file| {
                // Another process may have been first, and then its look counts.
                for (name, pin) in pins {
                    file.tools.entry(name).or_insert(pin);
                }
            })?;
        }
        let former = self.former_names();
        let mut changed = Vec::new();
        for (name, tool) in &self.listed {
            let is_changed = match self.file.tools.get(name) {
                Some(pin) => pin.hash != canonical::hash(tool),
                None => former.of(tool).is_some(),
            };
            if is_changed {
                changed.push(name.clone());
            } else if !self.file.tools.contains_key(name) {
                self.fresh.insert(name.clone());
            }
        }
        self.note_waiting(&changed)?;
        Ok(changed)
    }

    /// The tools of the last listing that were not there when the child was first used.
    pub fn new_tools(&self) -> &BTreeSet<String> {
        &self.fresh
    }

    /// Remembers a new tool, because it is about to be used.
    pub fn pin_new(&mut self, tool: &str) -> Result<(), SuiteError> {
        if self.fresh.remove(tool) {
            self.pin(&[tool.to_owned()])?;
        }
        Ok(())
    }

    /// Agrees to a tool as it was last listed, or to all. Returns the names of those that had changed.
    ///
    /// The process that approves has usually not listed anything: what the one that did has noted down is
    /// agreed to.
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
        self.change(|file| {
            for name in names {
                if let Some(tool) = file.waiting.remove(&name) {
                    file.tools.insert(name, Pin::of(&tool));
                }
            }
        })?;
        Ok(approved)
    }

    /// Notes down which changed tools wait for approval, so that `switchboard suite pins` can show and approve
    /// them without starting the child. Writes only where that differs from what is noted.
    fn note_waiting(&mut self, changed: &[String]) -> Result<(), SuiteError> {
        let waiting: BTreeMap<String, Value> =
            changed.iter().filter_map(|name| Some((name.clone(), self.listed.get(name)?.clone()))).collect();
        if waiting != self.file.waiting {
            self.change(|file| file.waiting = waiting)?;
        }
        Ok(())
    }

    /// Forgets everything about the child, which is then as if never used.
    pub fn forget(paths: &SuitePaths, child: &str) -> Result<(), SuiteError> {
        if let Some(dir) = paths.pins()? {
            let _lock = DirLock::acquire(&dir, &file::name(child), LockOptions::default())?;
            dir.remove(&file::name(child))?;
        }
        Ok(())
    }

    /// The tools that are remembered, and since when.
    pub fn pinned(&self) -> impl Iterator<Item = (&str, &str)> {
        self.file.tools.iter().map(|(name, pin)| (name.as_str(), pin.at.as_str()))
    }

    /// The names of the tools that wait for approval.
    pub fn pending_names(&self) -> impl Iterator<Item = &str> {
        self.file.waiting.keys().map(String::as_str)
    }

    /// The tools that wait for approval, with what changed. Comparing them takes a bounded time; what is left then is only
    /// named.
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
                        format!("- name: {former}\n+ name: {name}\n  renamed; all else is the same")
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
        self.change(|file| file.tools.extend(pins))
    }

    /// The remembered tools that are gone, by all but their names.
    fn former_names(&self) -> FormerNames {
        let mut by_body = HashMap::new();
        for (name, pin) in &self.file.tools {
            if !self.listed.contains_key(name) {
                by_body.entry(body_hash(&pin.tool)).or_insert_with(|| name.clone());
            }
        }
        FormerNames(by_body)
    }

    /// Takes in what another process has changed since.
    fn refresh(&mut self) -> Result<(), SuiteError> {
        if let Some(dir) = self.paths.pins()?
            && dir.stat(&file::name(&self.child))? != self.file.stamp
        {
            self.file = PinFile::read(&dir, &self.child)?;
        }
        Ok(())
    }

    /// Changes the file, one process at a time, on top of what others have changed meanwhile.
    fn change(&mut self, how: impl FnOnce(&mut PinFile)) -> Result<(), SuiteError> {
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

/// The names of tools that are gone, by the hash of everything else.
struct FormerNames(HashMap<String, String>);

impl FormerNames {
    /// What a tool was called before it was renamed.
    fn of(&self, tool: &Value) -> Option<&str> {
        self.0.get(&body_hash(tool)).map(String::as_str)
    }
}

/// A tool's name, and what is remembered of it; `None` for what is no tool.
fn essence(tool: &RawValue) -> Option<(String, Value)> {
    let mut tool: Map<String, Value> = serde_json::from_str(tool.get()).ok()?;
    let kept: Map<String, Value> =
        PARTS.iter().filter_map(|part| Some(((*part).to_owned(), tool.remove(*part)?))).collect();
    let name = kept.get("name")?.as_str()?.to_owned();
    Some((name, Value::Object(kept)))
}

/// The hash of everything but the name.
fn body_hash(tool: &Value) -> String {
    let mut body = tool.clone();
    if let Value::Object(body) = &mut body {
        body.remove("name");
    }
    canonical::hash(&body)
}

/// A tool as lines that can be compared: descriptions as the lines they have, schemas spread out.
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
