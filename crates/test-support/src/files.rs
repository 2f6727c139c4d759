//! File access as other programs do it: plain, without the hub's atomic writes.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde_json::Value;

/// Snapshot of everything below a folder: entries with kind, permissions and content, by path.
pub type Tree = BTreeMap<PathBuf, Entry>;

/// One file, folder or symbolic link of a snapshot.
#[derive(Clone, PartialEq, Eq)]
pub struct Entry {
    /// Type and permissions, as in `st_mode`.
    pub mode: u32,
    /// Content of a file, or target of a symbolic link.
    pub content: Vec<u8>,
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "mode {:o}, {} bytes", self.mode, self.content.len())
    }
}

/// Writes a file in place, and creates missing parent folders.
pub fn put(path: impl AsRef<Path>, bytes: impl AsRef<[u8]>) {
    let path = path.as_ref();
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(path).unwrap();
    file.write_all(bytes.as_ref()).unwrap();
}

/// Writes a file under a temporary name and renames it (atomic write), as careful programs do.
#[expect(clippy::disallowed_methods, reason = "plays a program that is none of ours")]
pub fn put_by_rename(path: impl AsRef<Path>, bytes: impl AsRef<[u8]>) {
    let path = path.as_ref();
    let temp = path.with_extension("tmp");
    put(&temp, bytes);
    fs::rename(&temp, path).unwrap();
}

/// Writes a file in place and in two steps, as careless programs do.
pub fn put_in_pieces(path: impl AsRef<Path>, bytes: impl AsRef<[u8]>) {
    let (first, second) = bytes.as_ref().split_at(bytes.as_ref().len() / 2);
    let mut file = OpenOptions::new().write(true).create_new(true).open(path.as_ref()).unwrap();
    file.write_all(first).unwrap();
    std::thread::yield_now();
    file.write_all(second).unwrap();
}

/// Moves a file.
#[expect(clippy::disallowed_methods, reason = "plays a program that is none of ours")]
pub fn rename(from: impl AsRef<Path>, to: impl AsRef<Path>) {
    fs::rename(from, to).unwrap();
}

/// Sets the permissions of a file or folder.
pub fn chmod(path: impl AsRef<Path>, mode: u32) {
    fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

/// Takes a snapshot of everything below a folder, byte by byte.
pub fn tree(root: impl AsRef<Path>) -> Tree {
    let mut all = Tree::new();
    walk(root.as_ref(), &mut |path| {
        let found = fs::symlink_metadata(path).unwrap();
        let content = if found.is_symlink() {
            fs::read_link(path).unwrap().into_os_string().into_encoded_bytes()
        } else if found.is_file() {
            fs::read(path).unwrap()
        } else {
            Vec::new()
        };
        let relative = path.strip_prefix(root.as_ref()).unwrap().to_owned();
        all.insert(relative, Entry { mode: found.mode(), content });
    });
    all
}

/// Describes the differences between two snapshots.
pub fn difference(before: &Tree, after: &Tree) -> Vec<String> {
    let mut paths: Vec<&PathBuf> = before.keys().chain(after.keys()).collect();
    paths.sort();
    paths.dedup();
    paths
        .into_iter()
        .filter(|path| before.get(*path) != after.get(*path))
        .map(|path| format!("{}: {:?} -> {:?}", path.display(), before.get(path), after.get(path)))
        .collect()
}

/// Copies everything below one folder into another.
pub fn copy_tree(from: &Path, to: &Path) {
    walk(from, &mut |path| {
        let target = to.join(path.strip_prefix(from).unwrap());
        let mode = fs::symlink_metadata(path).unwrap().permissions();
        if path.is_dir() {
            fs::create_dir_all(&target).unwrap();
        } else {
            put(&target, fs::read(path).unwrap());
        }
        fs::set_permissions(&target, mode).unwrap();
    });
}

/// Visits everything below a folder, but not the folder itself.
pub fn walk(folder: &Path, visit: &mut dyn FnMut(&Path)) {
    visit_all(fs::read_dir(folder).unwrap(), visit);
}

fn visit_all(entries: fs::ReadDir, visit: &mut dyn FnMut(&Path)) {
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    for path in paths {
        visit(&path);
        let is_folder = fs::symlink_metadata(&path).is_ok_and(|found| found.is_dir());
        // Lock folders may have been removed by now, so an error is ignored.
        if is_folder && let Ok(entries) = fs::read_dir(&path) {
            visit_all(entries, visit);
        }
    }
}

/// Returns the sorted names of the message files in a folder; none if the folder is missing.
pub fn message_files(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let is_message =
        |name: &String| name.starts_with("msg_") && Path::new(name).extension().is_some_and(|e| e == "json");
    let mut names: Vec<String> =
        entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).filter(is_message).collect();
    names.sort();
    names
}

/// Reads a file as a JSON object; `None` if it is missing. Panics on anything else, such as a partial file.
pub fn read_json_object(path: &Path) -> Option<Value> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        Err(error) => panic!("{}: {error}", path.display()),
    };
    match serde_json::from_slice(&bytes) {
        Ok(value @ Value::Object(_)) => Some(value),
        other => panic!("{} is not whole ({} bytes): {other:?}", path.display(), bytes.len()),
    }
}
