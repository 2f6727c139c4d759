use serde_json::json;

use super::*;

fn init(prompts: &[&str]) -> Value {
    let mut frame = json!({ "type": "system", "subtype": "init" });
    if !prompts.is_empty() {
        frame["user_message_uuids"] = json!(prompts);
    }
    frame
}

fn repeat(prompt: &str) -> Value {
    json!({ "type": "user", "isReplay": true, "uuid": prompt })
}

fn result(prompts: &[&str]) -> Value {
    let mut frame = json!({ "type": "result", "subtype": "success", "is_error": false });
    if !prompts.is_empty() {
        frame["user_message_uuids"] = json!(prompts);
    }
    frame
}

fn command(prompt: &str, state: &str) -> Value {
    json!({ "type": "command_lifecycle", "command_uuid": prompt, "state": state })
}

fn turns_with_prompt(prompt: &str) -> Turns {
    let mut turns = Turns::default();
    turns.register_prompt(prompt.to_owned());
    turns
}

#[test]
fn result_without_prompt_is_own() {
    let mut turns = turns_with_prompt("a");
    assert_eq!(turns.update(&command("a", "queued")), Step::Accepted);
    assert_eq!(turns.update(&init(&[])), Step::OwnTurnStarted);
    assert_eq!(turns.update(&result(&[])), Step::Ended(Owner::Agent));
    turns.reset(Owner::Agent);
    assert_eq!(turns.update(&init(&["a"])), Step::Accepted);
    assert_eq!(turns.update(&result(&["a"])), Step::Ended(Owner::Injection));
}

#[test]
fn result_names_prompt_in_either_field() {
    for named in [json!({ "user_message_uuid": "a" }), json!({ "user_message_uuids": ["x", "a"] })] {
        let mut frame = result(&[]);
        frame.as_object_mut().unwrap().extend(named.as_object().unwrap().clone());
        assert_eq!(turns_with_prompt("a").update(&frame), Step::Ended(Owner::Injection), "{frame}");
        assert_eq!(turns_with_prompt("b").update(&frame), Step::Ended(Owner::Agent), "{frame}");
    }
}

#[test]
fn result_with_origin_is_own() {
    let mut frame = result(&[]);
    frame["origin"] = json!({ "kind": "task" });
    assert_eq!(turns_with_prompt("a").update(&frame), Step::Ended(Owner::Agent));
}

#[test]
fn old_versions_end_turns_in_order() {
    // A version that neither names nor repeats prompts.
    let mut turns = turns_with_prompt("a");
    assert_eq!(turns.update(&init(&[])), Step::Same);
    assert_eq!(turns.owner(), Owner::Injection);
    assert_eq!(turns.update(&result(&[])), Step::Ended(Owner::Injection));
    turns.reset(Owner::Injection);
    // A turn that starts while no prompt waits is an own turn, even if a prompt arrives during it.
    assert_eq!(turns.update(&init(&[])), Step::OwnTurnStarted);
    turns.register_prompt("b".into());
    assert_eq!(turns.owner(), Owner::Agent);
    assert_eq!(turns.update(&result(&[])), Step::Ended(Owner::Agent));
    turns.reset(Owner::Agent);
    assert_eq!(turns.update(&result(&[])), Step::Ended(Owner::Injection));
}

#[test]
fn repeated_prompts_identify_turns_of_old_versions() {
    let mut turns = turns_with_prompt("a");
    turns.update(&repeat("a"));
    assert_eq!(turns.update(&result(&[])), Step::Ended(Owner::Injection));
    turns.reset(Owner::Injection);
    turns.register_prompt("b".into());
    assert_eq!(turns.update(&result(&[])), Step::Ended(Owner::Agent), "b was not repeated yet");
    turns.reset(Owner::Agent);
    assert_eq!(turns.update(&repeat("b")), Step::Accepted);
    assert_eq!(turns.update(&result(&[])), Step::Ended(Owner::Injection));
}

#[test]
fn cancelled_prompt_has_no_turn() {
    for state in ["cancelled", "discarded"] {
        let mut turns = turns_with_prompt("a");
        turns.update(&init(&[]));
        assert_eq!(turns.update(&command("a", state)), Step::Cancelled);
        assert_eq!(turns.update(&command("other", state)), Step::Same);
    }
}
