use super::*;
use crate::store::open::open_for_writing;

fn readers() -> (tempfile::TempDir, Readers) {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("hub.db");
    drop(open_for_writing(&database, AtClose::RemoveLog).unwrap());
    (folder, Readers::of(database))
}

#[test]
fn returned_connection_is_lent_again() {
    let (_folder, readers) = readers();
    assert!(readers.try_lend(|_| ()).is_none());
    for _ in 0..3 {
        let tables: u32 = readers
            .lend(|connection| {
                connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
            })
            .unwrap()
            .unwrap();
        assert!(tables > 0);
        assert!(readers.try_lend(|_| ()).is_some());
    }
    assert_eq!(readers.state.lock().idle.len(), 1);
}

#[test]
fn busy_connection_delays_readers_only_briefly() {
    let (_folder, readers) = readers();
    readers
        .lend(|_| {
            assert!(readers.try_lend(|_| ()).is_none());
            readers.lend(|_| ()).unwrap();
            assert!(readers.try_lend(|_| ()).is_some());
        })
        .unwrap();
    let state = readers.state.lock();
    assert_eq!((state.idle.len(), state.lent), (2, 0));
}

#[test]
fn failed_open_leaves_nothing_lent() {
    let folder = tempfile::tempdir().unwrap();
    let readers = Readers::of(folder.path().join("nowhere").join("hub.db"));
    assert!(readers.lend(|_| ()).is_err());
    assert_eq!(readers.state.lock().lent, 0);
}

/// The recovery of a truncated log waits until every connection is returned.
#[test]
fn panicking_read_leaves_nothing_lent() {
    let (_folder, readers) = readers();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        readers.lend(|_| panic!("on purpose")).unwrap();
    }));
    assert!(panicked.is_err());
    readers.while_closed(|| ());
    readers.lend(|_| ()).unwrap();
    let state = readers.state.lock();
    assert_eq!((state.idle.len(), state.lent), (1, 0));
}
