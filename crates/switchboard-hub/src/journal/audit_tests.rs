use switchboard_core::AgentId;

use super::*;
use crate::test_hub::{TestHub, agent_id, open, seconds};

async fn with(count: usize) -> TestHub {
    let hub = TestHub::with(&["a", "b"]).await;
    for number in 1..=count {
        hub.send("a", "b", &format!("message {number}")).await;
    }
    hub
}

async fn first_bad(hub: &TestHub) -> Option<(i64, EntryFault)> {
    let audit = hub.hub.journal().audit(None).await.expect("read");
    assert_eq!(audit.bad == 0, audit.first_bad.is_none());
    audit.first_bad.map(|bad| (bad.seq, bad.fault))
}

async fn head(hub: &TestHub) -> ChainHead {
    hub.hub.journal().audit(None).await.expect("read").head.expect("an entry")
}

#[tokio::test]
async fn untouched_journal_passes_audit() {
    let hub = with(3).await;
    let other = hub.open_another().await;
    for number in 0..3 {
        let message = crate::test_hub::draft(&other, "b", "a", &format!("other {number}"));
        // The second submission is a duplicate and uses up a number.
        other.submit(message.clone()).await.expect("accepted");
        other.submit(message).await.expect("accepted");
        hub.send("a", "b", "between").await;
    }
    let audit = hub.hub.journal().audit(None).await.expect("read");
    assert_eq!((audit.entries, audit.bad, audit.breaks.len()), (9, 0, 0));
    assert_eq!(hub.hub.journal().audit(audit.head).await.expect("read"), audit);
}

#[tokio::test]
async fn audit_detects_change_of_every_column() {
    let changes = [
        "body = 'else'",
        "sender = 'b'",
        "recipient = 'a'",
        "kind = 'execute'",
        "sent_at = sent_at + 1",
        "accepted_at = accepted_at - 1",
        "expires_at = 7",
        "verified = NOT verified",
        "native_id = 'other'",
        "metadata = '{\"a\":1}'",
        "thread = x'00000000000000000000000000000001'",
        "via = '[]x'",
        "chain = x'00'",
        "chain = zeroblob(32)",
    ];
    for change in changes {
        let hub = with(5).await;
        hub.sql().execute(&format!("UPDATE messages SET {change} WHERE seq IN (3, 5)"), []).expect("changed");
        assert_eq!(first_bad(&hub).await.map(|(seq, _)| seq), Some(3), "{change}");
    }
}

#[tokio::test]
async fn chain_detects_change_with_recomputed_checksums() {
    let hub = with(5).await;
    let mut stored = hub.stored(first_ids(&hub)[2]).await;
    stored.message.body = "forged".to_owned();
    let digest = rows::digest(&stored.message);
    let content = rows::content(&stored.message, stored.accepted_at, &digest);
    hub.sql()
        .execute(
            "UPDATE messages SET body = 'forged', digest = ?1, seal = ?2 WHERE seq = 3",
            rusqlite::params![digest, rows::seal(&content)],
        )
        .expect("forged");
    assert_eq!(hub.stored(stored.message.id).await.message.body, "forged");
    assert_eq!(first_bad(&hub).await, Some((3, EntryFault::OutOfChain)));
}

fn first_ids(hub: &TestHub) -> Vec<switchboard_core::MessageId> {
    let db = hub.sql();
    let mut statement = db.prepare("SELECT id FROM messages ORDER BY seq").expect("prepared");
    let ids = statement.query_map([], |row| row.get(0)).expect("read");
    ids.map(|id| switchboard_core::MessageId::from_bytes(id.expect("read"))).collect()
}

#[tokio::test]
async fn audit_names_removed_entries() {
    for gone in [1, 3, 5] {
        let hub = with(5).await;
        hub.sql().execute("DELETE FROM messages WHERE seq = ?1", [gone]).expect("removed");
        assert_eq!(first_bad(&hub).await, Some((gone, EntryFault::Removed)), "{gone}");
        // Without its deliveries, the gap shows at the next entry.
        hub.sql().execute("DELETE FROM deliveries WHERE id / 65536 = ?1", [gone]).expect("removed");
        let shown = (gone < 5).then_some((gone + 1, EntryFault::OutOfChain));
        assert_eq!(first_bad(&hub).await, shown, "{gone}");
    }
}

#[tokio::test]
async fn noted_head_reveals_truncated_or_rewritten_journal() {
    let hub = with(5).await;
    let noted = head(&hub).await;
    assert_eq!(ChainHash::parse(&noted.hash.to_string()), Some(noted.hash));
    hub.send("a", "b", "later").await;
    assert_eq!(hub.hub.journal().audit(Some(noted)).await.expect("read").bad, 0);

    hub.sql().execute_batch("DELETE FROM deliveries; UPDATE messages SET chain = x''").expect("changed");
    chain::repair(&hub.sql(), hub.hub.now()).expect("made anew");
    assert_eq!(hub.hub.journal().audit(None).await.expect("read").bad, 0);
    hub.sql().execute("UPDATE messages SET chain = x'' WHERE seq > 2", []).expect("changed");
    hub.sql()
        .execute("UPDATE messages SET accepted_at = accepted_at + 1 WHERE seq = 3", [])
        .expect("changed");
    let bad = hub.hub.journal().audit(Some(noted)).await.expect("read").first_bad.expect("told");
    assert_eq!(bad.seq, 3);

    hub.sql().execute("DELETE FROM messages WHERE seq >= 3", []).expect("cut");
    assert_eq!(hub.hub.journal().audit(None).await.expect("read").bad, 0);
    let bad = hub.hub.journal().audit(Some(noted)).await.expect("read").first_bad.expect("told");
    assert_eq!((bad.seq, bad.fault), (5, EntryFault::Removed));
}

#[tokio::test]
async fn retention_leaves_valid_chain() {
    let hub = with(8).await;
    hub.deliver_all().await;
    let noted = head(&hub).await;
    let ids = first_ids(&hub);
    let b: AgentId = agent_id("b");
    for (round, done) in [vec![0, 1, 4], vec![2, 5]].into_iter().enumerate() {
        for number in done {
            hub.hub.mailboxes().acknowledge(b.clone(), ids[number], None).await.expect("done");
        }
        hub.clock.advance(seconds(60));
        let pruned = hub.hub.journal().prune(hub.hub.now()).await.expect("pruned");
        assert_eq!(pruned, 3 - round);
        let audit = hub.hub.journal().audit(Some(noted)).await.expect("read");
        assert_eq!((audit.bad, &audit.first_bad), (0, &None), "{audit:?}");
        assert!(audit.breaks.iter().all(|noted| noted.reason == BreakReason::Retention));
    }
    let breaks: Vec<i64> =
        hub.hub.journal().audit(None).await.expect("read").breaks.iter().map(|noted| noted.seq).collect();
    assert_eq!(breaks, [4, 7]);
    hub.sql().execute("DELETE FROM messages WHERE seq = 4", []).expect("removed");
    assert_eq!(first_bad(&hub).await, Some((4, EntryFault::Removed)));
}

#[tokio::test]
async fn salvaged_journal_records_breaks() {
    let hub = with(6).await;
    let (folder, clock) = hub.close().await;
    let path = folder.path().join("hub.db");
    {
        let db = Connection::open(&path).expect("opens");
        db.execute("UPDATE messages SET body = 'flipped' WHERE seq = 3", []).expect("damaged");
        db.pragma_update(None, "application_id", 1).expect("damaged");
    }
    let hub = open(folder.path(), &clock).await;
    assert!(hub.database().moved_aside().is_some());
    let audit = hub.journal().audit(None).await.expect("read");
    assert_eq!((audit.entries, audit.bad), (5, 0), "{audit:?}");
    let breaks: Vec<_> = audit.breaks.iter().map(|noted| (noted.seq, noted.reason)).collect();
    assert_eq!(breaks, [(4, BreakReason::Recovered)]);
    hub.submit(crate::test_hub::draft(&hub, "a", "b", "goes on")).await.expect("accepted");
    assert_eq!(hub.journal().audit(None).await.expect("read").bad, 0);
}

#[tokio::test]
async fn row_restored_from_file_joins_chain() {
    let hub = with(0).await;
    let draft = crate::Draft { verified: true, ..hub.draft("a", "b", "whole") };
    hub.hub.submit(draft.clone()).await.expect("accepted");
    hub.send("a", "b", "next").await;
    hub.sql().execute("UPDATE messages SET body = 'flipped' WHERE seq = 1", []).expect("damaged");
    assert_eq!(first_bad(&hub).await, Some((1, EntryFault::Changed)));
    assert!(hub.hub.journal().restore_damaged(draft.clone()).await.expect("restored"));
    let audit = hub.hub.journal().audit(None).await.expect("read");
    assert_eq!((audit.bad, audit.breaks.len()), (0, 0));

    hub.sql().execute("UPDATE messages SET body = 'flipped' WHERE seq = 1", []).expect("damaged");
    let vague = crate::Draft { sent_at: draft.sent_at + seconds(1), ..draft };
    assert!(hub.hub.journal().restore_damaged(vague).await.expect("restored"));
    let audit = hub.hub.journal().audit(None).await.expect("read");
    assert_eq!((audit.bad, audit.breaks[0].reason), (0, BreakReason::Restored));
}

#[tokio::test]
async fn audit_entries_are_linked_page_by_page() {
    let hub = with(7).await;
    let mut last = Some(ChainHash(GENESIS));
    let mut after = 0;
    for size in [3, 3, 1] {
        let page = hub.hub.journal().audit_entries(after, 3).await.expect("read");
        assert_eq!(page.len(), size);
        for entry in page {
            assert_eq!(entry.previous, last);
            assert_eq!(entry.fault(), None);
            (last, after) = (entry.hash, entry.seq());
        }
    }
    assert_eq!(hub.hub.journal().audit_entries(after, 3).await.expect("read"), []);
}
