use serde_json::json;

use super::rig::Rig;

/// A program that replies with the next line of its script and records the prompts.
const SCRIPTED: &str = r#"
import os, sys
folder = sys.argv[1]
prompt = sys.stdin.read()
turn = len([name for name in os.listdir(folder) if name.startswith("prompt")])
open(os.path.join(folder, f"prompt{turn}"), "w").write(prompt)
lines = sys.argv[2:]
print("thinking...", file=sys.stderr)
print(lines[min(turn, len(lines) - 1)])
"#;

fn scripted(replies: &[&str]) -> (Rig, tempfile::TempDir) {
    let temp = tempfile::tempdir().expect("a folder");
    let mut command = vec!["python3", "-c", SCRIPTED, temp.path().to_str().expect("a path")];
    command.extend(replies);
    (Rig::new(json!({ "command": command, "maxTurns": 4 }), &[]), temp)
}

#[tokio::test(flavor = "multi_thread")]
async fn program_calls_tools_with_json_objects() {
    let (rig, prompts) = scripted(&[
        r#"Sure. {"tool": "notes_add", "args": {"text": "milk"}}"#,
        r#"{"tool": "fail", "args": {}"#,
        r#"{"tool": "fail"}"#,
        "```json\n{\"answer\": \"done\"}\n```",
    ]);
    let outcome = rig.ask("remember milk").await;
    assert_eq!((outcome.text.as_str(), outcome.is_error), ("done", false), "{}", outcome.data);
    let calls = [("notes_add", true), ("(unreadable)", false), ("fail", false)];
    assert_eq!(outcome.calls(), calls.map(|(tool, ok)| (tool.to_owned(), ok)));
    assert_eq!((&outcome.data["usage"]["estimated"], &outcome.data["turns"]), (&json!(true), &json!(4)));
    assert_eq!(rig.trace(), ["call notes.add {\"text\": \"milk\"}", "call fail {}"]);
    let prompt = std::fs::read_to_string(prompts.path().join("prompt3")).expect("the last prompt");
    assert!(prompt.starts_with("Your role is to use the MCP server `notes`"), "{prompt}");
    let order = [
        "exactly one JSON object",
        "\"name\":\"notes_add\"",
        "# Question\n\nremember milk",
        "# You replied\n\n{\"tool\": \"notes_add\", \"args\": {\"text\": \"milk\"}}",
        "# notes_add answered\n\n1 notes",
        "# (unreadable) failed\n\nyour reply was not one valid JSON object; reply again",
        "# fail failed\n\nthe disk is on fire",
        "# Note\n\nThis is your last turn",
    ];
    let at: Vec<usize> = order.iter().map(|text| prompt.find(text).expect(text)).collect();
    assert!(at.is_sorted(), "{at:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn failing_program_reports_its_error() {
    let rig = Rig::new(json!({ "command": ["python3", "-c", "import sys; sys.exit('not logged in')"] }), &[]);
    let outcome = rig.ask("hello?").await;
    assert!(outcome.is_error);
    assert_eq!(outcome.text, "the command `python3` ended with exit status: 1; it said: not logged in.");

    let rig = Rig::new(json!({ "command": ["/no/such/program"] }), &[]);
    let outcome = rig.ask("hello?").await;
    assert!(
        outcome.text.starts_with("the command `/no/such/program` cannot be started: No such file"),
        "{}",
        outcome.text
    );

    let (rig, _prompts) = scripted(&[""]);
    let outcome = rig.ask("hello?").await;
    assert!(outcome.text.starts_with("the command `python3` printed no answer"), "{}", outcome.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_provider_is_reported_on_first_question() {
    let rig = Rig::new(json!({}), &[("PATH", "/no/such/folder")]);
    let outcome = rig.ask("hello?").await;
    assert!(outcome.text.starts_with("no model is configured: set ANTHROPIC_API_KEY"), "{}", outcome.text);
}
