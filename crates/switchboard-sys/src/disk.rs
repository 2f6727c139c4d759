//! Probe for a read-only or full disk under the store.
//!
//! A store that cannot be written is degraded, not lost: everything in it can still be read. The probe costs two system
//! calls and reads the current state, so that free space is noticed without a restart.

use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, StatVfs, StatVfsMountFlags};
use rustix::io::Errno;

use crate::files::Dir;

/// Number of free bytes below which the disk counts as full.
///
/// A transaction of the journal takes a few pages of 4 KiB in the write-ahead log (WAL) and one more in the WAL index.
const LEAST_BYTES: u64 = 64 << 10;

/// Reason why a store cannot be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskFaultKind {
    /// The file system is mounted read-only.
    ReadOnlyMount,
    /// The permissions of the folder do not allow this user to write.
    ReadOnlyFolder,
    /// Fewer than 64 KiB are free.
    NoBytes,
    /// No inodes are left, so no file can be created, whatever the free space.
    NoInodes,
}

impl DiskFaultKind {
    /// Returns the machine-readable code of the fault.
    pub fn code(self) -> &'static str {
        match self {
            Self::ReadOnlyMount => "read_only_mount",
            Self::ReadOnlyFolder => "read_only_folder",
            Self::NoBytes => "no_bytes",
            Self::NoInodes => "no_inodes",
        }
    }
}

/// Fault of a disk on which the store cannot be written at present.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskFault {
    /// Kind of the fault.
    pub kind: DiskFaultKind,
    /// The mount point of the file system, or the folder that cannot be written.
    pub path: PathBuf,
}

impl fmt::Display for DiskFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = self.path.display();
        match self.kind {
            DiskFaultKind::ReadOnlyMount => write!(f, "the file system at {place} is mounted read-only"),
            DiskFaultKind::ReadOnlyFolder => write!(f, "{place} cannot be written by this user"),
            DiskFaultKind::NoBytes => write!(f, "the disk at {place} is full: no space is left"),
            DiskFaultKind::NoInodes => write!(f, "the disk at {place} is full: no inodes are left"),
        }
    }
}

/// Probes the disk of a folder. Returns `None` if the folder can be written.
pub fn probe(folder: &Dir) -> Option<DiskFault> {
    let trouble = |fault, place| Some(DiskFault { kind: fault, path: place });
    let mount = || mount_point(folder.path());
    let disk = rustix::fs::fstatvfs(folder.as_fd()).ok()?;
    if disk.f_flag.contains(StatVfsMountFlags::RDONLY) {
        return trouble(DiskFaultKind::ReadOnlyMount, mount());
    }
    let enter = Access::WRITE_OK | Access::EXEC_OK;
    match rustix::fs::accessat(folder.as_fd(), ".", enter, AtFlags::EACCESS) {
        Err(Errno::ROFS) => return trouble(DiskFaultKind::ReadOnlyMount, mount()),
        Err(Errno::ACCESS | Errno::PERM) => {
            return trouble(DiskFaultKind::ReadOnlyFolder, folder.path().to_owned());
        }
        _ => {}
    }
    // Only root can use reserved blocks and inodes.
    let is_root = rustix::process::geteuid().is_root();
    let blocks = if is_root { blocks_for_root(&disk) } else { disk.f_bavail };
    let inodes = if is_root { disk.f_ffree } else { disk.f_favail };
    if disk.f_blocks > 0 && blocks.saturating_mul(disk.f_frsize) < LEAST_BYTES {
        return trouble(DiskFaultKind::NoBytes, mount());
    }
    // File systems without a fixed number of inodes report 0 free inodes of 0.
    if disk.f_files > 0 && inodes == 0 {
        return trouble(DiskFaultKind::NoInodes, mount());
    }
    None
}

/// Returns the free blocks that root can use.
///
/// ext4 reserves 2 % of a file system, at most 4,096 clusters, that even root cannot use. It counts them as free but
/// not as available, like the blocks that are reserved for root. The 2 % refer to all blocks. `f_blocks` excludes
/// metadata, so 2.5 % of `f_blocks` are subtracted.
fn blocks_for_root(disk: &StatVfs) -> u64 {
    let reserved = disk.f_bfree.saturating_sub(disk.f_bavail);
    disk.f_bfree - reserved.min(disk.f_blocks / 40).min(4096)
}

/// Returns the mount point: the topmost ancestor folder on the same device.
fn mount_point(folder: &Path) -> PathBuf {
    let device = |path: &Path| std::fs::symlink_metadata(path).ok().map(|found| found.dev());
    let own = device(folder);
    let mounted = folder.ancestors().take_while(|above| device(above) == own).last();
    mounted.unwrap_or(folder).to_owned()
}

#[cfg(test)]
#[path = "disk_tests.rs"]
mod tests;
