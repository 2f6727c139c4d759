//! Writes to files: append, atomic replacement, moves and removal.

use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::temp::Temp;
use super::{Dir, FileError, check_name, is_same, kind};

/// Durability of a write, on power failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// The file and its name survive a power failure once the call has returned.
    Synced,
    /// After a power failure the file may be missing or empty.
    Unsynced,
}

/// Result of [`Dir::move_new`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moved {
    /// The file has only its new name.
    Moved,
    /// The new name belongs to another file; nothing was changed.
    AlreadyExists,
    /// There is no file to move, or another process moved it meanwhile.
    SourceMissing,
}

impl Dir {
    /// Opens one of Switchboard's own files for locking or writing in place, and creates it if it is missing.
    ///
    /// A symbolic link, hard link or device is rejected, so that writes cannot be redirected.
    pub fn open_own(&self, name: &str) -> Result<File, FileError> {
        self.open_own_for(name, OFlags::RDWR)
    }

    /// Opens one of Switchboard's own files for reading and locking. Returns `None` if the name does not exist.
    pub fn open_existing(&self, name: &str) -> Result<Option<File>, FileError> {
        check_name(name)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        match rustix::fs::openat(&self.handle, name, flags, Mode::empty()) {
            Ok(handle) => Ok(Some(File::from(handle))),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(self.io_error("open", name)(error)),
        }
    }

    /// Appends to one of Switchboard's own files, such as a log. Returns the new size.
    ///
    /// A missing file is created. Nothing is synced.
    pub fn append(&self, name: &str, bytes: &[u8]) -> Result<u64, FileError> {
        let mut file = self.open_own_for(name, OFlags::WRONLY | OFlags::APPEND)?;
        file.write_all(bytes).map_err(self.io_error("write", name))?;
        file.metadata().map(|metadata| metadata.len()).map_err(self.io_error("examine", name))
    }

    fn open_own_for(&self, name: &str, access: OFlags) -> Result<File, FileError> {
        check_name(name)?;
        let flags = access | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(&self.handle, name, flags, Mode::RUSR | Mode::WUSR) {
            Ok(handle) => File::from(handle),
            Err(error) => {
                return Err(match self.kind_of(name)? {
                    Some(found) if !found.is_file() => self.not_a_file(name, found),
                    _ => self.io_error("open", name)(error),
                });
            }
        };
        let stat = rustix::fs::fstat(&file).map_err(self.io_error("examine", name))?;
        match kind(&stat) {
            FileType::RegularFile if stat.st_nlink == 1 => {
                if let Some(mode) = self.access.of_file().filter(|_| stat.st_size == 0) {
                    // The file is new. If another user has just created it, only that user may set its mode.
                    let _ = rustix::fs::fchmod(&file, mode);
                }
                Ok(file)
            }
            FileType::RegularFile => {
                Err(FileError::NotAFile { path: self.path.join(name), found: "hard link" })
            }
            found => Err(self.not_a_file(name, found)),
        }
    }

    /// Replaces or creates a file atomically: readers see the old or the new content.
    ///
    /// The file has exactly the permissions `mode`. Both the file and its name are on disk on return.
    pub fn replace(&self, name: &str, bytes: &[u8], mode: u32) -> Result<(), FileError> {
        self.replace_with(name, bytes, mode, Durability::Synced)
    }

    /// Replaces or creates a file atomically, like [`replace`](Self::replace), with the given durability.
    pub fn replace_with(
        &self,
        name: &str,
        bytes: &[u8],
        mode: u32,
        durability: Durability,
    ) -> Result<(), FileError> {
        check_name(name)?;
        let temp = Temp::write(self, bytes, Durability::Unsynced)?;
        temp.file
            .set_permissions(Permissions::from_mode(mode))
            .map_err(self.io_error("set the mode of", name))?;
        temp.sync(durability)?;
        rustix::fs::renameat(&self.handle, &*temp.name, &self.handle, name)
            .map_err(self.io_error("replace", name))?;
        temp.forget();
        self.sync(durability)
    }

    /// Replaces one of Switchboard's own files atomically by a locked one. Returns the new file.
    ///
    /// The new file is locked before it gets the name. Only its owner may use it, and it need not survive a power
    /// failure.
    pub(crate) fn replace_locked(&self, name: &str, bytes: &[u8]) -> Result<File, FileError> {
        check_name(name)?;
        let temp = Temp::write(self, bytes, Durability::Unsynced)?;
        let file = temp.file.try_clone().map_err(self.io_error("open", &temp.name))?;
        file.try_lock().map_err(|error| self.io_error("lock", &temp.name)(io::Error::from(error)))?;
        rustix::fs::renameat(&self.handle, &*temp.name, &self.handle, name)
            .map_err(self.io_error("replace", name))?;
        temp.forget();
        Ok(file)
    }

    /// Returns true if the name belongs to a file other than `file`. Returns false if the name does not exist.
    pub fn is_replaced(&self, name: &str, file: &File) -> Result<bool, FileError> {
        let ours = rustix::fs::fstat(file).map_err(self.io_error("examine", name))?;
        Ok(self.raw_stat(name)?.is_some_and(|found| !is_same(&ours, &found)))
    }

    /// Replaces a file that only its owner reads atomically, by way of `workshop`.
    ///
    /// The new content is written in `workshop`, which is on the same file system, so that a killed writer leaves no
    /// temporary file in this directory. Nothing is synced.
    pub fn replace_from(&self, workshop: &Self, name: &str, bytes: &[u8]) -> Result<(), FileError> {
        check_name(name)?;
        let temp = Temp::write(workshop, bytes, Durability::Unsynced)?;
        match rustix::fs::renameat(&workshop.handle, &*temp.name, &self.handle, name) {
            Ok(()) => {
                temp.forget();
                Ok(())
            }
            // The rename fails if another file system is mounted on this directory.
            Err(Errno::XDEV) => self.replace_with(name, bytes, 0o600, Durability::Unsynced),
            Err(error) => Err(self.io_error("replace", name)(error)),
        }
    }

    /// Moves a regular file to an unused name on the same file system, without replacing anything.
    ///
    /// Of all processes that move the same file, exactly one gets [`Moved::Moved`]. For a moment the file has both
    /// names, and a move that was interrupted there is completed by repeating it. Nothing is synced: a power failure
    /// can undo the move, but it cannot lose the file on a file system that preserves the order of name changes.
    pub fn move_new(&self, name: &str, to: &Self, to_name: &str) -> Result<Moved, FileError> {
        check_name(name)?;
        check_name(to_name)?;
        let Some(source) = self.raw_stat(name)? else { return Ok(Moved::SourceMissing) };
        if !kind(&source).is_file() {
            return Err(self.not_a_file(name, kind(&source)));
        }
        let linked = rustix::fs::linkat(&self.handle, name, &to.handle, to_name, AtFlags::empty());
        if let Err(error) = linked {
            let (source, target) = (self.raw_stat(name)?, to.raw_stat(to_name)?);
            match (source, target) {
                (None, _) => return Ok(Moved::SourceMissing),
                (Some(source), Some(target)) if is_same(&source, &target) => {
                    // Both names are one directory entry: `to_name` is `name`, perhaps in other letter case.
                    if source.st_nlink < 2
                        || (name == to_name && self.dir_stat()?.inode == to.dir_stat()?.inode)
                    {
                        return Ok(Moved::AlreadyExists);
                    }
                }
                _ if error == Errno::EXIST => return Ok(Moved::AlreadyExists),
                _ => return Err(to.io_error("create", to_name)(error)),
            }
        }
        // The process that removes the old name is the one that moved the file. The new name stays in any case: if
        // another process was faster, it may be the only remaining name of the file.
        Ok(if self.remove(name)? { Moved::Moved } else { Moved::SourceMissing })
    }

    /// Removes a file. Returns `false` if the name does not exist.
    pub fn remove(&self, name: &str) -> Result<bool, FileError> {
        check_name(name)?;
        match rustix::fs::unlinkat(&self.handle, name, AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(self.io_error("remove", name)(error)),
        }
    }

    pub(super) fn sync(&self, durability: Durability) -> Result<(), FileError> {
        if durability == Durability::Unsynced {
            return Ok(());
        }
        match rustix::fs::fsync(&self.handle) {
            // Some file systems cannot sync a directory, but persist its names anyway.
            Ok(()) | Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(()),
            Err(error) => Err(self.io_here("sync")(error)),
        }
    }
}
