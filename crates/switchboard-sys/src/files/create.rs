//! New files: how they come to be whole at once, under a name that was free.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;

use rustix::fs::AtFlags;
use rustix::io::Errno;

use super::temp::Temp;
use super::{Dir, Durability, FileError, check_name};
use crate::platform;

/// What became of [`Dir::create_new`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Created {
    /// The file is there with the given content.
    Created,
    /// The name was taken, and what is there was left alone.
    AlreadyThere,
}

impl Dir {
    /// Writes a file that was not there before, readable by its owner alone, or, in a directory that is shared, by those who
    /// share it.
    pub fn create_new(&self, name: &str, bytes: &[u8], durability: Durability) -> Result<Created, FileError> {
        self.create_new_from(self, name, bytes, durability)
    }

    /// The same for a directory that somebody watches: what can be is done in `workshop`, so that the watcher hears of the
    /// file once, when it is whole, and not of each step before that.
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

    /// With a file that has another name until it is whole, which can be done everywhere.
    pub(super) fn create_named(
        &self,
        name: &str,
        bytes: &[u8],
        durability: Durability,
    ) -> Result<Created, FileError> {
        let temp = Temp::write(self, bytes, Durability::Later)?;
        self.share(&temp.file, name)?;
        temp.sync(durability)?;
        match rustix::fs::linkat(&self.handle, &*temp.name, &self.handle, name, AtFlags::empty()) {
            Ok(()) => {}
            // On NFS the answer to a link that was made can get lost, and then the name is "taken" by
            // our own file.
            Err(_) if temp.has_name(name) => {}
            Err(Errno::EXIST) => return Ok(Created::AlreadyThere),
            Err(error) => return Err(self.io("create", name)(error)),
        }
        drop(temp);
        self.sync(durability)?;
        Ok(Created::Created)
    }

    /// With a file that has no name until it is whole, which spares the directory a second name to be written and
    /// removed again; `None` where that cannot be done, or where another way is to find out what is wrong.
    pub(super) fn create_unnamed(
        &self,
        workshop: &Self,
        name: &str,
        bytes: &[u8],
        durability: Durability,
    ) -> Result<Option<Created>, FileError> {
        let Some(mut file) = platform::unnamed_file(workshop.handle.as_fd()) else { return Ok(None) };
        file.write_all(bytes).map_err(self.io("write", name))?;
        self.share(&file, name)?;
        if durability == Durability::Synced {
            file.sync_all().map_err(self.io("sync", name))?;
        }
        match platform::give_name(&file, self.handle.as_fd(), name) {
            Ok(()) => {}
            Err(Errno::EXIST) => return Ok(Some(Created::AlreadyThere)),
            Err(_) => return Ok(None),
        }
        self.sync(durability)?;
        Ok(Some(Created::Created))
    }

    /// Lets those use a new file who share the directory.
    fn share(&self, file: &File, name: &str) -> Result<(), FileError> {
        match self.access.of_file() {
            Some(mode) => rustix::fs::fchmod(file, mode).map_err(self.io("set the mode of", name)),
            None => Ok(()),
        }
    }
}
