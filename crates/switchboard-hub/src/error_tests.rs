use super::*;

#[test]
fn disk_faults_are_distinguished_from_others() {
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
