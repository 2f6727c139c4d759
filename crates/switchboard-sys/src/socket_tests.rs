use std::os::unix::fs::PermissionsExt;

use tempfile::TempDir;

use super::*;

#[tokio::test]
async fn socket_is_private_and_replaces_stale_one() {
    let folder = TempDir::new().unwrap();
    let path = socket_path(folder.path(), "own.sock");
    assert_eq!(path, folder.path().join("own.sock"));
    // The process that left the socket was killed.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let listener = SameUserListener::bind(&path).await.unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(SameUserListener::bind(&path).await.unwrap_err().kind(), io::ErrorKind::AddrInUse);
    // That connection only checked whether a process listens.
    listener.accept().await.unwrap();
    let (connected, accepted) = tokio::join!(connect(&path), listener.accept());
    assert!(connected.is_ok() && accepted.is_ok());
    drop(listener);
    assert!(!path.exists());
}

#[test]
fn long_socket_path_falls_back_to_temp() {
    let folder = Path::new("/").join("deep".repeat(30));
    let path = socket_path(&folder, "own.sock");
    assert!(path.starts_with(std::env::temp_dir()) && path.as_os_str().len() <= LONGEST, "{path:?}");
    assert_eq!(path, socket_path(&folder, "own.sock"));
    assert_ne!(path, socket_path(&folder, "other.sock"));
}

#[tokio::test]
async fn link_to_socket_is_not_followed() {
    let folder = TempDir::new().unwrap();
    let (theirs, link) = (folder.path().join("theirs.sock"), folder.path().join("own.sock"));
    let _listener = SameUserListener::bind(&theirs).await.unwrap();
    std::os::unix::fs::symlink(&theirs, &link).unwrap();
    assert_eq!(connect(&link).await.unwrap_err().kind(), io::ErrorKind::InvalidInput);
    assert_eq!(SameUserListener::bind(&link).await.unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    assert!(connect(&theirs).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn failed_accept_is_retried_after_delay() {
    let (began, attempts) = (tokio::time::Instant::now(), std::cell::Cell::new(0));
    let accept = || {
        attempts.set(attempts.get() + 1);
        std::future::ready(if attempts.get() < 3 {
            Err(io::Error::other("too many open files"))
        } else {
            Ok("a")
        })
    };
    assert_eq!(accept_with_retry("test", accept).await, "a");
    assert_eq!((attempts.get(), began.elapsed()), (3, 2 * ACCEPT_RETRY_DELAY));
}
