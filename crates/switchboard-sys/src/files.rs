//! The one place where files are written, moved and read.
//!
//! Others may change the same directories at any time: people, agents, other machines. So a file
//! appears whole or not at all, nothing that is there is replaced unless that is asked for, no
//! symbolic link is followed, and no pipe or device is waited on. Everything is built on calls that
//! also hold on NFS; where a file system can do it with fewer, those are tried first.

mod create;
mod error;
mod stamp;
mod temp;

use std::fs::{File, Permissions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

pub use self::create::Created;
pub use self::error::FileError;
pub use self::stamp::{Contents, DirStamp, FileStamp};
use self::temp::Temp;
pub use self::temp::is_temp;
use crate::platform;

/// How directories are opened: never through a symbolic link, and not for programs we start.
pub(crate) const DIR_FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A directory held open.
///
/// Every file in it is reached relative to this handle, never by a path that someone could swap.
/// Files are named by a single name; what could be a path is refused. Clones share the handle.
#[derive(Debug, Clone)]
pub struct Dir {
    handle: Arc<OwnedFd>,
    /// Where the directory was found. Only for messages and for [`Dir::is_in_place`].
    path: Arc<Path>,
    /// Who may use what is made in it.
    access: Access,
}

/// Who may use what is made in a directory.
#[derive(Debug, Clone, Copy)]
enum Access {
    /// Its owner alone.
    Owner,
    /// Whoever may use the directory that others share, by its permission bits.
    Shared(Mode),
}

impl Access {
    /// The permissions of a directory that is made.
    fn of_dir(self) -> Mode {
        match self {
            Self::Owner => Mode::RWXU,
            Self::Shared(mode) => mode,
        }
    }

    /// The permissions of a file that is made, where they are other than its owner's alone.
    fn of_file(self) -> Option<Mode> {
        match self {
            Self::Owner => None,
            Self::Shared(mode) => Some(mode.intersection(Mode::from_bits_truncate(0o666))),
        }
    }
}

/// Whether a write waits until the disk has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// The file and its name survive a power failure once the call has returned.
    Synced,
    /// The system writes it when it likes. After a power failure the file may be missing or empty.
    Later,
}

/// What became of [`Dir::move_new`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moved {
    /// The file has its new name and only that.
    Moved,
    /// The new name was taken by another file, and both were left alone.
    AlreadyThere,
    /// There was no file to move, or someone else has moved it meanwhile.
    SourceMissing,
}

impl Dir {
    /// Opens a directory by its path. Symbolic links in the path are resolved now and never again.
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

    /// The same for a directory that several users share: what is made in it, and below, has the permissions that the
    /// directory has itself, whatever the umask says.
    pub fn open_shared(path: &Path) -> Result<Self, FileError> {
        let dir = Self::open_root(path)?;
        let stat = rustix::fs::fstat(&dir.handle).map_err(dir.io_here("examine"))?;
        let access = Access::Shared(Mode::from_raw_mode(stat.st_mode));
        Ok(Self { access, ..dir })
    }

    /// Whether its path still leads to this directory, rather than to nothing or to another one.
    pub fn is_in_place(&self) -> bool {
        match (rustix::fs::fstat(&self.handle), rustix::fs::lstat(&*self.path)) {
            (Ok(held), Ok(found)) => is_same(&held, &found),
            _ => false,
        }
    }

    /// The numbers of the file system and of the directory in it, which tell it from every other that is there now.
    pub fn device_and_inode(&self) -> Result<(i128, u64), FileError> {
        let stat = rustix::fs::fstat(&self.handle).map_err(self.io_here("examine"))?;
        Ok((stat.st_dev.into(), stat.st_ino))
    }

    /// Where the directory was found.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a directory in this one; `None` when there is nothing of that name.
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
                _ => self.io("open", name)(error),
            }),
        }
    }

    /// Opens a directory in this one, and makes it first when it is missing: for its owner alone, or, in one that is shared,
    /// for those who share it.
    pub fn make_subdir(&self, name: &str) -> Result<Self, FileError> {
        // Mostly it is there, and looking costs less than being told so.
        if let Some(there) = self.subdir(name)? {
            return Ok(there);
        }
        let is_new = match rustix::fs::mkdirat(&self.handle, name, self.access.of_dir()) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(error) => return Err(self.io("make", name)(error)),
        };
        let made = self.subdir(name)?.ok_or_else(|| self.io("open", name)(Errno::NOENT))?;
        if let (true, Access::Shared(mode)) = (is_new, self.access) {
            // The umask has taken away what others need.
            rustix::fs::fchmod(&made.handle, mode).map_err(self.io("set the mode of", name))?;
        }
        Ok(made)
    }

    /// The names of everything in the directory, sorted, files in the making included.
    ///
    /// Names that are not UTF-8 are left out, since no file of ours has one.
    pub fn names(&self) -> Result<Vec<String>, FileError> {
        let mut names = Vec::new();
        self.visit_names(|name| names.push(name.to_owned()))?;
        names.sort_unstable();
        Ok(names)
    }

    /// The same names in no order, one at a time: for folders whose names need not all be in memory.
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

    /// What tells whether the directory has changed since the last look.
    pub fn stamp(&self) -> Result<DirStamp, FileError> {
        let stat = rustix::fs::fstat(&self.handle).map_err(self.io_here("examine"))?;
        Ok(DirStamp::of(&stat))
    }

    /// What tells whether a file has changed; `None` when there is nothing of that name.
    ///
    /// A symbolic link is not followed: the stamp is the link's own.
    pub fn stat(&self, name: &str) -> Result<Option<FileStamp>, FileError> {
        check_name(name)?;
        Ok(self.raw_stat(name)?.as_ref().map(FileStamp::of))
    }

    /// The stamp of a directory in this one, which need not be readable; `None` when it is missing.
    pub fn subdir_stamp(&self, name: &str) -> Result<Option<DirStamp>, FileError> {
        check_name(name)?;
        match self.raw_stat(name)? {
            Some(stat) if kind(&stat).is_dir() => Ok(Some(DirStamp::of(&stat))),
            Some(stat) => Err(self.not_a_directory(name, kind(&stat))),
            None => Ok(None),
        }
    }

    /// Reads a regular file of at most `limit` bytes; `None` when there is nothing of that name.
    pub fn read(&self, name: &str, limit: u64) -> Result<Option<Contents>, FileError> {
        check_name(name)?;
        // Without O_NONBLOCK, opening a FIFO would wait for someone who writes to it.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(&self.handle, name, flags, Mode::empty()) {
            Ok(handle) => File::from(handle),
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => {
                return Err(match self.kind_of(name)? {
                    Some(found) if !found.is_file() => self.not_a_file(name, found),
                    _ => self.io("open", name)(error),
                });
            }
        };
        let stat = rustix::fs::fstat(&file).map_err(self.io("examine", name))?;
        if !kind(&stat).is_file() {
            return Err(self.not_a_file(name, kind(&stat)));
        }
        let too_large = |size| FileError::TooLarge { path: self.path.join(name), size, limit };
        let stamp = FileStamp::of(&stat);
        if stamp.len > limit {
            return Err(too_large(stamp.len));
        }
        // The file may grow while it is read: one byte more than allowed is enough to know.
        let mut bytes = Vec::with_capacity(usize::try_from(stamp.len).unwrap_or_default() + 1);
        file.take(limit.saturating_add(1)).read_to_end(&mut bytes).map_err(self.io("read", name))?;
        match bytes.len() as u64 {
            size if size > limit => Err(too_large(size)),
            _ => Ok(Some(Contents { bytes, stamp })),
        }
    }

    /// Opens a file of our own to be locked or written in place, and makes it when it is missing.
    ///
    /// What is written there must not end up elsewhere: a link of either kind, or a device, is refused.
    pub fn open_own(&self, name: &str) -> Result<File, FileError> {
        self.open_own_for(name, OFlags::RDWR)
    }

    /// Opens a file of our own for reading and for locks; `None` when there is nothing of that name.
    pub fn open_existing(&self, name: &str) -> Result<Option<File>, FileError> {
        check_name(name)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        match rustix::fs::openat(&self.handle, name, flags, Mode::empty()) {
            Ok(handle) => Ok(Some(File::from(handle))),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(self.io("open", name)(error)),
        }
    }

    /// Adds to the end of a file of our own, such as a log, which is made when it is missing; says how large it is
    /// then. Nothing is synced.
    pub fn append(&self, name: &str, bytes: &[u8]) -> Result<u64, FileError> {
        let mut file = self.open_own_for(name, OFlags::WRONLY | OFlags::APPEND)?;
        file.write_all(bytes).map_err(self.io("write", name))?;
        file.metadata().map(|metadata| metadata.len()).map_err(self.io("examine", name))
    }

    fn open_own_for(&self, name: &str, access: OFlags) -> Result<File, FileError> {
        check_name(name)?;
        let flags = access | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(&self.handle, name, flags, Mode::RUSR | Mode::WUSR) {
            Ok(handle) => File::from(handle),
            Err(error) => {
                return Err(match self.kind_of(name)? {
                    Some(found) if !found.is_file() => self.not_a_file(name, found),
                    _ => self.io("open", name)(error),
                });
            }
        };
        let stat = rustix::fs::fstat(&file).map_err(self.io("examine", name))?;
        match kind(&stat) {
            FileType::RegularFile if stat.st_nlink == 1 => {
                if let Some(mode) = self.access.of_file().filter(|_| stat.st_size == 0) {
                    // A new one. Where somebody else has just made it, they have said who may use it.
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

    /// Writes a file in place of what has that name, so that readers see the old or the new content.
    ///
    /// The file has exactly the permissions `mode`, and both it and its name are on disk on return.
    pub fn replace(&self, name: &str, bytes: &[u8], mode: u32) -> Result<(), FileError> {
        self.replace_with(name, bytes, mode, Durability::Synced)
    }

    /// [`replace`](Self::replace) for files that need not survive a power failure.
    pub fn replace_with(
        &self,
        name: &str,
        bytes: &[u8],
        mode: u32,
        durability: Durability,
    ) -> Result<(), FileError> {
        check_name(name)?;
        let temp = Temp::write(self, bytes, Durability::Later)?;
        temp.file.set_permissions(Permissions::from_mode(mode)).map_err(self.io("set the mode of", name))?;
        temp.sync(durability)?;
        rustix::fs::renameat(&self.handle, &*temp.name, &self.handle, name)
            .map_err(self.io("replace", name))?;
        temp.forget();
        self.sync(durability)
    }

    /// Replaces a file of our own by one that is locked before it has the name; returns the new file.
    ///
    /// It is for its owner alone, and need not survive a power failure.
    pub(crate) fn replace_locked(&self, name: &str, bytes: &[u8]) -> Result<File, FileError> {
        check_name(name)?;
        let temp = Temp::write(self, bytes, Durability::Later)?;
        let file = temp.file.try_clone().map_err(self.io("open", &temp.name))?;
        file.try_lock().map_err(|error| self.io("lock", &temp.name)(io::Error::from(error)))?;
        rustix::fs::renameat(&self.handle, &*temp.name, &self.handle, name)
            .map_err(self.io("replace", name))?;
        temp.forget();
        Ok(file)
    }

    /// True if the name leads to another file than this one; false also where nothing has the name.
    pub fn is_replaced(&self, name: &str, file: &File) -> Result<bool, FileError> {
        let ours = rustix::fs::fstat(file).map_err(self.io("examine", name))?;
        Ok(self.raw_stat(name)?.is_some_and(|found| !is_same(&ours, &found)))
    }

    /// [`replace_with`](Self::replace_with) for a file that only its owner reads, in a directory of many files: it is made
    /// in `workshop`, on the same file system, so that a killed writer leaves nothing here.
    pub fn replace_from(&self, workshop: &Self, name: &str, bytes: &[u8]) -> Result<(), FileError> {
        check_name(name)?;
        let temp = Temp::write(workshop, bytes, Durability::Later)?;
        match rustix::fs::renameat(&workshop.handle, &*temp.name, &self.handle, name) {
            Ok(()) => {
                temp.forget();
                Ok(())
            }
            // Something is mounted on this directory.
            Err(Errno::XDEV) => self.replace_with(name, bytes, 0o600, Durability::Later),
            Err(error) => Err(self.io("replace", name)(error)),
        }
    }

    /// Moves a regular file to a name that was not there before, on the same file system.
    ///
    /// Of all that move the same file, exactly one is told [`Moved::Moved`]. For a moment the file
    /// has both names; when a move was interrupted there, the same move ends it. Nothing is synced: a
    /// power failure can undo the move, but not lose the file on a file system that keeps the order
    /// in which names changed.
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
                    // One file under one name: `name` is `to_name`, perhaps in other letter case.
                    if source.st_nlink < 2 || (name == to_name && self.stamp()?.inode == to.stamp()?.inode) {
                        return Ok(Moved::AlreadyThere);
                    }
                }
                _ if error == Errno::EXIST => return Ok(Moved::AlreadyThere),
                _ => return Err(to.io("create", to_name)(error)),
            }
        }
        // Whoever takes the old name away has moved the file. The new name stays in any case: when
        // someone else was faster, it may be the only one that the file has left.
        Ok(if self.remove(name)? { Moved::Moved } else { Moved::SourceMissing })
    }

    /// The permission bits of what has that name; `None` when there is nothing.
    pub fn mode(&self, name: &str) -> Result<Option<u32>, FileError> {
        check_name(name)?;
        Ok(self.raw_stat(name)?.map(|stat| Mode::from_raw_mode(stat.st_mode).bits() & 0o7777))
    }

    /// Removes a file; `false` when there is nothing of that name.
    pub fn remove(&self, name: &str) -> Result<bool, FileError> {
        check_name(name)?;
        match rustix::fs::unlinkat(&self.handle, name, AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(self.io("remove", name)(error)),
        }
    }

    /// The handle itself, for the calls of this crate that are not about files.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }

    /// Makes the error of a failed call on a file in this directory.
    pub fn io<E: Into<io::Error>>(&self, action: &'static str, name: &str) -> impl Fn(E) -> FileError {
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
            Err(error) => Err(self.io("examine", name)(error)),
        }
    }

    fn kind_of(&self, name: &str) -> Result<Option<FileType>, FileError> {
        Ok(self.raw_stat(name)?.as_ref().map(kind))
    }

    fn sync(&self, durability: Durability) -> Result<(), FileError> {
        if durability == Durability::Later {
            return Ok(());
        }
        match rustix::fs::fsync(&self.handle) {
            // Some file systems cannot sync a directory, and keep its names without being asked.
            Ok(()) | Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(()),
            Err(error) => Err(self.io_here("sync")(error)),
        }
    }
}

/// Whether an event of this name in a directory is about a file in the making. One that has no name yet is not in the
/// directory, and yet there are events of it.
pub fn is_in_the_making(name: &str) -> bool {
    is_temp(name) || platform::is_unnamed(name)
}

/// Refuses what is not the name of one entry in a directory.
pub fn check_name(name: &str) -> Result<(), FileError> {
    match name {
        "" | "." | ".." => Err(FileError::BadName { name: name.to_owned() }),
        _ if name.contains(['/', '\0']) => Err(FileError::BadName { name: name.to_owned() }),
        _ => Ok(()),
    }
}

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
