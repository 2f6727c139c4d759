//! FUSE mount that mirrors a folder without file events.
//!
//! Changes behind the mount cause no events in it, as on a mount of another machine's disk.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::process::{Running, command};
use crate::{poll, tools};

/// A FUSE mount, unmounted on drop.
pub struct Mount {
    _running: Running,
    folder: TempDir,
}

impl Mount {
    /// Mounts a new folder; returns `None` if the system does not allow it, as in many containers and without root.
    ///
    /// An error names the missing tool.
    pub fn new() -> Result<Option<Self>, String> {
        let program = tools::installed("deb/bindfs")?.join("usr/bin/bindfs");
        let libraries = tools::installed("deb/libfuse2")?.join("lib/x86_64-linux-gnu");
        let folder = TempDir::with_prefix("switchboard-fuse-").unwrap();
        let (behind, mounted) = (folder.path().join("behind"), folder.path().join("mounted"));
        for index in [&behind, &mounted] {
            std::fs::create_dir(index).unwrap();
        }
        let mut bindfs = command(program);
        bindfs.env("LD_LIBRARY_PATH", libraries).arg("-f").args([&behind, &mounted]);
        let mut running = Running::start(&mut bindfs);
        let device = |index: &Path| std::fs::metadata(index).ok().map(|found| found.dev());
        let is_mounted = poll::until("the mount", || {
            let is_mounted = device(&mounted)? != device(&behind)?;
            (is_mounted || !running.is_running()).then_some(is_mounted)
        });
        if !is_mounted {
            eprintln!("bindfs ended: {}", running.errors());
            return Ok(None);
        }
        Ok(Some(Self { _running: running, folder }))
    }

    /// Returns the mounted folder, which the hub uses.
    pub fn mounted(&self) -> PathBuf {
        self.folder.path().join("mounted")
    }

    /// Returns the folder behind the mount, which other machines use.
    pub fn backing_folder(&self) -> PathBuf {
        self.folder.path().join("behind")
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // A lazy unmount works even while a process has a file open; otherwise the folder could not be removed.
        let _ = tools::run(command("umount").arg("-l").arg(self.mounted()));
    }
}
