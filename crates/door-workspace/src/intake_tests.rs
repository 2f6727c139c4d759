use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;

use jiff::SignedDuration;
use rustix::fs::{CWD, FileType, Mode};
use serde_json::{Value, json};
use switchboard_core::{DeliveryState, Kind};
use switchboard_hub::{Part, Registration};

use switchboard_sys::files::FileError;

use super::*;
use crate::config::Config;
use crate::test_workspace::{
    TestWorkspace, agent, archive_file, damage_database, inbox_file, message, move_carelessly, name,
    names_in, outgoing, with, write_carelessly,
};
use crate::workspace::OutgoingMessage;

const MINUTE: SignedDuration = SignedDuration::from_mins(1);

fn scanned(ingested: usize, restored: usize, settling: usize) -> ScanSummary {
    ScanSummary { ingested, restored, settling }
}

#[tokio::test]
async fn dropped_file_is_ingested_and_stays() {
    let t = TestWorkspace::new(&["codex"]).await;
    let file =
        with(message("msg_1_a", "claude", "codex", "hello"), json!({ "x": 1, "metadata": { "k": [true] } }));
    t.put("codex", &file);
    assert_eq!(t.workspace.scan().await.unwrap(), scanned(1, 0, 0));
    assert_eq!(t.waiting("codex").await, ["hello"]);
    assert_eq!(t.json("inbox/codex/msg_1_a.json"), file);
    assert_eq!(t.workspace.scan().await.unwrap(), scanned(0, 0, 0), "once is enough");
    assert_eq!(t.journal().await, ["hello"]);
    assert_eq!(t.names("inbox/codex"), ["msg_1_a.json"]);
}

#[tokio::test]
async fn dropped_file_is_unverified_with_receipt() {
    let t = TestWorkspace::new(&["codex"]).await;
    t.put("codex", &message("msg_1_a", "human", "codex", "obey"));
    t.workspace.scan().await.unwrap();
    let id = t.id_of("msg_1_a").await;
    let stored = t.workspace.hub().journal().message(id).await.unwrap().unwrap();
    assert!(!stored.message.origin.verified);
    assert_eq!(t.states(id).await, ["delivered"]);
    assert_eq!(t.names("outbox/human"), ["msg_1_a.receipt.json"]);
}

#[tokio::test]
async fn file_of_another_user_gets_no_receipt() {
    let t = TestWorkspace::new(&["codex"]).await;
    t.put("codex", &message("msg_1_a", "claude", "codex", "hello"));
    if let Err(error) = std::os::unix::fs::chown(t.path("inbox/codex/msg_1_a.json"), Some(65534), None) {
        println!("skipped: giving a file to another user needs root ({error})");
        return;
    }
    assert_eq!(t.workspace.scan().await.unwrap(), scanned(1, 0, 0));
    assert_eq!(t.waiting("codex").await, ["hello"]);
    assert_eq!(t.names("outbox"), [""; 0]);
    assert_eq!(t.workspace.verify_mailboxes().await.unwrap(), scanned(0, 0, 0));
    // The same after the database was lost.
    let t = t.lose_database().await;
    let id = t.id_of("msg_1_a").await;
    t.workspace.acknowledge(&agent("codex"), id, None).await.unwrap();
    assert_eq!(t.names("outbox"), [""; 0]);
}

#[tokio::test]
async fn malformed_files_are_reported_once_and_stay() {
    let good = message("msg_9_good", "claude", "codex", "good").to_string();
    let least = r#"{"id":"msg_1_a","action":"x","sender":"a","recipient":"codex","payload":"p""#;
    let utf16: Vec<u8> = good.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("empty", vec![]),
        ("one byte", b"{".to_vec()),
        ("zeros", vec![0; 512]),
        ("byte order mark", format!("\u{feff}{least}}}").into()),
        ("utf-16", utf16),
        ("lone surrogate", format!(r#"{least},"x":"\udc00"}}"#).into()),
        ("truncated", good.as_bytes()[..good.len() / 2].to_vec()),
        ("twice", format!(r#"{least},"payload":"q"}}"#).into()),
        ("twice within", format!(r#"{least},"metadata":{{"a":{{"b":1,"b":2}}}}}}"#).into()),
        ("1e999", format!(r#"{least},"x":1e999}}"#).into()),
        ("deep", format!(r#"{least},"x":{}{}}}"#, "[".repeat(100_000), "]".repeat(100_000)).into()),
        ("array", b"[1]".to_vec()),
        ("bad sender", message("msg_1_a", "../x", "codex", "p").to_string().into()),
        (
            "bad action",
            with(message("msg_1_a", "a", "codex", "p"), json!({ "action": "a b" })).to_string().into(),
        ),
        (
            "bad time",
            with(message("msg_1_a", "a", "codex", "p"), json!({ "createdAt": "now" })).to_string().into(),
        ),
        ("other id", message("msg_1_b", "a", "codex", "p").to_string().into()),
        ("other recipient", message("msg_1_a", "a", "claude", "p").to_string().into()),
        ("no name", message("msg_1_a", "a", "../codex", "p").to_string().into()),
    ];
    for (case, bytes) in cases {
        let t = TestWorkspace::new(&["codex", "claude"]).await;
        t.write("inbox/codex/msg_1_a.json", &bytes);
        t.set_age("inbox/codex/msg_1_a.json", MINUTE);
        t.write("inbox/codex/msg_9_good.json", &good);
        assert_eq!(t.workspace.scan().await.unwrap(), scanned(1, 0, 0), "{case}");
        let problems = t.rejected_files().await;
        assert_eq!(problems.len(), 1, "{case}: {problems:?}");
        assert_eq!(problems[0].0, "inbox/codex/msg_1_a.json", "{case}");
        assert_eq!(t.workspace.scan().await.unwrap(), scanned(0, 0, 0), "{case}");
        assert_eq!(t.rejected_files().await, problems, "{case}: reported once");
        assert_eq!(t.bytes("inbox/codex/msg_1_a.json"), bytes, "{case}: left as it was");
        assert_eq!(t.waiting("codex").await, ["good"], "{case}");
        assert_eq!(t.names("inbox/codex").len(), 2, "{case}");
    }
}

#[tokio::test]
async fn rejection_lasts_until_file_is_removed() {
    let t = TestWorkspace::new(&["codex", "codex-2"]).await;
    for folder in ["codex", "codex-2"] {
        t.write(&format!("inbox/{folder}/msg_1_a.json"), "");
        t.set_age(&format!("inbox/{folder}/msg_1_a.json"), MINUTE);
    }
    t.workspace.scan().await.unwrap();
    let rejected = |folder: &str| (format!("inbox/{folder}/msg_1_a.json"), "the file is empty".to_owned());
    assert_eq!(t.rejected_files().await, [rejected("codex-2"), rejected("codex")]);
    std::fs::remove_file(t.path("inbox/codex/msg_1_a.json")).unwrap();
    t.workspace.scan().await.unwrap();
    assert_eq!(
        t.rejected_files().await,
        [rejected("codex-2")],
        "a neighbour with a similar name keeps its own"
    );
    std::fs::remove_dir_all(t.path("inbox/codex-2")).unwrap();
    t.workspace.scan().await.unwrap();
    assert_eq!(t.rejected_files().await, []);
}

#[tokio::test]
async fn oversized_file_is_not_read() {
    let t = TestWorkspace::new(&["codex"]).await;
    let limit = Config::default().file_limit;
    assert_eq!(limit, 8 << 20);
    // A sparse file: reading it would exhaust memory, refusing it costs nothing.
    for (file, size) in [("msg_1_a", limit + 1), ("msg_1_b", 2 << 30)] {
        let path = t.path(&format!("inbox/codex/{file}.json"));
        write_carelessly(&path, "");
        std::fs::File::options().write(true).open(&path).unwrap().set_len(size).unwrap();
    }
    t.put("codex", &message("msg_9_good", "claude", "codex", "good"));
    assert_eq!(t.workspace.scan().await.unwrap(), scanned(1, 0, 0));
    let reasons: Vec<String> = t.rejected_files().await.into_iter().map(|(_, reason)| reason).collect();
    assert!(reasons[0].contains("8388609 bytes, more than the 8388608 allowed"), "{reasons:?}");
    assert!(reasons[1].contains("2147483648 bytes"), "{reasons:?}");
}

#[tokio::test]
async fn oversized_body_is_refused_at_the_limit() {
    let t = TestWorkspace::new(&["codex"]).await;
    t.put("codex", &message("msg_1_a", "claude", "codex", &"x".repeat(1 << 20)));
    t.put("codex", &message("msg_1_b", "claude", "codex", &"x".repeat((1 << 20) + 1)));
    assert_eq!(t.workspace.scan().await.unwrap(), scanned(1, 0, 0));
    let rejected = "the body has 1048577 bytes and the limit is 1048576";
    assert_eq!(t.rejected_files().await, [("inbox/codex/msg_1_b.json".to_owned(), rejected.to_owned())]);
}

#[tokio::test]
async fn half_written_file_is_ingested_when_complete() {
    let t = TestWorkspace::new(&["codex"]).await;
    let whole = message("msg_1_a", "claude", "codex", "slowly").to_string();
    for half in ["", &whole[..20], &whole[..whole.len() - 1]] {
        t.write("inbox/codex/msg_1_a.json", half);
        t.set_age("inbox/codex/msg_1_a.json", SignedDuration::ZERO);
        assert_eq!(t.workspace.scan().await.unwrap(), scanned(0, 0, 1));
        assert_eq!(t.rejected_files().await, []);
    }
    t.write("inbox/codex/msg_1_a.json", &whole);
    assert_eq!(t.workspace.scan().await.unwrap(), scanned(1, 0, 0));
    assert_eq!(t.waiting("codex").await, ["slowly"]);
}

#[tokio::test]
async fn rejected_file_is_ingested_once_completed() {
    let t = TestWorkspace::new(&["codex"]).await;
    let whole = message("msg_1_a", "claude", "codex", "slowly").to_string();
    t.write("inbox/codex/msg_1_a.json", &whole[..20]);
    // From here on the folder's fingerprint is old enough to be stable.
    t.clock.advance(MINUTE);
    assert_eq!(t.workspace.scan().await.unwrap(), scanned(0, 0, 0));
    assert_eq!(t.rejected_files().await.len(), 1);
    assert_eq!(t.workspace.scan().await.unwrap(), scanned(0, 0, 0));
    t.write("inbox/codex/msg_1_a.json", &whole);
    assert_eq!(t.workspace.scan().await.unwrap(), scanned(1, 0, 0));
    assert_eq!(t.rejected_files().await, []);
}

#[tokio::test]
async fn malformed_file_with_future_date_is_rejected() {
    let t = TestWorkspace::new(&["codex"]).await;
    t.write("inbox/codex/msg_1_a.json", "{");
    t.set_age("inbox/codex/msg_1_a.json", SignedDuration::from_hours(-24 * 365 * 10));
    assert_eq!(t.workspace.scan().await.unwrap(), scanned(0, 0, 0));
    assert_eq!(t.rejected_files().await.len(), 1);
}

#[tokio::test]
async fn only_changed_mailboxes_are_scanned() {
    let t = TestWorkspace::new(&["codex"]).await;
    t.put("codex", &message("msg_1_a", "claude", "codex", "one"));
    t.clock.advance(MINUTE);
    assert_eq!(t.workspace.scan().await.unwrap(), scanned(1, 0, 0));
    // In place, so that only the file changes: the next full comparison finds it.
    t.write("inbox/codex/msg_1_a.json", "");
    assert_eq!(t.workspace.scan().await.unwrap(), scanned(0, 0, 0));
    assert_eq!(t.workspace.verify_mailboxes().await.unwrap(), scanned(0, 1, 0));
    t.put("codex", &message("msg_1_b", "claude", "codex", "two"));
    t.set_age("inbox/codex", SignedDuration::from_secs(7));
    assert_eq!(t.workspace.scan().await.unwrap(), scanned(1, 0, 0));
}

#[tokio::test]
async fn overwritten_message_is_restored() {
    for in_place in [true, false] {
        let t = TestWorkspace::new(&["codex"]).await;
        let id = t.send(outgoing("claude", "codex", "first")).await;
        let below = inbox_file("codex", id);
        let original = t.bytes(&below);
        let other = message(&ids::to_native(id), "mallory", "codex", "other").to_string();
        if in_place {
            t.write(&below, &other);
        } else {
            t.write("newcomer", &other);
            move_carelessly(&t.path("newcomer"), &t.path(&below));
        }
        assert_eq!(t.workspace.scan().await.unwrap(), scanned(0, 1, 0));
        assert_eq!(t.bytes(&below), original);
        assert_eq!(t.journal().await, ["first"]);
        let aside: Vec<String> =
            t.names("inbox/codex").into_iter().filter(|name| name.contains(".conflict.")).collect();
        assert_eq!(aside.len(), 1);
        let aside = format!("inbox/codex/{}", aside[0]);
        assert_eq!(t.bytes(&aside), other.as_bytes());
        let reason = "it had the file name of another message and was moved aside".to_owned();
        assert_eq!(t.rejected_files().await, [(aside.clone(), reason)]);
        assert_eq!(t.workspace.scan().await.unwrap(), scanned(0, 0, 0));
        assert_eq!(t.rejected_files().await.len(), 1, "reported once, and for as long as it lies there");
        std::fs::remove_file(t.path(&aside)).unwrap();
        t.workspace.scan().await.unwrap();
        assert_eq!(t.rejected_files().await, []);
    }
}

#[tokio::test]
async fn message_replaced_by_huge_file_is_restored() {
    let t = TestWorkspace::new(&["codex"]).await;
    let id = t.send(outgoing("claude", "codex", "first")).await;
    let below = inbox_file("codex", id);
    std::fs::File::options().write(true).open(t.path(&below)).unwrap().set_len(3 << 30).unwrap();
    assert_eq!(t.workspace.scan().await.unwrap(), scanned(0, 1, 0));
    assert_eq!(t.json(&below)["payload"], "first");
}

#[tokio::test]
async fn duplicate_file_is_ignored_conflicting_one_refused() {
    let t = TestWorkspace::new(&["codex"]).await;
    let first = message("msg_1_a", "claude", "codex", "first");
    t.put("codex", &first);
    t.workspace.scan().await.unwrap();
    // The same content in another formatting, while it waits.
    t.write("inbox/codex/msg_1_a.json", serde_json::to_string_pretty(&first).unwrap());
    assert_eq!(t.workspace.verify_mailboxes().await.unwrap(), scanned(0, 0, 0));
    let id = t.id_of("msg_1_a").await;
    t.workspace.acknowledge(&agent("codex"), id, None).await.unwrap();
    assert_eq!(t.names("inbox/codex"), [""; 0]);
    // Again after it was archived: it goes to the archive, beside the first.
    t.put("codex", &first);
    assert_eq!(t.workspace.scan().await.unwrap(), scanned(0, 0, 0));
    assert_eq!((t.names("inbox/codex").len(), t.names("archive/codex").len()), (0, 2));
    // Another message with its id stays and is reported.
    let other = message("msg_1_a", "claude", "codex", "other");
    t.put("codex", &other);
    assert_eq!(t.workspace.scan().await.unwrap(), scanned(0, 0, 0));
    let reason = format!("another message with this id was accepted before ({id})");
    assert_eq!(t.rejected_files().await, [("inbox/codex/msg_1_a.json".to_owned(), reason)]);
    assert_eq!(t.json("inbox/codex/msg_1_a.json"), other);
    assert_eq!(t.json("archive/codex/msg_1_a.json")["payload"], "first");
    assert_eq!(t.journal().await, ["first"]);
}

#[tokio::test]
async fn message_copied_to_another_mailbox_is_refused() {
    let t = TestWorkspace::new(&["codex", "gemini"]).await;
    let id = t.send(outgoing("claude", "codex", "for codex")).await;
    let stolen = with(t.json(&inbox_file("codex", id)), json!({ "recipient": "gemini" }));
    t.put("gemini", &stolen);
    assert_eq!(t.workspace.scan().await.unwrap(), scanned(0, 0, 0));
    assert_eq!(t.waiting("gemini").await, [""; 0]);
    assert_eq!(t.rejected_files().await.len(), 1);
    // The same foreign id in two mailboxes is two messages.
    t.put("codex", &message("msg_1_a", "x", "codex", "one"));
    t.put("gemini", &message("msg_1_a", "x", "gemini", "two"));
    assert_eq!(t.workspace.scan().await.unwrap(), scanned(2, 0, 0));
    assert_eq!(t.waiting("gemini").await, ["two"]);
}

#[tokio::test]
async fn hostile_folder_names_are_reported() {
    let t = TestWorkspace::new(&["codex"]).await;
    let long = "x".repeat(200);
    let hostile = [
        "a\\b",
        "C:x",
        "CON",
        "nul.txt",
        "x ",
        "x.",
        " x",
        "a..b",
        "%2e%2e",
        "all",
        "session",
        "caf\u{e9}",
        "cafe\u{301}",
        "\u{202e}xedoc",
        "new\nline",
        &long,
    ];
    for folder in hostile {
        t.put(folder, &message("msg_1_a", "claude", folder, "bad"));
    }
    t.put("codex", &message("msg_1_b", "claude", "codex", "good"));
    let before = t.names("inbox");
    assert_eq!(t.workspace.scan().await.unwrap(), scanned(1, 0, 0));
    assert_eq!(t.journal().await, ["good"]);
    let mut expected: Vec<String> = hostile.iter().map(|folder| format!("inbox/{folder}")).collect();
    expected.sort();
    let problems = t.rejected_files().await;
    assert_eq!(problems.iter().map(|(path, _)| path.clone()).collect::<Vec<_>>(), expected);
    assert!(problems.iter().all(|(_, reason)| reason == "the folder's name is not the name of an agent"));
    assert_eq!(t.names("inbox"), before);
}

#[tokio::test]
async fn mailbox_symlink_is_refused() {
    let t = TestWorkspace::new(&["codex", "gemini"]).await;
    let outside = tempfile::tempdir().unwrap();
    let secret = message("msg_1_a", "x", "codex", "planted").to_string();
    write_carelessly(&outside.path().join("msg_1_a.json"), &secret);
    std::fs::remove_dir(t.path("inbox/codex")).unwrap();
    symlink(outside.path(), t.path("inbox/codex")).unwrap();
    let accepted = t.workspace.send(outgoing("claude", "codex", "for codex")).await.unwrap();
    let id = t.send(outgoing("claude", "gemini", "for gemini")).await;
    assert_eq!(t.states(id).await, ["delivered"]);
    assert_eq!(t.states(accepted.id).await, ["retrying"], "tried again later, and nothing is claimed");
    for _ in 0..2 {
        assert_eq!(t.workspace.verify_mailboxes().await.unwrap(), scanned(0, 0, 0));
    }
    assert_eq!(names_in(outside.path()), ["msg_1_a.json"]);
    let problems = t.rejected_files().await;
    assert_eq!(problems.len(), 1);
    assert_eq!(problems[0].0, "inbox/codex");
    assert!(problems[0].1.ends_with("inbox/codex is not a directory but a symbolic link"), "{problems:?}");
    // Once fixed, it works and the rejection is gone.
    std::fs::remove_file(t.path("inbox/codex")).unwrap();
    t.put("codex", &message("msg_1_b", "x", "codex", "real"));
    assert_eq!(t.workspace.scan().await.unwrap(), scanned(1, 0, 0));
    assert_eq!(t.rejected_files().await, []);
}

#[tokio::test]
async fn special_files_are_refused_at_once() {
    let t = TestWorkspace::new(&["codex"]).await;
    let outside = tempfile::tempdir().unwrap();
    write_carelessly(&outside.path().join("x"), message("msg_1_link", "x", "codex", "linked").to_string());
    symlink(outside.path().join("x"), t.path("inbox/codex/msg_1_link.json")).unwrap();
    let mode = Mode::from_bits_truncate(0o600);
    rustix::fs::mknodat(CWD, t.path("inbox/codex/msg_1_fifo.json"), FileType::Fifo, mode, 0).unwrap();
    let _socket = UnixListener::bind(t.path("inbox/codex/msg_1_sock.json")).unwrap();
    std::fs::create_dir(t.path("inbox/codex/msg_1_dir.json")).unwrap();
    t.put("codex", &message("msg_9_good", "x", "codex", "good"));
    assert_eq!(t.workspace.scan().await.unwrap(), scanned(1, 0, 0));
    let found: Vec<(String, String)> = t.rejected_files().await;
    let expected = [("dir", "directory"), ("fifo", "FIFO"), ("link", "symbolic link"), ("sock", "socket")];
    assert_eq!(found.len(), expected.len());
    for ((path, reason), (file, kind)) in found.iter().zip(expected) {
        assert_eq!(path, &format!("inbox/codex/msg_1_{file}.json"));
        assert!(reason.ends_with(&format!("is not a file but a {kind}")), "{reason}");
    }
    assert_eq!(t.names("inbox/codex").len(), 5);
}

#[tokio::test]
async fn special_file_replacing_message_stops_no_neighbour() {
    let t = TestWorkspace::new(&["codex", "gemini"]).await;
    let linked = t.send(outgoing("claude", "codex", "linked")).await;
    let piped = t.send(outgoing("claude", "codex", "piped")).await;
    let deleted = t.send(outgoing("claude", "codex", "deleted")).await;
    let outside = tempfile::tempdir().unwrap();
    for id in [linked, piped, deleted] {
        std::fs::remove_file(t.path(&inbox_file("codex", id))).unwrap();
    }
    symlink(outside.path().join("absent"), t.path(&inbox_file("codex", linked))).unwrap();
    let mode = Mode::from_bits_truncate(0o600);
    rustix::fs::mknodat(CWD, t.path(&inbox_file("codex", piped)), FileType::Fifo, mode, 0).unwrap();
    t.put("codex", &message("msg_1_a", "x", "codex", "new"));
    t.put("gemini", &message("msg_1_b", "x", "gemini", "new"));
    assert_eq!(t.workspace.verify_mailboxes().await.unwrap(), scanned(2, 1, 0));
    assert_eq!(names_in(outside.path()), [""; 0]);
    let mut paths = [inbox_file("codex", linked), inbox_file("codex", piped)];
    paths.sort();
    let problems: Vec<String> = t.rejected_files().await.into_iter().map(|(path, _)| path).collect();
    assert_eq!(problems, paths);
    for path in paths {
        std::fs::remove_file(t.path(&path)).unwrap();
    }
    assert_eq!(t.workspace.scan().await.unwrap(), scanned(0, 2, 0));
    assert_eq!(t.rejected_files().await, []);
}

#[tokio::test]
async fn hard_link_is_read_and_never_written() {
    let t = TestWorkspace::new(&["codex"]).await;
    let outside = tempfile::tempdir_in(t.workspace_folder()).unwrap();
    let original = outside.path().join("original.json");
    let text = message("msg_1_a", "x", "codex", "shared").to_string();
    write_carelessly(&original, &text);
    std::fs::hard_link(&original, t.path("inbox/codex/msg_1_a.json")).unwrap();
    assert_eq!(t.workspace.scan().await.unwrap(), scanned(1, 0, 0));
    // Its owner truncates it: ours is written again, beside it.
    write_carelessly(&original, "");
    assert_eq!(t.workspace.verify_mailboxes().await.unwrap(), scanned(0, 1, 0));
    assert_eq!(t.json("inbox/codex/msg_1_a.json")["payload"], "shared");
    assert_eq!(std::fs::read(&original).unwrap(), b"");
}

#[tokio::test]
async fn outbox_and_archive_symlinks_are_refused() {
    let t = TestWorkspace::new(&["codex", "gemini"]).await;
    let outside = tempfile::tempdir().unwrap();
    symlink(outside.path(), t.path("outbox/claude")).unwrap();
    symlink(outside.path(), t.path("archive/codex")).unwrap();
    let id = t.send(outgoing("claude", "codex", "sent")).await;
    assert_eq!(t.states(id).await, ["delivered"], "a receipt that cannot be written does not undo it");
    t.put("codex", &message("msg_1_a", "claude", "codex", "one"));
    t.put("codex", &message("msg_1_b", "claude", "codex", "two"));
    t.put("gemini", &message("msg_1_c", "claude", "gemini", "three"));
    assert_eq!(t.workspace.scan().await.unwrap(), scanned(3, 0, 0));
    let refused = t.workspace.acknowledge(&agent("codex"), id, None).await;
    assert!(matches!(refused, Err(WorkspaceError::File(FileError::NotADirectory { .. }))), "{refused:?}");
    assert_eq!(t.workspace.scan().await.unwrap(), scanned(0, 0, 0));
    let problems = t.rejected_files().await;
    assert_eq!(problems.len(), 1);
    assert_eq!(problems[0].0, inbox_file("codex", id));
    assert_eq!(names_in(outside.path()), [""; 0]);
    // Once fixed, the move is completed.
    std::fs::remove_file(t.path("archive/codex")).unwrap();
    t.clock.advance(MINUTE);
    t.workspace.scan().await.unwrap();
    assert!(t.path(&archive_file("codex", id)).exists());
    assert_eq!(t.rejected_files().await, []);
}

#[tokio::test]
async fn moved_workspace_is_not_changed() {
    let t = TestWorkspace::new(&["codex"]).await;
    let elsewhere = t.workspace_folder().join("moved");
    move_carelessly(&t.root(), &elsewhere);
    write_carelessly(
        &elsewhere.join("inbox/codex/msg_1_a.json"),
        message("msg_1_a", "x", "codex", "p").to_string(),
    );
    let root = t
        .root()
        .canonicalize()
        .unwrap_or_else(|_| t.workspace_folder().canonicalize().unwrap().join(".switchboard"));
    for replaced in [false, true] {
        if replaced {
            std::fs::create_dir_all(t.path("inbox/codex")).unwrap();
        }
        for result in [t.workspace.scan().await, t.workspace.verify_mailboxes().await] {
            match result {
                Err(WorkspaceError::Moved { path }) => assert_eq!(path, root),
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(names_in(&elsewhere.join("inbox/codex")), ["msg_1_a.json"]);
    assert_eq!(t.names("inbox/codex"), [""; 0]);
}

#[tokio::test]
async fn workspace_symlink_is_resolved_once() {
    let t = TestWorkspace::new(&["codex"]).await;
    let elsewhere = tempfile::tempdir().unwrap();
    let link = elsewhere.path().join("link");
    symlink(t.workspace_folder(), &link).unwrap();
    let through = Workspace::open(&link, Config::default(), |_| {}).await.unwrap();
    std::fs::remove_file(&link).unwrap();
    t.put("codex", &message("msg_1_a", "x", "codex", "p"));
    assert_eq!(through.scan().await.unwrap(), scanned(1, 0, 0));
}

#[tokio::test]
async fn dangling_and_circular_replies_form_threads() {
    let t = TestWorkspace::new(&["codex"]).await;
    let reply = |id: &str, to: &str| with(message(id, "x", "codex", id), json!({ "replyTo": to }));
    t.put("codex", &reply("msg_1_lost", "msg_0_absent"));
    t.put("codex", &reply("msg_1_self", "msg_1_self"));
    t.put("codex", &reply("msg_1_a", "msg_1_b"));
    t.put("codex", &reply("msg_1_b", "msg_1_a"));
    assert_eq!(t.workspace.scan().await.unwrap(), scanned(4, 0, 0));
    for native in ["msg_1_lost", "msg_1_self", "msg_1_a", "msg_1_b"] {
        let id = t.id_of(native).await;
        let stored = t.workspace.hub().journal().message(id).await.unwrap().unwrap();
        let thread = t.workspace.hub().journal().thread(stored.message.thread, 100).await.unwrap();
        assert!(thread.items.iter().any(|found| found.message.id == id), "{native}");
    }
    // The original reply id is retained, also when the file has to be written again.
    std::fs::remove_file(t.path("inbox/codex/msg_1_lost.json")).unwrap();
    assert_eq!(t.workspace.verify_mailboxes().await.unwrap(), scanned(0, 1, 0));
    assert_eq!(t.json("inbox/codex/msg_1_lost.json")["replyTo"], "msg_0_absent");
}

#[tokio::test]
async fn reply_joins_its_parents_thread() {
    let t = TestWorkspace::new(&["codex", "claude"]).await;
    let question = t.send(outgoing("claude", "codex", "ask")).await;
    let answer =
        with(message("msg_1_a", "codex", "claude", "answer"), json!({ "replyTo": ids::to_native(question) }));
    t.put("claude", &answer);
    t.workspace.scan().await.unwrap();
    let thread = t.workspace.hub().journal().thread(question, 10).await.unwrap();
    assert_eq!(thread.items.iter().map(|s| s.message.body.as_str()).collect::<Vec<_>>(), ["ask", "answer"]);
    assert_eq!(
        t.workspace.verify_mailboxes().await.unwrap(),
        scanned(0, 0, 0),
        "its file says the same as the journal"
    );
}

#[tokio::test]
async fn reply_survives_its_pruned_parent() {
    let config = Config {
        retention: crate::Retention { journal: Some(MINUTE), ..crate::Retention::FOR_EVER },
        ..Config::default()
    };
    let t = TestWorkspace::with(config, &["codex", "claude"]).await;
    t.put("codex", &message("msg_1_a", "claude", "codex", "asked by a file"));
    t.workspace.scan().await.unwrap();
    let by_file = t.id_of("msg_1_a").await;
    let by_hub = t.send(outgoing("claude", "codex", "asked by us")).await;
    let to_file = with(message("msg_2_a", "codex", "claude", "to the file"), json!({ "replyTo": "msg_1_a" }));
    t.put("claude", &to_file);
    t.workspace.scan().await.unwrap();
    let to_hub = OutgoingMessage { in_reply_to: Some(by_hub), ..outgoing("codex", "claude", "to us") };
    let to_hub = t.send(to_hub).await;
    for id in [by_file, by_hub] {
        t.workspace.acknowledge(&agent("codex"), id, None).await.unwrap();
    }
    t.clock.advance(SignedDuration::from_hours(1));
    t.workspace.run_housekeeping().await.unwrap();
    assert_eq!(t.journal().await, ["to the file", "to us"]);
    assert_eq!(t.workspace.verify_mailboxes().await.unwrap(), scanned(0, 0, 0));
    assert_eq!(t.json("inbox/claude/msg_2_a.json"), to_file);
    assert_eq!(t.json(&inbox_file("claude", to_hub))["replyTo"], ids::to_native(by_hub));
}

#[tokio::test]
async fn sender_order_holds_within_a_millisecond() {
    let t = TestWorkspace::new(&["codex"]).await;
    // The names sort in reverse; only the files' times have the order.
    for (number, file) in ["msg_1_c", "msg_1_b", "msg_1_a"].into_iter().enumerate() {
        t.put("codex", &message(file, "claude", "codex", &number.to_string()));
        let below = format!("inbox/codex/{file}.json");
        t.set_age(&below, SignedDuration::from_nanos(3000 - 1000 * i64::try_from(number).unwrap()));
    }
    // The time in the message has precedence.
    let early = json!({ "createdAt": "2024-12-31T23:59:59.999Z" });
    t.put("codex", &with(message("msg_9_z", "claude", "codex", "early"), early));
    assert_eq!(t.workspace.scan().await.unwrap(), scanned(4, 0, 0));
    assert_eq!(t.waiting("codex").await, ["early", "0", "1", "2"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_processes_ingest_each_file_once() {
    let t = TestWorkspace::new(&["codex"]).await;
    let other = t.open_another().await;
    for number in 0..100 {
        t.put("codex", &message(&format!("msg_1_{number:03}"), "claude", "codex", &format!("{number:03}")));
    }
    let (one, two) = tokio::join!(t.workspace.scan(), other.scan());
    assert_eq!(one.unwrap().ingested + two.unwrap().ingested, 100);
    let expected: Vec<String> = (0..100).map(|number| format!("{number:03}")).collect();
    assert_eq!(t.journal().await, expected);
    assert_eq!(t.rejected_files().await, []);
    assert_eq!(t.names("inbox/codex").len(), 100);
    assert_eq!(t.names("outbox/claude").len(), 100);
    other.close().await;
}

#[tokio::test]
async fn unregistered_mailbox_waits_for_its_agent() {
    let t = TestWorkspace::new(&["codex"]).await;
    t.put("gemini", &message("msg_1_a", "claude", "gemini", "hello"));
    t.clock.advance(MINUTE);
    assert_eq!(t.workspace.scan().await.unwrap(), scanned(0, 0, 0));
    let reason = "no agent is named 'gemini'; register it with `switchboard agents register \"gemini\"` and the file is accepted";
    assert_eq!(t.rejected_files().await, [("inbox/gemini/msg_1_a.json".to_owned(), reason.to_owned())]);
    assert_eq!(t.workspace.scan().await.unwrap(), scanned(0, 0, 0));
    t.workspace.register(Registration::mailbox(name("gemini"))).await.unwrap();
    assert_eq!(t.workspace.scan().await.unwrap(), scanned(1, 0, 0));
    assert_eq!((t.waiting("gemini").await, t.rejected_files().await), (vec!["hello".to_owned()], vec![]));
}

#[tokio::test]
async fn names_differing_in_case_share_one_mailbox() {
    let t = TestWorkspace::new(&["Codex"]).await;
    t.send(outgoing("claude", "cODEX", "sent")).await;
    t.put("codex", &message("msg_1_a", "claude", "codex", "dropped"));
    assert_eq!(t.workspace.scan_mailbox(&agent("codex")).await.unwrap(), scanned(1, 0, 0));
    assert_eq!(t.waiting("CODEX").await, ["sent", "dropped"]);
    assert_eq!(t.workspace.scan().await.unwrap(), scanned(0, 0, 0));
    if t.path("inbox/codex").canonicalize().unwrap() != t.path("inbox/Codex").canonicalize().unwrap() {
        assert_eq!(t.names("inbox/codex"), [""; 0], "brought home");
    }
    assert_eq!(t.names("inbox/Codex").len(), 2);
    let id = t.id_of("msg_1_a").await;
    t.workspace.acknowledge(&agent("codex"), id, None).await.unwrap();
    assert_eq!(t.names("archive"), ["Codex"]);
}

#[tokio::test]
async fn mailbox_is_scanned_by_any_name() {
    let t = TestWorkspace::new(&["Codex"]).await;
    t.put("Codex", &message("msg_1_a", "claude", "Codex", "new"));
    assert_eq!(t.workspace.scan_mailbox(&agent("codex")).await.unwrap(), scanned(1, 0, 0));
    assert_eq!(t.workspace.scan_mailbox(&agent("nobody")).await.unwrap(), scanned(0, 0, 0));
}

#[tokio::test]
async fn person_has_one_mailbox_in_any_spelling() {
    let t = TestWorkspace::new(&[]).await;
    t.send(outgoing("codex", "human", "done")).await;
    t.put("Human", &message("msg_1_a", "codex", "Human", "dropped"));
    assert_eq!(t.workspace.scan().await.unwrap(), scanned(1, 0, 0));
    assert_eq!(t.workspace.verify_mailboxes().await.unwrap(), scanned(0, 0, 0));
    assert_eq!(t.waiting("human").await, ["done", "dropped"]);
    assert_eq!(t.names("inbox/human").len(), 2);
}

#[tokio::test]
async fn sender_may_use_a_former_name() {
    let t = TestWorkspace::new(&["claude", "codex"]).await;
    t.workspace.rename(name("claude"), name("opus")).await.unwrap();
    t.put("codex", &message("msg_1_a", "claude", "codex", "old name"));
    assert_eq!(t.workspace.scan().await.unwrap(), scanned(1, 0, 0));
    let id = t.id_of("msg_1_a").await;
    assert_eq!(t.workspace.hub().journal().message(id).await.unwrap().unwrap().message.from, agent("opus"));
    assert_eq!(t.workspace.verify_mailboxes().await.unwrap(), scanned(0, 0, 0), "it is not in its own way");
    assert_eq!(t.names("inbox/codex"), ["msg_1_a.json"]);
    assert_eq!(t.names("outbox/opus"), ["msg_1_a.receipt.json"]);
}

#[tokio::test]
async fn lost_and_damaged_files_are_restored() {
    type Damage = fn(&std::path::Path, &[u8]);
    let damages: [(&str, Damage); 4] = [
        ("deleted", |path, _| std::fs::remove_file(path).unwrap()),
        ("emptied", |path, _| write_carelessly(path, "")),
        ("cut in half", |path, bytes| write_carelessly(path, &bytes[..bytes.len() / 2])),
        ("full of zeros", |path, bytes| write_carelessly(path, vec![0; bytes.len()])),
    ];
    for (case, damage) in damages {
        for thorough in [false, true] {
            let t = TestWorkspace::new(&["codex"]).await;
            let id = t.send(outgoing("claude", "codex", "keep me")).await;
            let neighbour = t.send(outgoing("claude", "codex", "neighbour")).await;
            let below = inbox_file("codex", id);
            let (bytes, untouched) = (t.bytes(&below), t.bytes(&inbox_file("codex", neighbour)));
            damage(&t.path(&below), &bytes);
            let found =
                if thorough { t.workspace.verify_mailboxes().await } else { t.workspace.scan().await };
            assert_eq!(found.unwrap(), scanned(0, 1, 0), "{case}");
            assert_eq!(t.bytes(&below), bytes, "{case}");
            assert_eq!(t.bytes(&inbox_file("codex", neighbour)), untouched, "{case}");
            assert_eq!(t.names("inbox/codex").len(), 2, "{case}: nothing else is left behind");
            assert_eq!(t.states(id).await, ["delivered"], "{case}");
        }
    }
}

#[tokio::test]
async fn deleted_mailbox_is_restored_with_its_messages() {
    for thorough in [false, true] {
        let t = TestWorkspace::new(&["codex"]).await;
        let ids = [
            t.send(outgoing("claude", "codex", "one")).await,
            t.send(outgoing("claude", "codex", "two")).await,
            t.send(outgoing("codex", "human", "three")).await,
        ];
        t.workspace.acknowledge(&agent("codex"), ids[0], None).await.unwrap();
        std::fs::remove_dir_all(t.path("inbox")).unwrap();
        let found = if thorough { t.workspace.verify_mailboxes().await } else { t.workspace.scan().await };
        assert_eq!(found.unwrap(), scanned(0, 2, 0));
        assert_eq!(t.names("inbox/codex"), [format!("{}.json", ids::to_native(ids[1]))]);
        assert_eq!(t.names("inbox/human"), [format!("{}.json", ids::to_native(ids[2]))]);
    }
}

#[tokio::test]
async fn deleted_large_mailbox_is_restored() {
    let t = TestWorkspace::new(&["codex"]).await;
    for number in 0..200 {
        t.put("codex", &message(&format!("msg_1_{number:03}"), "claude", "codex", &format!("{number:03}")));
    }
    assert_eq!(t.workspace.scan().await.unwrap(), scanned(200, 0, 0));
    std::fs::remove_dir_all(t.path("inbox/codex")).unwrap();
    assert_eq!(t.workspace.scan().await.unwrap(), scanned(0, 200, 0));
    assert_eq!(t.names("inbox/codex").len(), 200);
    // Above a size limit, only a full comparison compares contents.
    t.write("inbox/codex/msg_1_100.json", "");
    assert_eq!(t.workspace.scan().await.unwrap(), scanned(0, 0, 0));
    assert_eq!(t.workspace.verify_mailboxes().await.unwrap(), scanned(0, 1, 0));
    assert_eq!(t.json("inbox/codex/msg_1_100.json")["payload"], "100");
}

#[tokio::test]
async fn moving_a_file_to_archive_acknowledges_it() {
    let t = TestWorkspace::new(&["codex"]).await;
    let id = t.send(outgoing("claude", "codex", "task")).await;
    move_carelessly(&t.path(&inbox_file("codex", id)), &t.path(&archive_file("codex", id)));
    assert_eq!(t.workspace.scan().await.unwrap(), scanned(0, 0, 0));
    assert_eq!(t.states(id).await, ["acknowledged"]);
    assert_eq!(t.receipt(id).await.deliveries[0].note.as_deref(), Some("moved to the archive by its reader"));
    assert_eq!(t.names("inbox/codex"), [""; 0]);
    assert_eq!(t.names("archive/codex"), [format!("{}.json", ids::to_native(id))]);
    let receipt = format!("outbox/claude/{}.receipt.json", ids::to_native(id));
    assert_eq!(t.json(&receipt)["status"], "acknowledged");
}

#[tokio::test]
async fn interrupted_archiving_is_finished_once() {
    for copied in [false, true] {
        let t = TestWorkspace::new(&["codex"]).await;
        let id = t.send(outgoing("claude", "codex", "task")).await;
        let (inbox, archive) = (t.path(&inbox_file("codex", id)), t.path(&archive_file("codex", id)));
        let bytes = t.bytes(&inbox_file("codex", id));
        t.workspace.acknowledge(&agent("codex"), id, None).await.unwrap();
        // As after a crash between link and unlink, or as a backup program restores it.
        if copied {
            write_carelessly(&inbox, &bytes);
        } else {
            std::fs::hard_link(&archive, &inbox).unwrap();
        }
        assert_eq!(t.workspace.scan().await.unwrap(), scanned(0, 0, 0));
        assert_eq!(t.names("inbox/codex"), [""; 0]);
        assert_eq!(t.names("archive/codex").len(), if copied { 2 } else { 1 });
        assert_eq!(t.journal().await, ["task"]);
        assert_eq!(t.part("codex", Part::Done).await.len(), 1);
        assert_eq!(t.waiting("codex").await, [""; 0]);
    }
}

#[tokio::test]
async fn damaged_journal_message_stops_no_neighbour() {
    let t = TestWorkspace::new(&["codex", "claude"]).await;
    let damaged = t.send(outgoing("claude", "codex", "BITROT-HERE")).await;
    t.send(outgoing("claude", "codex", "sound")).await;
    let answer = OutgoingMessage { in_reply_to: Some(damaged), ..outgoing("codex", "claude", "answer") };
    let answer = t.send(answer).await;
    let t = t.reopen_after(|root| damage_database(root, "BITROT-HERE")).await;
    std::fs::remove_dir_all(t.path("inbox")).unwrap();
    t.put("codex", &message("msg_1_a", "claude", "codex", "new"));
    assert_eq!(t.workspace.verify_mailboxes().await.unwrap(), scanned(1, 2, 0));
    assert_eq!(t.waiting("codex").await, ["sound", "new"]);
    assert_eq!(t.json(&inbox_file("claude", answer))["replyTo"], ids::to_native(damaged));
    let rejected = format!("message {damaged} is damaged in the journal");
    assert_eq!(t.rejected_files().await, [(inbox_file("codex", damaged), rejected)]);
    let next =
        OutgoingMessage { in_reply_to: Some(damaged), ..outgoing("codex", "claude", "another answer") };
    let next = t.send(next).await;
    assert_eq!(t.json(&inbox_file("claude", next))["replyTo"], ids::to_native(damaged));
}

#[tokio::test]
async fn stopped_reply_is_removed_from_the_mailbox() {
    let t = TestWorkspace::new(&["codex", "claude"]).await;
    let start = t.send(outgoing("claude", "codex", "start")).await;
    for number in 0..11 {
        let reply = json!({ "replyTo": ids::to_native(start) });
        t.put("claude", &with(message(&format!("msg_1_{number:02}"), "codex", "claude", "again"), reply));
    }
    assert_eq!(t.workspace.scan().await.unwrap(), scanned(11, 0, 0));
    assert_eq!(t.waiting("claude").await.len(), 10);
    assert_eq!(
        (t.names("inbox/claude").len(), t.names("archive/claude")),
        (10, vec!["msg_1_10.json".into()])
    );
    let receipt = t.json("outbox/codex/msg_1_10.receipt.json");
    assert_eq!(receipt["status"], "failed");
    assert!(receipt["error"].as_str().unwrap().contains("within a minute"), "{receipt}");
}

#[tokio::test]
async fn other_files_are_not_touched() {
    let t = TestWorkspace::new(&["codex"]).await;
    let others =
        [".tmp-1-2-3", ".hidden.json", "msg_1_a.json.tmp", "msg_1_a.result.json.bak", "notes.json", "x"];
    for other in others {
        t.write(&format!("inbox/codex/{other}"), "anything");
    }
    let before = t.names("inbox/codex");
    assert_eq!(t.workspace.scan().await.unwrap(), scanned(0, 0, 0));
    assert_eq!((t.names("inbox/codex"), t.rejected_files().await), (before, vec![]));
}

#[tokio::test]
async fn every_action_is_ingested_and_none_executed() {
    let t = TestWorkspace::new(&["codex"]).await;
    for (number, action) in Kind::ACTIONS.into_iter().chain(["dance"]).enumerate() {
        let id = format!("msg_1_{number}");
        t.put("codex", &with(message(&id, "x", "codex", "touch /tmp/never"), json!({ "action": action })));
    }
    assert_eq!(t.workspace.scan().await.unwrap(), scanned(6, 0, 0));
    let mail = t.part("codex", Part::Waiting).await;
    assert!(mail.iter().all(|(_, delivery)| delivery.state == DeliveryState::Delivered));
    let page = t.workspace.hub().journal().entries(0, 10).await.unwrap();
    let kinds: Vec<String> = page.items.iter().map(|stored| stored.message.kind.to_string()).collect();
    assert_eq!(kinds[..5], Kind::ACTIONS);
    assert_eq!(kinds[5], "dance");
}

#[tokio::test]
async fn metadata_may_use_our_key_prefix() {
    let t = TestWorkspace::new(&["codex"]).await;
    let metadata = json!({ "metadata": { "workspace.team": "x", "switchboard.to": "team:backend" } });
    let file: Value = with(message("msg_1_a", "x", "codex", "p"), metadata);
    t.put("codex", &file);
    assert_eq!(t.workspace.scan().await.unwrap(), scanned(1, 0, 0));
    assert_eq!(t.workspace.verify_mailboxes().await.unwrap(), scanned(0, 0, 0));
    assert_eq!(t.json("inbox/codex/msg_1_a.json"), file);
    assert_eq!(t.names("inbox/codex"), ["msg_1_a.json"]);
}
