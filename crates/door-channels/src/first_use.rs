//! First use of a channels root whose disk is read-only or full.
//!
//! Such a folder cannot be given an identity. Its device and inode are recorded instead, so that the bare mount point
//! after an unmount is not mistaken for the folder.

use std::path::Path;

use switchboard_sys::files::Dir;

use crate::error::ChannelError;

/// Returns the device and inode of a folder without an identity. Fails if another folder was recorded and this folder
/// is not a mount point.
pub(crate) fn check(root: &Path, noted: Option<&str>) -> Result<String, ChannelError> {
    let missing = |source| ChannelError::Root { path: root.to_owned(), source };
    let (device, inode) = Dir::open_shared(root).map_err(missing)?.device_and_inode()?;
    let place = format!("{device}:{inode}");
    if noted.is_none_or(|noted| noted == place.as_str()) || is_mount(root, device) {
        return Ok(place);
    }
    Err(ChannelError::IdentityMismatch { path: root.to_owned(), has_identity: false })
}

/// Returns true if the folder is on another device than its parent.
fn is_mount(root: &Path, device: i128) -> bool {
    let Ok(root) = root.canonicalize() else { return false };
    let Some(parent) = root.parent() else { return true };
    let above = Dir::open_shared(parent).and_then(|dir| dir.device_and_inode());
    above.is_ok_and(|(above, _)| above != device)
}
