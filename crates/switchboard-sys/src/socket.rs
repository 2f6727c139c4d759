//! Unix sockets between programs of one user.
//!
//! Both ends check the user of their peer. A listener must not obey another user's program, and a client must not send
//! private data to one.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Mode, chmod, unlink};
use rustix::process::getuid;
use tokio::net::{UnixListener, UnixStream};
use tokio::time::sleep;

/// Maximum length of a socket path that every system accepts.
const LONGEST: usize = 100;

/// Delay before a failed accept is retried.
///
/// An immediate retry would fail again, because the usual reason is that the process has too many open files.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Accepts the next connection of a listener, and retries as often as that fails.
///
/// `of` names the listener in the log.
pub async fn accept_with_retry<T, F>(of: &str, accept: impl Fn() -> F) -> T
where
    F: Future<Output = io::Result<T>>,
{
    loop {
        match accept().await {
            Ok(accepted) => return accepted,
            Err(error) => tracing::warn!(%error, listener = of, "cannot accept a connection"),
        }
        sleep(ACCEPT_RETRY_DELAY).await;
    }
}

/// Returns the path of a folder's socket.
///
/// The socket is in the folder, or in the system's temporary folder if that path would be too long.
pub fn socket_path(folder: &Path, name: &str) -> PathBuf {
    let path = folder.join(name);
    if path.as_os_str().len() <= LONGEST {
        return path;
    }
    let mut hasher = DefaultHasher::new();
    path.hash(&mut hasher);
    std::env::temp_dir().join(format!("switchboard-{:016x}.sock", hasher.finish()))
}

/// Unix listener that accepts only programs of the same user. The socket is removed on drop.
#[derive(Debug)]
pub struct SameUserListener {
    listener: UnixListener,
    path: PathBuf,
}

impl SameUserListener {
    /// Binds the socket and replaces a stale one. Requires a Tokio runtime.
    pub async fn bind(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        remove_stale(&path).await?;
        let listener = UnixListener::bind(&path)?;
        let own = Self { listener, path };
        chmod(&own.path, Mode::RUSR | Mode::WUSR)?;
        Ok(own)
    }

    /// Returns the path of the socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Accepts the next connection.
    ///
    /// Fails for another user's program; the listener remains usable after that.
    pub async fn accept(&self) -> io::Result<UnixStream> {
        let (stream, _) = self.listener.accept().await?;
        checked(stream)
    }
}

impl Drop for SameUserListener {
    fn drop(&mut self) {
        let _ = unlink(&self.path);
    }
}

/// Connects to a program of the same user.
///
/// A symbolic link is not followed, because a repository could point it to the socket of another workspace.
pub async fn connect(path: &Path) -> io::Result<UnixStream> {
    if !std::fs::symlink_metadata(path)?.file_type().is_socket() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no socket"));
    }
    checked(UnixStream::connect(path).await?)
}

/// Checks that the peer has the same user.
///
/// Socket permissions are not enough: not every system enforces them, and none protects the client.
fn checked(stream: UnixStream) -> io::Result<UnixStream> {
    if stream.peer_cred()?.uid() == getuid().as_raw() {
        Ok(stream)
    } else {
        Err(io::Error::new(io::ErrorKind::PermissionDenied, "the program at the other end is another user's"))
    }
}

/// Removes a stale socket, on which no process listens.
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
