use serde_json::{Value, json};

use super::*;
use crate::test_workspace::{TestWorkspace, write_carelessly};

fn file(name: &str, instruction: &str) -> Value {
    json!({ "name": name, "persona": "p", "phases": [{ "id": "a", "instruction": instruction }] })
}

fn names(library: &WorkflowLibrary) -> Vec<&str> {
    library.workflows.iter().map(|workflow| workflow.name.as_str()).collect()
}

const NAMES: [&str; 8] =
    ["accuracy", "handoff", "handoff-lead", "handoff-chat", "handoff-relay", "enhance", "challenge", "chat"];

#[test]
fn built_in_workflows_are_valid() {
    let library = WorkflowLibrary::built_in();
    assert_eq!((names(&library), &library.skipped), (NAMES.to_vec(), &vec![]));
    let phases = |name: &str| -> Vec<String> {
        library.named(name).unwrap().phases.iter().map(|phase| phase.id.clone()).collect()
    };
    assert_eq!(phases("accuracy"), ["init", "planning", "review", "execution", "finalize"]);
    assert_eq!(phases("handoff"), ["split", "send", "review"]);
    assert_eq!(phases("handoff-lead"), ["stage", "send", "review"]);
    assert_eq!(phases("handoff-chat"), ["split", "prepare_clipboard", "review"]);
    assert_eq!(phases("handoff-relay"), ["split", "relay_stage", "pause_and_relay"]);
    assert_eq!(phases("enhance"), ["context_loading", "analysis", "hardening", "presentation"]);
    assert_eq!(phases("challenge"), ["scope", "dependency_check", "execute", "present", "finalize"]);
    assert_eq!(phases("chat"), ["activate_persona", "onboard", "iterate", "transition"]);
    for workflow in &library.workflows {
        let prohibited: &[&str] =
            if ["enhance", "chat"].contains(&workflow.name.as_str()) { &["run_in_terminal"] } else { &[] };
        assert_eq!(workflow.prohibited_tools, prohibited, "{}", workflow.name);
        let sends = ["handoff", "handoff-lead"].contains(&workflow.name.as_str());
        for phase in &workflow.phases {
            let required: &[&str] = if sends && phase.id == "send" { &["send_message"] } else { &[] };
            assert_eq!(phase.required_tools, required, "{} {}", workflow.name, phase.id);
            let is_talk = workflow.name == "chat" && phase.id != "transition";
            assert_eq!(phase.required_evidence.is_none(), is_talk, "{} {}", workflow.name, phase.id);
        }
    }
}

#[test]
fn workflow_is_found_by_spelling_and_alias() {
    let library = WorkflowLibrary::built_in();
    for (text, expected) in [
        (" Handoff_Lead", "handoff-lead"),
        ("handoff chat", "handoff-chat"),
        ("switchboard", "chat"),
        ("Quick_Start", "chat"),
        ("CHALLENGE", "challenge"),
    ] {
        assert_eq!(library.find(text).unwrap().name, expected, "{text}");
    }
    let error = library.find("chalenge").unwrap_err().to_string();
    assert_eq!(
        error,
        "workflow 'chalenge' is unknown; did you mean 'challenge' or 'chat'? available: accuracy, handoff, handoff-lead, \
         handoff-chat, handoff-relay, enhance, challenge, chat"
    );
    assert!(matches!(library.find("jules_plan"), Err(WorkflowError::Unknown { .. })), "not built in");
}

#[tokio::test]
async fn workspace_files_replace_and_add_workflows() {
    let t = TestWorkspace::new(&[]).await;
    let mut ours = file("julesplan", "plan it");
    ours["aliases"] = json!(["switchboard"]);
    t.write("workflows/jules.json", ours.to_string());
    t.write("workflows/other.json", file("Handoff", "our way").to_string());
    t.write("workflows/notes.txt", "no workflow");
    t.write("workflows/.hidden.json", "{");
    let library = t.workspace.workflow_library().await.unwrap();
    assert_eq!(library.skipped, []);
    assert_eq!(names(&library), [NAMES.to_vec(), vec!["julesplan"]].concat());
    assert_eq!(library.find("handoff").unwrap().phases[0].instruction, "our way");
    assert_eq!(library.find("remote plan").unwrap().name, "julesplan");
    assert_eq!(library.find("switchboard").unwrap().name, "julesplan", "our own alias comes first");
    assert_eq!(library.find("chat").unwrap().name, "chat");
}

#[tokio::test]
async fn invalid_file_is_reported_and_skipped() {
    let t = TestWorkspace::new(&[]).await;
    t.write("workflows/a.json", file("first", "i").to_string());
    t.write("workflows/b.json", file("first", "i").to_string());
    t.write("workflows/c.json", r#"{"name":"c","persona":"p","phases":"none"}"#);
    t.write("workflows/d.json", " ".repeat(65 * 1024));
    std::fs::create_dir(t.path("workflows/e.json")).unwrap();
    let outside = tempfile::tempdir().unwrap();
    write_carelessly(&outside.path().join("f.json"), file("leaked", "i").to_string());
    std::os::unix::fs::symlink(outside.path().join("f.json"), t.path("workflows/f.json")).unwrap();
    let library = t.workspace.workflow_library().await.unwrap();
    assert_eq!(names(&library), [NAMES.to_vec(), vec!["first"]].concat());
    let problems: Vec<(&str, &str)> =
        library.skipped.iter().map(|file| (file.path.as_str(), file.problem.as_str())).collect();
    let paths: Vec<&str> = problems.iter().map(|(path, _)| *path).collect();
    assert_eq!(paths, ["b", "c", "d", "e", "f"].map(|name| format!("workflows/{name}.json")));
    assert_eq!(problems[0].1, "field 'name': 'first' is taken by workflows/a.json");
    assert!(problems[1].1.starts_with("field 'phases': is the text \"none\""), "{}", problems[1].1);
    for (problem, expected) in
        problems[2..].iter().zip(["more than the 65536 allowed", "a directory", "a symbolic link"])
    {
        assert!(problem.1.contains(expected), "{problem:?}");
    }
    let error = library.find("second").unwrap_err().to_string();
    assert!(error.contains(". Not usable: workflows/b.json (field 'name'"), "{error}");
}

#[tokio::test]
async fn symlinked_folder_and_excess_files_are_reported() {
    let t = TestWorkspace::new(&[]).await;
    let outside = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(outside.path(), t.path("workflows")).unwrap();
    let library = t.workspace.workflow_library().await.unwrap();
    assert_eq!((names(&library), library.skipped.len()), (NAMES.to_vec(), 1));
    std::fs::remove_file(t.path("workflows")).unwrap();
    for number in 0..MAX_FILES + 5 {
        t.write(&format!("workflows/{number:03}.json"), file(&format!("w{number}"), "i").to_string());
    }
    let library = t.workspace.workflow_library().await.unwrap();
    assert_eq!(library.workflows.len(), NAMES.len() + MAX_FILES);
    let skipped = SkippedWorkflow {
        path: "workflows/100.json".into(),
        problem: "only the first 100 files are read".into(),
    };
    assert_eq!(library.skipped, [skipped]);
}

#[test]
fn documentation_lists_every_workflow_and_phase() {
    let docs = include_str!("../../../../docs/workflows.md");
    for workflow in WorkflowLibrary::built_in().workflows {
        let phases: Vec<&str> = workflow.phases.iter().map(|phase| phase.id.as_str()).collect();
        let row = format!("| `{}` | {} |", workflow.name, phases.join(" → "));
        assert!(docs.contains(&row), "{row}");
    }
    let example = docs.split("```json\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    assert_eq!(Workflow::read(example.as_bytes()).unwrap().name, "release");
}
