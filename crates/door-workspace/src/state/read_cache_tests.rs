use jiff::SignedDuration;

use super::*;
use crate::test_workspace::TestWorkspace;

/// Sets the file's modification time to this many seconds ago.
fn date(t: &TestWorkspace, seconds: i64) {
    t.set_age("state.json", SignedDuration::from_secs(seconds));
}

#[tokio::test]
async fn unchanged_file_is_read_once() {
    let t = TestWorkspace::new(&["codex"]).await;
    date(&t, 60);
    let (file, other) = (t.workspace.state().clone(), t.workspace.state().clone());
    let first = file.read_all().unwrap();
    assert!(Arc::ptr_eq(&first, &other.read_all().unwrap()));
    assert!(first["chatAgents"].as_object().unwrap().contains_key("codex"));
}

#[tokio::test]
async fn every_change_is_detected() {
    let t = TestWorkspace::new(&["codex"]).await;
    let state = t.workspace.state();
    date(&t, 60);
    assert!(!state.read_all().unwrap().contains_key("ours"));
    // Ours, through another handle, like another process.
    let other = crate::state::StateFile::new(t.workspace.tree().root().clone());
    other.update(|state| state.insert("ours".into(), 1.into()).is_none()).unwrap();
    assert_eq!(state.read_all().unwrap()["ours"], 1);
    // A careless one: in place, with the same length, at another time.
    date(&t, 60);
    assert_eq!(state.read_all().unwrap()["ours"], 1);
    let text = String::from_utf8(t.bytes("state.json")).unwrap();
    t.write("state.json", text.replace("\"ours\": 1", "\"ours\": 2"));
    assert_eq!(state.read_all().unwrap()["ours"], 2);
    // A removal of the file.
    date(&t, 60);
    assert_eq!(state.read_all().unwrap()["ours"], 2);
    std::fs::remove_file(t.path("state.json")).unwrap();
    assert!(!state.read_all().unwrap().contains_key("ours"));
}

#[tokio::test]
async fn recently_changed_file_is_not_cached() {
    let t = TestWorkspace::new(&["codex"]).await;
    date(&t, -60);
    let state = t.workspace.state();
    assert!(!Arc::ptr_eq(&state.read_all().unwrap(), &state.read_all().unwrap()));
}
