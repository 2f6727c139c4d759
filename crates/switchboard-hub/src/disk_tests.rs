use std::os::unix::fs::PermissionsExt;

use super::*;

#[test]
fn writable_folder_has_no_trouble() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(probe(&Dir::open_root(folder.path()).unwrap()), None);
}

#[test]
fn folder_without_write_permission_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let dir = Dir::open_root(folder.path()).unwrap();
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o500)).unwrap();
    let expected = DiskTrouble { fault: DiskFault::ReadOnlyFolder, place: dir.path().to_owned() };
    // Root may write everywhere.
    let found = (!rustix::process::geteuid().is_root()).then_some(expected);
    assert_eq!(probe(&dir), found);
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o700)).unwrap();
}

#[test]
fn mount_point_is_topmost_folder_of_device() {
    let folder = tempfile::tempdir().unwrap();
    let deep = folder.path().join("a/b");
    std::fs::create_dir_all(&deep).unwrap();
    assert_eq!(mount_point(&deep), mount_point(folder.path()));
    assert_eq!(mount_point(Path::new("/")), Path::new("/"));
}

#[test]
fn faults_of_the_disk_are_told_from_others() {
    let full = rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_FULL), None);
    let locked =
        rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_READONLY), None);
    let busy = rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY), None);
    let corrupt =
        rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT), None);
    assert!(matches!(HubError::from(locked), HubError::ReadOnly { .. }));
    assert!(HubError::from(full).is_disk());
    assert!(!HubError::from(busy).is_disk());
    assert!(!HubError::from(corrupt).is_disk());
    assert!(!HubError::Closed.is_disk());
}
