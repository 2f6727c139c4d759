//! `switchboard audit`

use rusqlite::Connection;
use serde_json::json;

use crate::workspace;

#[test]
fn untouched_journal_verifies_and_prints_head() {
    let sandbox = workspace();
    sandbox.send("claude", "codex", "one");
    sandbox.send("codex", "claude", "two");
    let result = &sandbox.json(["audit", "verify"])[0];
    assert_eq!((&result["ok"], &result["entries"], &result["breaks"]), (&json!(true), &json!(2), &json!([])));
    let head = result["head"].as_str().unwrap().to_owned();
    assert!(head.starts_with("2:") && head.len() == 66, "{head}");
    sandbox.send("claude", "codex", "three");
    let ran = sandbox.run(["audit", "verify", "--head", &head]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.starts_with("3 of 3 entries are as they were written\nhead 3:"), "{}", ran.stdout);
    let other = head.replace("2:", "1:");
    let ran = sandbox.run(["audit", "verify", "--head", &other]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stderr.contains("entry 1 ") && ran.stderr.contains("rewritten"), "{}", ran.stderr);
    let ran = sandbox.run(["audit", "verify", "--head", "2"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
}

#[test]
fn edited_and_removed_entries_are_named() {
    for (change, problem) in [
        ("UPDATE messages SET body = 'else' WHERE seq = 2", "its content was changed"),
        ("DELETE FROM messages WHERE seq = 2", "it was removed"),
    ] {
        let sandbox = workspace();
        for text in ["one", "two", "three"] {
            sandbox.send("claude", "codex", text);
        }
        Connection::open(sandbox.file("hub.db")).unwrap().execute(change, []).unwrap();
        let ran = sandbox.run(["audit", "verify"]);
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert!(ran.stderr.contains("error: entry 2") && ran.stderr.contains(problem), "{}", ran.stderr);
        assert!(ran.stderr.contains("hint: "), "{}", ran.stderr);
        let ran = sandbox.run(["doctor"]);
        let expected = ["is damaged in the journal", "journal: entry 2 fails verification: it was removed"];
        assert!(
            ran.code == Some(1) && expected.iter().any(|expected| ran.stdout.contains(expected)),
            "{ran:?}"
        );
        let ran = sandbox.run(["audit", "verify", "--json"]);
        assert!(
            ran.stdout.contains(r#""first_bad":{"#) && ran.stdout.contains(r#""seq":2"#),
            "{}",
            ran.stdout
        );
    }
}

/// A journal that was rebuilt from files reports that, however it was lost.
#[test]
fn rebuilt_journal_reports_its_start() {
    for damage in [None, Some("no database at all\n".repeat(500)), Some(String::new())] {
        let sandbox = workspace();
        sandbox.send("claude", "codex", "one");
        for name in ["hub.db", "hub.db-wal", "hub.db-shm"] {
            let _ = std::fs::remove_file(sandbox.file(name));
        }
        if let Some(damage) = &damage {
            test_support::files::put(sandbox.file("hub.db"), damage);
        }
        sandbox.ok(["inbox", "codex"]);
        let result = &sandbox.json(["audit", "verify"])[0];
        let first = &result["breaks"][0];
        assert_eq!(
            (&result["ok"], &first["seq"], &first["reason"]),
            (&json!(true), &json!(1), &json!("rebuilt")),
            "{damage:?}"
        );
    }
}

#[test]
fn export_has_every_entry_hash_chained() {
    use sha2::{Digest, Sha256};
    let sandbox = workspace();
    for number in 0..5 {
        sandbox.send("claude", "codex", &format!("number {number}"));
    }
    let lines = sandbox.json(["audit", "export"]);
    assert_eq!(lines.len(), 5);
    let bytes = |text: &serde_json::Value| -> Vec<u8> {
        let text = text.as_str().unwrap();
        (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
    };
    let mut previous = "0".repeat(64);
    for (line, number) in lines.iter().zip(1_i64..) {
        assert_eq!((&line["seq"], line["previous"].as_str().unwrap()), (&json!(number), previous.as_str()));
        let mut hash = Sha256::new();
        hash.update(bytes(&line["previous"]));
        hash.update(number.to_le_bytes());
        hash.update(bytes(&line["content"]));
        assert_eq!(hash.finalize().to_vec(), bytes(&line["hash"]));
        assert_eq!(line["body"], format!("number {}", number - 1));
        previous = line["hash"].as_str().unwrap().to_owned();
    }
    let rest = sandbox.json(["audit", "export", "--after", "3", "--no-bodies"]);
    assert_eq!(rest.len(), 2);
    assert!(rest[0].get("body").is_none() && rest[0]["hash"] == lines[3]["hash"]);
}
