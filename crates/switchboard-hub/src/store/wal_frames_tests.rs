use std::os::unix::fs::FileExt;

use rusqlite::Connection;

use super::*;

/// A log with some frames, and their number.
fn log() -> (tempfile::TempDir, Connection, File, u64) {
    let folder = tempfile::tempdir().unwrap();
    let db = Connection::open(folder.path().join("db")).unwrap();
    db.pragma_update(None, "journal_mode", "WAL").unwrap();
    db.execute_batch(
        "CREATE TABLE t (a); INSERT INTO t VALUES (randomblob(20000)); INSERT INTO t VALUES (1);",
    )
    .unwrap();
    let frames = db.query_row("PRAGMA wal_checkpoint(NOOP)", [], |row| row.get::<_, i64>(1)).unwrap();
    let path = folder.path().join("db-wal");
    let file = File::options().read(true).write(true).open(path).unwrap();
    (folder, db, file, u64::try_from(frames).unwrap())
}

/// True if the header verifies and the frame exists.
fn has_frame(log: &WalFile, number: u64) -> bool {
    log.run().unwrap().is_some_and(|run| run.has_frame(number).unwrap())
}

#[test]
fn log_as_sqlite_wrote_it_verifies() {
    let (_folder, _db, file, frames) = log();
    let log = WalFile::new(file.try_clone().unwrap());
    assert!(frames > 4);
    assert!((1..=frames).all(|number| has_frame(&log, number)));
    assert!(log.verify(frames).unwrap());
    assert!(!log.verify(frames + 1).unwrap() && !has_frame(&log, frames + 1));
}

#[test]
fn flipped_byte_is_found_in_every_frame() {
    let (_folder, _db, file, frames) = log();
    let log = WalFile::new(file.try_clone().unwrap());
    let length = file.metadata().unwrap().len();
    for offset in (0..length).step_by(509).filter(|offset| !(12..16).contains(offset)) {
        let mut byte = [0];
        file.read_exact_at(&mut byte, offset).unwrap();
        file.write_all_at(&[!byte[0]], offset).unwrap();
        assert!(!log.verify(frames).unwrap(), "{offset}");
        file.write_all_at(&byte, offset).unwrap();
    }
    assert!(log.verify(frames).unwrap());
}

#[test]
fn truncated_or_overwritten_end_is_found() {
    let (_folder, _db, file, frames) = log();
    let log = WalFile::new(file.try_clone().unwrap());
    let length = file.metadata().unwrap().len();
    let mut end = vec![0; 200];
    file.read_exact_at(&mut end, length - 200).unwrap();
    file.set_len(length - 200).unwrap();
    assert!(!has_frame(&log, frames), "cut within its last page");
    file.write_all_at(&end, length - 200).unwrap();
    assert!(log.verify(frames).unwrap());
    file.write_all_at(&[7; 5000], length - 5000).unwrap();
    assert!(!has_frame(&log, frames), "garbage in the last frame");
    file.set_len(0).unwrap();
    assert!(!has_frame(&log, frames), "cut to nothing");
}
