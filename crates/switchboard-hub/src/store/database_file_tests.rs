#![expect(clippy::disallowed_methods, reason = "the tests do with files what others do")]

use std::fs;

use crate::HubError;
use crate::test_hub::TestHub;

async fn is_refused(test: &TestHub) {
    let refused = test.hub.submit(test.draft("claude", "codex", "after")).await;
    assert!(matches!(&refused, Err(HubError::StoreDeleted { .. })), "{refused:?}");
    let listed = test.hub.journal().newest(10).await;
    assert!(matches!(&listed, Err(HubError::StoreDeleted { .. })), "{listed:?}");
}

#[tokio::test]
async fn deleted_store_accepts_nothing() {
    let test = TestHub::with(&["claude", "codex"]).await;
    test.send("claude", "codex", "before").await;
    fs::remove_file(test.database()).unwrap();
    is_refused(&test).await;
    fs::remove_dir_all(test.path()).unwrap();
    is_refused(&test).await;
}

#[tokio::test]
async fn replaced_store_accepts_nothing() {
    let test = TestHub::with(&["claude", "codex"]).await;
    test.send("claude", "codex", "before").await;
    let other = test.path().join("other");
    fs::copy(test.database(), &other).unwrap();
    fs::rename(&other, test.database()).unwrap();
    is_refused(&test).await;
}

#[tokio::test]
async fn moved_store_stays_usable() {
    let test = TestHub::with(&["claude", "codex"]).await;
    let moved = test.path().with_extension("moved");
    fs::rename(test.path(), &moved).unwrap();
    let accepted = test.send("claude", "codex", "after").await;
    fs::rename(&moved, test.path()).unwrap();
    assert!(test.hub.journal().message(accepted.id).await.unwrap().is_some());
}
