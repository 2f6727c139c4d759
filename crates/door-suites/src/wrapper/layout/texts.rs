//! Updates `mcp-descriptions.json`: the descriptions of a child for calling models and for its wrapper's model.

use serde_json::{Map, Value};
use switchboard_core::describe_json_error;
use switchboard_sys::files::{Created, Dir, Durability};
use switchboard_sys::lock::{DirLock, LockOptions};

use super::super::error::WrapperError;
use super::super::manifest::Manifest;
use crate::descriptions::DESCRIPTIONS_NAME;
use crate::edit::workspace_folder;
use crate::error::SuiteError;
use crate::paths::SuitePaths;

/// Maximum size of the descriptions file, in bytes. No handwritten file is this large.
const LIMIT: u64 = 1 << 20;

/// Adds the missing descriptions of a child. Existing text is preserved, including text under unknown keys.
pub(super) fn add(
    paths: &SuitePaths,
    child: &str,
    switchboard: &str,
    claude: &str,
    manifest: &mut Manifest,
) -> Result<(), WrapperError> {
    let folder = workspace_folder(paths)?;
    let _lock =
        DirLock::acquire(&folder, DESCRIPTIONS_NAME, LockOptions::default()).map_err(SuiteError::from)?;
    let before = read(&folder)?;
    let mut file = before.clone().unwrap_or_else(|| Value::Object(Map::new()));
    let texts = texts_of(&mut file, child, &folder)?;
    let mut is_changed = false;
    for (key, text, made) in
        [("switchboard", switchboard, &mut manifest.switchboard), ("claude", claude, &mut manifest.claude)]
    {
        let entry = texts.entry(key).or_insert(Value::Null);
        if entry.is_null() {
            *entry = text.into();
            *made = Some(text.to_owned());
            is_changed = true;
        }
    }
    if is_changed {
        manifest.made_descriptions |= before.is_none();
        write(&folder, &file, before.is_none())?;
    }
    Ok(())
}

/// Removes the descriptions that `wrap` added, if they are unchanged. Removes the file too if `wrap` created it and
/// nothing else is in it.
pub(super) fn remove(paths: &SuitePaths, child: &str, manifest: &Manifest) -> Result<(), WrapperError> {
    let folder = workspace_folder(paths)?;
    let _lock =
        DirLock::acquire(&folder, DESCRIPTIONS_NAME, LockOptions::default()).map_err(SuiteError::from)?;
    let Some(before) = read(&folder)? else { return Ok(()) };
    let mut file = before.clone();
    let texts = texts_of(&mut file, child, &folder)?;
    for (key, made) in [("switchboard", &manifest.switchboard), ("claude", &manifest.claude)] {
        if made.is_some() && texts.get(key).and_then(Value::as_str) == made.as_deref() {
            texts.remove(key);
        }
    }
    let is_empty = texts.is_empty();
    let mcps = file.get_mut("mcps").and_then(Value::as_object_mut);
    if let Some(mcps) = mcps.filter(|_| is_empty) {
        mcps.retain(|name, _| !name.eq_ignore_ascii_case(child));
    }
    let is_nothing =
        file.as_object().is_some_and(|file| file.values().all(|value| value == &Value::Object(Map::new())));
    if is_nothing && manifest.made_descriptions {
        folder.remove(DESCRIPTIONS_NAME)?;
    } else if file != before {
        write(&folder, &file, false)?;
    }
    Ok(())
}

fn read(folder: &Dir) -> Result<Option<Value>, WrapperError> {
    let Some(found) = folder.read(DESCRIPTIONS_NAME, LIMIT)? else { return Ok(None) };
    let value: Value = serde_json::from_slice(&found.bytes).map_err(|error| {
        bad(folder, &format!("is not JSON: {}; correct it first", describe_json_error(&error)))
    })?;
    Ok(Some(value))
}

/// Returns the JSON object with the descriptions of a child; creates missing objects.
fn texts_of<'f>(
    file: &'f mut Value,
    child: &str,
    folder: &Dir,
) -> Result<&'f mut Map<String, Value>, WrapperError> {
    let no_object = |what: &str| bad(folder, &format!("{what} is not an object; correct it first"));
    let file = file.as_object_mut().ok_or_else(|| no_object("the file"))?;
    let mcps = file.entry("mcps").or_insert_with(|| Value::Object(Map::new()));
    let mcps = mcps.as_object_mut().ok_or_else(|| no_object("the field 'mcps'"))?;
    let key = mcps.keys().find(|name| name.eq_ignore_ascii_case(child)).cloned();
    let texts =
        mcps.entry(key.unwrap_or_else(|| child.to_owned())).or_insert_with(|| Value::Object(Map::new()));
    texts.as_object_mut().ok_or_else(|| no_object(&format!("the field 'mcps.{child}'")))
}

fn write(folder: &Dir, file: &Value, is_new: bool) -> Result<(), WrapperError> {
    let text = serde_json::to_string_pretty(file).map_err(|error| bad(folder, &error.to_string()))? + "\n";
    if is_new {
        if folder.create_new(DESCRIPTIONS_NAME, text.as_bytes(), Durability::Synced)?
            == Created::AlreadyExists
        {
            return Err(bad(folder, "was just created by another program; try again"));
        }
        return Ok(());
    }
    Ok(folder.replace(
        DESCRIPTIONS_NAME,
        text.as_bytes(),
        super::mode_of(&folder.path().join(DESCRIPTIONS_NAME)),
    )?)
}

fn bad(folder: &Dir, problem: &str) -> WrapperError {
    let file = folder.path().join(DESCRIPTIONS_NAME);
    SuiteError::BadFile { file, problem: problem.to_owned() }.into()
}
