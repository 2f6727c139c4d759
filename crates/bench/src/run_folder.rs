//! Folder on a real disk to which both the benchmarks and the baselines write.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use tempfile::TempDir;

use crate::progress::say;

/// Folder of one run, removed at its end.
#[derive(Debug)]
pub(crate) struct RunFolder {
    root: TempDir,
}

impl RunFolder {
    /// Creates the run's folder in `asked`, or in the build folder of this program.
    pub(crate) fn find(chosen: Option<&Path>) -> anyhow::Result<Self> {
        let parent = match chosen {
            Some(dir) => dir.to_owned(),
            None => build_folder()?,
        };
        if is_memory(&parent)? {
            if chosen.is_none() {
                bail!("{} is kept in memory; name a folder on a disk with --dir", parent.display());
            }
            say!("{} is kept in memory: these figures say nothing about a disk", parent.display());
        }
        let root = tempfile::Builder::new().prefix("bench-").tempdir_in(&parent);
        let root = root.with_context(|| format!("cannot write to {}", parent.display()))?;
        spread(root.path());
        Ok(Self { root })
    }

    pub(crate) fn path(&self) -> &Path {
        self.root.path()
    }

    /// Creates a folder for one round.
    ///
    /// The folder stays until the run ends, because removing thousands of files would slow down the next round.
    pub(crate) fn fresh(&self) -> anyhow::Result<PathBuf> {
        Ok(tempfile::tempdir_in(self.path())?.keep())
    }

    /// Waits until everything written so far is on disk, so that no round pays for the writes of the previous one.
    pub(crate) fn settle() {
        rustix::fs::sync();
    }
}

/// Returns the `target/` folder, two levels above this program.
fn build_folder() -> anyhow::Result<PathBuf> {
    let program = std::env::current_exe()?;
    let folder = program.ancestors().nth(2).context("this program is not in a build folder; use --dir")?;
    Ok(folder.to_owned())
}

/// Makes ext4 spread the subfolders of `dir` over the disk.
///
/// ext4 does not reuse an inode for minutes after its file was removed, and searches past all such inodes. Without the
/// spread, a run would pay for the files that the previous run removed.
#[cfg(target_os = "linux")]
fn spread(dir: &Path) {
    use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};
    let Ok(dir) = std::fs::File::open(dir) else { return };
    // The error is ignored, because a file system without this flag does not have the problem.
    let _ = ioctl_getflags(&dir).and_then(|flags| ioctl_setflags(&dir, flags | IFlags::TOPDIR));
}

#[cfg(not(target_os = "linux"))]
fn spread(_: &Path) {}

#[cfg(target_os = "linux")]
fn is_memory(dir: &Path) -> anyhow::Result<bool> {
    /// `TMPFS_MAGIC` and `RAMFS_MAGIC` of statfs(2).
    const IN_MEMORY: [rustix::fs::FsWord; 2] = [0x0102_1994, 0x8584_58f6];
    let found = rustix::fs::statfs(dir).with_context(|| format!("cannot look at {}", dir.display()))?;
    Ok(IN_MEMORY.contains(&found.f_type))
}

#[cfg(not(target_os = "linux"))]
fn is_memory(_: &Path) -> anyhow::Result<bool> {
    Ok(false)
}
