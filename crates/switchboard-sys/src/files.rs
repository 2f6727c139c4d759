//! Atomic file operations: the only module that writes, moves and reads files.
//!
//! People, agents and other machines may change the same directories at any time. Therefore a file appears complete or
//! not at all, nothing is replaced unless the caller requests it, no symbolic link is followed, and no call blocks on a
//! pipe or device. Everything is built on calls that are also atomic on NFS. Where a file system supports cheaper
//! calls, those are tried first.

mod create;
mod error;
mod stat;
mod temp;
mod write;

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

pub use self::create::Created;
pub use self::error::FileError;
pub use self::stat::{Contents, DirStat, FileStat};
pub use self::temp::is_temp;
pub use self::write::{Durability, Moved};
use crate::platform;

/// Flags for opening directories: no symbolic links, and not inherited by child processes.
pub(crate) const DIR_FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// An open directory.
///
/// Every file in the directory is accessed relative to this handle, never by a path that another process could swap.
/// File names are single path components; anything that could be a path is rejected. Clones share the handle.
#[derive(Debug, Clone)]
pub struct Dir {
    handle: Arc<OwnedFd>,
    /// Path under which the directory was opened. Only used in messages and by [`Dir::is_at_path`].
    path: Arc<Path>,
    /// Access that new files and directories in this directory grant.
    access: Access,
}

/// Access that new files and directories in a directory grant.
#[derive(Debug, Clone, Copy)]
enum Access {
    /// Access for the owner only.
    Owner,
    /// Access for everyone who may use the shared directory, by its permission bits.
    Shared(Mode),
}

impl Access {
    /// Returns the mode of a new directory.
    fn of_dir(self) -> Mode {
        match self {
            Self::Owner => Mode::RWXU,
            Self::Shared(mode) => mode,
        }
    }

    /// Returns the mode of a new file in a shared directory, or `None` if the directory is not shared.
    fn of_file(self) -> Option<Mode> {
        match self {
            Self::Owner => None,
            Self::Shared(mode) => Some(mode.intersection(Mode::from_bits_truncate(0o666))),
        }
    }
}

impl Dir {
    /// Opens a directory by its path. Symbolic links in the path are resolved once.
    pub fn open_root(path: &Path) -> Result<Self, FileError> {
        let failed = |source| FileError::Io { action: "open", path: path.to_owned(), source };
        let path = path.canonicalize().map_err(failed)?;
        match rustix::fs::open(&path, DIR_FLAGS, Mode::empty()) {
            Ok(handle) => Ok(Self { handle: Arc::new(handle), path: path.into(), access: Access::Owner }),
            Err(error) => Err(match rustix::fs::lstat(&path) {
                Ok(stat) if !kind(&stat).is_dir() => {
                    FileError::NotADirectory { found: kind_name(kind(&stat)), path }
                }
                _ => FileError::Io { action: "open", path, source: error.into() },
            }),
        }
    }

    /// Opens a directory that several users share.
    ///
    /// New files and directories in it and below get the permissions of the directory itself, regardless of the umask.
    pub fn open_shared(path: &Path) -> Result<Self, FileError> {
        let dir = Self::open_root(path)?;
        let stat = rustix::fs::fstat(&dir.handle).map_err(dir.io_here("examine"))?;
        let access = Access::Shared(Mode::from_raw_mode(stat.st_mode));
        Ok(Self { access, ..dir })
    }

    /// Returns true if the path of this handle still leads to the same directory.
    pub fn is_at_path(&self) -> bool {
        match (rustix::fs::fstat(&self.handle), rustix::fs::lstat(&*self.path)) {
            (Ok(held), Ok(found)) => is_same(&held, &found),
            _ => false,
        }
    }

    /// Returns the device and inode numbers, which identify the directory among all existing ones.
    pub fn device_and_inode(&self) -> Result<(i128, u64), FileError> {
        let stat = rustix::fs::fstat(&self.handle).map_err(self.io_here("examine"))?;
        Ok((stat.st_dev.into(), stat.st_ino))
    }

    /// Returns the path under which the directory was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a subdirectory. Returns `None` if the name does not exist.
    pub fn subdir(&self, name: &str) -> Result<Option<Self>, FileError> {
        check_name(name)?;
        match rustix::fs::openat(&self.handle, name, DIR_FLAGS, Mode::empty()) {
            Ok(handle) => {
                let path = self.path.join(name).into();
                Ok(Some(Self { handle: Arc::new(handle), path, access: self.access }))
            }
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(match self.kind_of(name)? {
                Some(found) if !found.is_dir() => self.not_a_directory(name, found),
                _ => self.io_error("open", name)(error),
            }),
        }
    }

    /// Opens a subdirectory, and creates it if it is missing.
    ///
    /// A new subdirectory is only for its owner. In a shared directory, it gets the same permissions as that directory.
    pub fn ensure_subdir(&self, name: &str) -> Result<Self, FileError> {
        // The subdirectory usually exists, and opening it is cheaper than a failed `mkdir`.
        if let Some(folder) = self.subdir(name)? {
            return Ok(folder);
        }
        let is_new = match rustix::fs::mkdirat(&self.handle, name, self.access.of_dir()) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(error) => return Err(self.io_error("make", name)(error)),
        };
        let made = self.subdir(name)?.ok_or_else(|| self.io_error("open", name)(Errno::NOENT))?;
        if let (true, Access::Shared(mode)) = (is_new, self.access) {
            // The umask removed permissions that other users need.
            rustix::fs::fchmod(&made.handle, mode).map_err(self.io_error("set the mode of", name))?;
        }
        Ok(made)
    }

    /// Returns all names in the directory, sorted, including unfinished files.
    ///
    /// Names that are not UTF-8 are skipped, because none of Switchboard's own files has such a name.
    pub fn names(&self) -> Result<Vec<String>, FileError> {
        let mut names = Vec::new();
        self.visit_names(|name| names.push(name.to_owned()))?;
        names.sort_unstable();
        Ok(names)
    }

    /// Visits all names in no particular order, without collecting them in memory.
    pub fn visit_names(&self, mut visit: impl FnMut(&str)) -> Result<(), FileError> {
        let failed = |error: Errno| self.io_here("list")(error);
        let mut unreadable = 0_usize;
        for entry in rustix::fs::Dir::read_from(&self.handle).map_err(failed)? {
            match entry.map_err(failed)?.file_name().to_str() {
                Ok("." | "..") => {}
                Ok(name) => visit(name),
                Err(_) => unreadable += 1,
            }
        }
        if unreadable > 0 {
            tracing::warn!(dir = %self.path.display(), unreadable, "skipped names that are not UTF-8");
        }
        Ok(())
    }

    /// Returns the stat of the directory, by which the caller detects changes.
    pub fn dir_stat(&self) -> Result<DirStat, FileError> {
        let stat = rustix::fs::fstat(&self.handle).map_err(self.io_here("examine"))?;
        Ok(DirStat::of(&stat))
    }

    /// Returns the stat of a file, by which the caller detects changes. Returns `None` if the name does not exist.
    ///
    /// A symbolic link is not followed: the stat is that of the link itself.
    pub fn stat(&self, name: &str) -> Result<Option<FileStat>, FileError> {
        check_name(name)?;
        Ok(self.raw_stat(name)?.as_ref().map(FileStat::of))
    }

    /// Returns the stat of a subdirectory, or `None` if it is missing. The subdirectory need not be readable.
    pub fn subdir_stat(&self, name: &str) -> Result<Option<DirStat>, FileError> {
        check_name(name)?;
        match self.raw_stat(name)? {
            Some(stat) if kind(&stat).is_dir() => Ok(Some(DirStat::of(&stat))),
            Some(stat) => Err(self.not_a_directory(name, kind(&stat))),
            None => Ok(None),
        }
    }

    /// Reads a regular file of at most `limit` bytes. Returns `None` if the name does not exist.
    pub fn read(&self, name: &str, limit: u64) -> Result<Option<Contents>, FileError> {
        check_name(name)?;
        // Without O_NONBLOCK, opening a FIFO would block until a writer opens it.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(&self.handle, name, flags, Mode::empty()) {
            Ok(handle) => File::from(handle),
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => {
                return Err(match self.kind_of(name)? {
                    Some(found) if !found.is_file() => self.not_a_file(name, found),
                    _ => self.io_error("open", name)(error),
                });
            }
        };
        let stat = rustix::fs::fstat(&file).map_err(self.io_error("examine", name))?;
        if !kind(&stat).is_file() {
            return Err(self.not_a_file(name, kind(&stat)));
        }
        let too_large = |size| FileError::TooLarge { path: self.path.join(name), size, limit };
        let stamp = FileStat::of(&stat);
        if stamp.len > limit {
            return Err(too_large(stamp.len));
        }
        // The file may grow while it is read: one byte more than allowed is enough to detect that.
        let mut bytes = Vec::with_capacity(usize::try_from(stamp.len).unwrap_or_default() + 1);
        file.take(limit.saturating_add(1)).read_to_end(&mut bytes).map_err(self.io_error("read", name))?;
        match bytes.len() as u64 {
            size if size > limit => Err(too_large(size)),
            _ => Ok(Some(Contents { bytes, stat: stamp })),
        }
    }

    /// Returns the permission bits of a file, or `None` if the name does not exist.
    pub fn mode(&self, name: &str) -> Result<Option<u32>, FileError> {
        check_name(name)?;
        Ok(self.raw_stat(name)?.map(|stat| Mode::from_raw_mode(stat.st_mode).bits() & 0o7777))
    }

    /// Returns the handle, for system calls that this type does not cover.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }

    /// Returns a function that builds the error of a failed call on a file in this directory.
    pub fn io_error<E: Into<io::Error>>(&self, action: &'static str, name: &str) -> impl Fn(E) -> FileError {
        move |error| FileError::Io { action, path: self.path.join(name), source: error.into() }
    }

    fn io_here(&self, action: &'static str) -> impl Fn(Errno) -> FileError {
        move |error| FileError::Io { action, path: self.path.to_path_buf(), source: error.into() }
    }

    fn not_a_directory(&self, name: &str, found: FileType) -> FileError {
        FileError::NotADirectory { path: self.path.join(name), found: kind_name(found) }
    }

    fn not_a_file(&self, name: &str, found: FileType) -> FileError {
        FileError::NotAFile { path: self.path.join(name), found: kind_name(found) }
    }

    fn raw_stat(&self, name: &str) -> Result<Option<Stat>, FileError> {
        match rustix::fs::statat(&self.handle, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(self.io_error("examine", name)(error)),
        }
    }

    fn kind_of(&self, name: &str) -> Result<Option<FileType>, FileError> {
        Ok(self.raw_stat(name)?.as_ref().map(kind))
    }
}

/// Returns true if a file event with this name concerns an unfinished file.
///
/// Unnamed files also cause events in their directory.
pub fn is_unfinished(name: &str) -> bool {
    is_temp(name) || platform::is_unnamed(name)
}

/// Rejects anything that is not a single path component.
pub fn check_name(name: &str) -> Result<(), FileError> {
    match name {
        "" | "." | ".." => Err(FileError::BadName { name: name.to_owned() }),
        _ if name.contains(['/', '\0']) => Err(FileError::BadName { name: name.to_owned() }),
        _ => Ok(()),
    }
}

/// Returns true if both stats describe the same file.
fn is_same(one: &Stat, other: &Stat) -> bool {
    one.st_dev == other.st_dev && one.st_ino == other.st_ino
}

fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

fn kind_name(kind: FileType) -> &'static str {
    match kind {
        FileType::RegularFile => "file",
        FileType::Directory => "directory",
        FileType::Symlink => "symbolic link",
        FileType::Fifo => "FIFO",
        FileType::Socket => "socket",
        FileType::CharacterDevice | FileType::BlockDevice => "device",
        FileType::Unknown => "thing of unknown kind",
    }
}

#[cfg(test)]
#[path = "files_tests.rs"]
mod tests;
