//! `switchboard workflow` and `switchboard agents role`

use insta::assert_snapshot;
use serde_json::Value;
use test_support::{RunOutput, Sandbox, files};

use crate::{bare, workspace};

fn with_plan() -> Sandbox {
    let sandbox = workspace();
    files::put_by_rename(sandbox.path().join("plan.md"), "the plan");
    sandbox
}

#[test]
fn list_shows_usable_and_broken_workflows() {
    let sandbox = workspace();
    let own = r#"{"name":"Tidy Up","description":"Put things away.","persona":"p","phases":[{"id":"look","instruction":"Look."}]}"#;
    files::put_by_rename(sandbox.file("workflows/own.json"), own);
    files::put_by_rename(sandbox.file("workflows/bad.json"), r#"{"name":5}"#);
    assert_snapshot!(sandbox.show(["workflow", "list"]), @"
    exit 0
    --- stdout
    accuracy: Careful work alone: plan, check the plan, carry it out, check the result.
        init → planning → review → execution → finalize
    handoff: Split the work and hand the well-defined parts to a coder.
        split → send → review
    handoff-lead: Hand a whole plan to the lead.
        stage → send → review
    handoff-chat: Hand work to an agent that can only be reached by copy and paste.
        split → prepare_clipboard → review
    handoff-relay: Do the hard part, then stop so that another model can go on from here.
        split → relay_stage → pause_and_relay
    enhance: Make a plan better before anyone acts on it.
        context_loading → analysis → hardening → presentation
    challenge: A harsh review, and a fair one after it.
        scope → dependency_check → execute → present → finalize
    chat: Talk a task through before any work begins.
        activate_persona → onboard → iterate → transition
    tidy-up: Put things away.
        look
    --- stderr
    Not usable: .switchboard/workflows/bad.json: field 'name': is the number 5, but must be a text in double quotes
    ");
    let listed = sandbox.json(["workflow", "list"]);
    assert_eq!(listed.len(), 9);
    assert_eq!(listed[8]["name"], "tidy-up");
    assert_eq!(listed[1]["routes"][0]["to"], "coder");
}

#[test]
fn workflow_advances_through_its_phases() {
    let sandbox = with_plan();
    assert_snapshot!(sandbox.show(["workflow"]), @"
    exit 0
    --- stderr
    No workflow is active; `switchboard workflow list` lists those there are.
    ");
    assert_snapshot!(sandbox.show(["workflow", "start", "Challenge", "--context", "the parser"]), @"
    exit 0
    --- stdout
    Workflow 'challenge' started for the session, 5 phases.
    Persona: You are two reviewers in turn: first one who trusts nothing and finds what is wrong, then one who weighs each finding and decides what to do about it.
    Step 1: Say what is under review and what is not: files, claims, limits.
    ");
    assert_snapshot!(sandbox.show(["workflow", "complete", "challenge", "1"]), @"
    exit 1
    --- stderr
    error: PHASE 1 INCOMPLETE: Missing required artifacts: 'challenge' asks for evidence: the files or the plan under review. Give the path of at least one file or folder in the workspace under 'artifacts'
    hint: name files with --artifact PATH
    ");
    assert_snapshot!(sandbox.show(["workflow", "complete", "challenge", "1", "--artifact", "gone.md", "--artifact", "/etc/passwd"]), @"
    exit 1
    --- stderr
    error: PHASE 1 INCOMPLETE: Missing required artifacts: gone.md (not found), /etc/passwd (outside the workspace). Create them inside the workspace, then complete the phase again
    hint: name files with --artifact PATH
    ");
    assert_snapshot!(sandbox.show(["workflow", "complete", "challenge", "1", "--artifact", "plan.md", "--note", "one file"]), @"
    exit 0
    --- stdout
    PHASE 1 COMPLETE: challenge (1 artifacts validated)
    Step 2: Find what depends on it and what it depends on; read both.
    ");
    assert_snapshot!(sandbox.show(["workflow", "complete", "challenge", "5", "--artifact", "plan.md"]), @"
    exit 4
    --- stderr
    error: phase 5 of 'challenge' is not due: phase 2 is. Tip: complete phase 2 first, or give a skipReason that says why it can be skipped
    hint: --skip-reason TEXT leaves phases out
    ");
    assert_snapshot!(sandbox.show(["workflow", "complete", "challenge", "-1", "--artifact", "plan.md"]), @"
    exit 1
    --- stderr
    error: phase -1 is invalid: phases are whole numbers from 1
    ");
    assert_snapshot!(sandbox.show(["workflow", "state"]), @"
    exit 0
    --- stdout
    session: challenge, 1/5 phases done
        next: dependency_check: Find what depends on it and what it depends on; read both.
        evidence: the files that were read
    ");
    assert_snapshot!(sandbox.show(["workflow", "complete", "challenge", "5", "--artifact", "plan.md", "--skip-reason", "nothing to review"]), @"
    exit 0
    --- stdout
    PHASE 5 COMPLETE: challenge (1 artifacts validated) (Workflow Auto-Stopped)
    ");
    let state = files::read_json_object(&sandbox.file("state.json")).unwrap();
    let skipped = &state["session"]["completedPhases"]["challenge"][1]["skipped"];
    assert_eq!((&skipped["from"], &skipped["reason"]), (&1.into(), &"nothing to review".into()));
    assert_eq!(state["session"]["lastOutcome"], "Completed challenge");
}

#[test]
fn artifacts_resolve_from_a_subfolder() {
    let sandbox = with_plan();
    files::put_by_rename(sandbox.path().join("src/lib.rs"), "code");
    sandbox.ok(["workflow", "start", "accuracy"]);
    for (phase, path) in [("1", "lib.rs"), ("2", "plan.md"), ("3", "../plan.md")] {
        let mut complete = sandbox.command(["workflow", "complete", "accuracy", phase, "--artifact", path]);
        RunOutput::of(complete.current_dir(sandbox.path().join("src"))).ok();
    }
}

#[test]
fn workflow_is_locked_replaced_suspended_resumed() {
    let sandbox = workspace();
    sandbox.ok(["workflow", "start", "chat"]);
    assert_snapshot!(sandbox.show(["workflow", "start", "handoff_lead"]), @"
    exit 4
    --- stderr
    error: WORKFLOW LOCK: 'chat' is active for the session at step 0/4, so 'handoff-lead' was not started. Tip: complete its phases or stop it; force=true replaces it and discards its progress; suspend=true suspends it until the new one ends
    hint: `switchboard workflow stop` ends it; --force replaces it, --suspend suspends it
    ");
    assert_snapshot!(sandbox.show(["workflow", "start", "enhance", "--suspend", "--json"]), @r#"
    exit 0
    --- stdout
    {"agent":null,"next":{"id":"context_loading","instruction":"Read the plan and every file it names.","requiredEvidence":"the plan file"},"phases":4,"replaced":null,"suspended":"chat","workflow":"enhance"}
    "#);
    assert_snapshot!(sandbox.show(["workflow", "start", "handoff", "--force", "--json"]), @r#"
    exit 0
    --- stdout
    {"agent":null,"next":{"id":"split","instruction":"Divide the task into what you keep and what you hand over. Write the part to hand over into a file that can be followed without asking back.","requiredEvidence":"the file with the part to hand over"},"phases":3,"replaced":"enhance","suspended":null,"workflow":"handoff"}
    "#);
    sandbox.ok(["workflow", "start", "accuracy", "--agent", "codex"]);
    assert_snapshot!(sandbox.show(["workflow", "state"]), @"
    exit 0
    --- stdout
    session: handoff, 0/3 phases done
        next: split: Divide the task into what you keep and what you hand over. Write the part to hand over into a file that can be followed without asking back.
        evidence: the file with the part to hand over
    codex: accuracy, 0/5 phases done
        next: init: Read the task and the code it touches. Write down the goal, what must not change, and how you will know that it is done.
        evidence: the notes or the files that define the task
    suspended: chat
    ");
    assert_snapshot!(sandbox.show(["workflow", "stop", "--reason", "enough"]), @"
    exit 0
    --- stdout
    Workflow 'handoff' stopped for the session: enough
    Resumed: chat
    ");
    assert_snapshot!(sandbox.show(["workflow", "stop", "--json"]), @r#"
    exit 0
    --- stdout
    {"agent":null,"outcome":"Stopped","resumed":null,"workflow":"chat"}
    "#);
    assert_snapshot!(sandbox.show(["workflow", "stop"]), @"
    exit 5
    --- stderr
    error: No active workflow to stop for the session
    hint: `switchboard workflow state` shows what is active
    ");
    assert_snapshot!(sandbox.show(["workflow", "stop", "--agent", "codx"]), @"
    exit 5
    --- stderr
    error: no agent is named 'codx'
    hint: did you mean 'codex'?
    ");
    let state = &sandbox.json(["workflow", "state"])[0];
    assert_eq!(state["session"]["status"], "IDLE");
    assert_eq!(state["summary"]["agents"]["codex"]["workflow"], "accuracy");
}

#[test]
fn unknown_workflow_suggests_nearest_name() {
    let sandbox = workspace();
    assert_snapshot!(sandbox.show(["workflow", "start", "handof"]), @"
    exit 5
    --- stderr
    error: workflow 'handof' is unknown; did you mean 'handoff' or 'handoff-chat' or 'handoff-lead'? available: accuracy, handoff, handoff-lead, handoff-chat, handoff-relay, enhance, challenge, chat
    hint: `switchboard workflow list` lists the workflows
    ");
    assert_snapshot!(sandbox.show(["workflow", "complete", "chat", "1"]), @r#"
    exit 5
    --- stderr
    error: workflow 'chat' is not active for the session: none is. Tip: start_workflow(name="chat")
    hint: `switchboard workflow state` shows what is active
    "#);
}

#[test]
fn concurrent_processes_complete_phase_once() {
    let sandbox = bare();
    let agents: Vec<String> = (0..6).map(|number| format!("agent{number}")).collect();
    sandbox.ok([vec!["init"], agents.iter().map(String::as_str).collect()].concat());
    files::put_by_rename(sandbox.path().join("plan.md"), "the plan");
    sandbox.ok(["workflow", "start", "accuracy"]);
    let first: Vec<RunOutput> = std::thread::scope(|scope| {
        let running: Vec<_> = agents
            .iter()
            .map(|agent| {
                let sandbox = &sandbox;
                scope.spawn(move || {
                    sandbox.ok(["workflow", "start", "enhance", "--agent", agent]);
                    for phase in ["1", "2", "3"] {
                        let complete = ["workflow", "complete", "enhance", phase, "--artifact", "plan.md"];
                        sandbox.ok([complete.as_slice(), &["--agent", agent]].concat());
                    }
                    sandbox.run(["workflow", "complete", "accuracy", "1", "--artifact", "plan.md"])
                })
            })
            .collect();
        running.into_iter().map(|running| running.join().unwrap()).collect()
    });
    let completed = first.iter().filter(|ran| ran.code == Some(0)).count();
    assert_eq!(completed, 1, "{first:?}");
    let refused =
        first.iter().filter(|ran| ran.stderr.contains("phase 1 of 'accuracy' is already completed"));
    assert_eq!(refused.count(), 5, "{first:?}");
    let state: Value = files::read_json_object(&sandbox.file("state.json")).unwrap();
    assert_eq!(state["session"]["completedPhases"]["accuracy"].as_array().unwrap().len(), 1);
    for agent in &agents {
        let record = &state["chatAgents"][agent];
        assert_eq!(
            (&record["activeWorkflow"], &record["currentStep"]),
            (&"enhance".into(), &3.into()),
            "{agent}"
        );
        assert_eq!(record["completedPhases"]["enhance"].as_array().unwrap().len(), 3, "{agent}");
    }
}

#[test]
fn role_is_assigned_and_revoked() {
    let sandbox = workspace();
    assert_snapshot!(sandbox.show(["agents", "role", "codex", "Coder_1"]), @"
    exit 0
    --- stdout
    codex, coder 1
    ");
    assert_snapshot!(sandbox.show(["agents", "role", "codex", "none"]), @"
    exit 0
    --- stdout
    codex
    ");
    assert_snapshot!(sandbox.show(["agents", "role", "codex", "testr"]), @"
    exit 5
    --- stderr
    error: role 'testr' is unknown; did you mean 'tester'? use one of: lead, coder 1, coder 2, reviewer, tester, researcher, execution, coder, planner, task runner, analyst, none
    ");
    assert_snapshot!(sandbox.show(["agents", "role", "codx", "tester"]), @"
    exit 5
    --- stderr
    error: no agent is named 'codx'
    hint: did you mean 'codex'?
    ");
}

#[test]
fn team_of_several_stays_plain() {
    let sandbox = workspace();
    sandbox.ok(["team", "create", "backend"]);
    sandbox.ok(["team", "add", "backend", "codex", "claude"]);
    assert_snapshot!(sandbox.show(["team", "create", "backend", "--composite"]), @"
    exit 1
    --- stderr
    error: 'backend' cannot become a composite team: it has 2 members (claude, codex)
    hint: remove all but one with `switchboard team remove`
    ");
}
