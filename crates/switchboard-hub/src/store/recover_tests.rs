#![expect(clippy::disallowed_methods, reason = "the tests damage files as a failing disk would")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::FileExt;

use jiff::SignedDuration;
use switchboard_core::{DeliveryState, MessageId, TaskName};
use switchboard_sys::clock::Clock;
use tempfile::TempDir;

use super::*;
use crate::store::open::{has_expected_tables, sign};
use crate::test_hub::{TestHub, agent_id, bodies, config, draft, journal, name, open, seconds, with_timeout};
use crate::{Draft, Hub, Part};

/// A closed database with this many messages, some of them long, and the bodies by id.
async fn closed_with(count: usize) -> (TempDir, Clock, BTreeMap<MessageId, String>) {
    let hub = TestHub::with(&["a", "b", "c"]).await;
    hub.hub.agents().create_team(name("crew"), Some("The crew".into()), false).await.expect("made");
    hub.hub.agents().rename(name("c"), name("d")).await.expect("renamed");
    let mut bodies = BTreeMap::new();
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..count {
        let hub = hub.hub.clone();
        tasks.spawn(async move {
            let body = format!("message {n} {}", "x".repeat(n * 37 % 9000));
            let sent = hub.submit(draft(&hub, "a", "b", &body)).await.expect("accepted");
            (sent.id, body)
        });
    }
    while let Some(sent) = tasks.join_next().await {
        let (id, body) = sent.expect("sent");
        bodies.insert(id, body);
    }
    hub.hub.journal().search("message", None, 1).await.expect("indexed");
    let (folder, clock) = hub.close().await;
    assert!(!folder.path().join("hub.db-wal").exists(), "all is in one file");
    (folder, clock, bodies)
}

fn copy_of(folder: &Path) -> TempDir {
    let copy = tempfile::tempdir().expect("a folder");
    fs::copy(folder.join("hub.db"), copy.path().join("hub.db")).expect("copied");
    copy
}

/// Reads all readable messages, which must be as they were written.
async fn read_all(hub: &Hub, written: &BTreeMap<MessageId, String>) -> Result<BTreeSet<MessageId>, HubError> {
    let page = hub.journal().entries(0, 100_000).await?;
    let mut ids = BTreeSet::new();
    for stored in page.items {
        assert_eq!(Some(&stored.message.body), written.get(&stored.message.id), "a wrong body passed");
        assert!(ids.insert(stored.message.id), "a message appeared twice");
    }
    Ok(ids)
}

/// Opens until the damage is repaired: the first open records it, the next one checks closely.
async fn open_until_readable(
    folder: &Path,
    clock: &Clock,
    written: &BTreeMap<MessageId, String>,
) -> Result<(Hub, BTreeSet<MessageId>), HubError> {
    let mut last = None;
    for _ in 0..3 {
        let hub = with_timeout(Hub::open(config(folder, clock))).await?;
        let everything = async {
            let ids = read_all(&hub, written).await?;
            hub.journal().search("message", None, 10_000).await?;
            for id in ids.iter().take(20) {
                match hub.journal().receipt(*id).await {
                    Ok(_) | Err(HubError::DamagedMessage { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
            hub.directory().await?;
            hub.submit(draft(&hub, "a", "human", "after")).await?;
            Ok(ids)
        };
        match everything.await {
            Ok(ids) => return Ok((hub, ids)),
            Err(error) => last = Some(error),
        }
        hub.shut_down().await;
    }
    Err(last.expect("three failures"))
}

fn aside(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).expect("listed");
    let names = names.map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8"));
    names.filter(|name| [".damaged.", ".orphan.", ".schema"].iter().any(|mark| name.contains(mark))).collect()
}

#[tokio::test]
async fn garbage_database_is_moved_aside() {
    let folder = tempfile::tempdir().expect("a folder");
    let garbage: Vec<u8> = (0..20_000_u32).map(|n| n.to_le_bytes()[0] ^ 0x5a).collect();
    fs::write(folder.path().join("hub.db"), &garbage).expect("written");
    let clock = Clock::manual(crate::test_hub::noon());
    let hub = open(folder.path(), &clock).await;
    let kept = hub.database().moved_aside().expect("moved aside");
    assert_eq!(fs::read(kept).expect("read"), garbage, "not a byte is lost");
    assert!(hub.database().needs_rebuild().await.expect("read"));
    hub.submit(draft(&hub, "a", "human", "new")).await.expect("accepted");
    assert_eq!(bodies(&hub).await, ["new"]);
}

#[tokio::test]
async fn empty_database_is_new() {
    let (folder, clock, _) = closed_with(3).await;
    fs::write(folder.path().join("hub.db"), "").expect("emptied");
    let hub = open(folder.path(), &clock).await;
    assert_eq!(journal(&hub).await, []);
    assert!(hub.database().needs_rebuild().await.expect("read"));
}

#[tokio::test]
async fn orphaned_log_is_not_replayed() {
    let hub = TestHub::with(&["a", "b"]).await;
    hub.send("a", "b", "old").await;
    let kept = tempfile::tempdir().expect("a folder");
    fs::copy(hub.path().join("hub.db-wal"), kept.path().join("hub.db-wal")).expect("copied");
    let (folder, clock) = hub.close().await;
    fs::remove_file(folder.path().join("hub.db")).expect("removed");
    let log = fs::read(kept.path().join("hub.db-wal")).expect("read");
    assert!(log.len() > 1000);
    fs::write(folder.path().join("hub.db-wal"), &log).expect("put back");
    let hub = open(folder.path(), &clock).await;
    assert_eq!(journal(&hub).await, []);
    let [orphan] = &aside(folder.path())[..] else { panic!("{:?}", aside(folder.path())) };
    assert_eq!(fs::read(folder.path().join(orphan)).expect("read"), log);
    hub.submit(draft(&hub, "a", "human", "new")).await.expect("accepted");
    assert_eq!(bodies(&hub).await, ["new"]);
}

#[tokio::test]
async fn truncated_database_keeps_earlier_messages() {
    let (folder, clock, written) = closed_with(200).await;
    let whole = fs::read(folder.path().join("hub.db")).expect("read");
    for part in [1, 3, 5, 7] {
        let copy = copy_of(folder.path());
        let cut = whole.len() * part / 8;
        fs::write(copy.path().join("hub.db"), &whole[..cut]).expect("cut");
        let (hub, ids) = open_until_readable(copy.path(), &clock, &written).await.expect("opens");
        assert!(hub.database().moved_aside().is_some());
        // Pages are filled in the order of the messages, so a cut takes its share and little more.
        let least = written.len() * part / 8 * 2 / 3;
        assert!(ids.len() >= least, "{part}/8 of the file kept {} of {}", ids.len(), written.len());
        hub.shut_down().await;
    }
}

#[tokio::test]
async fn damaged_header_costs_no_message() {
    let (folder, clock, written) = closed_with(60).await;
    for (at, bytes) in [(0, &b"garbage garbage!"[..]), (16, &[0xff; 84]), (100, &[0xff; 8]), (0, &[0; 4096])]
    {
        let copy = copy_of(folder.path());
        let file = fs::File::options().write(true).open(copy.path().join("hub.db")).expect("opened");
        file.write_all_at(bytes, at).expect("damaged");
        let (hub, ids) = open_until_readable(copy.path(), &clock, &written).await.expect("opens");
        assert_eq!(ids.len(), written.len(), "at {at}");
        assert!(hub.database().moved_aside().is_some_and(|aside| aside.exists()));
        let directory = hub.directory().await.expect("read");
        assert_eq!(directory.agents().count(), 3);
        hub.shut_down().await;
    }
}

#[tokio::test]
async fn flipped_bit_costs_only_what_it_hit() {
    let (folder, clock, written) = closed_with(200).await;
    let size = fs::metadata(folder.path().join("hub.db")).expect("there").len();
    let mut random = fastrand::Rng::with_seed(20_260_301);
    for round in 0..40 {
        let copy = copy_of(folder.path());
        // Every other round hits the list of tables and the roots of all tables.
        let span = if round % 2 == 0 { size } else { 23 * 4096 };
        let at = random.u64(..span);
        let bit = 1_u8 << random.u8(..8);
        let file =
            fs::File::options().read(true).write(true).open(copy.path().join("hub.db")).expect("opened");
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).expect("read");
        file.write_all_at(&[byte[0] ^ bit], at).expect("flipped");
        drop(file);
        let what =
            format!("round {round}: bit {bit:#x} of byte {at} (page {}, {})", at / 4096 + 1, at % 4096);
        match open_until_readable(copy.path(), &clock, &written).await {
            Ok((hub, ids)) => {
                // A row on a page whose structure was hit may be lost too, a page at most.
                let lost = written.len() - ids.len();
                assert!(lost <= 10, "{what}: {lost} messages lost");
                hub.shut_down().await;
            }
            Err(HubError::NewerSchema { .. }) if (60..64).contains(&at) => {}
            Err(error) => panic!("{what}: {error:?}"),
        }
    }
}

#[tokio::test]
async fn flipped_bit_in_body_damages_one_message() {
    let (folder, clock, written) = closed_with(200).await;
    let path = folder.path().join("hub.db");
    let whole = fs::read(&path).expect("read");
    for wanted in ["message 7 ", "message 121 ", "message 199 "] {
        let copy = copy_of(folder.path());
        let file = fs::File::options().write(true).open(copy.path().join("hub.db")).expect("opened");
        // More than once if a page was split and still has what was moved from it.
        for (at, window) in whole.windows(wanted.len()).enumerate() {
            if window == wanted.as_bytes() {
                file.write_all_at(b"M", at as u64).expect("flipped");
            }
        }
        let hub = open(copy.path(), &clock).await;
        let health = hub.database().health().await.expect("looked");
        let (id, _) = written.iter().find(|(_, body)| body.starts_with(wanted)).expect("written");
        assert_eq!(health.damaged.iter().map(|row| row.id).collect::<Vec<_>>(), [Some(*id)]);
        let page = hub.journal().entries(0, 1000).await.expect("read");
        assert_eq!((page.items.len(), page.damaged), (199, 1));
        assert!(hub.database().moved_aside().is_none());
        hub.shut_down().await;
    }
}

#[tokio::test]
async fn damaged_pages_cost_only_their_messages() {
    let (folder, clock, written) = closed_with(200).await;
    let pages: Vec<usize> = {
        let db = Connection::open(folder.path().join("hub.db")).expect("opens");
        let table = "SELECT rootpage FROM sqlite_schema WHERE name = 'messages'";
        let root: usize = db.query_row(table, [], |row| row.get(0)).expect("found");
        // The children of the root of `messages`, read from the page itself: file format, section 1.6.
        let bytes = fs::read(folder.path().join("hub.db")).expect("read");
        let page = &bytes[(root - 1) * 4096..root * 4096];
        assert_eq!(page[0], 5, "an interior page of a table");
        let cells = usize::from(u16::from_be_bytes([page[3], page[4]]));
        (0..cells)
            .map(|n| {
                let at = usize::from(u16::from_be_bytes([page[12 + 2 * n], page[13 + 2 * n]]));
                u32::from_be_bytes([page[at], page[at + 1], page[at + 2], page[at + 3]]) as usize
            })
            .collect()
    };
    assert!(pages.len() > 8, "{pages:?}");
    let file = fs::File::options().write(true).open(folder.path().join("hub.db")).expect("opened");
    let hit = [pages[1], pages[pages.len() / 2], pages[pages.len() - 2]];
    for page in hit {
        file.write_all_at(&[0xff; 4096], ((page - 1) * 4096) as u64).expect("damaged");
    }
    let (hub, ids) = open_until_readable(folder.path(), &clock, &written).await.expect("opens");
    assert!(hub.database().moved_aside().is_some());
    let per_page = written.len() / pages.len() + 2;
    let lost = written.len() - ids.len();
    assert!(lost <= 3 * per_page, "{lost} lost of {}, {per_page} on a page", written.len());
}

#[tokio::test]
async fn numbers_and_native_ids_survive_recovery() {
    let hub = TestHub::with(&["a", "b"]).await;
    let mut sent = Vec::new();
    for n in 0..10 {
        let draft = hub.draft("a", "b", &n.to_string());
        sent.push((draft.clone(), hub.hub.submit(draft).await.expect("accepted")));
    }
    for (_, accepted) in &sent[..2] {
        hub.hub.mailboxes().acknowledge(agent_id("b"), accepted.id, None).await.expect("acknowledged");
    }
    hub.clock.advance(seconds(60));
    assert_eq!(hub.hub.journal().prune(hub.hub.now()).await.expect("pruned"), 2);
    // The last message is unreadable, one has lost its native id, and one its delivery.
    let sql = hub.sql();
    sql.execute("UPDATE messages SET digest = x'00' WHERE seq = ?1", [sent[9].1.seq]).expect("changed");
    sql.execute("DELETE FROM native_ids WHERE seq = ?1", [sent[5].1.seq]).expect("changed");
    sql.execute("DELETE FROM deliveries WHERE id / 65536 = ?1", [sent[6].1.seq]).expect("changed");
    drop(sql);
    let (folder, clock) = hub.close().await;
    mark_damaged(folder.path());

    let hub = open(folder.path(), &clock).await;
    assert!(hub.database().moved_aside().is_some());
    assert_eq!(bodies(&hub).await, ["2", "3", "4", "5", "6", "7", "8"]);
    let again = hub.submit(sent[5].0.clone()).await.expect("accepted");
    assert!(again.duplicate);
    let find_by_native = Draft { id: hub.next_id(), ..sent[5].0.clone() };
    assert!(hub.submit(find_by_native).await.expect("accepted").duplicate);
    let new = hub.submit(draft(&hub, "a", "b", "new")).await.expect("accepted");
    assert!(new.seq > sent[9].1.seq, "{} was given out before", new.seq);
    let expired = hub.journal().entries(sent[0].1.seq, 10).await;
    assert!(matches!(expired, Err(HubError::CursorExpired { .. })), "{expired:?}");
    let (_, receipt) = hub.journal().receipt(sent[6].1.id).await.expect("read").expect("there");
    assert_eq!(receipt.deliveries.len(), 1, "what nobody is known to have is delivered again");
    assert_eq!(receipt.deliveries[0].state, DeliveryState::Queued);
}

#[tokio::test]
async fn altered_table_list_costs_no_message() {
    let (folder, clock, written) = closed_with(20).await;
    let whole = fs::read(folder.path().join("hub.db")).expect("read");
    // Each is one flipped bit, and yields a list that SQLite accepts without complaint.
    for (word, flipped) in [
        ("seq         INTEGER PRIMARY", "seq         INTEGER PRILARY"),
        ("recipient   TEXT", "recipienu   TEXT"),
    ] {
        let copy = copy_of(folder.path());
        let file = fs::File::options().write(true).open(copy.path().join("hub.db")).expect("opened");
        // The page that held it first still has it, too.
        for (at, window) in whole.windows(word.len()).enumerate() {
            if window == word.as_bytes() {
                file.write_all_at(flipped.as_bytes(), at as u64).expect("flipped");
            }
        }
        let hub = open(copy.path(), &clock).await;
        assert!(hub.database().moved_aside().is_some(), "{flipped}");
        assert_eq!(read_all(&hub, &written).await.expect("read").len(), 20, "{flipped}");
        assert_eq!(hub.directory().await.expect("read").agents().count(), 3, "{flipped}");
        hub.shut_down().await;
    }
}

#[tokio::test]
async fn interrupted_recovery_is_finished_or_restarted() {
    let (folder, clock, written) = closed_with(20).await;
    let file = |folder: &TempDir, name: &str| folder.path().join(name);

    // While the new one was filled.
    let filling = copy_of(folder.path());
    mark_damaged(filling.path());
    fs::write(file(&filling, UNFINISHED), "half a database").expect("written");
    fs::write(file(&filling, GRAFTED), "half a copy").expect("written");
    // When it was complete and the damaged one still in place.
    let complete = copy_of(folder.path());
    mark_damaged(complete.path());
    fs::write(file(&complete, READY), "not looked at").expect("written");
    // After the damaged one was moved, with its log still there.
    let moved = copy_of(folder.path());
    fs::rename(file(&moved, "hub.db"), file(&moved, READY)).expect("moved");
    fs::write(file(&moved, "hub.db-wal"), "the log of another").expect("written");
    // When the new one had its final name and not yet lost the other.
    let linked = copy_of(folder.path());
    fs::hard_link(file(&linked, "hub.db"), file(&linked, READY)).expect("linked");

    for (what, folder) in [("filling", filling), ("complete", complete), ("moved", moved), ("linked", linked)]
    {
        let hub = open(folder.path(), &clock).await;
        assert_eq!(read_all(&hub, &written).await.expect("read").len(), 20, "{what}");
        hub.submit(draft(&hub, "a", "b", "after")).await.expect("accepted");
        hub.shut_down().await;
        for left in [UNFINISHED, GRAFTED, READY, SUSPECT] {
            assert!(!file(&folder, left).exists(), "{what}: {left}");
        }
        let again = open(folder.path(), &clock).await;
        assert_eq!(journal(&again).await.len(), 21, "{what}");
        again.shut_down().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_opens_of_new_folder_share_database() {
    for _ in 0..10 {
        let folder = tempfile::tempdir().expect("a folder");
        let clock = Clock::manual(crate::test_hub::noon());
        let mut tasks = tokio::task::JoinSet::new();
        for n in 0..8 {
            let (path, clock) = (folder.path().to_owned(), clock.clone());
            tasks.spawn(async move {
                let hub = open(&path, &clock).await;
                hub.submit(draft(&hub, "a", "human", &n.to_string())).await.expect("accepted");
                hub
            });
        }
        let hubs = with_timeout(tasks.join_all()).await;
        assert_eq!(journal(&hubs[0]).await.len(), 8);
        assert_eq!(aside(folder.path()), Vec::<String>::new());
        for hub in hubs {
            hub.shut_down().await;
        }
    }
}

/// Makes the next open treat the database as damaged, while all of it is still readable.
fn mark_damaged(folder: &Path) {
    let db = Connection::open(folder.join("hub.db")).expect("opens");
    // An index that does not agree with its table is what `integrity_check` looks for.
    db.execute_batch(
        "PRAGMA writable_schema = ON; \
         UPDATE sqlite_schema SET sql = replace(sql, 'in_reply_to IS NOT NULL', 'in_reply_to IS NULL') \
         WHERE name = 'messages_recent_replies'; PRAGMA writable_schema = RESET;",
    )
    .expect("changed");
    drop(db);
    fs::write(folder.join(SUSPECT), "").expect("noted");
}

#[tokio::test]
async fn recovery_copies_everything_readable() {
    let (folder, clock, written) = closed_with(50).await;
    let before = {
        let hub = open(folder.path(), &clock).await;
        hub.notes(switchboard_core::Door::Workspace)
            .put("cursor", "k".into(), Some("v".into()))
            .await
            .expect("noted");
        let before = (journal(&hub).await, hub.directory().await.expect("read"));
        hub.shut_down().await;
        before
    };
    mark_damaged(folder.path());
    let hub = open(folder.path(), &clock).await;
    assert!(hub.database().moved_aside().is_some());
    assert!(!folder.path().join(SUSPECT).exists());
    assert_eq!((journal(&hub).await, hub.directory().await.expect("read")), before);
    let notes = hub.notes(switchboard_core::Door::Workspace).all("cursor").await.expect("read");
    assert_eq!(notes, [("k".to_owned(), "v".to_owned())]);
    assert!(hub.database().needs_rebuild().await.expect("read"));
    let found = hub.journal().search("message", None, 1000).await.expect("searched");
    assert_eq!(found.items.len(), written.len());
    assert_eq!(hub.database().health().await.expect("looked").complaints, Vec::<String>::new());
    let query = crate::MailboxQuery { agent: agent_id("b"), after: 0, limit: 10, part: Part::Waiting };
    assert_eq!(hub.mailboxes().page(query).await.expect("read").items, [], "still queued, not delivered");
    hub.shut_down().await;
    let again = open(folder.path(), &clock).await;
    assert!(again.database().moved_aside().is_none(), "once is enough");
}

#[tokio::test]
async fn unfounded_suspicion_is_cleared() {
    let (folder, clock, written) = closed_with(5).await;
    fs::write(folder.path().join(SUSPECT), "").expect("noted");
    let hub = open(folder.path(), &clock).await;
    assert!(hub.database().moved_aside().is_none());
    assert!(!folder.path().join(SUSPECT).exists());
    assert_eq!(journal(&hub).await.len(), written.len());
    assert!(hub.database().needs_rebuild().await.expect("read"), "a log that was damaged is silently cut");
}

#[tokio::test]
async fn damaged_database_in_use_stays() {
    let (folder, clock, _) = closed_with(5).await;
    let busy = open(folder.path(), &clock).await;
    mark_damaged(folder.path());
    let refused = Hub::open(config(folder.path(), &clock)).await;
    let error = refused.err().expect("refused");
    assert!(matches!(error, HubError::DamagedInUse { .. }), "{error:?}");
    assert!(error.is_temporary());
    assert_eq!(aside(folder.path()), Vec::<String>::new());
    busy.shut_down().await;
    drop(busy);
    assert!(open(folder.path(), &clock).await.database().moved_aside().is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_opens_move_damaged_database_once() {
    let (folder, clock, written) = closed_with(30).await;
    mark_damaged(folder.path());
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..6 {
        let (path, clock) = (folder.path().to_owned(), clock.clone());
        tasks.spawn(async move {
            loop {
                match Hub::open(config(&path, &clock)).await {
                    Ok(hub) => return hub,
                    Err(error) => assert!(error.is_temporary(), "{error:?}"),
                }
            }
        });
    }
    let hubs = with_timeout(tasks.join_all()).await;
    assert_eq!(hubs.iter().filter(|hub| hub.database().moved_aside().is_some()).count(), 1);
    for hub in &hubs {
        assert_eq!(journal(hub).await.len(), written.len());
    }
    let sent = hubs[0].submit(draft(&hubs[0], "a", "b", "new")).await.expect("accepted");
    assert!(hubs[5].journal().message(sent.id).await.expect("read").is_some());
}

#[tokio::test]
async fn newer_schema_is_refused_unchanged() {
    let (folder, clock, _) = closed_with(3).await;
    let path = folder.path().join("hub.db");
    Connection::open(&path).expect("opens").pragma_update(None, "user_version", 7).expect("set");
    let before = fs::read(&path).expect("read");
    let error = Hub::open(config(folder.path(), &clock)).await.err().expect("refused");
    assert!(matches!(error, HubError::NewerSchema { found: 7, known: 4, .. }), "{error:?}");
    assert_eq!(fs::read(&path).expect("read"), before);
    assert_eq!(aside(folder.path()), Vec::<String>::new());
}

#[tokio::test]
async fn lost_schema_number_costs_no_message() {
    let (folder, clock, written) = closed_with(10).await;
    for number in [0, -5, 1 << 30] {
        let copy = copy_of(folder.path());
        let db = Connection::open(copy.path().join("hub.db")).expect("opens");
        db.pragma_update(None, "user_version", number).expect("set");
        drop(db);
        let hub = open(copy.path(), &clock).await;
        assert!(hub.database().moved_aside().is_some(), "{number}");
        assert_eq!(read_all(&hub, &written).await.expect("read").len(), 10, "{number}");
        hub.shut_down().await;
    }
}

/// Downgrades a closed hub's database to the schema from before the hash chain.
fn downgrade_schema(folder: &Path) {
    let (path, new) = (folder.join("hub.db"), folder.join("hub.db.new"));
    fs::rename(&path, &new).expect("moved");
    let db = Connection::open(&path).expect("opens");
    db.execute_batch(include_str!("schema_1.sql")).expect("made");
    db.execute("ATTACH ?1 AS new", [new.to_str().expect("text")]).expect("attached");
    for table in ["messages", "native_ids", "deliveries", "agents", "aliases", "teams", "notes"] {
        let mut columns = db.prepare("SELECT name FROM pragma_table_info(?1)").expect("prepared");
        let columns = columns.query_map([table], |row| row.get::<_, String>(0)).expect("read");
        let columns = columns.map(|name| name.expect("read")).collect::<Vec<_>>().join(", ");
        db.execute(&format!("INSERT INTO {table} ({columns}) SELECT {columns} FROM new.{table}"), [])
            .expect("copied");
    }
    db.execute_batch(
        "INSERT INTO meta SELECT * FROM new.meta; INSERT OR REPLACE INTO meta VALUES ('rebuilt', '1'); \
         INSERT OR REPLACE INTO meta VALUES ('pruned', '2')",
    )
    .expect("copied");
    db.execute("DETACH new", []).expect("detached");
    db.pragma_update(None, "user_version", 1).expect("set");
    sign(&db).expect("signed");
    drop(db);
    fs::remove_file(new).expect("removed");
}

#[tokio::test]
async fn older_schema_is_upgraded_completely() {
    let (folder, clock, written) = closed_with(10).await;
    downgrade_schema(folder.path());
    let looked =
        check(&Dir::open_root(folder.path()).expect("opens"), None, Extent::Everything).expect("looked");
    assert_eq!((looked, aside(folder.path()).len()), (DatabaseState::Older { schema: 1 }, 0));
    let hub = open(folder.path(), &clock).await;
    assert_eq!(hub.database().moved_aside(), None);
    assert_eq!(read_all(&hub, &written).await.expect("read").len(), 10);
    assert!(!hub.database().needs_rebuild().await.expect("read"));
    assert!(matches!(hub.journal().entries(1, 5).await, Err(HubError::CursorExpired { oldest: 3, .. })));
    let found = hub.journal().search("message", None, 100).await.expect("searched");
    assert_eq!(found.items.len(), 10);
    let kept = aside(folder.path());
    assert!(!kept.is_empty() && kept.iter().all(|name| name.starts_with("hub.db.schema1.")), "{kept:?}");
    let audit = hub.journal().audit(None).await.expect("read");
    assert_eq!((audit.entries, audit.bad), (10, 0));
    let breaks: Vec<_> = audit.breaks.iter().map(|noted| noted.reason).collect();
    assert_eq!(breaks, [crate::BreakReason::Upgraded]);
    hub.submit(draft(&hub, "a", "b", "goes on")).await.expect("accepted");
    assert_eq!(hub.journal().audit(audit.head).await.expect("read").bad, 0);
    hub.shut_down().await;
    let again = open(folder.path(), &clock).await;
    assert_eq!((journal(&again).await.len(), aside(folder.path()).len()), (11, kept.len()));
}

/// Downgrades a closed hub's database to schema 2, whose indexes select pending deliveries differently.
fn downgrade_to_schema_2(folder: &Path) {
    let db = Connection::open(folder.join("hub.db")).expect("opens");
    db.execute_batch(
        "DROP INDEX deliveries_due; DROP INDEX deliveries_expiring; DROP INDEX deliveries_to_peers; \
         CREATE INDEX deliveries_due ON deliveries (door, due_at) WHERE state IN (0, 1, 6); \
         CREATE INDEX deliveries_expiring ON deliveries (expires_at) \
           WHERE expires_at IS NOT NULL AND state IN (0, 1, 2, 3, 6); \
         CREATE INDEX deliveries_to_peers ON deliveries (agent, id) WHERE door = 'swarm' AND state IN (0, 1, 6)",
    )
    .expect("made");
    db.pragma_update(None, "user_version", 2).expect("set");
    sign(&db).expect("signed");
}

#[tokio::test]
async fn previous_schema_keeps_chain_and_claims() {
    let (folder, clock, written) = closed_with(10).await;
    let hub = open(folder.path(), &clock).await;
    let task = TaskName::parse("build").expect("a task");
    let claim =
        hub.claims().claim(task, agent_id("a"), SignedDuration::from_hours(1), None).await.expect("claimed");
    hub.shut_down().await;
    drop(hub);
    downgrade_to_schema_2(folder.path());
    let hub = open(folder.path(), &clock).await;
    assert_eq!(hub.database().moved_aside(), None);
    assert_eq!(read_all(&hub, &written).await.expect("read").len(), 10);
    let kept = aside(folder.path());
    assert!(!kept.is_empty() && kept.iter().all(|name| name.starts_with("hub.db.schema2.")), "{kept:?}");
    let audit = hub.journal().audit(None).await.expect("read");
    assert_eq!((audit.entries, audit.bad, audit.breaks.len()), (10, 0, 0));
    assert_eq!(hub.claims().list().await.expect("read"), [claim]);
    hub.shut_down().await;
    let db = Connection::open(folder.path().join("hub.db")).expect("opens");
    assert!(has_expected_tables(&db).expect("read"));
}

#[tokio::test]
async fn damaged_older_schema_is_salvaged() {
    let (folder, clock, written) = closed_with(10).await;
    downgrade_schema(folder.path());
    let db = Connection::open(folder.path().join("hub.db")).expect("opens");
    db.execute("UPDATE messages SET body = 'flipped' WHERE seq = 4", []).expect("damaged");
    drop(db);
    let hub = open(folder.path(), &clock).await;
    assert!(hub.database().moved_aside().is_some());
    assert!(hub.database().needs_rebuild().await.expect("read"));
    assert_eq!(read_all(&hub, &written).await.expect("read").len(), 9);
    assert_eq!(hub.journal().audit(None).await.expect("read").bad, 0);
}

/// A process of an older version continues with its database, and a newer one does not upgrade it underneath.
#[tokio::test]
async fn older_database_in_use_is_left_unchanged() {
    let (folder, clock, _) = closed_with(3).await;
    downgrade_schema(folder.path());
    let lock = fs::File::open(folder.path().join("hub.lock")).expect("opens");
    lock.lock_shared().expect("locked");
    let error = Hub::open(config(folder.path(), &clock)).await.err().expect("refused");
    assert!(matches!(error, HubError::OlderSchema { found: 1, .. }), "{error:?}");
    assert!(error.is_temporary());
    lock.unlock().expect("unlocked");
    assert_eq!(journal(&open(folder.path(), &clock).await).await.len(), 3);
}
