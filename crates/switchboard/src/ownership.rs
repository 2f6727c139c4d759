//! Ownership of a workspace: which user must own it, and whose key binds its database.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use door_workspace::FOLDER;
use rustix::process::geteuid;
use switchboard_hub::HubKey;

use crate::config;
use crate::failure::{Exit, Failure};

/// Rejects the workspace of another user, unless the user's own settings trust it.
///
/// Its files would otherwise decide which programs run as this user. Git's `safe.directory` has the same rule.
pub(crate) fn check(folder: &Path) -> Result<(), Failure> {
    let Some(owner) = owner(folder) else { return Ok(()) };
    if is_own(owner) || config::is_trusted_workspace(folder)? {
        return Ok(());
    }
    let message = format!("{} belongs to another user (uid {owner})", folder.join(FOLDER).display());
    let path = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    Err(Failure::new("others_workspace", Exit::NotAllowed, message).hint(format!(
        "if you trust that user, add {:?} to trustedWorkspaces in ~/.config/switchboard/config.json",
        path.display().to_string()
    )))
}

/// Returns the key to which the workspace's database is bound; `None` for a trusted workspace of another user.
pub(crate) fn hub_key(folder: &Path) -> Result<Option<HubKey>, Failure> {
    let me = geteuid().as_raw();
    match owner(folder) {
        Some(owner) if owner != me && sudo_user() == Some(owner) => {
            let home = home_of(owner).ok_or_else(homeless)?;
            Ok(HubKey::load(&home.join(".config/switchboard"))?)
        }
        Some(owner) if owner != me => Ok(None),
        _ => Ok(Some(HubKey::load_or_create(&config::key_folder().ok_or_else(homeless)?)?)),
    }
}

fn homeless() -> Failure {
    Failure::new("no_home", Exit::Failed, "there is no place for the hub's key: HOME is not set")
        .hint("set HOME or XDG_CONFIG_HOME to a folder of your own")
}

/// Returns the user id that owns a workspace's folder, if the folder exists.
fn owner(folder: &Path) -> Option<u32> {
    std::fs::symlink_metadata(folder.join(FOLDER)).ok().map(|found| found.uid())
}

/// Returns true if `owner` is the user of this process, or the user who started it with `sudo`.
fn is_own(owner: u32) -> bool {
    owner == geteuid().as_raw() || sudo_user() == Some(owner)
}

/// Returns the user who started this process as root with `sudo`.
fn sudo_user() -> Option<u32> {
    geteuid().is_root().then(|| std::env::var("SUDO_UID").ok()?.parse().ok())?
}

/// Returns the home folder of a user, from passwd(5).
fn home_of(user: u32) -> Option<PathBuf> {
    let passwd = std::fs::read_to_string("/etc/passwd").ok()?;
    passwd.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        (fields.get(2)?.parse() == Ok(user))
            .then(|| PathBuf::from(fields.get(5).copied().unwrap_or_default()))
    })
}
