//! Import of the workspace's root `.mcp.json`, which most clients read.
//!
//! The servers of the file become children, and Switchboard's own entry replaces them in the file.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use switchboard_core::describe_json_error;
use switchboard_sys::files::{Created, Dir, Durability};

use super::entry::is_switchboard;
use super::{Servers, entry};
use crate::edit::{free_name, workspace_folder};
use crate::error::SuiteError;
use crate::expand::variables_in;
use crate::mcp_json::{BYTE_ORDER_MARK, McpFile};
use crate::paths::{SuitePaths, hex};

/// Name of the root file.
const NAME: &str = ".mcp.json";

/// Name of the file that records imports, newest last, for `revert`.
const RECORDS: &str = "imports.json";

/// Maximum size of the root file, in bytes. No handwritten `.mcp.json` is this large.
const LIMIT: u64 = 4 << 20;

/// Maximum number of stored import records, one per import.
const MOST_RECORDS: usize = 100;

/// Keys under which the file may list servers.
const KEYS: [&str; 2] = ["mcpServers", "mcps"];

/// The root `.mcp.json` as it was read.
#[derive(Debug)]
pub struct RootFile {
    path: PathBuf,
    bytes: Vec<u8>,
    value: Map<String, Value>,
    has_switchboard: bool,
    /// Key from [`KEYS`] under which each importable server is listed. Both keys may list the same name.
    taken: BTreeMap<String, &'static str>,
    /// Servers listed in the file.
    pub servers: Servers,
}

/// Result of an import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportOutcome {
    /// The file that was written.
    pub file: PathBuf,
    /// Byte-for-byte backup of the file before the import.
    pub backup: PathBuf,
}

/// Result of a revert.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RevertOutcome {
    /// The restored file.
    pub file: PathBuf,
    /// The backup from which the file was restored.
    pub backup: PathBuf,
    /// Children that the import had created.
    pub children: Vec<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Record {
    backup: String,
    /// Content hash of the file that the import wrote.
    wrote: String,
    children: Vec<String>,
}

impl RootFile {
    /// Reads the root file of a workspace; returns `None` if it does not exist.
    ///
    /// A parse error contains the position. Nothing is written.
    pub fn read(workspace: &Path) -> Result<Option<Self>, SuiteError> {
        let root = Dir::open_root(workspace)?;
        let Some(found) = root.read(NAME, LIMIT)? else { return Ok(None) };
        let path = root.path().join(NAME);
        let bad = |problem: String| SuiteError::BadFile { file: path.clone(), problem };
        if found.bytes.starts_with(BYTE_ORDER_MARK) {
            return Err(bad("begins with a byte order mark; save it as UTF-8 without one".to_owned()));
        }
        let value: Value = serde_json::from_slice(&found.bytes)
            .map_err(|error| bad(format!("is not JSON: {}", describe_json_error(&error))))?;
        let Value::Object(value) = value else { return Err(bad("is not a JSON object".to_owned())) };
        let mut servers = Servers::default();
        let mut taken = BTreeMap::new();
        let mut has_switchboard = false;
        for key in KEYS {
            let named = match value.get(key) {
                None | Some(Value::Null) => continue,
                Some(Value::Object(named)) => named,
                Some(_) => return Err(bad(format!("the key '{key}' is not an object"))),
            };
            let is_switchboard = |(name, server): (&String, &Value)| {
                server.as_object().is_some_and(|server| entry::is_switchboard(name, server))
            };
            has_switchboard |= named.iter().any(is_switchboard);
            servers.collect(named, None, false, root.path());
            for candidate in &servers.candidates {
                taken.entry(candidate.original.clone()).or_insert(key);
            }
        }
        servers.files.push(path.clone());
        Ok(Some(Self { path, bytes: found.bytes, value, has_switchboard, taken, servers }))
    }

    /// Returns true if an import would change the file.
    pub fn needs_change(&self) -> bool {
        !self.has_switchboard || !self.servers.candidates.is_empty()
    }

    /// Replaces the imported servers with Switchboard's entry; other servers are kept.
    ///
    /// The previous file is first backed up to `.switchboard/backups/`. Nothing is written if the file was modified
    /// after it was read, which may have been a while ago.
    pub fn replace(
        &self,
        paths: &SuitePaths,
        children: &[String],
        program: &Path,
        now: Timestamp,
    ) -> Result<ImportOutcome, SuiteError> {
        let root = Dir::open_root(&paths.workspace)?;
        if root.read(NAME, LIMIT)?.is_none_or(|now| now.bytes != self.bytes) {
            return Err(SuiteError::ModifiedConcurrently { file: self.path.clone() });
        }
        let backups = workspace_folder(paths)?.ensure_subdir("backups")?;
        let backup = free_name("workspace", now, |name| {
            Ok(backups.create_new(name, &self.bytes, Durability::Synced)? == Created::Created)
        })?;
        let text = self.render_with_switchboard(children, program);
        let mut records = records(&backups)?;
        records.push(Record {
            backup: backup.clone(),
            wrote: hash(text.as_bytes()),
            children: children.to_vec(),
        });
        let excess = records.len().saturating_sub(MOST_RECORDS);
        write_records(&backups, &records[excess..])?;
        root.replace(NAME, text.as_bytes(), mode(&self.path))?;
        Ok(ImportOutcome { file: self.path.clone(), backup: backups.path().join(backup) })
    }

    /// Renders the file with Switchboard's entry in place of the imported servers.
    fn render_with_switchboard(&self, children: &[String], program: &Path) -> String {
        let gone = |key: &str, name: &String| {
            let candidate = self.servers.candidates.iter().find(|candidate| candidate.original == *name);
            self.taken.get(name) == Some(&key)
                && candidate.is_some_and(|candidate| children.contains(&candidate.name))
        };
        let mut value = self.value.clone();
        let mut kept = Map::new();
        for key in KEYS {
            if let Some(Value::Object(named)) = value.remove(key) {
                kept.extend(named.into_iter().filter(|(name, _)| !gone(key, name)));
            }
        }
        if !self.has_switchboard {
            let ours = json!({ "type": "stdio", "command": program, "args": ["mcp"], "env": {} });
            kept.insert("switchboard".to_owned(), ours);
        }
        let imported = self.servers.candidates.iter().filter(|candidate| children.contains(&candidate.name));
        let mut needed = BTreeMap::new();
        for (name, is_required) in imported.flat_map(|candidate| variables_of(&candidate.file)) {
            *needed.entry(name).or_insert(false) |= is_required;
        }
        add_variables(&mut kept, needed);
        value.insert("mcpServers".to_owned(), Value::Object(kept));
        serde_json::to_string_pretty(&value).unwrap_or_default() + "\n"
    }
}

/// Environment variables that every started program inherits.
const ALWAYS: [&str; 8] = ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TERM", "TMPDIR"];

/// Returns the variables that a server's file references. The flag is true if the variable is required.
fn variables_of(file: &McpFile) -> BTreeMap<String, bool> {
    let command = file
        .command
        .iter()
        .flat_map(|command| std::iter::once(&command.cmd).chain(&command.args).chain(command.env.values()));
    let texts = command
        .chain(&file.args)
        .chain(file.env.values())
        .chain(file.headers.values())
        .chain(&file.cwd)
        .chain(&file.url);
    let mut needed = BTreeMap::new();
    for (name, is_required) in texts.flat_map(|text| variables_in(text)) {
        if !ALWAYS.contains(&name) {
            *needed.entry(name.to_owned()).or_insert(false) |= is_required;
        }
    }
    needed
}

/// Adds variables to the `env` of Switchboard's entry, for clients that pass only listed variables through.
///
/// The client expands these variables, as it did in the original entries. Existing variables are kept.
fn add_variables(servers: &mut Map<String, Value>, needed: BTreeMap<String, bool>) {
    let ours = servers.iter_mut().find_map(|(name, entry)| {
        let entry = entry.as_object_mut()?;
        (is_switchboard(name, entry) && entry.contains_key("command")).then_some(entry)
    });
    let Some(ours) = ours else { return };
    let env = ours.entry("env").or_insert_with(|| json!({}));
    let Some(env) = env.as_object_mut() else { return };
    for (name, is_required) in needed {
        let value = if is_required { format!("${{{name}}}") } else { format!("${{{name}:-}}") };
        env.entry(name).or_insert(value.into());
    }
}

/// Restores the root file as it was before the last import, byte for byte.
///
/// Returns an error if the file was edited after the import, unless `force` is set.
pub fn revert(paths: &SuitePaths, force: bool) -> Result<RevertOutcome, SuiteError> {
    let backups = workspace_folder(paths)?.ensure_subdir("backups")?;
    let none = || SuiteError::NoBackup { folder: backups.path().to_owned() };
    let mut records = records(&backups)?;
    let record = records.pop().ok_or_else(none)?;
    let old = backups.read(&record.backup, LIMIT)?.ok_or_else(none)?;
    let root = Dir::open_root(&paths.workspace)?;
    let path = root.path().join(NAME);
    // A file that already equals the backup was restored by a person and does not count as edited.
    let is_edited =
        root.read(NAME, LIMIT)?.is_some_and(|now| hash(&now.bytes) != record.wrote && now.bytes != old.bytes);
    if is_edited && !force {
        return Err(SuiteError::Edited { file: path });
    }
    root.replace(NAME, &old.bytes, mode(&path))?;
    write_records(&backups, &records)?;
    Ok(RevertOutcome { file: path, backup: backups.path().join(record.backup), children: record.children })
}

fn records(backups: &Dir) -> Result<Vec<Record>, SuiteError> {
    match backups.read(RECORDS, LIMIT)? {
        Some(found) => serde_json::from_slice(&found.bytes).map_err(|error| SuiteError::BadFile {
            file: backups.path().join(RECORDS),
            problem: format!(
                "cannot be read: {}; copy the backup you want by hand",
                describe_json_error(&error)
            ),
        }),
        None => Ok(Vec::new()),
    }
}

fn write_records(backups: &Dir, records: &[Record]) -> Result<(), SuiteError> {
    let text = serde_json::to_string_pretty(records).unwrap_or_default();
    Ok(backups.replace(RECORDS, format!("{text}\n").as_bytes(), 0o600)?)
}

/// Returns the file's permissions, or the default permissions if the file does not exist.
fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).map_or(0o644, |found| found.permissions().mode() & 0o777)
}

fn hash(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}
