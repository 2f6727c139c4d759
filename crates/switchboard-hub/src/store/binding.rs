//! Binding of a database to its user and machine by a MAC.
//!
//! The database determines which sender a message has, so a database that came with a repository must not be trusted.
//! `hub.db.binding` holds a MAC over the identity of the database file (inode and birth time) and of the machine,
//! computed with a key in the user's own folder. The user id is not included, because it differs in a container of the
//! same user. A checkout, a copy and a restored backup are different files, so their MAC does not verify; a moved
//! folder keeps its files and stays valid.
//!
//! The write-ahead log and its index are bound in the same way: see [`super::side_files`].
//!
//! The MAC of a new file is on disk before the file gets its final name or its first page, so that no crash leaves a
//! database of this hub without a MAC.

use std::fmt::{self, Write as _};
use std::fs::DirBuilder;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;
use std::time::UNIX_EPOCH;

use rustix::process::geteuid;
use sha2::{Digest, Sha256};
use switchboard_sys::files::{Created, Dir, Durability, FileError};
use switchboard_sys::platform;

use crate::error::HubError;
use crate::store::recover::DATABASE;
use crate::store::side_files::SIDE_FILES;

/// Name of the file with the MACs, one per line.
pub(crate) const BINDING: &str = "hub.db.binding";

/// Name of the key file in the user's folder.
const KEY: &str = "hub.key";

/// Length of a key, in bytes.
const KEY_LENGTH: usize = 32;

/// Read limit for the binding file, in bytes; its three lines are shorter.
const LIMIT: u64 = 4096;

/// Domain separation prefix of the MAC's input.
const PURPOSE: &[u8] = b"switchboard hub.db binding 1\0";

/// Key that binds databases to a user, stored outside of every workspace.
#[derive(Clone, PartialEq, Eq)]
pub struct HubKey([u8; KEY_LENGTH]);

impl fmt::Debug for HubKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HubKey(…)")
    }
}

impl HubKey {
    /// Loads the key from the user's folder, or generates it if there is none.
    pub fn load_or_create(folder: &Path) -> Result<Self, HubError> {
        let path = folder.join(KEY);
        let bad = |problem: String| HubError::Key { path: path.clone(), problem };
        if let Some(key) = Self::load(folder)? {
            return Ok(key);
        }
        let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.map_err(|error| bad(error.to_string()))?;
        let dir = Dir::open_root(folder)?;
        let mut key = [0; KEY_LENGTH];
        getrandom::fill(&mut key).map_err(|error| bad(error.to_string()))?;
        match dir.create_new(KEY, &key, Durability::Synced) {
            Ok(Created::Created) => Ok(Self(key)),
            // Another process created the key first.
            Ok(Created::AlreadyExists) => Self::load(folder)?.ok_or_else(|| bad("it was removed".to_owned())),
            Err(FileError::Io { source, .. }) => Err(bad(source.to_string())),
            Err(error) => Err(error.into()),
        }
    }

    /// Loads the key from the user's folder, if there is one.
    pub fn load(folder: &Path) -> Result<Option<Self>, HubError> {
        if !folder.is_dir() {
            return Ok(None);
        }
        let path = folder.join(KEY);
        let bad = |problem: &str| HubError::Key { path: path.clone(), problem: problem.to_owned() };
        let dir = Dir::open_root(folder)?;
        let Some(found) = dir.read(KEY, LIMIT)? else { return Ok(None) };
        let me = geteuid();
        // Root may have been started with another user's home, so root accepts the key of any owner.
        if found.stat.uid != me.as_raw() && !me.is_root() {
            return Err(bad("it belongs to another user"));
        }
        if dir.mode(KEY)?.is_some_and(|mode| mode & 0o077 != 0) {
            return Err(bad("other users can read it"));
        }
        match found.bytes.try_into() {
            Ok(key) => Ok(Some(Self(key))),
            Err(_) => Err(bad("it is not 32 bytes long")),
        }
    }

    /// Computes the HMAC-SHA256 (RFC 2104) of a message.
    fn sign(&self, message: &[u8]) -> [u8; 32] {
        let pad = |byte: u8| {
            let mut block = [byte; 64];
            block.iter_mut().zip(self.0).for_each(|(pad, key)| *pad ^= key);
            block
        };
        let inner = Sha256::new().chain_update(pad(0x36)).chain_update(message).finalize();
        Sha256::new().chain_update(pad(0x5c)).chain_update(inner).finalize().into()
    }
}

/// Replaces the binding by MACs of the given files. The binding is on disk when this function returns.
pub(crate) fn bind(folder: &Dir, names: &[&str], key: Option<&HubKey>) -> Result<(), HubError> {
    let Some(key) = key else { return Ok(()) };
    let mut macs = Vec::new();
    for name in names {
        macs.extend(identify(folder, name)?.map(|identity| key.sign(&identity.message)));
    }
    Ok(folder.replace(BINDING, lines(&macs).as_bytes(), 0o600)?)
}

fn lines(macs: &[[u8; 32]]) -> String {
    let mut lines = String::new();
    for mac in macs {
        for byte in mac {
            // Writing to a `String` cannot fail.
            let _ = write!(lines, "{byte:02x}");
        }
        lines.push('\n');
    }
    lines
}

/// Reads the MACs of the binding; returns none if the file is missing or malformed.
fn read(folder: &Dir) -> Result<Vec<[u8; 32]>, HubError> {
    let bound = folder.read(BINDING, LIMIT)?;
    let bound = bound.and_then(|bound| String::from_utf8(bound.bytes).ok()).unwrap_or_default();
    Ok(bound.lines().filter_map(decode).collect())
}

fn is_listed(bound: &[[u8; 32]], mac: &[u8; 32]) -> bool {
    bound.iter().any(|line| is_same(line, mac))
}

/// Adds the write-ahead log and its index to the binding of a bound database.
pub(super) fn bind_side_files(folder: &Dir, names: &[&str], key: &HubKey) -> Result<(), HubError> {
    let bound = read(folder)?;
    let foreign = || HubError::ForeignDatabase { path: folder.path().join(DATABASE) };
    // The existing line of the database is retained, because the file may have been replaced since it was verified.
    let database = identify(folder, DATABASE)?.map(|identity| key.sign(&identity.message));
    let mut macs = vec![database.filter(|mac| is_listed(&bound, mac)).ok_or_else(foreign)?];
    for name in names {
        macs.extend(identify(folder, name)?.map(|identity| key.sign(&identity.message)));
    }
    Ok(folder.replace(BINDING, lines(&macs).as_bytes(), 0o600)?)
}

/// Returns true if each file is a bound regular file without further hard links.
pub(super) fn are_bound(folder: &Dir, names: &[&str], key: &HubKey) -> Result<bool, HubError> {
    let bound = read(folder)?;
    for name in names {
        let Some(identity) = identify(folder, name)? else { return Ok(false) };
        if !identity.is_plain || !is_listed(&bound, &key.sign(&identity.message)) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Refuses a database that is not bound to this user and machine. Without a key, every database is accepted.
pub(crate) fn verify(folder: &Dir, key: Option<&HubKey>) -> Result<(), HubError> {
    let Some(key) = key else { return Ok(()) };
    let Some(identity) = identify(folder, DATABASE)? else { return Ok(()) };
    let mac = key.sign(&identity.message);
    if is_listed(&read(folder)?, &mac) {
        return Ok(());
    }
    let path = folder.path().join(DATABASE);
    let me = geteuid();
    if identity.owner != me.as_raw() {
        return Err(HubError::OthersDatabase { path, owner: identity.owner });
    }
    Err(HubError::ForeignDatabase { path })
}

/// Identity of a file, which is the input of its MAC.
struct Identity {
    owner: u32,
    /// True if the file is a regular file without further hard links.
    is_plain: bool,
    message: Vec<u8>,
}

fn identify(folder: &Dir, name: &str) -> Result<Option<Identity>, HubError> {
    let path = folder.path().join(name);
    let found = match std::fs::symlink_metadata(&path) {
        Ok(found) => found,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(folder.io_error::<std::io::Error>("examine", name)(error).into()),
    };
    // Where inode numbers change with each mount, the MAC covers only the machine.
    let (inode, born) = if platform::has_stable_inodes(folder.path()) {
        let born = found.created().ok().and_then(|born| born.duration_since(UNIX_EPOCH).ok());
        (found.ino(), born.unwrap_or_default().as_nanos())
    } else {
        (0, 0)
    };
    let machine = platform::machine_id().unwrap_or_default();
    let mut message = PURPOSE.to_vec();
    message.extend(inode.to_be_bytes());
    message.extend(born.to_be_bytes());
    message.extend(machine.as_bytes());
    // A database has the same MAC under each of its names; the MAC of a side file includes its name, so it differs from
    // that of any database.
    message.extend(SIDE_FILES.into_iter().filter(|side_file| *side_file == name).flat_map(str::bytes));
    let is_plain = found.is_file() && found.nlink() == 1;
    Ok(Some(Identity { owner: found.uid(), is_plain, message }))
}

fn decode(line: &str) -> Option<[u8; 32]> {
    let mut mac = [0; 32];
    if line.len() != 64 || !line.is_ascii() {
        return None;
    }
    for (at, byte) in mac.iter_mut().enumerate() {
        *byte = u8::from_str_radix(line.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(mac)
}

/// Compares two MACs in constant time.
fn is_same(one: &[u8; 32], other: &[u8; 32]) -> bool {
    one.iter().zip(other).fold(0, |difference, (one, other)| difference | (one ^ other)) == 0
}

#[cfg(test)]
#[path = "binding_tests.rs"]
mod tests;
