use rusqlite::params;

use switchboard_core::Door;

use crate::delivery::outbox;
use crate::journal::search;
use crate::store::rows::SPREAD;
use crate::test_hub::{TestHub, agent_id, name, seconds, with_timeout};
use crate::{Draft, Hub, MailboxQuery, Part, Registration};

/// Messages in one mailbox: enough that a scan of any table or index reads megabytes.
const MANY: i64 = 200_000;

/// Bytes that an action may read, including what the hub's tick and a further connection read meanwhile. A scan
/// of the smallest index reads more than twice as much.
const PAGE: u64 = 1 << 20;

/// Fills a mailbox with copies of a message, as only their number matters here.
fn fill(test: &TestHub, seq: i64) {
    let mut db = test.sql();
    let tx = db.transaction().unwrap();
    let columns = "sender, recipient, kind, thread, sent_at, accepted_at, door, scope, verified, digest, seal, chain, body";
    tx.execute(
        &format!(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?2) \
             INSERT INTO messages (seq, id, native_id, {columns}) \
             SELECT ?1 + n.i, CAST(printf('%016d', n.i) AS BLOB), 'copy_' || n.i, {columns} FROM n JOIN messages m ON m.seq = ?1"
        ),
        params![seq, MANY],
    )
    .unwrap();
    let copies = "FROM messages WHERE seq > ?1";
    tx.execute(
        &format!(
            "INSERT INTO native_ids SELECT door, native_id, scope, seq {copies} ORDER BY door, native_id"
        ),
        [seq],
    )
    .unwrap();
    tx.execute(
        &format!(
            "INSERT INTO deliveries (id, agent, door, route, state, due_at, queued_at, delivered_at) \
             SELECT seq * {SPREAD}, recipient, door, 'mailbox', 2, 0, accepted_at, accepted_at {copies}"
        ),
        [seq],
    )
    .unwrap();
    tx.commit().unwrap();
}

/// Returns the bytes that this process has read so far; `None` if the system does not count them.
fn read_so_far() -> Option<u64> {
    let counts = std::fs::read_to_string("/proc/self/io").ok()?;
    counts.lines().find_map(|line| line.strip_prefix("rchar: ")?.parse().ok())
}

/// Runs an action and measures the bytes that it read.
async fn measured<T>(action: impl Future<Output = T>) -> (T, Option<u64>) {
    let before = read_so_far();
    let result = action.await;
    (result, read_so_far().zip(before).map(|(after, before)| after - before))
}

/// Runs an action that may read no more than a page's worth.
async fn cheaply<T>(what: &str, action: impl Future<Output = T>) -> T {
    let (result, read) = measured(action).await;
    assert!(read.is_none_or(|read| read < PAGE), "{what} has read {read:?} bytes");
    result
}

async fn page(hub: &Hub, after: i64) -> Vec<String> {
    let query = MailboxQuery { agent: agent_id("codex"), after, limit: 20, part: Part::Waiting };
    let page = hub.mailboxes().page(query).await.unwrap();
    page.items.into_iter().map(|mail| mail.stored.message.body).collect()
}

#[tokio::test]
async fn many_waiting_messages_cost_no_extra_reads() {
    let test = TestHub::with(&["claude", "codex"]).await;
    for number in 0..20 {
        test.send("claude", "codex", &number.to_string()).await;
    }
    test.deliver_all().await;
    let last = test.send("claude", "codex", "template").await.seq;
    test.deliver_all().await;
    fill(&test, last);
    // A new hub has nothing in its caches.
    let hub = test.open_another().await;
    let draft = test.draft("claude", "codex", "newest");
    let sent = cheaply("a send", hub.submit(draft)).await.unwrap();
    test.deliver_all().await;
    assert_eq!(cheaply("the first page", page(&hub, 0)).await.len(), 20);
    assert_eq!(cheaply("the newest page", page(&hub, sent.seq - 1)).await, ["newest"]);
    let newest = cheaply("the newest", hub.mailboxes().newest_waiting(agent_id("codex"))).await.unwrap();
    assert_eq!(newest, Some(sent.seq));
    assert_eq!(cheaply("a count", hub.mailboxes().unread(agent_id("codex"), 1000)).await.unwrap(), 1000);
    let receipt = cheaply("a receipt", hub.journal().receipt(sent.id)).await.unwrap();
    assert!(receipt.is_some());
    let all = cheaply("a count of everything", hub.mailboxes().unread(agent_id("codex"), usize::MAX))
        .await
        .unwrap();
    assert_eq!(all, usize::try_from(MANY).unwrap() + 22);
    // A full listing reads everything, which shows that the meter works.
    let (all, read) = measured(hub.mailboxes().expected_files(agent_id("codex"))).await;
    assert_eq!(all.unwrap().len(), usize::try_from(MANY).unwrap() + 22);
    assert!(read.is_none_or(|read| read > PAGE), "{read:?} bytes read");
}

/// Every statement of the ordinary paths finds its rows by an index: none scans a table of many rows.
#[tokio::test]
async fn ordinary_paths_scan_no_table() {
    let test = TestHub::with(&["claude", "codex"]).await;
    let sent = test.send("claude", "codex", "first").await;
    test.deliver_all().await;
    fill(&test, sent.seq);
    let codex = agent_id("codex");
    let last = MANY + sent.seq;
    let hub = test.open_another().await;
    let mut door = cheaply("opening a door", hub.deliveries().open_door(Door::Workspace)).await.unwrap();
    let sent = cheaply("a send", hub.submit(test.draft("claude", "codex", "second"))).await.unwrap();
    let handoff = with_timeout(door.next(1)).await.remove(0);
    cheaply("a report", handoff.report(switchboard_core::Outcome::Delivered)).await.unwrap();
    // The copies are unreadable, so a listing of 20 messages would go through all of them.
    for number in 0..25 {
        test.send("claude", "codex", &number.to_string()).await;
    }
    let mut reply = test.draft("codex", "claude", "answer");
    reply.in_reply_to = Some(sent.id);
    cheaply("a reply", hub.submit(reply)).await.unwrap();
    cheaply("what is due", hub.deliveries().has_due(Door::Workspace)).await.unwrap();
    cheaply("what is on its way", hub.mailboxes().pending_files(codex.clone())).await.unwrap();
    cheaply("what other processes left", hub.write(outbox::release_orphaned)).await.unwrap();
    cheaply("times that lie ahead", hub.write(outbox::clamp_future_times)).await.unwrap();
    cheaply("what has expired", hub.deliveries().expire_due()).await.unwrap();
    cheaply("what is to be archived", hub.mailboxes().expired_unarchived(100)).await.unwrap();
    cheaply("who has not seen it", hub.send_unread_reminders()).await;
    cheaply("a mark as seen", hub.mailboxes().mark_seen(codex.clone(), vec![sent.id])).await.unwrap();
    cheaply("unseen mail", hub.mailboxes().count(codex.clone(), Part::Unseen, usize::MAX)).await.unwrap();
    cheaply("an acknowledgement", hub.mailboxes().acknowledge(codex.clone(), sent.id, None)).await.unwrap();
    cheaply("mail that is done with", hub.mailboxes().count(codex.clone(), Part::Done, 100)).await.unwrap();
    cheaply("a thread", hub.journal().thread(sent.id, 20)).await.unwrap();
    cheaply("replies", hub.journal().replies(sent.id, 20)).await.unwrap();
    cheaply("a native id", hub.native_ids().find(None, "copy_7")).await.unwrap();
    cheaply("the end of the journal", hub.journal().newest(20)).await.unwrap();
    cheaply("a page of the journal", hub.journal().entries(last - 20, 20)).await.unwrap();
    cheaply("a page for retention", hub.journal().retention_candidates(last - 20, 20)).await.unwrap();
    cheaply("a round of retention", hub.journal().remove_entries(vec![sent.seq])).await.unwrap();
    cheaply("a page of a mailbox folder", hub.mailboxes().expected_files_after(codex.clone(), last - 20, 20))
        .await
        .unwrap();
    cheaply("free pages", hub.database().shrink()).await.unwrap();
    cheaply("how far the index is", hub.read(search::missing)).await.unwrap();
    cheaply("a portion of the index", hub.write(|tx| search::catch_up(tx, 20))).await.unwrap();
    cheaply("a registration", hub.agents().register(Registration::mailbox(name("gemini")))).await.unwrap();
    cheaply("the directory", hub.directory()).await.unwrap();
    cheaply("a peer's first", hub.deliveries().first_unsent(agent_id("bob@research"))).await.unwrap();
}

/// The counters of a mailbox agree with its rows after every change.
#[tokio::test]
async fn counters_follow_every_change_of_state_and_name() {
    let test = TestHub::with(&["a", "b"]).await;
    let check = async |what: &str| {
        let counted: Vec<(String, i64, i64)> = {
            let db = test.sql();
            let mut rows = db
                .prepare("SELECT lower(agent), unseen, waiting FROM mailboxes WHERE waiting <> 0 OR unseen <> 0 ORDER BY 1")
                .unwrap();
            let rows = rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap();
            rows.map(Result::unwrap).collect()
        };
        let there: Vec<(String, i64, i64)> = {
            let db = test.sql();
            let mut rows = db
                .prepare(
                    "SELECT lower(agent), sum(state = 2), count(*) FROM deliveries WHERE state IN (2, 3) \
                     GROUP BY lower(agent) ORDER BY 1",
                )
                .unwrap();
            let rows = rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap();
            rows.map(Result::unwrap).collect()
        };
        assert_eq!(counted, there, "{what}");
        there.iter().map(|(_, _, waiting)| *waiting).sum::<i64>()
    };
    let mut ids = Vec::new();
    for number in 0..5 {
        ids.push(test.send("a", "b", &number.to_string()).await.id);
    }
    assert_eq!(check("queued").await, 0);
    test.deliver_all().await;
    assert_eq!(check("delivered").await, 5);
    let b = agent_id("b");
    test.hub.mailboxes().mark_seen(b.clone(), ids[..2].to_vec()).await.unwrap();
    check("seen").await;
    assert_eq!(test.hub.mailboxes().count(b.clone(), Part::Unseen, 100).await.unwrap(), 3);
    test.hub.mailboxes().acknowledge(b.clone(), ids[0], None).await.unwrap();
    test.hub.mailboxes().acknowledge(b.clone(), ids[4], None).await.unwrap();
    assert_eq!(check("acknowledged").await, 3);
    test.hub.agents().rename(name("b"), name("New")).await.unwrap();
    check("renamed").await;
    assert_eq!(test.hub.mailboxes().unread(agent_id("new"), 100).await.unwrap(), 3);
    test.hub.journal().prune(test.hub.now() + seconds(1)).await.unwrap();
    check("pruned").await;
    let soon_over =
        Draft { expires_at: Some(test.hub.now() + seconds(5)), ..test.draft("a", "New", "soon over") };
    test.hub.submit(soon_over).await.unwrap();
    test.deliver_all().await;
    assert_eq!(test.hub.mailboxes().unread(agent_id("New"), 100).await.unwrap(), 4);
    test.clock.advance(seconds(6));
    assert_eq!(
        test.hub.mailboxes().unread(agent_id("New"), 100).await.unwrap(),
        3,
        "hidden from the moment on"
    );
    assert_eq!(check("expired and not ended").await, 4);
    test.hub.deliveries().expire_due().await.unwrap();
    assert_eq!(check("ended").await, 3);
}
