//! Which command lines their owner has agreed to.
//!
//! A workspace may come from anyone, and starting what its files name is running a stranger's program. So
//! a child is started or reached only after its owner was shown exactly how, and agreed. What they agreed
//! to is kept outside the workspace, and a changed byte voids it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use switchboard_sys::clock::Clock;
use switchboard_sys::files::{Dir, FileStamp};
use switchboard_sys::lock::{DirLock, LockOptions};

use crate::canonical;
use crate::diff::{escape_invisible, line_diff};
use crate::error::SuiteError;
use crate::mcp_json::McpFile;
use crate::paths::{self, SuitePaths};
use crate::redact::{REDACTED, Secrets, is_reference, is_secret, redact, redact_values, without_password};
use crate::spec::{ChildSpec, LaunchTemplate};

/// The file's name in the user's own folder.
const NAME: &str = "trust.json";

/// Room for thousands of decisions.
const LIMIT: u64 = 16 << 20;

/// Whether a child may be started or reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TrustState {
    /// Its owner agreed to exactly this.
    Trusted,
    /// Nobody was asked.
    New,
    /// Its owner agreed to something else.
    Changed {
        /// What differs, line by line.
        diff: String,
    },
}

impl TrustState {
    /// Whether the child may be started or reached.
    pub fn is_trusted(&self) -> bool {
        *self == Self::Trusted
    }

    /// A word for programs.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Trusted => "trusted",
            Self::New => "new",
            Self::Changed { .. } => "changed",
        }
    }
}

/// The decisions about the children of one workspace.
///
/// A cheap handle. It notices when another process decides: whoever is told to run `switchboard suite trust`
/// does not have to start their host anew.
#[derive(Debug, Clone)]
pub struct TrustStore {
    paths: Arc<SuitePaths>,
    workspace: Arc<str>,
    seen: Arc<Mutex<Seen>>,
}

/// The file as it was last read.
#[derive(Debug, Default)]
struct Seen {
    stamp: Option<FileStamp>,
    decisions: BTreeMap<String, Decision>,
}

/// All decisions of the user, by workspace and child.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct File {
    version: u32,
    workspaces: BTreeMap<String, BTreeMap<String, Decision>>,
    /// What later versions put here stays.
    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
}

/// What was agreed to.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Decision {
    hash: String,
    at: String,
    /// What was shown, so that a change can be shown too. Secrets are not in it.
    shown: String,
}

impl TrustStore {
    /// The decisions about the children of a workspace. Where there are none yet, nothing is trusted.
    pub fn load(paths: &SuitePaths) -> Self {
        let workspace = paths.workspace_key().into();
        Self { paths: Arc::new(paths.clone()), workspace, seen: Arc::default() }
    }

    /// Whether a child may be started or reached. Where the file cannot be read, it may not.
    pub fn state(&self, spec: &ChildSpec) -> TrustState {
        self.state_of(&spec.name, &spec.template)
    }

    /// [`state`](Self::state), for a child whose variables may not all be set.
    pub fn state_of(&self, name: &str, template: &LaunchTemplate) -> TrustState {
        let mut seen = self.seen.lock();
        if let Err(error) = self.refresh(&mut seen) {
            tracing::warn!(%error, "cannot read what is trusted; nothing is");
            *seen = Seen::default();
        }
        match seen.decisions.get(&key(name)) {
            None => TrustState::New,
            Some(decision) if decision.hash == hash(template) => TrustState::Trusted,
            Some(decision) => TrustState::Changed { diff: line_diff(&decision.shown, &comparable(template)) },
        }
    }

    /// Agrees to exactly how this child is started or reached.
    pub fn grant(&self, spec: &ChildSpec) -> Result<(), SuiteError> {
        self.grant_template(&spec.name, &spec.template)
    }

    /// Agrees to what was just put into the workspace under a name, whether or not its variables are set.
    pub fn grant_file(&self, name: &str, file: &McpFile) -> Result<(), SuiteError> {
        self.grant_template(name, &file.launch_template(name)?)
    }

    fn grant_template(&self, name: &str, template: &LaunchTemplate) -> Result<(), SuiteError> {
        let (hash, shown) = (hash(template), comparable(template));
        let decision = Decision { hash, at: Clock::system().now().to_string(), shown };
        self.change(|children| {
            children.insert(key(name), decision);
            true
        })?;
        Ok(())
    }

    /// Takes an agreement back; `false` where there was none.
    pub fn revoke(&self, name: &str) -> Result<bool, SuiteError> {
        if paths::open(&self.paths.config)?.is_none() {
            return Ok(false);
        }
        self.change(|children| children.remove(&key(name)).is_some())
    }

    /// Reads the file again where it has changed.
    fn refresh(&self, seen: &mut Seen) -> Result<(), SuiteError> {
        let Some(dir) = paths::open(&self.paths.config)? else {
            *seen = Seen::default();
            return Ok(());
        };
        let stamp = dir.stat(NAME)?;
        if stamp.is_none() || stamp != seen.stamp {
            let (file, stamp) = read(&dir)?;
            let decisions = file.workspaces.get(&*self.workspace).cloned().unwrap_or_default();
            *seen = Seen { stamp, decisions };
        }
        Ok(())
    }

    /// Changes the decisions about this workspace, one process at a time; whether there was anything to change.
    fn change(&self, how: impl FnOnce(&mut BTreeMap<String, Decision>) -> bool) -> Result<bool, SuiteError> {
        let dir = paths::make(&self.paths.config)?;
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

/// How a child is started or reached, as its owner is shown it: one fact a line.
///
/// Nothing of a command line is left out, whatever it looks like: a stranger could hide there what matters.
/// Only values that are called secrets are, and the password of an address.
///
/// `folder` is where it is started, as far as that is known: what is written is relative to the child's own file.
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

/// The hash of what is trusted: everything that decides what is started or reached, as written.
fn hash(template: &LaunchTemplate) -> String {
    canonical::hash(&serde_json::to_value(template).unwrap_or_default())
}

/// What is kept to be compared with. In place of a secret stands a mark by which a change is noticed.
fn comparable(template: &LaunchTemplate) -> String {
    let marked = |values: &BTreeMap<String, String>| {
        let mark = |(name, value): (&String, &String)| {
            let value = if is_secret(name, value) && !is_reference(value) {
                format!("{REDACTED} {}", mark_of(value))
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
            *text = format!("{plain} {}", mark_of(text));
        }
    }
    serde_json::to_string_pretty(&template).unwrap_or_default() + "\n"
}

/// What tells one secret from another, and nothing more of it.
fn mark_of(secret: &str) -> String {
    canonical::hash(&Value::String(secret.to_owned()))[..8].to_owned()
}

fn key(name: &str) -> String {
    name.to_ascii_lowercase()
}

fn read(dir: &Dir) -> Result<(File, Option<FileStamp>), SuiteError> {
    match dir.read(NAME, LIMIT)? {
        Some(found) => {
            let file = serde_json::from_slice(&found.bytes).map_err(|error| bad(dir, &error))?;
            Ok((file, Some(found.stamp)))
        }
        None => Ok((File::default(), None)),
    }
}

fn bad(dir: &Dir, error: &serde_json::Error) -> SuiteError {
    let problem = format!("is not what switchboard wrote ({error}); move it aside and decide again");
    SuiteError::BadFile { file: dir.path().join(NAME), problem }
}

#[cfg(test)]
#[path = "trust_tests.rs"]
mod tests;
