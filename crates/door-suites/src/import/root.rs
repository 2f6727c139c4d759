//! `.mcp.json` beside `.switchboard/`: what most clients read. Its servers become children, and Switchboard
//! takes their place in it.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use switchboard_sys::files::{Created, Dir, Durability};

use super::entry::is_ours;
use super::{Servers, entry};
use crate::edit::{free_name, workspace_folder};
use crate::error::SuiteError;
use crate::expand::variables_in;
use crate::mcp_json::{BYTE_ORDER_MARK, McpFile};
use crate::paths::{SuitePaths, hex};

/// The file's name.
const NAME: &str = ".mcp.json";

/// What was done to the file, newest last, so that it can be undone.
const RECORDS: &str = "imports.json";

/// Larger than any such file that a person writes.
const LIMIT: u64 = 4 << 20;

/// Most records that are kept; each stands for one import.
const MOST_RECORDS: usize = 100;

/// The keys under which people name servers.
const KEYS: [&str; 2] = ["mcpServers", "mcps"];

/// The file as it was found.
#[derive(Debug)]
pub struct RootFile {
    path: PathBuf,
    bytes: Vec<u8>,
    value: Map<String, Value>,
    has_ours: bool,
    /// Under which key each of the servers is that can be taken over: both keys may have one of that name.
    taken: BTreeMap<String, &'static str>,
    /// What it names.
    pub servers: Servers,
}

/// What became of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportOutcome {
    /// The file that was written.
    pub file: PathBuf,
    /// Where the old one is kept, byte for byte.
    pub backup: PathBuf,
}

/// What became of a way back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RevertOutcome {
    /// The file that is again what it was.
    pub file: PathBuf,
    /// From which backup.
    pub backup: PathBuf,
    /// The children that had been made of its servers.
    pub children: Vec<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Record {
    backup: String,
    /// The hash of what was written in its place.
    wrote: String,
    children: Vec<String>,
}

impl RootFile {
    /// Reads the file of a workspace; `None` where there is none. What does not parse is an error that says
    /// where, and nothing was touched.
    pub fn read(workspace: &Path) -> Result<Option<Self>, SuiteError> {
        let root = Dir::open_root(workspace)?;
        let Some(found) = root.read(NAME, LIMIT)? else { return Ok(None) };
        let path = root.path().join(NAME);
        let bad = |problem: String| SuiteError::BadFile { file: path.clone(), problem };
        if found.bytes.starts_with(BYTE_ORDER_MARK) {
            return Err(bad("begins with a byte order mark; save it as UTF-8 without one".to_owned()));
        }
        let value: Value =
            serde_json::from_slice(&found.bytes).map_err(|error| bad(format!("is not JSON: {error}")))?;
        let Value::Object(value) = value else { return Err(bad("is not a JSON object".to_owned())) };
        let mut servers = Servers::default();
        let mut taken = BTreeMap::new();
        let mut has_ours = false;
        for key in KEYS {
            let named = match value.get(key) {
                None | Some(Value::Null) => continue,
                Some(Value::Object(named)) => named,
                Some(_) => return Err(bad(format!("the key '{key}' is not an object"))),
            };
            let is_ours = |(name, server): (&String, &Value)| {
                server.as_object().is_some_and(|server| entry::is_ours(name, server))
            };
            has_ours |= named.iter().any(is_ours);
            servers.take(named, None, false, root.path());
            for candidate in &servers.candidates {
                taken.entry(candidate.original.clone()).or_insert(key);
            }
        }
        servers.files.push(path.clone());
        Ok(Some(Self { path, bytes: found.bytes, value, has_ours, taken, servers }))
    }

    /// Whether the file has to be written anew once its servers are children.
    pub fn needs_change(&self) -> bool {
        !self.has_ours || !self.servers.candidates.is_empty()
    }

    /// Puts Switchboard in the place of the servers that became children; what did not, stays.
    ///
    /// The old file is kept in `.switchboard/backups/` before anything is written. Where it is no longer what was
    /// read, which may be a while ago, it is left alone.
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
        let backups = workspace_folder(paths)?.make_subdir("backups")?;
        let backup = free_name("workspace", now, |name| {
            Ok(backups.create_new(name, &self.bytes, Durability::Synced)? == Created::Created)
        })?;
        let text = self.with_ours(children, program);
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

    /// The file with Switchboard's own entry in place of the children's.
    fn with_ours(&self, children: &[String], program: &Path) -> String {
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
        if !self.has_ours {
            let ours = json!({ "type": "stdio", "command": program, "args": ["mcp"], "env": {} });
            kept.insert("switchboard".to_owned(), ours);
        }
        let imported = self.servers.candidates.iter().filter(|candidate| children.contains(&candidate.name));
        let mut needed = BTreeMap::new();
        for (name, is_required) in imported.flat_map(|candidate| variables_of(&candidate.file)) {
            *needed.entry(name).or_insert(false) |= is_required;
        }
        hand_on(&mut kept, needed);
        value.insert("mcpServers".to_owned(), Value::Object(kept));
        serde_json::to_string_pretty(&value).unwrap_or_default() + "\n"
    }
}

/// Variables that every program is given anyway.
const ALWAYS: [&str; 8] = ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TERM", "TMPDIR"];

/// The variables that a server's description names, and whether each has to be set.
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

/// Puts variables into our own entry, so that a client which passes on only those hands them to us. The client replaces
/// them, as it did in the entries of the servers. What the entry has already stays.
fn hand_on(servers: &mut Map<String, Value>, needed: BTreeMap<String, bool>) {
    let ours = servers.iter_mut().find_map(|(name, entry)| {
        let entry = entry.as_object_mut()?;
        (is_ours(name, entry) && entry.contains_key("command")).then_some(entry)
    });
    let Some(ours) = ours else { return };
    let env = ours.entry("env").or_insert_with(|| json!({}));
    let Some(env) = env.as_object_mut() else { return };
    for (name, is_required) in needed {
        let value = if is_required { format!("${{{name}}}") } else { format!("${{{name}:-}}") };
        env.entry(name).or_insert(value.into());
    }
}

/// Puts the file back to what it was before the last import, byte for byte.
///
/// Refuses where someone has edited it since, unless `force` is set.
pub fn revert(paths: &SuitePaths, force: bool) -> Result<RevertOutcome, SuiteError> {
    let backups = workspace_folder(paths)?.make_subdir("backups")?;
    let none = || SuiteError::NoBackup { folder: backups.path().to_owned() };
    let mut records = records(&backups)?;
    let record = records.pop().ok_or_else(none)?;
    let old = backups.read(&record.backup, LIMIT)?.ok_or_else(none)?;
    let root = Dir::open_root(&paths.workspace)?;
    let path = root.path().join(NAME);
    // What is already as it was has been put back by hand.
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
            problem: format!("is not what switchboard wrote ({error}); copy the backup you want by hand"),
        }),
        None => Ok(Vec::new()),
    }
}

fn write_records(backups: &Dir, records: &[Record]) -> Result<(), SuiteError> {
    let text = serde_json::to_string_pretty(records).unwrap_or_default();
    Ok(backups.replace(RECORDS, format!("{text}\n").as_bytes(), 0o600)?)
}

/// The permissions that the file has, or those that such a file usually has.
fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).map_or(0o644, |found| found.permissions().mode() & 0o777)
}

fn hash(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}
