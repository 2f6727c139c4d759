use std::os::unix::fs::PermissionsExt;

use tempfile::TempDir;

use super::*;

#[tokio::test]
async fn a_socket_is_its_owners_alone_and_one_that_was_left_behind_is_replaced() {
    let folder = TempDir::new().unwrap();
    let path = place(folder.path(), "own.sock");
    assert_eq!(path, folder.path().join("own.sock"));
    // Whoever left it was killed.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let listener = OwnListener::bind(&path).await.unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(OwnListener::bind(&path).await.unwrap_err().kind(), io::ErrorKind::AddrInUse);
    // That one had connected to see whether somebody listens.
    listener.accept().await.unwrap();
    let (connected, accepted) = tokio::join!(connect(&path), listener.accept());
    assert!(connected.is_ok() && accepted.is_ok());
    drop(listener);
    assert!(!path.exists());
}

#[test]
fn a_path_that_is_too_long_is_somewhere_else_and_always_there() {
    let folder = Path::new("/").join("deep".repeat(30));
    let path = place(&folder, "own.sock");
    assert!(path.starts_with(std::env::temp_dir()) && path.as_os_str().len() <= LONGEST, "{path:?}");
    assert_eq!(path, place(&folder, "own.sock"));
    assert_ne!(path, place(&folder, "other.sock"));
}

#[tokio::test]
async fn link_to_socket_is_not_followed() {
    let folder = TempDir::new().unwrap();
    let (theirs, link) = (folder.path().join("theirs.sock"), folder.path().join("own.sock"));
    let _listener = OwnListener::bind(&theirs).await.unwrap();
    std::os::unix::fs::symlink(&theirs, &link).unwrap();
    assert_eq!(connect(&link).await.unwrap_err().kind(), io::ErrorKind::InvalidInput);
    assert_eq!(OwnListener::bind(&link).await.unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    assert!(connect(&theirs).await.is_ok());
}
