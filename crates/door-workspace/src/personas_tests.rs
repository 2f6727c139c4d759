use std::os::unix::fs::symlink;

use serde_json::json;

use super::*;
use crate::test_workspace::{TestWorkspace, agent, inbox_file, name, outgoing, write_carelessly};

fn write(t: &TestWorkspace, below: &str, text: &str) {
    write_carelessly(&t.workspace_folder().join(".agent/personas").join(below), text);
}

async fn text_for(t: &TestWorkspace, who: &str, metadata: Value) -> Option<String> {
    let Value::Object(metadata) = metadata else { panic!("an object") };
    let persona = t.workspace.persona_for(&agent(who), &metadata).await.unwrap();
    assert_eq!(persona.problem, None);
    persona.text
}

#[tokio::test]
async fn persona_in_roles_folder_has_precedence() {
    let t = TestWorkspace::new(&["codex"]).await;
    t.workspace.assign_role(name("codex"), "coder 2").await.unwrap();
    assert_eq!(text_for(&t, "codex", json!({})).await, None, "most workspaces have none");
    write(&t, "coder.md", "  plain\n");
    assert_eq!(text_for(&t, "codex", json!({})).await.as_deref(), Some("plain"));
    write(&t, "roles/coder.md", "in roles");
    assert_eq!(text_for(&t, "codex", json!({})).await.as_deref(), Some("in roles"));
    write(&t, "roles/coder.md", " \n");
    assert_eq!(
        text_for(&t, "codex", json!({})).await.as_deref(),
        Some("plain"),
        "an empty file says nothing"
    );
}

#[tokio::test]
async fn enforced_persona_precedes_role_and_name() {
    let t = TestWorkspace::new(&["codex", "tester", "claude"]).await;
    for file in ["coder.md", "tester.md", "task_runner.md"] {
        write(&t, file, file);
    }
    t.workspace.assign_role(name("codex"), "coder").await.unwrap();
    let enforced = json!({ "phase_gate": { "enforce_persona": "task_runner" } });
    for (who, metadata, expected) in [
        ("codex", enforced.clone(), Some("task_runner.md")),
        ("codex", json!({ "phase_gate": { "enforce_persona": "wizard" } }), Some("coder.md")),
        ("codex", json!({}), Some("coder.md")),
        ("tester", json!({}), Some("tester.md")),
        ("claude", json!({}), None),
        ("claude", enforced, Some("task_runner.md")),
    ] {
        assert_eq!(text_for(&t, who, metadata.clone()).await.as_deref(), expected, "{who} {metadata}");
    }
    t.workspace.assign_role(name("tester"), "coder").await.unwrap();
    assert_eq!(text_for(&t, "tester", json!({})).await.as_deref(), Some("coder.md"));
}

#[tokio::test]
async fn unusable_persona_is_skipped_and_reported() {
    let outside = tempfile::tempdir().unwrap();
    write_carelessly(&outside.path().join("lead.md"), "secret");
    for case in ["too long", "a link", "a link on the way", "no text"] {
        let t = TestWorkspace::new(&["lead"]).await;
        let personas = t.workspace_folder().join(".agent/personas");
        match case {
            "too long" => write(&t, "lead.md", &"x".repeat(16 * 1024 + 1)),
            "no text" => write_carelessly(&personas.join("lead.md"), [0xff, 0xfe]),
            "a link" => {
                std::fs::create_dir_all(&personas).unwrap();
                symlink(outside.path().join("lead.md"), personas.join("lead.md")).unwrap();
            }
            _ => {
                std::fs::create_dir_all(personas.parent().unwrap()).unwrap();
                symlink(outside.path(), &personas).unwrap();
            }
        }
        let persona = t.workspace.persona_for(&agent("lead"), &Map::new()).await.unwrap();
        assert_eq!(persona.text, None, "{case}");
        let problem = persona.problem.unwrap();
        let expected = match case {
            "too long" => "16385 bytes and a persona has at most 16384: shorten it",
            "no text" => "is not UTF-8 text",
            "a link" => "is not a file but a symbolic link",
            _ => "is not a directory but a symbolic link",
        };
        assert!(problem.contains(expected), "{case}: {problem}");
    }
}

#[tokio::test]
async fn persona_is_a_separate_field() {
    let t = TestWorkspace::new(&["codex"]).await;
    let id = t.send(outgoing("claude", "codex", "do it").with_persona("be brave")).await;
    let file = t.json(&inbox_file("codex", id));
    assert_eq!((&file["payload"], &file["persona"]), (&"do it".into(), &"be brave".into()));
    assert_eq!(file.get("metadata"), None);
    // Rebuilt from the file after the database is lost, it is the same message.
    let t = t.lose_database().await;
    assert_eq!(t.json(&inbox_file("codex", id))["persona"], "be brave");
    assert_eq!(t.waiting("codex").await, ["do it"]);
}
