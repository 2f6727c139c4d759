//! State of the disk under the store: read-only, full, or fine.
//!
//! A store that cannot be written is degraded, not lost: everything in it can still be read. The probe costs two system
//! calls and looks at the disk as it is now, so a disk that has room again is noticed without a restart.

use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, StatVfs, StatVfsMountFlags};
use rustix::io::Errno;

use crate::files::Dir;

/// Below this many free bytes the disk counts as full. A transaction of the journal takes a few pages of 4 KiB in the log
/// and one more in the index of the log.
const LEAST_BYTES: u64 = 64 << 10;

/// Reason why a store cannot be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskFault {
    /// The file system is mounted read-only.
    ReadOnlyMount,
    /// The permissions of the folder or of the database do not allow this user to write.
    ReadOnlyFolder,
    /// No space is left for bytes.
    NoBytes,
    /// No inodes are left: no file can be made, whatever the free space.
    NoInodes,
}

impl DiskFault {
    /// The word for programs.
    pub fn code(self) -> &'static str {
        match self {
            Self::ReadOnlyMount => "read_only_mount",
            Self::ReadOnlyFolder => "read_only_folder",
            Self::NoBytes => "no_bytes",
            Self::NoInodes => "no_inodes",
        }
    }
}

/// A disk on which the store cannot be written now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskTrouble {
    /// What is wrong.
    pub fault: DiskFault,
    /// The mount point of the file system, or the folder that cannot be written.
    pub place: PathBuf,
}

impl fmt::Display for DiskTrouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = self.place.display();
        match self.fault {
            DiskFault::ReadOnlyMount => write!(f, "the file system at {place} is mounted read-only"),
            DiskFault::ReadOnlyFolder => write!(f, "{place} cannot be written by this user"),
            DiskFault::NoBytes => write!(f, "the disk at {place} is full: no space is left"),
            DiskFault::NoInodes => write!(f, "the disk at {place} is full: no inodes are left"),
        }
    }
}

/// Examines the disk of a folder; `None` where it can be written.
pub fn probe(folder: &Dir) -> Option<DiskTrouble> {
    let trouble = |fault, place| Some(DiskTrouble { fault, place });
    let mount = || mount_point(folder.path());
    let disk = rustix::fs::fstatvfs(folder.as_fd()).ok()?;
    if disk.f_flag.contains(StatVfsMountFlags::RDONLY) {
        return trouble(DiskFault::ReadOnlyMount, mount());
    }
    let enter = Access::WRITE_OK | Access::EXEC_OK;
    match rustix::fs::accessat(folder.as_fd(), ".", enter, AtFlags::EACCESS) {
        Err(Errno::ROFS) => return trouble(DiskFault::ReadOnlyMount, mount()),
        Err(Errno::ACCESS | Errno::PERM) => {
            return trouble(DiskFault::ReadOnlyFolder, folder.path().to_owned());
        }
        _ => {}
    }
    // What is reserved for root is of use to root alone.
    let is_root = rustix::process::geteuid().is_root();
    let blocks = if is_root { blocks_for_root(&disk) } else { disk.f_bavail };
    let inodes = if is_root { disk.f_ffree } else { disk.f_favail };
    if disk.f_blocks > 0 && blocks.saturating_mul(disk.f_frsize) < LEAST_BYTES {
        return trouble(DiskFault::NoBytes, mount());
    }
    // File systems without a fixed number of inodes say 0 of 0.
    if disk.f_files > 0 && inodes == 0 {
        return trouble(DiskFault::NoInodes, mount());
    }
    None
}

/// Free blocks that root can use.
///
/// ext4 keeps 2 % of a file system, and at most 4,096 clusters, that root cannot use either. It counts them as free and not as
/// available, as it does with the blocks that are reserved for root. 2 % are of all blocks; `f_blocks` lacks those that hold
/// metadata, so 2.5 % of it are taken off.
fn blocks_for_root(disk: &StatVfs) -> u64 {
    let reserved = disk.f_bfree.saturating_sub(disk.f_bavail);
    disk.f_bfree - reserved.min(disk.f_blocks / 40).min(4096)
}

/// The topmost folder above this one that is on the same device.
fn mount_point(folder: &Path) -> PathBuf {
    let device = |path: &Path| std::fs::symlink_metadata(path).ok().map(|found| found.dev());
    let own = device(folder);
    let mounted = folder.ancestors().take_while(|above| device(above) == own).last();
    mounted.unwrap_or(folder).to_owned()
}

#[cfg(test)]
#[path = "disk_tests.rs"]
mod tests;
