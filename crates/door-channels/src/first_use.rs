//! The first use of a root that can be a mount, while its disk is read-only or full.
//!
//! Such a folder cannot be marked with an identity. Its place is noted instead, so that the bare mount point that is there after
//! an unmount is not taken for it.

use std::path::Path;

use switchboard_sys::files::Dir;

use crate::error::ChannelError;

/// The place of a folder without identity, as it is noted. An error if another one was noted and this one is no mount.
pub(crate) fn check(root: &Path, noted: Option<&str>) -> Result<String, ChannelError> {
    let missing = |source| ChannelError::Root { path: root.to_owned(), source };
    let (device, inode) = Dir::open_shared(root).map_err(missing)?.device_and_inode()?;
    let place = format!("{device}:{inode}");
    if noted.is_none_or(|noted| noted == place.as_str()) || is_mount(root, device) {
        return Ok(place);
    }
    Err(ChannelError::IdentityMismatch { path: root.to_owned(), has_identity: false })
}

/// Whether a folder is on another device than the folder that it is in.
fn is_mount(root: &Path, device: i128) -> bool {
    let Ok(root) = root.canonicalize() else { return false };
    let Some(parent) = root.parent() else { return true };
    let above = Dir::open_shared(parent).and_then(|dir| dir.device_and_inode());
    above.is_ok_and(|(above, _)| above != device)
}
