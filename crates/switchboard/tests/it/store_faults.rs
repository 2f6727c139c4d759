//! Other programs change the store while it is in use: delete, truncate, copy it.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use switchboard_hub::HubError;
use test_support::mcp::Client;
use test_support::process::{self, command};
use test_support::{Running, Sandbox, files, message_file, poll, tools};

use crate::BINARY;
use crate::child::{Library, message_to_codex};

/// As `.backup` of the program `sqlite3` does, which docs/workspace.md recommends.
const BACKUP: &str = "import sqlite3, sys\nsqlite3.connect(sys.argv[1]).backup(sqlite3.connect(sys.argv[2]))";

fn workspace() -> Sandbox {
    Sandbox::with_agents(BINARY, &["codex", "claude"])
}

/// A message accepted after the store was deleted would be lost with the last process that has it open.
#[tokio::test]
async fn deleted_store_accepts_nothing_and_ends_serve() {
    // All of it, and what `git clean -xfd` removes where the folder itself is tracked.
    for is_all in [true, false] {
        let sandbox = workspace();
        let mut serve = sandbox.serve();
        let mut alone = sandbox.session(["mcp", "--alone", "--from", "claude"]);
        let mut alone = Client::stdio(Running::start_with_stdin(&mut alone));
        alone.ok(
            "send_message",
            json!({ "action": "delegate_task", "recipient": "codex", "payload": "before" }),
        );
        let library = Library::open(sandbox.path()).await;
        library.workspace.send(message_to_codex("claude", "before".into())).await.unwrap();
        if is_all {
            // A process may create a file between the listing of the folder and its removal.
            poll::until("the folder to be removed", || std::fs::remove_dir_all(sandbox.file("")).ok());
        } else {
            for name in ["hub.db", "hub.db-wal", "hub.db-shm"] {
                std::fs::remove_file(sandbox.file(name)).unwrap();
            }
        }
        let refused = library.workspace.send(message_to_codex("claude", "after".into())).await;
        let is_deleted =
            matches!(&refused, Err(door_workspace::WorkspaceError::Hub(HubError::StoreDeleted { .. })));
        assert!(is_deleted, "{refused:?}");
        let refusal = alone.refused(
            "send_message",
            json!({ "action": "delegate_task", "recipient": "codex", "payload": "after" }),
        );
        assert!(refusal.contains("the store was deleted"), "{refusal}");
        assert_ne!(serve.wait().code(), Some(0), "{}", serve.errors());
        library.close().await;
    }
}

#[test]
fn cut_log_is_recovered_while_serve_runs() {
    let sandbox = workspace();
    let mut serve = sandbox.serve();
    sandbox.deliver_two_files();
    let sent = sandbox.send("claude", "codex", "before");
    let file = sandbox.file(&format!("inbox/codex/{sent}.json"));
    poll::until("the message to be in its mailbox", || file.exists().then_some(()));
    OpenOptions::new().write(true).open(sandbox.file("hub.db-wal")).unwrap().set_len(0).unwrap();
    poll::until("serve to notice", || serve.errors().contains("log was truncated").then_some(()));
    poll::until("the messages to be read back", || {
        let tail = sandbox.run(["tail", "--json"]);
        (tail.code == Some(0) && tail.stdout.contains(&sent) && tail.stdout.lines().count() == 3)
            .then_some(())
    });
    let after = sandbox.send("claude", "codex", "after");
    assert!(sandbox.ok(["tail"]).contains(&after));
    assert!(serve.is_running());
    assert_eq!(serve.terminate().code(), Some(0), "{}", serve.errors());
    assert_eq!(sandbox.run(["doctor", "--full"]).code, Some(0), "{:?}", sandbox.run(["doctor", "--full"]));
}

/// Overwrites a part of the log with garbage without changing its length.
fn overwrite_log(sandbox: &Sandbox, share: impl Fn(u64) -> std::ops::Range<u64>) {
    let log = OpenOptions::new().write(true).open(sandbox.file("hub.db-wal")).unwrap();
    let range = share(log.metadata().unwrap().len());
    let garbage: Vec<u8> = range.clone().map(|_| fastrand::u8(..)).collect();
    log.write_all_at(&garbage, range.start).unwrap();
}

/// Sends a message and waits for its delivery.
fn delivered(sandbox: &Sandbox, text: &str) -> String {
    let sent = sandbox.send("claude", "codex", text);
    let file = sandbox.file(&format!("inbox/codex/{sent}.json"));
    poll::until("the message to be in its mailbox", || file.exists().then_some(()));
    sent
}

/// Retries a send until it is accepted: a command that has the store open prevents `serve` from recovering it. Each
/// refusal is temporary and contains none of these texts.
fn send_in_the_end(sandbox: &Sandbox, text: &str, not_said: &str) -> String {
    poll::until("a message to be accepted", || {
        let ran = sandbox.run_as("claude", ["send", "codex", text]);
        assert!(matches!(ran.code, Some(0 | 3)) && !ran.stderr.contains(not_said), "{ran:?}");
        (ran.code == Some(0)).then(|| ran.stdout.trim().to_owned())
    })
}

#[test]
fn overwritten_log_is_recovered_while_serve_runs() {
    let shares: [fn(u64) -> std::ops::Range<u64>; 3] = [|len| 0..len, |len| len / 2..len, |_| 0..32];
    for share in shares {
        let sandbox = workspace();
        let mut serve = sandbox.serve();
        sandbox.deliver_two_files();
        let before = delivered(&sandbox, "before");
        overwrite_log(&sandbox, share);
        let after = send_in_the_end(&sandbox, "after", "no agent is named");
        poll::until("serve to notice", || serve.errors().contains("truncated or overwritten").then_some(()));
        poll::until("the messages to be read back", || {
            let tail = sandbox.run(["tail", "--json"]);
            [&before, &after].iter().all(|id| tail.stdout.contains(*id)).then_some(())
        });
        assert_eq!(serve.terminate().code(), Some(0), "{}", serve.errors());
        let tail = sandbox.ok(["tail"]);
        assert!(tail.contains(&before) && tail.contains(&after), "{tail}");
        assert_eq!(
            sandbox.run(["doctor", "--full"]).code,
            Some(0),
            "{:?}",
            sandbox.run(["doctor", "--full"])
        );
    }
}

/// Two processes prevent each other from recovering the log. The next process recovers it and reports that.
#[test]
fn overwritten_log_is_recovered_after_its_users() {
    let sandbox = workspace();
    let mut serve = sandbox.serve();
    let mut alone = Running::start_with_stdin(&mut sandbox.session(["mcp", "--alone", "--from", "claude"]));
    let before = delivered(&sandbox, "before");
    overwrite_log(&sandbox, |len| len / 2..len);
    poll::until("serve to notice", || serve.errors().contains("truncated or overwritten").then_some(()));
    for process in [&mut serve, &mut alone] {
        process.kill();
        process.wait();
    }
    let agents = sandbox.run(["agents"]);
    assert!(agents.code == Some(0) && agents.stderr.contains("were rebuilt from files"), "{agents:?}");
    assert!(sandbox.ok(["tail"]).contains(&before));
}

/// Mailboxes are scanned too seldom to wait for a scan.
#[test]
fn session_knows_agents_after_cut_log() {
    let sandbox = workspace();
    files::put(sandbox.path().join("switchboard.config.json"), r#"{"workspace": {"rescanMs": 3600000}}"#);
    let mut serve = sandbox.serve();
    let mut session = sandbox.session(["mcp", "--from", "claude"]);
    let mut session = Client::stdio(Running::start_with_stdin(&mut session));
    let task = json!({ "action": "delegate_task", "recipient": "codex", "payload": "hello" });
    session.ok("send_message", task.clone());
    OpenOptions::new().write(true).open(sandbox.file("hub.db-wal")).unwrap().set_len(0).unwrap();
    poll::until("a message to be accepted", || {
        let answer = session.call("send_message", task.clone());
        assert!(!answer.failed || !answer.text.contains("no agent is named"), "{}", answer.text);
        (!answer.failed).then_some(())
    });
    drop(session);
    assert_eq!(serve.terminate().code(), Some(0), "{}", serve.errors());
}

#[test]
fn removed_log_index_is_rebuilt() {
    let sandbox = workspace();
    let mut serve = sandbox.serve();
    let before = delivered(&sandbox, "before");
    std::fs::remove_file(sandbox.file("hub.db-shm")).unwrap();
    let after = send_in_the_end(&sandbox, "after", "hub.db-wal");
    let tail = sandbox.ok(["tail"]);
    assert!(tail.contains(&before) && tail.contains(&after), "{tail}");
    assert_eq!(serve.terminate().code(), Some(0), "{}", serve.errors());
    assert_eq!(sandbox.run(["doctor", "--full"]).code, Some(0), "{:?}", sandbox.run(["doctor", "--full"]));
}

#[test]
fn doctor_repairs_damaged_digest_and_native_id() {
    for damage in ["digest = zeroblob(32)", "native_id = 'elsewhere'"] {
        let sandbox = workspace();
        let id = sandbox.send("claude", "codex", "hello");
        let database = rusqlite::Connection::open(sandbox.file("hub.db")).unwrap();
        database.execute(&format!("UPDATE messages SET {damage}"), []).unwrap();
        drop(database);
        let found = sandbox.run(["doctor"]);
        assert!(found.code == Some(1) && found.stdout.contains("is damaged in the journal"), "{found:?}");
        let fixed = sandbox.run(["doctor", "--fix"]);
        assert!(fixed.code == Some(0) && fixed.stdout.contains("has been restored"), "{damage}: {fixed:?}");
        assert_eq!(sandbox.json(["inbox", "codex"])[0]["native_id"], json!(id), "{damage}");
        assert_eq!(sandbox.run(["doctor", "--full"]).code, Some(0), "{damage}");
    }
}

/// `doctor` does not report unexamined messages as intact.
#[tokio::test]
async fn doctor_examines_newest_and_full_examines_all() {
    let sandbox = workspace();
    let library = Library::open(sandbox.path()).await;
    let sent =
        (0..1_010).map(|number| library.workspace.send(message_to_codex("claude", format!("{number}"))));
    for accepted in futures_util::future::join_all(sent).await {
        let id = accepted.unwrap().id;
        library.workspace.hub().deliveries().wait_until_settled(id).await.unwrap();
    }
    library.close().await;
    let quick = sandbox.run(["doctor"]);
    assert_eq!(quick.code, Some(0), "{quick:?}");
    assert!(quick.stdout.contains("the newest 1000 messages were checked and are intact"), "{quick:?}");
    let database = rusqlite::Connection::open(sandbox.file("hub.db")).unwrap();
    database
        .execute("UPDATE messages SET body = 'other' WHERE seq = (SELECT min(seq) FROM messages)", [])
        .unwrap();
    drop(database);
    assert_eq!(sandbox.run(["doctor"]).code, Some(0), "an old row is none of the newest");
    let full = sandbox.run(["doctor", "--full"]);
    assert!(full.code == Some(1) && full.stdout.contains("is damaged in the journal"), "{full:?}");
    let database = rusqlite::Connection::open(sandbox.file("hub.db")).unwrap();
    database
        .execute("UPDATE messages SET body = 'other' WHERE seq = (SELECT max(seq) FROM messages)", [])
        .unwrap();
    drop(database);
    assert_eq!(sandbox.run(["doctor"]).code, Some(1), "a new one is");
}

/// The copy is a consistent snapshot of a running workspace, with the same ids and read states elsewhere.
#[test]
fn running_workspace_backup_is_adopted_elsewhere() {
    let sandbox = workspace();
    let mut serve = sandbox.serve();
    let first = sandbox.send("claude", "codex", "done with");
    sandbox.send("claude", "codex", "read");
    sandbox.ok(["inbox", "codex", "--from", "codex"]);
    sandbox.ok(["ack", &first, "--from", "codex"]);
    let all = |sandbox: &Sandbox| sandbox.json(["tail", "-n", "10000"]);
    let states = |journal: &[Value]| -> Vec<Value> {
        let states = journal[..2].iter().map(|line| json!([line["native_id"], line["state"]]));
        states.collect()
    };
    let expected = states(&all(&sandbox));
    let copy = sandbox.path().join("copy.db");
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0.. {
                sandbox.send("codex", "claude", &format!("number {number}"));
                if is_done.load(Ordering::Acquire) {
                    break;
                }
            }
        });
        poll::until("messages that are sent meanwhile", || (all(&sandbox).len() > 5).then_some(()));
        let mut backup = command("python3");
        tools::run(backup.args(["-c", BACKUP]).arg(sandbox.file("hub.db")).arg(&copy)).unwrap();
        is_done.store(true, Ordering::Release);
    });
    assert_eq!(serve.terminate().code(), Some(0));
    let elsewhere = Sandbox::bare(BINARY);
    std::fs::create_dir(elsewhere.file("")).unwrap();
    files::put(elsewhere.file("hub.db"), std::fs::read(copy).unwrap());
    elsewhere.ok(["adopt", "--yes"]);
    let (journal, kept) = (all(&sandbox), all(&elsewhere));
    assert!((5..journal.len()).contains(&kept.len()), "{} of {}", kept.len(), journal.len());
    let content = |journal: &[Value]| -> Vec<Value> {
        journal
            .iter()
            .map(|line| json!([line["native_id"], line["from"], line["to"], line["body"]]))
            .collect()
    };
    assert_eq!(content(&kept), content(&journal[..kept.len()]));
    assert_eq!(states(&kept), expected);
    elsewhere.ok(["audit", "verify"]);
}

/// The size is checked before a file is read; depth and repeated keys are checked during the read.
#[test]
fn hostile_files_stay_unmoved() {
    let sandbox = workspace();
    let huge = sandbox.file("inbox/codex/msg_1763000000001_huge.json");
    std::fs::File::create_new(&huge).unwrap().set_len(2 << 30).unwrap();
    let deep = format!("{}{}", "[".repeat(1_000_000), "]".repeat(1_000_000));
    files::put_by_rename(sandbox.file("inbox/codex/msg_1763000000002_deep.json"), deep);
    let keys = |count| (0..count).map(|key| format!("\"k{key}\":0,")).collect::<Vec<_>>().concat();
    files::put_by_rename(
        sandbox.file("inbox/codex/msg_1763000000003_number.json"),
        format!("{{{}\"n\": 1e999}}", keys(100_000)),
    );
    files::put_by_rename(
        sandbox.file("inbox/codex/msg_1763000000004_keys.json"),
        format!("{{{}\"n\": 0}}", keys(10_000_000)),
    );
    files::put_by_rename(
        sandbox.file("inbox/codex/msg_1763000000005_twice.json"),
        message_file("msg_1763000000005_twice", "claude", "codex", "twice", None).replacen(
            '{',
            "{\"payload\": \"first\",",
            1,
        ),
    );
    sandbox.drop_file("msg_1763000000006_fine", "claude", "codex", "fine");
    let mut serve = sandbox.serve();
    poll::until("the valid file to be ingested", || {
        sandbox.file("outbox/claude/msg_1763000000006_fine.receipt.json").exists().then_some(())
    });
    let inbox = sandbox.json(["inbox", "codex"]);
    assert_eq!(inbox.iter().map(|line| line["body"].as_str().unwrap()).collect::<Vec<_>>(), ["fine"]);
    assert!(huge.exists());
    if let Some(most) = process::peak_memory(serve.id()) {
        assert!(most < 256 << 20, "{} MiB", most >> 20);
    }
    assert_eq!(serve.terminate().code(), Some(0), "{}", serve.errors());
}

/// `server_info.json` of a dead server has a process id and a port that another program has now. No command and no
/// session connects to it, so the token is not disclosed.
#[test]
fn stale_server_info_is_not_followed() {
    let sandbox = workspace();
    let mut serve = sandbox.serve();
    serve.kill();
    serve.wait();
    assert!(sandbox.file("server_info.json").exists());
    let doctor = sandbox.run(["doctor"]);
    assert!(doctor.stdout.contains("which has ended"), "{doctor:?}");
    // Clients find `serve` by a socket in the private folder and by its lock; the process id of the file may have been
    // reused.
    let info = files::read_json_object(&sandbox.file("server_info.json")).unwrap();
    let stranger = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    stranger.set_nonblocking(true).unwrap();
    let old = info["port"].to_string();
    let port = stranger.local_addr().unwrap().port().to_string();
    let mut reused: Value = serde_json::from_str(&info.to_string().replace(&old, &port)).unwrap();
    reused["pid"] = json!(std::process::id());
    files::put(sandbox.file("server_info.json"), reused.to_string());
    assert!(sandbox.file("auth_token").exists());
    assert!(sandbox.run(["doctor"]).stdout.contains("which has ended"));
    sandbox.send("claude", "codex", "delivered by the command itself");
    assert_eq!(sandbox.json(["inbox", "codex"]).len(), 1);
    for verb in [&["who"][..], &["worker", "list"], &["suite", "list"], &["hook", "claude", "session-start"]]
    {
        sandbox.run_as("claude", verb);
    }
    let mut session =
        Client::stdio(Running::start_with_stdin(&mut sandbox.session(["mcp", "--from", "codex"])));
    assert_eq!(session.ok("check_inbox", json!({}))["messages"].as_array().map(Vec::len), Some(1));
    let connected = stranger.accept().map_err(|error| error.kind());
    assert!(matches!(connected, Err(std::io::ErrorKind::WouldBlock)), "{connected:?}");
}
