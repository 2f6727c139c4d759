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
use crate::paths::SuitePaths;
use crate::spec::ChildSpec;

/// Larger than any description of a server that a person writes.
pub(crate) const FILE_LIMIT: u64 = 256 << 10;

/// Most children of a workspace; the list of their tools alone would fill a conversation before that.
const MOST_CHILDREN: usize = 500;

/// Names that tools of Switchboard itself have.
const OUR_TOOLS: [&str; 1] = ["switchboard_tools"];

/// What a look at the workspace found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Discovery {
    /// The children, sorted by name.
    pub children: Vec<ChildSpec>,
    /// What keeps a child from being offered.
    pub issues: Vec<Issue>,
    /// What keeps nothing from working, but is hardly meant.
    pub warnings: Vec<Issue>,
    /// The names of children that the settings switched off.
    pub disabled: Vec<String>,
}

/// What is wrong, and with which file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issue {
    /// The file.
    pub file: PathBuf,
    /// What is wrong with it, and what would do.
    pub message: String,
    /// The child's name, as far as it is known.
    pub child: Option<String>,
}

impl Issue {
    /// Whether it is about the child of that name, as far as that is known.
    pub fn is_about(&self, name: &str) -> bool {
        let folder = self.file.parent().and_then(|folder| folder.file_name()).and_then(|name| name.to_str());
        [self.child.as_deref(), folder].into_iter().flatten().any(|known| known.eq_ignore_ascii_case(name))
    }
}

/// Whether a tool of Switchboard itself has this name, so that no server can.
pub fn is_reserved(name: &str) -> bool {
    OUR_TOOLS.iter().any(|tool| tool.eq_ignore_ascii_case(name))
}

/// Looks for children. The same files and settings always give the same answer, in the same order.
pub fn discover(config: &Config, paths: &SuitePaths) -> Discovery {
    discover_with(config, paths, &from_environment)
}

/// [`discover`], with the variables of someone else.
pub fn discover_with(config: &Config, paths: &SuitePaths, lookup: Lookup<'_>) -> Discovery {
    let mut found = Discovery::default();
    let root = match Dir::open_root(&paths.workspace) {
        Ok(root) => root,
        Err(error) => {
            found.report_issue(paths.workspace.clone(), None, chain(&error));
            return found;
        }
    };
    let mut files = BTreeMap::new();
    for (at, glob) in config.discover_globs.iter().enumerate() {
        match walk::Pattern::parse(glob) {
            Ok(pattern) => pattern.find(&root, &mut files, &mut found),
            Err(problem) => {
                let file = paths.workspace.join("switchboard.config.json");
                found.report_issue(file, None, format!("the key 'discoverGlobs[{at}]' {problem}"));
            }
        }
    }
    for (path, place) in files {
        if found.children.len() == MOST_CHILDREN {
            let message =
                format!("there are more than {MOST_CHILDREN} servers; this one and what follows is left out");
            found.report_issue(path, None, message);
            break;
        }
        found.take(&path, &place, config, lookup);
    }
    found.refuse_collisions(config);
    found.children.sort_by(|a, b| a.name.cmp(&b.name));
    found.disabled.sort_unstable();
    found.name_strangers(config, paths);
    found
}

/// A file that was found: its folder, and its name in there.
struct Place {
    folder: Dir,
    name: String,
    /// The folder's path relative to the workspace.
    relative: String,
}

impl Discovery {
    /// The child of that name; names that differ only in case are the same name.
    pub fn child(&self, name: &str) -> Option<&ChildSpec> {
        let wanted = child_name(name).unwrap_or_else(|_| name.to_owned());
        self.children.iter().find(|child| child.name.eq_ignore_ascii_case(&wanted))
    }

    /// The child of that name, or the error that says what keeps it away, or names those that look like it.
    pub fn find_child(&self, name: &str) -> Result<&ChildSpec, SuiteError> {
        self.child(name).ok_or_else(|| {
            if let Some(problem) = self.issues.iter().find(|problem| problem.is_about(name)) {
                return SuiteError::BadFile { file: problem.file.clone(), problem: problem.message.clone() };
            }
            if let Some(name) = self.disabled.iter().find(|other| other.eq_ignore_ascii_case(name)) {
                return SuiteError::Disabled { name: name.clone() };
            }
            let others = self.issues.iter().filter_map(|problem| problem.child.as_deref());
            let others = others.chain(self.disabled.iter().map(String::as_str));
            let known = self.children.iter().map(|child| child.name.as_str()).chain(others);
            SuiteError::UnknownChild { name: name.to_owned(), near: nearest(name, known) }
        })
    }

    fn report_issue(&mut self, file: PathBuf, child: Option<String>, message: String) {
        self.issues.push(Issue { file, message, child });
    }

    fn take(&mut self, path: &PathBuf, place: &Place, config: &Config, lookup: Lookup<'_>) {
        let bytes = match place.folder.read(&place.name, FILE_LIMIT) {
            Ok(Some(contents)) => contents.bytes,
            Ok(None) => return,
            Err(error) => return self.report_issue(path.clone(), None, chain(&error)),
        };
        let (file, warnings) = match McpFile::parse(&bytes) {
            Ok(parsed) => parsed,
            Err(problem) => return self.report_issue(path.clone(), None, problem),
        };
        let folder_name = place.folder.path().file_name().map(|name| name.to_string_lossy().into_owned());
        let given = file.name.clone().or(folder_name).unwrap_or_default();
        let name = match child_name(&given) {
            Ok(name) => name,
            Err(error) => return self.report_issue(path.clone(), None, format!("the field 'name': {error}")),
        };
        for message in warnings {
            self.warnings.push(Issue { file: path.clone(), message, child: Some(name.clone()) });
        }
        if config.suite(&name).and_then(|suite| suite.enabled) == Some(false) {
            self.disabled.push(name);
            return;
        }
        let around = Surroundings { file: path, folder: &place.relative, config, lookup };
        match spec_of(name.clone(), file, &around) {
            Ok(spec) => self.children.push(spec),
            Err(error) => self.report_issue(path.clone(), Some(name), error.to_string()),
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
                self.report_issue(child.file.clone(), Some(child.name), message);
                continue;
            }
            let by = format!("'{}' in {}", child.name, child.file.display());
            taken.extend(keys.map(|key| (key, by.clone())));
            kept.push(child);
        }
        self.children = kept;
    }

    /// Settings of a child that does not exist are hardly meant.
    fn name_strangers(&mut self, config: &Config, paths: &SuitePaths) {
        let known = |name: &str| {
            let is_it = |other: &str| other.eq_ignore_ascii_case(name);
            self.child(name).is_some()
                || self.disabled.iter().any(|other| is_it(other))
                || self.issues.iter().any(|problem| problem.child.as_deref().is_some_and(is_it))
        };
        let strangers: Vec<&String> = config.suites.keys().filter(|name| !known(name)).collect();
        for name in strangers {
            let near = nearest(name, self.children.iter().map(|child| child.name.as_str()));
            let hint = near.first().map(|near| format!("; did you mean '{near}'?")).unwrap_or_default();
            self.warnings.push(Issue {
                file: paths.workspace.join("switchboard.config.json"),
                message: format!("the key 'suites.{}' names no server{hint}", name.escape_debug()),
                child: None,
            });
        }
    }
}

#[cfg(test)]
#[path = "discovery_tests.rs"]
mod tests;
