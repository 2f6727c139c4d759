//! Trust decisions: which launch settings were approved by their owner.
//!
//! Anyone may have written the files of a workspace, so starting a program named in them may run a stranger's code.
//! Therefore a child is started or reached only after its owner has seen and approved the exact launch settings.
//! Decisions are stored outside the workspace, and any change to the settings invalidates them.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use switchboard_core::describe_json_error;
use switchboard_sys::clock::Clock;
use switchboard_sys::files::{Dir, FileStat};
use switchboard_sys::lock::{DirLock, LockOptions};

use crate::content_hash::hash_content;
use crate::diff::{escape_invisible, line_diff};
use crate::error::SuiteError;
use crate::mcp_json::McpFile;
use crate::paths::{self, SuitePaths};
use crate::redact::{REDACTED, Secrets, is_reference, is_secret, redact, redact_values, without_password};
use crate::spec::{ChildSpec, LaunchTemplate};

/// Name of the trust file in the user's own folder.
const NAME: &str = "trust.json";

/// Maximum size of the trust file, in bytes: enough for thousands of decisions.
const LIMIT: u64 = 16 << 20;

/// Whether a child may be started or reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TrustState {
    /// The owner approved exactly these launch settings.
    Trusted,
    /// The owner has not made a decision.
    New,
    /// The owner approved other launch settings.
    Changed {
        /// Line diff between the approved and the current settings.
        diff: String,
    },
}

impl TrustState {
    /// Returns true if the child may be started or reached.
    pub fn is_trusted(&self) -> bool {
        *self == Self::Trusted
    }

    /// Returns the machine-readable name of the state.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Trusted => "trusted",
            Self::New => "new",
            Self::Changed { .. } => "changed",
        }
    }
}

/// Store of the trust decisions for one workspace.
///
/// Cheap to clone. The store notices decisions made by other processes, so the host need not be restarted after
/// `switchboard suite trust`.
#[derive(Debug, Clone)]
pub struct TrustStore {
    paths: Arc<SuitePaths>,
    workspace: Arc<str>,
    seen: Arc<Mutex<CachedDecisions>>,
}

/// Decisions as last read from the file, with the file's stamp.
#[derive(Debug, Default)]
struct CachedDecisions {
    stamp: Option<FileStat>,
    decisions: BTreeMap<String, Decision>,
}

/// File format: all decisions of the user, by workspace and child name.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct File {
    version: u32,
    workspaces: BTreeMap<String, BTreeMap<String, Decision>>,
    /// Unknown fields, which are preserved for later versions.
    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
}

/// Approval of one child's launch settings.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Decision {
    hash: String,
    at: String,
    /// The settings as shown at approval, with secrets redacted. Used for a later diff.
    shown: String,
}

impl TrustStore {
    /// Opens the trust store of a workspace. If the file is missing, nothing is trusted.
    pub fn load(paths: &SuitePaths) -> Self {
        let workspace = paths.workspace_key().into();
        Self { paths: Arc::new(paths.clone()), workspace, seen: Arc::default() }
    }

    /// Returns the trust state of a child. If the file cannot be read, no child is trusted.
    pub fn state(&self, spec: &ChildSpec) -> TrustState {
        self.state_of(&spec.name, &spec.template)
    }

    /// Returns the trust state of launch settings, for a child whose variables may be unset.
    pub fn state_of(&self, name: &str, template: &LaunchTemplate) -> TrustState {
        let mut seen = self.seen.lock();
        if let Err(error) = self.refresh(&mut seen) {
            tracing::warn!(%error, "cannot read the trusted servers; none is trusted");
            *seen = CachedDecisions::default();
        }
        match seen.decisions.get(&key(name)) {
            None => TrustState::New,
            Some(decision) if decision.hash == hash(template) => TrustState::Trusted,
            Some(decision) => TrustState::Changed { diff: line_diff(&decision.shown, &comparable(template)) },
        }
    }

    /// Approves this child's exact launch settings.
    pub fn grant(&self, spec: &ChildSpec) -> Result<(), SuiteError> {
        self.grant_template(&spec.name, &spec.template)
    }

    /// Approves a file that was just added to the workspace, even if variables in it are unset.
    pub fn grant_file(&self, name: &str, file: &McpFile) -> Result<(), SuiteError> {
        self.grant_template(name, &file.launch_template(name)?)
    }

    fn grant_template(&self, name: &str, template: &LaunchTemplate) -> Result<(), SuiteError> {
        let (hash, shown) = (hash(template), comparable(template));
        let decision = Decision { hash, at: Clock::system().now().to_string(), shown };
        self.update(|children| {
            children.insert(key(name), decision);
            true
        })?;
        Ok(())
    }

    /// Revokes an approval; returns false if there was none.
    pub fn revoke(&self, name: &str) -> Result<bool, SuiteError> {
        if paths::open_dir(&self.paths.config)?.is_none() {
            return Ok(false);
        }
        self.update(|children| children.remove(&key(name)).is_some())
    }

    /// Reloads the cached decisions if the file has changed.
    fn refresh(&self, seen: &mut CachedDecisions) -> Result<(), SuiteError> {
        let Some(dir) = paths::open_dir(&self.paths.config)? else {
            *seen = CachedDecisions::default();
            return Ok(());
        };
        let stamp = dir.stat(NAME)?;
        if stamp.is_none() || stamp != seen.stamp {
            let (file, stamp) = read(&dir)?;
            let decisions = file.workspaces.get(&*self.workspace).cloned().unwrap_or_default();
            *seen = CachedDecisions { stamp, decisions };
        }
        Ok(())
    }

    /// Updates this workspace's decisions under the file's lock. Returns false if there was nothing to change.
    fn update(&self, how: impl FnOnce(&mut BTreeMap<String, Decision>) -> bool) -> Result<bool, SuiteError> {
        let dir = paths::create_dir(&self.paths.config)?;
        let _lock = DirLock::acquire(&dir, NAME, LockOptions::default())?;
        let (mut file, _) = read(&dir)?;
        file.version = 1;
        let children = file.workspaces.entry(self.workspace.to_string()).or_default();
        if !how(children) {
            return Ok(false);
        }
        let text = serde_json::to_string_pretty(&file).map_err(|error| bad(&dir, &error))?;
        dir.replace(NAME, format!("{text}\n").as_bytes(), 0o600)?;
        Ok(true)
    }
}

/// Renders launch settings for their owner, one fact per line.
///
/// Command lines are never redacted, because a stranger could hide something important in text that looks like a
/// secret. Only values named like secrets and passwords in URLs are redacted.
///
/// `folder` is the working directory, if known, since paths in the template are relative to the child's own file.
pub fn render_launch(template: &LaunchTemplate, folder: Option<&Path>) -> Vec<String> {
    let quoted = |text: &String| {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@+,%${}".contains(c);
        let is_bare = !text.is_empty() && text.chars().all(is_plain);
        if is_bare { text.clone() } else { format!("'{}'", escape_invisible(text, usize::MAX)) }
    };
    let mut lines = Vec::new();
    if let Some(command) = &template.command {
        let words: Vec<String> = std::iter::once(command).chain(&template.args).map(quoted).collect();
        lines.push(format!("command: {}", words.join(" ")));
        let cwd = template.cwd.as_deref().unwrap_or(".");
        let cwd = folder.map_or_else(|| cwd.to_owned(), |folder| folder.display().to_string());
        lines.push(format!("folder: {}", escape_invisible(&cwd, usize::MAX)));
    }
    if let Some(url) = &template.url {
        let url = escape_invisible(&without_password(url), usize::MAX);
        lines.push(format!("address: {url} ({})", template.transport));
    }
    for (what, values) in [("env", &template.env), ("header", &template.headers)] {
        let values = redact_values(values);
        lines.extend(
            values
                .iter()
                .map(|(name, value)| format!("{what} {name}={}", escape_invisible(value, usize::MAX))),
        );
    }
    if let Some(framing) = template.framing {
        lines.push(format!("framing: {framing:?}"));
    }
    lines
}

/// Hashes all launch settings that determine what is started or reached, as written in the file.
fn hash(template: &LaunchTemplate) -> String {
    hash_content(&serde_json::to_value(template).unwrap_or_default())
}

/// Renders the settings for storage and later diffs. Each secret is replaced by a fingerprint, which reveals a change.
fn comparable(template: &LaunchTemplate) -> String {
    let marked = |values: &BTreeMap<String, String>| {
        let mark = |(name, value): (&String, &String)| {
            let value = if is_secret(name, value) && !is_reference(value) {
                format!("{REDACTED} {}", fingerprint(value))
            } else {
                value.clone()
            };
            (name.clone(), value)
        };
        values.iter().map(mark).collect::<BTreeMap<_, _>>()
    };
    let mut template = template.clone();
    (template.env, template.headers) = (marked(&template.env), marked(&template.headers));
    for text in template.args.iter_mut().chain(&mut template.url) {
        let plain = redact(text, &Secrets::default());
        if plain != *text {
            *text = format!("{plain} {}", fingerprint(text));
        }
    }
    serde_json::to_string_pretty(&template).unwrap_or_default() + "\n"
}

/// Returns a fingerprint that distinguishes secrets without revealing them.
fn fingerprint(secret: &str) -> String {
    hash_content(&Value::String(secret.to_owned()))[..8].to_owned()
}

fn key(name: &str) -> String {
    name.to_ascii_lowercase()
}

fn read(dir: &Dir) -> Result<(File, Option<FileStat>), SuiteError> {
    match dir.read(NAME, LIMIT)? {
        Some(found) => {
            let file = serde_json::from_slice(&found.bytes).map_err(|error| bad(dir, &error))?;
            Ok((file, Some(found.stat)))
        }
        None => Ok((File::default(), None)),
    }
}

fn bad(dir: &Dir, error: &serde_json::Error) -> SuiteError {
    let problem = format!("cannot be read: {}; move it aside and decide again", describe_json_error(error));
    SuiteError::BadFile { file: dir.path().join(NAME), problem }
}

#[cfg(test)]
#[path = "trust_tests.rs"]
mod tests;
