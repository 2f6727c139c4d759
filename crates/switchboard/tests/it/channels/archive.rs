//! `switchboard channel archive`

use insta::assert_snapshot;
use serde_json::json;
use test_support::files;

use super::{Program, answer_to, messages, post};
use crate::workspace;

#[test]
fn archived_messages_stay_readable_and_wake_none() {
    let sandbox = workspace();
    let program = Program::new(&sandbox, "program", "echo 42");
    let watch = sandbox.start(["watch", "--agent", "qc-1", "--channel", "general", "--", program.path()]);
    watch.line();
    let path = sandbox.file("channels/general/msg-20200115-101010-codex-0001.json");
    let old = json!({
        "id": "msg-20200115-101010-codex-0001", "timestamp": switchboard_sys::clock::Clock::system().now().to_string(), "session_id": "general",
        "from": "codex", "to": "qc-1", "type": "chat", "content": { "text": "what is it?" },
    });
    files::put_by_rename(&path, old.to_string());
    answer_to(&sandbox, "msg-20200115-101010-codex-0001");
    assert_snapshot!(sandbox.show(["channel", "archive", "general"]), @"
    exit 0
    --- stdout
    0 messages moved to the archive of general
    --- stderr
    1 file of that age left in place: written within the last hour, or not ingested (see `switchboard doctor`).
    ");
    let long_ago = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_579_000_000);
    std::fs::File::open(&path).unwrap().set_modified(long_ago).unwrap();
    assert_snapshot!(sandbox.show(["channel", "archive", "general", "--older-than", "7d"]), @"
    exit 0
    --- stdout
    1 message moved to the archive of general
    ");
    assert!(sandbox.file("channels/general/archive/2020-01/msg-20200115-101010-codex-0001.json").exists());
    let texts: Vec<_> = messages(&sandbox).iter().map(|message| message["content"]["text"].clone()).collect();
    assert_eq!(texts, ["what is it?", "42"]);
    let next = post(&sandbox, "human", "qc-1", "and now?");
    answer_to(&sandbox, &next);
    assert_eq!((program.runs(), sandbox.json(["tail", "-n", "100"]).len()), (2, 4));
    assert_eq!(sandbox.json(["channel", "list"])[0]["archived"], 1);
    assert_snapshot!(sandbox.show(["channel", "archive", "genral"]), @"
    exit 5
    --- stderr
    error: there is no channel 'genral'
    hint: did you mean 'general'?
    ");
    assert_eq!(sandbox.run(["channel", "archive", "general", "--older-than", "0s"]).code, Some(2));
}
