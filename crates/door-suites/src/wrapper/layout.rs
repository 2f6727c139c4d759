//! `wrap` and `unwrap`: manage the files of a wrapped child.
//!
//! The layout follows the suite proxy's architecture (section "Claude Intelligent Wrapper Architecture"):
//!
//! ```text
//! .switchboard/mcps/<name>/
//!   .mcp.json              starts `switchboard suite wrapper <name>`
//!   CLAUDE.md              role of the wrapper's model
//!   original/.mcp.json     previous content of `.mcp.json`, byte for byte
//!   original/wrapped.json  manifest of what `wrap` created, so that `unwrap` removes exactly that
//! ```
//!
//! The child's own file is replaced last and restored first, each time atomically. After an interruption, the child is
//! therefore either wrapped or not, and repeating the command completes the remaining steps.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use switchboard_sys::files::{Created, Dir, Durability};

use super::error::WrapperError;
use super::manifest::{Manifest, content_hash};
use super::original::{find_child, spec, trusted_as};
use super::provider::PASSED_VARIABLES;
use super::role;
use super::settings::LONGEST;
use crate::config::Config;
use crate::descriptions::{Descriptions, suite_description};
use crate::discovery::{FILE_LIMIT, discover_with};
use crate::edit::CHILD_FILE;
use crate::error::SuiteError;
use crate::expand::Lookup;
use crate::mcp_json::{CommandLine, McpFile};
use crate::paths::SuitePaths;
use crate::spec::{ChildSpec, Launch};
use crate::trust::TrustStore;

mod texts;

/// Name of the folder that contains the original.
pub(super) const ORIGINAL: &str = "original";

/// Name of the file that contains the model's role.
pub(super) const ROLE: &str = "CLAUDE.md";

/// Command-line arguments that start a wrapper, before the child's name.
const WORDS: [&str; 2] = ["suite", "wrapper"];

/// Margin between a wrapper's own time limit and the request timeout.
///
/// Because of the margin, the wrapper answers before the request times out.
const MARGIN_MS: u64 = 15_000;

/// Result of `switchboard suite wrap`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrapOutcome {
    /// Name of the child.
    pub name: String,
    /// Folder of the child.
    pub folder: PathBuf,
    /// Path of the file with the model's role.
    pub role: PathBuf,
    /// True if the role file already existed and was therefore not changed.
    pub kept_role: bool,
}

/// Result of `switchboard suite unwrap`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnwrapOutcome {
    /// Name of the child.
    pub name: String,
    /// Folder of the child.
    pub folder: PathBuf,
    /// Files and folders that were kept, because `wrap` did not create them or they were edited later.
    pub kept: Vec<PathBuf>,
    /// True if the child is trusted again, as before it was wrapped.
    pub is_trusted: bool,
}

/// Returns true if a child is one of Switchboard's wrappers.
///
/// Tool filters then apply to the original child, because a wrapper has only one tool of its own.
pub fn is_wrapper(child: &ChildSpec) -> bool {
    let starts_one = match &child.launch {
        Launch::Stdio { args, .. } => args.len() == 3 && args[..2] == WORDS,
        _ => false,
    };
    starts_one && child.file.parent().is_some_and(|folder| folder.join(ORIGINAL).join(CHILD_FILE).is_file())
}

/// Wraps a child. `program` is the command that starts Switchboard in the child's new file.
///
/// The child must be trusted. The wrapper and the original are then trusted as well, because the person who wraps the
/// child asked for exactly that.
pub fn wrap_child(
    name: &str,
    program: &Path,
    config: &Config,
    paths: &SuitePaths,
    lookup: Lookup<'_>,
) -> Result<WrapOutcome, WrapperError> {
    let found = discover_with(config, paths, lookup);
    let child = find_child(&found, name)?;
    if is_wrapper(child) {
        return Err(WrapperError::AlreadyWrapped { child: child.name.clone() });
    }
    let folder = folder_of(child, paths)?;
    let trust = TrustStore::load(paths);
    if !trust.state(child).is_trusted() {
        return Err(WrapperError::NotTrusted { child: child.name.clone() });
    }
    let bytes = read_child(&folder, child)?;
    let (file, _) = McpFile::parse(&bytes)
        .map_err(|problem| SuiteError::BadFile { file: child.file.clone(), problem })?;
    let original = save_original(&folder, &bytes)?;

    let descriptions = Descriptions::load(paths)
        .map_err(|problem| SuiteError::BadFile { file: problem.file, problem: problem.message })?;
    let description = suite_description(child, config, &descriptions, None);
    let role = descriptions.get(&child.name).and_then(|texts| texts.claude.clone());
    let role = role.unwrap_or_else(|| role::generated(&child.name, &description));
    let text = format!("{}\n", role.trim_end());
    let mut manifest = Manifest::read(&original)?;
    if folder.stat(ROLE)?.is_none() {
        manifest.role = Some(content_hash(text.as_bytes()));
    }
    texts::add(paths, &child.name, &description, role.trim_end(), &mut manifest)?;
    // Write the manifest before the files, so that leftovers of an interruption can be recognized as Switchboard's own.
    manifest.write(&original)?;
    folder.create_new(ROLE, text.as_bytes(), Durability::Synced)?;

    let wrapper = wrapper_file(&child.name, file, program).to_json();
    let trusted = spec(&child.name, &child.file, wrapper.as_bytes(), config, paths, lookup)?;
    trust.grant(&trusted_as(child))?;
    folder.replace(CHILD_FILE, wrapper.as_bytes(), mode_of(&child.file))?;
    trust.grant(&trusted)?;
    Ok(WrapOutcome {
        name: child.name.clone(),
        folder: folder.path().to_owned(),
        role: folder.path().join(ROLE),
        kept_role: manifest.role.is_none(),
    })
}

/// Unwraps a child: restores the child's original file byte for byte.
pub fn unwrap_child(
    name: &str,
    config: &Config,
    paths: &SuitePaths,
    lookup: Lookup<'_>,
) -> Result<UnwrapOutcome, WrapperError> {
    // Substitute unset variables, because an unset variable must not prevent users from restoring their file.
    let lookup: Lookup<'_> = &|name| lookup(name).or_else(|| Some("unset".to_owned()));
    let found = discover_with(config, paths, lookup);
    let child = find_child(&found, name)?;
    let not_wrapped = || WrapperError::NotWrapped { child: child.name.clone() };
    if !is_wrapper(child) {
        return Err(not_wrapped());
    }
    let folder = folder_of(child, paths)?;
    let original = folder.subdir(ORIGINAL)?.ok_or_else(not_wrapped)?;
    let bytes = original.read(CHILD_FILE, FILE_LIMIT)?.ok_or_else(not_wrapped)?.bytes;
    // Restore an original even if it can no longer be parsed, because its bytes must never change.
    let before = spec(&child.name, &child.file, &bytes, config, paths, lookup).ok();
    let trust = TrustStore::load(paths);
    let is_trusted = before.as_ref().is_some_and(|before| trust.state(&trusted_as(before)).is_trusted());
    folder.replace(CHILD_FILE, &bytes, mode_of(&child.file))?;
    match &before {
        Some(before) if is_trusted => trust.grant(before)?,
        _ => drop(trust.revoke(&child.name)?),
    }
    trust.revoke(&trusted_as(child).name)?;

    let manifest = Manifest::read(&original)?;
    let mut kept = Vec::new();
    match folder.read(ROLE, FILE_LIMIT)? {
        Some(role) if manifest.role.as_deref() == Some(content_hash(&role.bytes).as_str()) => {
            folder.remove(ROLE)?;
        }
        Some(_) => kept.push(folder.path().join(ROLE)),
        None => {}
    }
    texts::remove(paths, &child.name, &manifest)?;
    Manifest::remove(&original)?;
    original.remove(CHILD_FILE)?;
    // The removal fails if the folder contains other files; the folder is then kept.
    if std::fs::remove_dir(original.path()).is_err() {
        kept.push(original.path().to_owned());
    }
    Ok(UnwrapOutcome { name: child.name.clone(), folder: folder.path().to_owned(), kept, is_trusted })
}

/// Opens a child's folder; returns an error if wrappers cannot be created there.
pub(super) fn folder_of(child: &ChildSpec, paths: &SuitePaths) -> Result<Dir, WrapperError> {
    let elsewhere = || WrapperError::Elsewhere { child: child.name.clone(), file: child.file.clone() };
    let mcps = paths.workspace.join(".switchboard").join("mcps");
    let inside = child.file.strip_prefix(&mcps).map_err(|_| elsewhere())?;
    let parts: Vec<_> = inside.iter().map(|part| part.to_string_lossy()).collect();
    let [folder, file] = parts.as_slice() else { return Err(elsewhere()) };
    let root = Dir::open_root(&paths.workspace)?.subdir(".switchboard")?;
    let mcps = root.map(|root| root.subdir("mcps")).transpose()?.flatten();
    let folder = mcps.map(|mcps| mcps.subdir(folder)).transpose()?.flatten();
    folder.filter(|_| file == CHILD_FILE).ok_or_else(elsewhere)
}

fn read_child(folder: &Dir, child: &ChildSpec) -> Result<Vec<u8>, WrapperError> {
    let gone = || SuiteError::BadFile { file: child.file.clone(), problem: "is gone".to_owned() };
    Ok(folder.read(CHILD_FILE, FILE_LIMIT)?.ok_or_else(gone)?.bytes)
}

/// Saves the original file of a child.
///
/// An existing original is either a leftover of an interrupted `wrap`, which is accepted, or belongs to another child.
fn save_original(folder: &Dir, bytes: &[u8]) -> Result<Dir, WrapperError> {
    let original = folder.ensure_subdir(ORIGINAL)?;
    if original.create_new(CHILD_FILE, bytes, Durability::Synced)? == Created::AlreadyExists {
        let existing = original.read(CHILD_FILE, FILE_LIMIT)?;
        if existing.is_none_or(|existing| existing.bytes != bytes) {
            return Err(WrapperError::OtherOriginal { file: original.path().join(CHILD_FILE) });
        }
    }
    Ok(original)
}

/// Builds the file that starts a wrapper: the child's file with a different command.
fn wrapper_file(name: &str, original: McpFile, program: &Path) -> McpFile {
    let env = variables(&original);
    let args = WORDS.into_iter().map(str::to_owned).chain([name.to_owned()]).collect();
    let command = CommandLine { cmd: program.to_string_lossy().into_owned(), args, env };
    let longest = u64::try_from(LONGEST.as_millis()).unwrap_or(u64::MAX);
    McpFile {
        name: original.name,
        description: original.description,
        switchboard_description: original.switchboard_description,
        command: Some(command),
        rpc_timeout_ms: Some(longest.saturating_add(MARGIN_MS)),
        idle_ms: original.idle_ms,
        ..McpFile::default()
    }
}

/// Returns the environment variables that a wrapper needs, because started programs inherit no others.
///
/// These are the variables that select the model, and those that the original's file references.
fn variables(original: &McpFile) -> BTreeMap<String, String> {
    let mut needed: BTreeMap<String, String> =
        PASSED_VARIABLES.iter().map(|name| ((*name).to_owned(), format!("${{{name}:-}}"))).collect();
    // Search the unexpanded JSON, because this covers references in every field.
    for reference in original.to_json().split("${").skip(1) {
        let Some((inside, _)) = reference.split_once('}') else { continue };
        match inside.split_once(":-") {
            Some((name, _)) => drop(needed.entry(name.to_owned()).or_insert(format!("${{{name}:-}}"))),
            None => drop(needed.insert(inside.to_owned(), format!("${{{inside}}}"))),
        }
    }
    needed
}

/// Returns the permissions of a child's file, which its replacement gets as well.
fn mode_of(file: &Path) -> u32 {
    file.metadata().map_or(0o600, |found| found.permissions().mode() & 0o777)
}

#[cfg(test)]
#[path = "layout_tests.rs"]
mod tests;
