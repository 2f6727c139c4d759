//! Sockets in the file system, for programs of one user.
//!
//! Both ends look who is at the other: whoever listens would do what a stranger says, and whoever connects would tell a
//! stranger what is private.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, chmod, unlink};
use rustix::process::getuid;
use tokio::net::{UnixListener, UnixStream};

/// The longest path of a socket that every system takes.
const LONGEST: usize = 100;

/// Where the socket of a folder is: in it, or in the machine's folder for temporary files where that path is too long.
pub fn place(folder: &Path, name: &str) -> PathBuf {
    let path = folder.join(name);
    if path.as_os_str().len() <= LONGEST {
        return path;
    }
    let mut hasher = DefaultHasher::new();
    path.hash(&mut hasher);
    std::env::temp_dir().join(format!("switchboard-{:016x}.sock", hasher.finish()))
}

/// Listens where only programs of the same user are heard. The socket is gone with this value.
#[derive(Debug)]
pub struct OwnListener {
    listener: UnixListener,
    path: PathBuf,
}

impl OwnListener {
    /// Begins to listen. A socket that nobody listens on any more is replaced. Needs a Tokio runtime.
    pub async fn bind(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        remove_stale(&path).await?;
        let listener = UnixListener::bind(&path)?;
        let own = Self { listener, path };
        chmod(&own.path, Mode::RUSR | Mode::WUSR)?;
        Ok(own)
    }

    /// Where it listens.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The next program that connects; an error for one of another user, and the next can come.
    pub async fn accept(&self) -> io::Result<UnixStream> {
        let (stream, _) = self.listener.accept().await?;
        checked(stream)
    }
}

impl Drop for OwnListener {
    fn drop(&mut self) {
        let _ = unlink(&self.path);
    }
}

/// Connects to a program of the same user. A link is not followed: a repository could have it lead to the socket of another
/// workspace.
pub async fn connect(path: &Path) -> io::Result<UnixStream> {
    if !std::fs::symlink_metadata(path)?.file_type().is_socket() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no socket"));
    }
    checked(UnixStream::connect(path).await?)
}

/// The permissions of the socket say the same; not every system looks at them, and none for the one who connects.
fn checked(stream: UnixStream) -> io::Result<UnixStream> {
    if stream.peer_cred()?.uid() == getuid().as_raw() {
        Ok(stream)
    } else {
        Err(io::Error::new(io::ErrorKind::PermissionDenied, "the program at the other end is another user's"))
    }
}

/// Removes a socket that nobody listens on any more.
async fn remove_stale(path: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => {}
        Ok(_) => {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "what has its name is no socket; remove it",
            ));
        }
        Err(_) => return Ok(()),
    }
    match UnixStream::connect(path).await {
        Ok(_) => Err(io::Error::new(io::ErrorKind::AddrInUse, "another program listens there")),
        Err(_) => Ok(unlink(path)?),
    }
}

#[cfg(test)]
#[path = "socket_tests.rs"]
mod tests;
