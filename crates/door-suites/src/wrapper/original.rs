//! The original child that a wrapper uses.

use std::path::Path;
use std::sync::Arc;

use switchboard_sys::files::Dir;
use switchboard_sys::reaper::ReaperClient;

use super::error::WrapperError;
use super::layout::{self, ORIGINAL};
use crate::child::{Child, ChildOptions};
use crate::config::Config;
use crate::discovery::{Discovery, FILE_LIMIT, discover_with};
use crate::edit::CHILD_FILE;
use crate::error::SuiteError;
use crate::expand::Lookup;
use crate::mcp_json::{McpFile, ResolveContext, resolve_spec};
use crate::paths::SuitePaths;
use crate::redact::{Secrets, redact};
use crate::spec::ChildSpec;
use crate::trust::{TrustState, TrustStore};

/// The original child behind a wrapper.
#[derive(Debug)]
pub(super) struct Original {
    /// Name that the original shares with its wrapper.
    pub(super) name: String,
    pub(super) spec: ChildSpec,
    /// Folder of the child. Contains the role file and the folder of the original.
    pub(super) folder: Dir,
}

impl Original {
    /// Reads the original of a wrapped child from its folder.
    pub(super) fn read(
        name: &str,
        config: &Config,
        paths: &SuitePaths,
        lookup: Lookup<'_>,
    ) -> Result<Self, WrapperError> {
        let found = discover_with(config, paths, lookup);
        let wrapper = find_child(&found, name)?;
        let folder = layout::folder_of(wrapper, paths)?;
        let not_wrapped = || WrapperError::NotWrapped { child: wrapper.name.clone() };
        let bytes = match folder.subdir(ORIGINAL)? {
            Some(original) if layout::is_wrapper(wrapper) => original.read(CHILD_FILE, FILE_LIMIT)?,
            _ => None,
        };
        let bytes = bytes.ok_or_else(not_wrapped)?.bytes;
        let spec = spec(&wrapper.name, &wrapper.file, &bytes, config, paths, lookup)?;
        Ok(Self { name: wrapper.name.clone(), spec, folder })
    }

    /// Checks that the original still has the launch settings that were trusted when it was wrapped.
    pub(super) fn check_trust(&self, trust: &TrustStore) -> Result<(), WrapperError> {
        let diff = match trust.state(&trusted_as(&self.spec)) {
            TrustState::Trusted => return Ok(()),
            TrustState::New => String::new(),
            TrustState::Changed { diff } => format!(":\n{diff}"),
        };
        Err(WrapperError::OriginalChanged { child: self.name.clone(), diff })
    }

    /// Creates the MCP client for the original. Starts no process.
    pub(super) fn child(&self, paths: &SuitePaths, guard: Option<ReaperClient>) -> Child {
        let secrets = Secrets::of(&self.spec);
        // Use a different name, because the plain name belongs to the wrapper's own log.
        let spec = ChildSpec { name: inner_name(&self.name), ..self.spec.clone() };
        let options = ChildOptions {
            // A log is optional: the child also works without one.
            log: paths.create_logs().ok(),
            guard,
            redact: Some(Arc::new(move |text: &str| redact(text, &secrets))),
            ..ChildOptions::default()
        };
        Child::with_options(Arc::new(spec), options)
    }
}

/// Finds a child by name. If the child's file is invalid, the error describes the problem.
pub(super) fn find_child<'f>(found: &'f Discovery, name: &str) -> Result<&'f ChildSpec, WrapperError> {
    let is_it =
        |child: &Option<String>| child.as_deref().is_some_and(|child| child.eq_ignore_ascii_case(name));
    if found.child(name).is_none()
        && let Some(problem) = found.issues.iter().find(|problem| is_it(&problem.child))
    {
        let (file, problem) = (problem.file.clone(), problem.message.clone());
        return Err(SuiteError::BadFile { file, problem }.into());
    }
    Ok(found.find_child(name)?)
}

/// Resolves the spec of an original from the bytes of its file.
///
/// The bytes are treated as if they were still in the child's own file.
pub(super) fn spec(
    name: &str,
    file: &Path,
    bytes: &[u8],
    config: &Config,
    paths: &SuitePaths,
    lookup: Lookup<'_>,
) -> Result<ChildSpec, WrapperError> {
    let bad = |problem: String| SuiteError::BadFile { file: file.to_owned(), problem };
    let (parsed, _) = McpFile::parse(bytes).map_err(bad)?;
    let folder = file.parent().unwrap_or(file);
    let relative = folder.strip_prefix(&paths.workspace).unwrap_or(folder).to_string_lossy();
    let context = ResolveContext { file, folder: &relative, config, lookup };
    Ok(resolve_spec(name.to_owned(), parsed, &context)?)
}

/// Returns the original's spec under the name used for its trust decision.
///
/// No child can have this name, so the decision cannot be confused with that of the wrapper.
pub(super) fn trusted_as(spec: &ChildSpec) -> ChildSpec {
    ChildSpec { name: format!("{}/original", spec.name), ..spec.clone() }
}

/// Returns the name of an original in logs, errors and pins.
pub(super) fn inner_name(child: &str) -> String {
    format!("{child}.original")
}

/// Returns the name of a wrapper's original in logs and pins; `None` if the child is not a wrapper.
pub fn original_name(child: &ChildSpec) -> Option<String> {
    layout::is_wrapper(child).then(|| inner_name(&child.name))
}
