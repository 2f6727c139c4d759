use rusqlite::params;

use crate::store::rows::SPREAD;
use crate::test_hub::{TestHub, agent_id};
use crate::{Hub, MailboxQuery, Part};

/// So many messages wait in one mailbox: enough that a pass over any table or index reads megabytes.
const MANY: i64 = 200_000;

/// What an action may read.
const PAGE: u64 = 256 << 10;

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

/// How much this process has read so far; nothing where the system does not count it.
fn read_so_far() -> Option<u64> {
    let counts = std::fs::read_to_string("/proc/self/io").ok()?;
    counts.lines().find_map(|line| line.strip_prefix("rchar: ")?.parse().ok())
}

/// Does something, and says how much was read for it.
async fn measured<T>(action: impl Future<Output = T>) -> (T, Option<u64>) {
    let before = read_so_far();
    let result = action.await;
    (result, read_so_far().zip(before).map(|(after, before)| after - before))
}

/// Does something that has to read no more than a page's worth.
async fn cheaply<T>(what: &str, action: impl Future<Output = T>) -> T {
    let (result, read) = measured(action).await;
    assert!(read.is_none_or(|read| read < PAGE), "{what} has read {read:?} bytes");
    result
}

async fn page(hub: &Hub, after: i64) -> Vec<String> {
    let query = MailboxQuery { agent: agent_id("codex"), after, limit: 20, part: Part::Waiting };
    let page = hub.mailbox(query).await.unwrap();
    page.items.into_iter().map(|mail| mail.stored.message.body).collect()
}

#[tokio::test]
async fn f22_however_many_messages_wait_they_cost_neither_senders_nor_readers() {
    let test = TestHub::with(&["claude", "codex"]).await;
    for number in 0..20 {
        test.send("claude", "codex", &number.to_string()).await;
    }
    test.deliver_all().await;
    let last = test.send("claude", "codex", "template").await.seq;
    test.deliver_all().await;
    fill(&test, last);
    // What has looked at nothing yet has nothing in memory either.
    let hub = test.another().await;
    let draft = test.draft("claude", "codex", "newest");
    let sent = cheaply("a send", hub.submit(draft)).await.unwrap();
    test.deliver_all().await;
    assert_eq!(cheaply("the first page", page(&hub, 0)).await.len(), 20);
    assert_eq!(cheaply("the newest page", page(&hub, sent.seq - 1)).await, ["newest"]);
    let newest = cheaply("the newest", hub.newest_waiting(agent_id("codex"))).await.unwrap();
    assert_eq!(newest, Some(sent.seq));
    assert_eq!(cheaply("a count", hub.unread(agent_id("codex"), 1000)).await.unwrap(), 1000);
    let receipt = cheaply("a receipt", hub.receipt(sent.id)).await.unwrap();
    assert!(receipt.is_some());
    // Whoever asks for everything pays for it, which shows that the meter works.
    let (all, read) = measured(hub.unread(agent_id("codex"), usize::MAX)).await;
    assert_eq!(all.unwrap(), usize::try_from(MANY).unwrap() + 22);
    assert!(read.is_none_or(|read| read > PAGE), "{read:?} bytes read");
}
