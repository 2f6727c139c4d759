//! `switchboard.config.json` of a repository next to the user's own settings.

use std::path::Path;

use serde_json::{Value, json};
use test_support::fault::Shim;
use test_support::{Running, Sandbox, files, poll};

use crate::workspace;

fn configure_repository(sandbox: &Sandbox, settings: &Value) {
    files::put(sandbox.path().join("switchboard.config.json"), settings.to_string());
}

#[test]
fn repository_lifts_no_budget() {
    let sandbox = workspace();
    sandbox.configure_user(&json!({ "budgets": { "messagesPerHour": 1 } }).to_string());
    let wishes = [
        json!({ "budgets": { "messagesPerHour": 1000 } }),
        json!({ "budgets": { "agents": { "CLAUDE": { "messagesPerHour": 1000 } } } }),
        json!({ "budgets": null }),
        json!({ "budgets": { "messagesPerHour": null } }),
    ];
    sandbox.send("claude", "codex", "within the budget");
    for wish in wishes {
        configure_repository(&sandbox, &wish);
        let ran = sandbox.run_as("claude", ["send", "codex", "one more"]);
        assert_eq!(ran.code, Some(4), "{wish}: {ran:?}");
    }
}

#[test]
fn repository_lifts_no_loop_or_size_limit() {
    let sandbox = workspace();
    configure_repository(&sandbox, &json!({ "hub": { "bodyLimitBytes": 100_000_000, "replyHops": 1000 } }));
    let body = sandbox.path().join("body");
    files::put(&body, "x".repeat((1 << 20) + 1));
    let ran = sandbox.run(["send", "codex", "--file", body.to_str().unwrap()]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stderr.contains("the limit is 1048576"), "{ran:?}");
    assert!(
        ran.stderr.contains("'hub.replyHops' asks for 1000, but 8 is in force"),
        "the wish is not ignored silently: {ran:?}"
    );
    let doctor = sandbox.ok(["doctor"]);
    assert!(doctor.contains("'hub.bodyLimitBytes' asks for 100000000"), "{doctor}");
    configure_repository(&sandbox, &json!({ "hub": { "bodyLimitBytes": 5 } }));
    assert!(sandbox.run(["send", "codex", "123456"]).stderr.contains("the limit is 5"));
}

#[test]
fn repository_shortens_no_retention() {
    let sandbox = workspace();
    let zero = json!({ "archiveDays": 0, "receiptDays": 0, "journalDays": 0 });
    configure_repository(&sandbox, &json!({ "workspace": { "retention": zero } }));
    // `serve` removes by the effective settings, once a minute; `doctor` names the settings that have no effect.
    let doctor = sandbox.ok(["doctor"]);
    for key in ["archiveDays", "receiptDays", "journalDays"] {
        assert!(doctor.contains(&format!("'workspace.retention.{key}' asks for 0")), "{doctor}");
    }
    sandbox.configure_user(&json!({ "workspace": { "retention": zero } }).to_string());
    let doctor = sandbox.ok(["doctor"]);
    assert!(!doctor.contains("retention"), "{doctor}");
}

#[test]
fn retention_of_zero_empties_nothing() {
    let Ok(shim) = Shim::get(Path::new(env!("CARGO_TARGET_TMPDIR"))) else { return };
    let sandbox = workspace();
    let retention = |days: u32, journal: u32| {
        let keys = json!({ "archiveDays": days, "receiptDays": days, "journalDays": journal });
        json!({ "workspace": { "retention": keys } })
    };
    configure_repository(&sandbox, &retention(0, 0));
    sandbox.configure_user(&retention(500, 300).to_string());
    let id = sandbox.ok(["send", "claude", "keep me"]);
    let id = id.lines().next().unwrap();
    sandbox.run_as("claude", ["ack", id]).ok();
    // The last entry of a journal stays.
    sandbox.ok(["send", "codex", "last"]);
    let kept = [format!("archive/claude/{id}.json"), format!("outbox/human/{id}.receipt.json")];
    let mut serve = sandbox.command(["serve"]);
    let mut serve = Running::start(shim.set_clock_ahead(&mut serve, 400));
    // The journal is pruned last: afterwards, all other old files have been checked.
    let is_kept = || sandbox.json(["tail"]).iter().any(|message| message["body"] == "keep me");
    poll::until("the journal to be pruned", || (!is_kept()).then_some(()));
    assert_eq!(serve.terminate().code(), Some(0));
    for name in &kept {
        assert!(sandbox.file(name).exists(), "{name}");
    }
}
