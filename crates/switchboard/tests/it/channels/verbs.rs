//! `switchboard channel`

use insta::assert_snapshot;
use test_support::files;

use super::{messages, post};
use crate::workspace;

#[test]
fn post_is_a_file_and_reaches_doors() {
    let sandbox = workspace();
    let question = post(&sandbox, "qc-1", "codex", "please look");
    let file = sandbox.file(&format!("channels/general/{question}.json"));
    let message: serde_json::Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    assert_eq!(message["id"], question.as_str());
    assert_eq!(
        (&message["session_id"], &message["from"], &message["to"]),
        (&"general".into(), &"qc-1".into(), &"codex".into())
    );
    assert_eq!(message["type"], "chat");
    assert_eq!(
        message["content"],
        serde_json::json!({ "text": "please look", "code": null, "artifacts": [] })
    );
    // codex reads its mailbox and answers there; the answer appears in the channel.
    let mail = sandbox.json(["inbox", "codex"]).remove(0);
    assert_eq!((&mail["body"], &mail["door"]), (&"please look".into(), &"channels".into()));
    let reply_to = mail["id"].as_str().unwrap().to_owned();
    sandbox.run_as("codex", ["send", "qc-1", "looked", "--reply-to", &reply_to]).ok();
    let last = messages(&sandbox).remove(1);
    assert_eq!((&last["from"], &last["content"]["text"]), (&"codex".into(), &"looked".into()));
    assert_eq!(last["metadata"]["in_reply_to"], question.as_str());
    let thread = sandbox.json(["thread", &reply_to]);
    assert_eq!(thread.len(), 2);
}

#[test]
fn flags_include_those_of_the_script() {
    let sandbox = workspace();
    let first = post(&sandbox, "supervisor", "all", "Team announcement");
    let posted = sandbox.json([
        "channel",
        "post",
        "--agent",
        "codex",
        "--channel",
        "general",
        "--reply-to",
        &first,
        "--kind",
        "code-review",
        "--text",
        "-n is no flag",
        "--code",
        "fn main() {}",
        "--artifact",
        "src/main.rs",
    ]);
    assert_eq!(posted[0]["deliveries"][0]["agent"], "supervisor");
    assert!(std::path::Path::new(posted[0]["file_path"].as_str().unwrap()).exists());
    let last = messages(&sandbox).remove(1);
    assert_eq!(last["type"], "code-review");
    assert_eq!(last["metadata"]["in_reply_to"], first.as_str());
    assert_eq!(last["content"]["code"], "fn main() {}");
    assert_eq!(last["content"]["artifacts"], serde_json::json!(["src/main.rs"]));
    let after = sandbox.json(["channel", "read", "--channel", "general", "--since", &first]);
    assert_eq!(after.len(), 1);
    let shown = sandbox.ok(["channel", "read", "--channel", "general", "-n", "1"]);
    assert!(shown.contains("fn main() {}") && shown.contains("file: src/main.rs"), "{shown}");
    assert_snapshot!(sandbox.show(["channel", "list"]), @"
    exit 0
    --- stdout
    general  2 messages, newest just now from codex; codex, supervisor
    ");
}

#[test]
fn deprecated_id_reads_as_current_with_warning() {
    let sandbox = workspace();
    let args =
        ["channel", "post", "--agent", "codex-1", "--channel", "general", "--to", "claude-1", "--text", "hi"];
    let ran = sandbox.run(args);
    for (old, new) in [("codex-1", "posting as 'codex'"), ("claude-1", "posting to 'claude'")] {
        assert!(ran.stderr.contains(&format!("the agent id '{old}' is deprecated; {new}")), "{ran:?}");
    }
    let posted = messages(&sandbox).remove(0);
    assert_eq!((&posted["from"], &posted["to"]), (&"codex".into(), &"claude".into()));
}

#[test]
fn invalid_value_error_lists_valid_ones() {
    let sandbox = workspace();
    post(&sandbox, "qc-1", "all", "hi");
    assert_snapshot!(sandbox.show(["channel", "read", "--channel", "genral"]), @"
    exit 5
    --- stderr
    error: there is no channel 'genral'
    hint: did you mean 'general'?
    ");
    assert_snapshot!(sandbox.show(["channel", "read", "--channel", "general", "--since", "msg-1"]), @"
    exit 5
    --- stderr
    error: no message 'msg-1' is in the channel 'general'
    hint: `switchboard channel read` lists messages with their ids
    ");
    assert_snapshot!(sandbox.show(["channel", "post", "--agent", "7of9", "--channel", "general", "--text", "x"]), @"
    exit 2
    --- stderr
    error: 'agent' is '7of9', but an agent id of a channel is a letter, then letters, digits, '_' and '-'
    ");
    assert_snapshot!(sandbox.show(["channel", "post", "--channel", "general", "--to", "team:none", "--text", "x"]), @r#"
    exit 5
    --- stderr
    error: no team is named 'none'
    hint: create it with `switchboard team create "none"`
    "#);
    assert_eq!(sandbox.run(["channel", "post", "--channel", "../x", "--text", "x"]).code, Some(2));
    let ran = sandbox.run(["channel", "read", "--channel", "a/b"]);
    assert!(ran.stderr.contains("--channel: "), "{}", ran.stderr);
    assert_snapshot!(sandbox.show(["channel", "tail", "--channel", "genral"]), @"
    exit 5
    --- stderr
    error: there is no channel 'genral'
    hint: did you mean 'general'?
    ");
    assert!(!sandbox.file("channels/genral").exists());
    assert_eq!(messages(&sandbox).len(), 1, "nothing of that was written");
}

#[test]
fn tail_shows_posts_and_dropped_files() {
    let sandbox = workspace();
    post(&sandbox, "qc-1", "all", "before");
    let tail = sandbox.start(["channel", "tail", "--channel", "general", "--json"]);
    let text = || serde_json::from_str::<serde_json::Value>(&tail.line()).unwrap()["content"]["text"].clone();
    assert_eq!(text(), "before");
    post(&sandbox, "qc-1", "all", "during");
    assert_eq!(text(), "during");
    let dropped = serde_json::json!({
        "id": "msg-20200101-000000-late-0001", "timestamp": "2020-01-01T00:00:00.000Z", "session_id": "general",
        "from": "late", "to": "all", "type": "chat", "content": { "text": "from the past" },
    });
    files::put_by_rename(
        sandbox.file("channels/general/msg-20200101-000000-late-0001.json"),
        dropped.to_string(),
    );
    assert_eq!(text(), "from the past");
}

#[test]
fn send_to_channel_writes_one_file() {
    let sandbox = workspace();
    for reader in ["qc-1", "qc-2"] {
        post(&sandbox, reader, "all", "I am here");
    }
    let sent = sandbox.json(["send", "#general", "news for all"]);
    let states: Vec<_> =
        sent[0]["deliveries"].as_array().unwrap().iter().map(|d| d["state"].clone()).collect();
    assert_eq!(states, ["delivered", "delivered"]);
    let news: Vec<_> =
        messages(&sandbox).into_iter().filter(|m| m["content"]["text"] == "news for all").collect();
    assert_eq!(news.len(), 1);
    assert_eq!(news[0]["from"], "human");
}
