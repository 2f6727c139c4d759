//! Which children a workspace has. Nothing is started, and one bad file never hides another.

mod walk;

use std::collections::BTreeMap;
use std::path::PathBuf;

use switchboard_core::nearest;
use switchboard_sys::files::Dir;

use crate::config::Config;
use crate::error::{SuiteError, chain};
use crate::expand::{Lookup, from_environment};
use crate::mcp_json::{McpFile, Surroundings, spec_of};
use crate::names::child_name;
use crate::places::Places;
use crate::spec::ChildSpec;

/// Larger than any description of a server that a person writes.
pub(crate) const FILE_LIMIT: u64 = 256 << 10;

/// Most children of a workspace; the list of their tools alone would fill a conversation before that.
const MOST_CHILDREN: usize = 500;

/// Names that tools of Switchboard itself have.
const OUR_TOOLS: [&str; 1] = ["switchboard_tools"];

/// What a look at the workspace found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Discovered {
    /// The children, sorted by name.
    pub children: Vec<ChildSpec>,
    /// What keeps a child from being offered.
    pub problems: Vec<Problem>,
    /// What keeps nothing from working, but is hardly meant.
    pub warnings: Vec<Problem>,
    /// The names of children that the settings switched off.
    pub disabled: Vec<String>,
}

/// What is wrong, and with which file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file.
    pub file: PathBuf,
    /// What is wrong with it, and what would do.
    pub message: String,
    /// The child's name, as far as it is known.
    pub child: Option<String>,
}

impl Problem {
    /// Whether it is about the child of that name, as far as that is known.
    pub fn names(&self, name: &str) -> bool {
        let folder = self.file.parent().and_then(|folder| folder.file_name()).and_then(|name| name.to_str());
        [self.child.as_deref(), folder].into_iter().flatten().any(|known| known.eq_ignore_ascii_case(name))
    }
}

/// Whether a tool of Switchboard itself has this name, so that no server can.
pub fn is_reserved(name: &str) -> bool {
    OUR_TOOLS.iter().any(|tool| tool.eq_ignore_ascii_case(name))
}

/// Looks for children. The same files and settings always give the same answer, in the same order.
pub fn discover(config: &Config, places: &Places) -> Discovered {
    discover_with(config, places, &from_environment)
}

/// [`discover`], with the variables of someone else.
pub fn discover_with(config: &Config, places: &Places, lookup: Lookup<'_>) -> Discovered {
    let mut found = Discovered::default();
    let root = match Dir::open_root(&places.workspace) {
        Ok(root) => root,
        Err(error) => {
            found.problem(places.workspace.clone(), None, chain(&error));
            return found;
        }
    };
    let mut files = BTreeMap::new();
    for (at, glob) in config.discover_globs.iter().enumerate() {
        match walk::Pattern::parse(glob) {
            Ok(pattern) => pattern.find(&root, &mut files, &mut found),
            Err(problem) => {
                let file = places.workspace.join("switchboard.config.json");
                found.problem(file, None, format!("the key 'discoverGlobs[{at}]' {problem}"));
            }
        }
    }
    for (path, place) in files {
        if found.children.len() == MOST_CHILDREN {
            let message =
                format!("there are more than {MOST_CHILDREN} servers; this one and what follows is left out");
            found.problem(path, None, message);
            break;
        }
        found.take(&path, &place, config, lookup);
    }
    found.refuse_collisions(config);
    found.children.sort_by(|a, b| a.name.cmp(&b.name));
    found.disabled.sort_unstable();
    found.name_strangers(config, places);
    found
}

/// A file that was found: its folder, and its name in there.
struct Place {
    folder: Dir,
    name: String,
    /// The folder's path relative to the workspace.
    relative: String,
}

impl Discovered {
    /// The child of that name; names that differ only in case are the same name.
    pub fn child(&self, name: &str) -> Option<&ChildSpec> {
        let wanted = child_name(name).unwrap_or_else(|_| name.to_owned());
        self.children.iter().find(|child| child.name.eq_ignore_ascii_case(&wanted))
    }

    /// The child of that name, or the error that says what keeps it away, or names those that look like it.
    pub fn known(&self, name: &str) -> Result<&ChildSpec, SuiteError> {
        self.child(name).ok_or_else(|| {
            if let Some(problem) = self.problems.iter().find(|problem| problem.names(name)) {
                return SuiteError::BadFile { file: problem.file.clone(), problem: problem.message.clone() };
            }
            if let Some(name) = self.disabled.iter().find(|other| other.eq_ignore_ascii_case(name)) {
                return SuiteError::Disabled { name: name.clone() };
            }
            let others = self.problems.iter().filter_map(|problem| problem.child.as_deref());
            let others = others.chain(self.disabled.iter().map(String::as_str));
            let known = self.children.iter().map(|child| child.name.as_str()).chain(others);
            SuiteError::UnknownChild { name: name.to_owned(), near: nearest(name, known) }
        })
    }

    fn problem(&mut self, file: PathBuf, child: Option<String>, message: String) {
        self.problems.push(Problem { file, message, child });
    }

    fn take(&mut self, path: &PathBuf, place: &Place, config: &Config, lookup: Lookup<'_>) {
        let bytes = match place.folder.read(&place.name, FILE_LIMIT) {
            Ok(Some(contents)) => contents.bytes,
            Ok(None) => return,
            Err(error) => return self.problem(path.clone(), None, chain(&error)),
        };
        let (file, warnings) = match McpFile::parse(&bytes) {
            Ok(parsed) => parsed,
            Err(problem) => return self.problem(path.clone(), None, problem),
        };
        let folder_name = place.folder.path().file_name().map(|name| name.to_string_lossy().into_owned());
        let given = file.name.clone().or(folder_name).unwrap_or_default();
        let name = match child_name(&given) {
            Ok(name) => name,
            Err(error) => return self.problem(path.clone(), None, format!("the field 'name': {error}")),
        };
        for message in warnings {
            self.warnings.push(Problem { file: path.clone(), message, child: Some(name.clone()) });
        }
        if config.suite(&name).and_then(|suite| suite.enabled) == Some(false) {
            self.disabled.push(name);
            return;
        }
        let around = Surroundings { file: path, folder: &place.relative, config, lookup };
        match spec_of(name.clone(), file, &around) {
            Ok(spec) => self.children.push(spec),
            Err(error) => self.problem(path.clone(), Some(name), error.to_string()),
        }
    }

    /// Refuses a child whose name, or whose tool's name, another has. The first by path stays.
    fn refuse_collisions(&mut self, config: &Config) {
        let mut taken: BTreeMap<String, String> =
            OUR_TOOLS.iter().map(|tool| ((*tool).to_owned(), "Switchboard itself".to_owned())).collect();
        let mut kept = Vec::new();
        for child in std::mem::take(&mut self.children) {
            let tool = config.suite_name(&child.name);
            let keys = [child.name.to_ascii_lowercase(), tool.to_ascii_lowercase()];
            if let Some((key, by)) = keys.iter().find_map(|key| Some((key, taken.get(key)?))) {
                let message = format!(
                    "the name '{key}' is taken by {by}; choose another 'name', or another 'suiteName' in the settings"
                );
                self.problem(child.file.clone(), Some(child.name), message);
                continue;
            }
            let by = format!("'{}' in {}", child.name, child.file.display());
            taken.extend(keys.map(|key| (key, by.clone())));
            kept.push(child);
        }
        self.children = kept;
    }

    /// Settings of a child that does not exist are hardly meant.
    fn name_strangers(&mut self, config: &Config, places: &Places) {
        let known = |name: &str| {
            let is_it = |other: &str| other.eq_ignore_ascii_case(name);
            self.child(name).is_some()
                || self.disabled.iter().any(|other| is_it(other))
                || self.problems.iter().any(|problem| problem.child.as_deref().is_some_and(is_it))
        };
        let strangers: Vec<&String> = config.suites.keys().filter(|name| !known(name)).collect();
        for name in strangers {
            let near = nearest(name, self.children.iter().map(|child| child.name.as_str()));
            let hint = near.first().map(|near| format!("; did you mean '{near}'?")).unwrap_or_default();
            self.warnings.push(Problem {
                file: places.workspace.join("switchboard.config.json"),
                message: format!("the key 'suites.{}' names no server{hint}", name.escape_debug()),
                child: None,
            });
        }
    }
}

#[cfg(test)]
#[path = "discovery_tests.rs"]
mod tests;
