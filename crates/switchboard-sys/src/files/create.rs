//! Atomic creation of new files, without replacing an existing name.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;

use rustix::fs::AtFlags;
use rustix::io::Errno;

use super::temp::Temp;
use super::{Dir, Durability, FileError, check_name};
use crate::platform;

/// Result of [`Dir::create_new`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Created {
    /// The file was created with the given content.
    Created,
    /// The name is in use; nothing was changed.
    AlreadyExists,
}

impl Dir {
    /// Creates a file without replacing an existing one.
    ///
    /// Only the owner may read the file. In a shared directory, everyone who shares the directory may.
    pub fn create_new(&self, name: &str, bytes: &[u8], durability: Durability) -> Result<Created, FileError> {
        self.create_new_from(self, name, bytes, durability)
    }

    /// Creates a file in a watched directory without replacing an existing one.
    ///
    /// Unfinished data stays in `workshop` where possible, so that the watcher gets a single event, for the complete
    /// file.
    pub fn create_new_from(
        &self,
        workshop: &Self,
        name: &str,
        bytes: &[u8],
        durability: Durability,
    ) -> Result<Created, FileError> {
        check_name(name)?;
        match self.create_unnamed(workshop, name, bytes, durability)? {
            Some(created) => Ok(created),
            None => self.create_named(name, bytes, durability),
        }
    }

    /// Creates the file under a temporary name and links it, which works on every file system.
    pub(super) fn create_named(
        &self,
        name: &str,
        bytes: &[u8],
        durability: Durability,
    ) -> Result<Created, FileError> {
        let temp = Temp::write(self, bytes, Durability::Unsynced)?;
        self.share(&temp.file, name)?;
        temp.sync(durability)?;
        match rustix::fs::linkat(&self.handle, &*temp.name, &self.handle, name, AtFlags::empty()) {
            Ok(()) => {}
            // On NFS the reply to a successful link can get lost. The retry then finds our own file under the name.
            Err(_) if temp.has_name(name) => {}
            Err(Errno::EXIST) => return Ok(Created::AlreadyExists),
            Err(error) => return Err(self.io_error("create", name)(error)),
        }
        drop(temp);
        self.sync(durability)?;
        Ok(Created::Created)
    }

    /// Creates the file without a name, and links it when it is complete.
    ///
    /// This avoids writing and removing a temporary name. Returns `None` if the system does not support unnamed files,
    /// or if the link failed and the fallback is to report the error.
    pub(super) fn create_unnamed(
        &self,
        workshop: &Self,
        name: &str,
        bytes: &[u8],
        durability: Durability,
    ) -> Result<Option<Created>, FileError> {
        let Some(mut file) = platform::unnamed_file(workshop.handle.as_fd()) else { return Ok(None) };
        file.write_all(bytes).map_err(self.io_error("write", name))?;
        self.share(&file, name)?;
        if durability == Durability::Synced {
            file.sync_all().map_err(self.io_error("sync", name))?;
        }
        match platform::link_unnamed(&file, self.handle.as_fd(), name) {
            Ok(()) => {}
            Err(Errno::EXIST) => return Ok(Some(Created::AlreadyExists)),
            Err(_) => return Ok(None),
        }
        self.sync(durability)?;
        Ok(Some(Created::Created))
    }

    /// Sets the permissions of a new file in a shared directory.
    fn share(&self, file: &File, name: &str) -> Result<(), FileError> {
        match self.access.of_file() {
            Some(mode) => rustix::fs::fchmod(file, mode).map_err(self.io_error("set the mode of", name)),
            None => Ok(()),
        }
    }
}
