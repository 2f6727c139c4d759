//! The notify program reports mail to the person, and senders get a notice of mail that stays unread.

use serde_json::Value;
use test_support::{files, poll};

use crate::workspace;

fn notifications(path: &std::path::Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

#[test]
fn notify_program_gets_mail_json_once() {
    let sandbox = workspace();
    let log = sandbox.home().join("told");
    let settings = serde_json::json!({
        "notify": { "command": ["sh", "-c", format!("cat >> {}", log.display())], "everySeconds": 0 },
    });
    sandbox.configure_user(&settings.to_string());
    sandbox.send("codex", "human", "from before");
    let mut serve = sandbox.serve();
    let body = "$(touch /tmp/never) `id` \"; rm -rf ~";
    poll::until("the first notification", || {
        // Until `serve` watches, new messages count as old.
        sandbox.send("codex", "human", body);
        (!notifications(&log).is_empty()).then_some(())
    });
    let first = notifications(&log);
    let message = &first[0]["messages"][0];
    assert_eq!((&message["from"], &message["body"]), (&"codex".into(), &body.into()));
    assert!(first[0]["summary"].as_str().unwrap().contains("from codex"));
    let id = sandbox.send("codex", "human", "the last one");
    let is_told =
        || notifications(&log).iter().any(|one| one["messages"].to_string().contains(&id)).then_some(());
    poll::until("the last notification", is_told);
    serve.terminate();
    let before = notifications(&log).len();
    let mut again = sandbox.serve();
    let next = sandbox.send("codex", "human", "after a restart");
    poll::until("a notification", || {
        notifications(&log).iter().any(|one| one.to_string().contains(&next)).then_some(())
    });
    again.terminate();
    let all: Vec<Value> =
        notifications(&log).iter().flat_map(|one| one["messages"].as_array().unwrap().clone()).collect();
    let mut ids: Vec<&str> = all.iter().map(|message| message["id"].as_str().unwrap()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), all.len(), "no message is notified twice");
    assert!(notifications(&log).len() > before);
}

#[test]
fn repository_configures_no_program_or_forwarding() {
    let sandbox = workspace();
    let log = sandbox.home().join("told");
    let settings = serde_json::json!({
        "notify": { "command": ["touch", log] }, "links": { "forwards": { "codex": "claude" } },
    });
    files::put(sandbox.path().join("switchboard.config.json"), settings.to_string());
    let ran = sandbox.run(["route", "codex"]);
    assert!(ran.stderr.contains("'notify.command' counts only in your own"), "{}", ran.stderr);
    assert!(ran.stderr.contains("'links.forwards' counts only in your own"), "{}", ran.stderr);
    assert!(ran.ok().contains("mailbox:codex"), "{}", ran.stdout);
}

#[test]
fn sender_gets_notice_of_unread_mail() {
    let sandbox = workspace();
    sandbox.configure_user("{ \"hub\": { \"unseenSeconds\": 1 } }");
    let _serve = sandbox.serve();
    let id = sandbox.send("claude", "codex", "anybody?");
    let notice = sandbox.run_as("claude", ["wait", "--timeout", "60s"]).ok();
    assert!(notice.contains("Not seen yet after 1 s: your message to codex. codex"), "{notice}");
    let thread = sandbox.ok(["thread", &id]);
    assert_eq!(thread.matches("Not seen yet").count(), 1, "{thread}");
    let seen = sandbox.send("claude", "codex", "and this?");
    sandbox.run_as("codex", ["inbox"]).ok();
    // This message is checked after the others, so they have been checked.
    sandbox.send("codex", "claude", "unseen");
    let output = sandbox.run_as("codex", ["wait", "--timeout", "60s"]).ok();
    assert!(output.contains("your message to claude"), "{output}");
    assert!(!sandbox.ok(["thread", &seen]).contains("Not seen yet"));
}
