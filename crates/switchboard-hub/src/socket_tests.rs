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
