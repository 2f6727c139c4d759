//! Discovery of a workspace's children.
//!
//! Discovery starts no child, and an invalid file never hides other children.

mod walk;

use std::collections::BTreeMap;
use std::path::PathBuf;

use switchboard_core::{error_chain, suggest_similar};
use switchboard_sys::files::Dir;

use crate::config::Config;
use crate::error::SuiteError;
use crate::expand::{Lookup, from_environment};
use crate::mcp_json::{McpFile, ResolveContext, resolve_spec};
use crate::names::child_name;
use crate::paths::SuitePaths;
use crate::spec::ChildSpec;

/// Maximum size of a file that describes a server, in bytes. No handwritten file is this large.
pub(crate) const FILE_LIMIT: u64 = 256 << 10;

/// Maximum number of children of a workspace. The tool lists of this many children would exceed a model's context.
const MAX_CHILDREN: usize = 500;

/// Tool names reserved for Switchboard's own tools.
const RESERVED_TOOLS: [&str; 1] = ["switchboard_tools"];

/// Result of a discovery.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Discovery {
    /// The discovered children, sorted by name.
    pub children: Vec<ChildSpec>,
    /// Problems that prevent a child from being offered.
    pub issues: Vec<Issue>,
    /// Warnings about likely mistakes, which do not prevent a child from being offered.
    pub warnings: Vec<Issue>,
    /// Names of the children that the settings disable.
    pub disabled: Vec<String>,
}

/// A problem with a file that describes a child.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issue {
    /// The affected file.
    pub file: PathBuf,
    /// Description of the problem, and how to correct it.
    pub message: String,
    /// Name of the affected child, if known.
    pub child: Option<String>,
}

impl Issue {
    /// Returns true if the issue concerns the child of this name.
    ///
    /// Compares the name with the issue's child, if known, and with the folder of the file.
    pub fn is_about(&self, name: &str) -> bool {
        let folder = self.file.parent().and_then(|folder| folder.file_name()).and_then(|name| name.to_str());
        [self.child.as_deref(), folder].into_iter().flatten().any(|known| known.eq_ignore_ascii_case(name))
    }
}

/// Returns true if a tool of Switchboard itself has this name, so that no suite can use it.
pub fn is_reserved(name: &str) -> bool {
    RESERVED_TOOLS.iter().any(|tool| tool.eq_ignore_ascii_case(name))
}

/// Discovers the children of a workspace.
///
/// Discovery is deterministic: the same files and settings give the same children in the same order.
pub fn discover(config: &Config, paths: &SuitePaths) -> Discovery {
    discover_with(config, paths, &from_environment)
}

/// Discovers children like [`discover`], with a custom variable lookup.
pub fn discover_with(config: &Config, paths: &SuitePaths, lookup: Lookup<'_>) -> Discovery {
    let mut found = Discovery::default();
    let root = match Dir::open_root(&paths.workspace) {
        Ok(root) => root,
        Err(error) => {
            found.report_issue(paths.workspace.clone(), None, error_chain(&error));
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
    for (path, found_file) in files {
        if found.children.len() == MAX_CHILDREN {
            let message = format!(
                "there are more than {MAX_CHILDREN} servers; this one and all later ones are skipped"
            );
            found.report_issue(path, None, message);
            break;
        }
        found.add_file(&path, &found_file, config, lookup);
    }
    found.refuse_collisions(config);
    found.children.sort_by(|a, b| a.name.cmp(&b.name));
    found.disabled.sort_unstable();
    found.warn_unknown_settings(config, paths);
    found
}

/// A file that matched a glob pattern.
struct FoundFile {
    folder: Dir,
    name: String,
    /// Path of the file's folder, relative to the workspace.
    relative: String,
}

impl Discovery {
    /// Returns a child by name. Names are case-insensitive.
    pub fn child(&self, name: &str) -> Option<&ChildSpec> {
        let wanted = child_name(name).unwrap_or_else(|_| name.to_owned());
        self.children.iter().find(|child| child.name.eq_ignore_ascii_case(&wanted))
    }

    /// Returns a child by name. If it does not exist, the error contains the issue that excludes it, or similar names.
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
            SuiteError::UnknownChild { name: name.to_owned(), near: suggest_similar(name, known) }
        })
    }

    fn report_issue(&mut self, file: PathBuf, child: Option<String>, message: String) {
        self.issues.push(Issue { file, message, child });
    }

    fn add_file(&mut self, path: &PathBuf, found_file: &FoundFile, config: &Config, lookup: Lookup<'_>) {
        let bytes = match found_file.folder.read(&found_file.name, FILE_LIMIT) {
            Ok(Some(contents)) => contents.bytes,
            Ok(None) => return,
            Err(error) => return self.report_issue(path.clone(), None, error_chain(&error)),
        };
        let (file, warnings) = match McpFile::parse(&bytes) {
            Ok(parsed) => parsed,
            Err(problem) => return self.report_issue(path.clone(), None, problem),
        };
        let folder_name =
            found_file.folder.path().file_name().map(|name| name.to_string_lossy().into_owned());
        let raw_name = file.name.clone().or(folder_name).unwrap_or_default();
        let name = match child_name(&raw_name) {
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
        let context = ResolveContext { file: path, folder: &found_file.relative, config, lookup };
        match resolve_spec(name.clone(), file, &context) {
            Ok(spec) => self.children.push(spec),
            Err(error) => self.report_issue(path.clone(), Some(name), error.to_string()),
        }
    }

    /// Rejects children whose name or tool name collides with that of another child. The first child by path is kept.
    fn refuse_collisions(&mut self, config: &Config) {
        let mut taken: BTreeMap<String, String> =
            RESERVED_TOOLS.iter().map(|tool| ((*tool).to_owned(), "Switchboard itself".to_owned())).collect();
        let mut accepted = Vec::new();
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
            accepted.push(child);
        }
        self.children = accepted;
    }

    /// Adds warnings about settings for children that do not exist.
    fn warn_unknown_settings(&mut self, config: &Config, paths: &SuitePaths) {
        let known = |name: &str| {
            let is_it = |other: &str| other.eq_ignore_ascii_case(name);
            self.child(name).is_some()
                || self.disabled.iter().any(|other| is_it(other))
                || self.issues.iter().any(|problem| problem.child.as_deref().is_some_and(is_it))
        };
        let unknown_names: Vec<&String> = config.suites.keys().filter(|name| !known(name)).collect();
        for name in unknown_names {
            let near = suggest_similar(name, self.children.iter().map(|child| child.name.as_str()));
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
