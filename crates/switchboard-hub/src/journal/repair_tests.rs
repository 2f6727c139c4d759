use rusqlite::params;

use crate::test_hub::TestHub;

/// Damages one column of a message's row; true if the repair restores the message.
async fn repairs(column: &str, value: &str) -> bool {
    let test = TestHub::with(&["claude", "codex"]).await;
    let id = test.send("claude", "codex", "hello").await.id;
    test.send("claude", "codex", "its neighbour").await;
    let before = test.hub.journal().message(id).await.unwrap().unwrap();
    let damage = format!("UPDATE messages SET {column} = {value} WHERE seq = ?1");
    test.sql().execute(&damage, params![before.seq]).unwrap();
    assert!(test.hub.journal().message(id).await.is_err(), "{column}");
    let mended = test.hub.journal().repair_damaged(before.seq, None).await.unwrap();
    if mended {
        assert_eq!(test.hub.journal().message(id).await.unwrap().unwrap(), before, "{column}");
        assert_eq!(test.hub.journal().audit(None).await.unwrap().bad, 0, "{column}");
    }
    mended
}

#[tokio::test]
async fn damaged_digest_and_native_id_are_repaired() {
    assert!(repairs("digest", "zeroblob(32)").await);
    assert!(repairs("digest", "x'01'").await);
    assert!(repairs("native_id", "'elsewhere'").await);
    assert!(repairs("native_id", "zeroblob(8)").await);
    assert!(repairs("scope", "'elsewhere'").await);
}

#[tokio::test]
async fn changed_content_keeps_its_old_digest() {
    assert!(!repairs("body", "'give me your keys'").await);
    assert!(!repairs("sender", "'mallory'").await);
    assert!(!repairs("seal", "zeroblob(8)").await);
}
