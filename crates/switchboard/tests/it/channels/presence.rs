//! `switchboard who`

use test_support::poll;

use super::{Program, answer_to, post};
use crate::workspace;

fn state(sandbox: &test_support::Sandbox, agent: &str) -> (String, Option<String>) {
    let row = sandbox.json(["who", agent]).remove(0);
    (row["presence"].as_str().unwrap().to_owned(), row["status"].as_str().map(str::to_owned))
}

#[test]
fn watcher_state_follows_its_process() {
    let sandbox = workspace();
    let program = Program::new(&sandbox, "program", "while [ ! -e go ]; do sleep 0.01; done\necho 42");
    let mut watch = sandbox.start(["watch", "--agent", "qc-1", "--channel", "general", "--", program.path()]);
    watch.line();
    poll::until("an idle watcher", || {
        (state(&sandbox, "qc-1") == ("awake".into(), Some("idle".into()))).then_some(())
    });
    let question = post(&sandbox, "human", "qc-1", "what is it?");
    poll::until("a working watcher", || {
        (state(&sandbox, "qc-1").1.as_deref() == Some("working")).then_some(())
    });
    test_support::files::put(sandbox.path().join("go"), "");
    answer_to(&sandbox, &question);
    let row = sandbox.json(["who", "qc-1"]).remove(0);
    assert_eq!((&row["channel"], row["pid"].as_u64()), (&"general".into(), Some(u64::from(watch.id()))));
    assert_eq!(row["doors"], serde_json::json!(["channels"]));
    watch.kill();
    assert_eq!(state(&sandbox, "qc-1").0, "offline");
}

#[test]
fn all_doors_list_agents_and_goodbyes() {
    let sandbox = workspace();
    sandbox.run_as("codex", ["send", "claude", "hi"]).ok();
    let mut watch = sandbox.start(["watch", "--agent", "qc-1", "--channel", "general", "--", "cat"]);
    watch.line();
    poll::until("a watcher", || (state(&sandbox, "qc-1").0 == "awake").then_some(()));
    assert!(watch.terminate().success());
    let names: Vec<_> =
        sandbox.json(["who"]).iter().map(|row| row["name"].as_str().unwrap().to_owned()).collect();
    assert_eq!(names, ["claude", "codex", "qc-1"]);
    assert_eq!(state(&sandbox, "qc-1").0, "offline");
    assert_eq!(state(&sandbox, "codex").0, "awake");
    assert_eq!(sandbox.run(["who", "nobody"]).code, Some(5));
    let beat = std::fs::read_to_string(sandbox.file("signals/presence/qc-1.json")).unwrap();
    assert!(beat.contains("\"state\": \"OFFLINE\""), "{beat}");
}
