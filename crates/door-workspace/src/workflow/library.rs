//! Workflow library of a workspace: the built-in workflows and the workspace's own files.

use std::path::Path;

use switchboard_core::{error_chain, suggest_similar};
use switchboard_sys::files::{Dir, FileError};

use super::definition::{Workflow, normalize_name};
use super::error::WorkflowError;
use crate::error::WorkspaceError;
use crate::workspace::{Workspace, blocking};

/// Folder of the workspace's own workflows, relative to `.switchboard/`.
const FOLDER: &str = "workflows";

/// Maximum size of a workflow file in bytes; larger files are not read.
///
/// This is enough for instructions, but not for a manual.
const FILE_LIMIT: u64 = 64 << 10;

/// Maximum number of workflow files; further files are skipped and reported.
const MAX_FILES: usize = 100;

const BUILT_IN: [&str; 8] = [
    include_str!("../workflows/accuracy.json"),
    include_str!("../workflows/handoff.json"),
    include_str!("../workflows/handoff-lead.json"),
    include_str!("../workflows/handoff-chat.json"),
    include_str!("../workflows/handoff-relay.json"),
    include_str!("../workflows/enhance.json"),
    include_str!("../workflows/challenge.json"),
    include_str!("../workflows/chat.json"),
];

/// Former names of a workflow that is not built in but that a workspace may define.
const FORMER_NAMES: [(&str, &str); 2] = [("jules-plan", "julesplan"), ("remote-plan", "julesplan")];

/// The workflows of a workspace.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WorkflowLibrary {
    /// The built-in workflows, followed by the workspace's own.
    ///
    /// A workflow of the workspace replaces the built-in workflow of the same name.
    pub workflows: Vec<Workflow>,
    /// Workflow files that could not be used.
    pub skipped: Vec<SkippedWorkflow>,
}

/// A workflow file that could not be used. Other workflows are not affected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedWorkflow {
    /// Path relative to `.switchboard/`.
    pub path: String,
    /// Description of the error.
    pub problem: String,
}

impl WorkflowLibrary {
    /// Returns the built-in workflows.
    pub(crate) fn built_in() -> Self {
        let mut library = Self::default();
        for (at, text) in BUILT_IN.iter().enumerate() {
            match Workflow::read(text.as_bytes()) {
                Ok(workflow) => library.workflows.push(workflow),
                Err(error) => library.skip(format!("built-in {at}"), error.to_string()),
            }
        }
        library
    }

    /// Loads the built-in workflows and those in the `.switchboard/` folder `root`.
    pub(crate) fn load(root: &Dir) -> Self {
        let mut library = Self::built_in();
        let own = own_files(root).unwrap_or_else(|error| {
            library.skip(FOLDER.to_owned(), error_chain(&error));
            Vec::new()
        });
        let mut taken: Vec<(String, String)> = Vec::new();
        for (path, found) in own {
            match found {
                Ok(workflow) => {
                    if let Some((_, first)) = taken.iter().find(|(name, _)| *name == workflow.name) {
                        let problem = format!("field 'name': '{}' is taken by {first}", workflow.name);
                        library.skip(path, problem);
                        continue;
                    }
                    taken.push((workflow.name.clone(), path));
                    library.put(workflow);
                }
                Err(problem) => library.skip(path, problem),
            }
        }
        library
    }

    fn put(&mut self, workflow: Workflow) {
        match self.workflows.iter_mut().find(|known| known.name == workflow.name) {
            Some(known) => *known = workflow,
            None => self.workflows.push(workflow),
        }
    }

    fn skip(&mut self, path: String, problem: String) {
        self.skipped.push(SkippedWorkflow { path, problem });
    }

    /// Returns the workflow with exactly this name, as written in `state.json`.
    pub(crate) fn named(&self, name: &str) -> Option<&Workflow> {
        self.workflows.iter().find(|workflow| workflow.name == name)
    }

    /// Finds a workflow by name or alias, in any spelling.
    pub fn find(&self, text: &str) -> Result<&Workflow, WorkflowError> {
        let name = normalize_name(text);
        let former = || FORMER_NAMES.iter().find(|(former, _)| *former == name).map(|(_, now)| *now);
        // Search from the end, so that aliases of the workspace's own workflows take precedence over built-in ones.
        let aliased = || self.workflows.iter().rev().find(|workflow| workflow.aliases.contains(&name));
        let found = self.named(&name).or_else(aliased);
        found.or_else(|| former().and_then(|name| self.named(name))).ok_or_else(|| {
            let available: Vec<String> =
                self.workflows.iter().map(|workflow| workflow.name.clone()).collect();
            WorkflowError::Unknown {
                name: text.to_owned(),
                near: suggest_similar(&name, available.iter().map(String::as_str)),
                available,
                skipped: self.skipped.clone(),
            }
        })
    }
}

/// Path of a workflow file, with the parsed workflow or the error.
type OwnFile = (String, Result<Workflow, String>);

/// Reads the workspace's own workflow files, sorted by name.
fn own_files(root: &Dir) -> Result<Vec<OwnFile>, FileError> {
    let Some(dir) = root.subdir(FOLDER)? else { return Ok(Vec::new()) };
    let is_json = |name: &String| Path::new(name).extension().is_some_and(|end| end == "json");
    let names = dir.names()?.into_iter().filter(|name| is_json(name) && !name.starts_with('.'));
    let files = names.enumerate().map(|(at, name)| {
        let found = if at < MAX_FILES {
            read(&dir, &name)
        } else {
            Err(format!("only the first {MAX_FILES} files are read"))
        };
        (format!("{FOLDER}/{name}"), found)
    });
    Ok(files.take(MAX_FILES + 1).collect())
}

fn read(dir: &Dir, file: &str) -> Result<Workflow, String> {
    let described = |error: FileError| error_chain(&error);
    match dir.read(file, FILE_LIMIT).map_err(described)? {
        Some(found) => Workflow::read(&found.bytes).map_err(|error| error.to_string()),
        None => Err("it disappeared while it was read".to_owned()),
    }
}

impl Workspace {
    /// Returns the workflows that can be started.
    pub async fn workflows(&self) -> Result<Vec<Workflow>, WorkspaceError> {
        Ok(self.workflow_library().await?.workflows)
    }

    /// Returns the workflows, and the workflow files that could not be used.
    pub async fn workflow_library(&self) -> Result<WorkflowLibrary, WorkspaceError> {
        let root = self.tree().root().clone();
        blocking(move || Ok(WorkflowLibrary::load(&root))).await
    }
}

#[cfg(test)]
#[path = "library_tests.rs"]
mod tests;
