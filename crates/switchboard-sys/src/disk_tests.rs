use std::os::unix::fs::PermissionsExt;

use super::*;

#[test]
fn writable_folder_has_no_fault() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(probe(&Dir::open_root(folder.path()).unwrap()), None);
}

#[test]
fn folder_without_write_permission_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let dir = Dir::open_root(folder.path()).unwrap();
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o500)).unwrap();
    let expected = DiskFault { kind: DiskFaultKind::ReadOnlyFolder, path: dir.path().to_owned() };
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

/// A disk of 1 KiB blocks, with this many of them free and available.
fn small_disk(f_bfree: u64, f_bavail: u64) -> StatVfs {
    let mut disk = rustix::fs::statvfs("/").unwrap();
    (disk.f_frsize, disk.f_blocks, disk.f_bfree, disk.f_bavail) = (1024, 23_057, f_bfree, f_bavail);
    disk
}

#[test]
fn root_cannot_use_ext4_reserve() {
    assert_eq!(blocks_for_root(&small_disk(492, 1)), 1);
}

#[test]
fn root_can_use_root_reserve() {
    assert_eq!(blocks_for_root(&small_disk(2_000, 357)), 2_000 - 23_057 / 40);
    assert_eq!(blocks_for_root(&small_disk(2_000, 2_000)), 2_000);
}
