use serde_json::json;

use super::*;

#[test]
fn resumed_conversation_shows_prompt_outcome() {
    let resumed = json!({ "thread": { "turns": [
        { "status": "completed", "items": [
            { "type": "userMessage", "clientId": "one" }, { "type": "agentMessage", "text": "1" },
            { "type": "agentMessage", "text": "the answer" },
        ] },
        { "status": "interrupted", "items": [{ "type": "userMessage", "clientId": "two" }] },
    ] } });
    assert_eq!(
        prompt_outcome(&resumed, "one"),
        PromptOutcome::Answered { answer: Some("the answer".into()) }
    );
    assert_eq!(prompt_outcome(&resumed, "two"), PromptOutcome::Incomplete);
    assert_eq!(prompt_outcome(&resumed, "three"), PromptOutcome::NotReceived);
    assert_eq!(prompt_outcome(&json!({}), "one"), PromptOutcome::Unknown);
}

#[test]
fn commentary_does_not_replace_final_answer() {
    let mut items = Items::default();
    let message = |text: &str, phase: &str| json!({ "item": { "type": "agentMessage", "id": "m", "text": text, "phase": phase } });
    assert_eq!(
        items.handle_item(&message("so far", "commentary"), true),
        Some(Report::Answer("so far".into()))
    );
    assert_eq!(
        items.handle_item(&message("done", "final_answer"), true),
        Some(Report::Answer("done".into()))
    );
    assert_eq!(items.handle_item(&message("by the way", "commentary"), true), None);
}

#[test]
fn resumed_conversation_excludes_earlier_tokens() {
    let update = |turn: &str, total: u64, last: u64| {
        let usage = json!({ "total": { "totalTokens": total }, "last": { "totalTokens": last } });
        json!({ "threadId": "t", "turnId": turn, "tokenUsage": usage })
    };
    let used = |tokens: Option<Tokens>| tokens.map(|tokens| tokens.total_tokens);
    let mut meter = TokenMeter::default();
    meter.start_turn();
    // The next turn was requested, and its id is not known yet.
    assert_eq!(used(meter.update(&update("old", 100, 100), None)), None);
    assert_eq!(used(meter.update(&update("old", 100, 100), Some("new"))), None);
    assert_eq!(used(meter.update(&update("new", 130, 30), Some("new"))), Some(30));
    assert_eq!(used(meter.update(&update("new", 150, 20), Some("new"))), Some(50));
    meter.start_turn();
    assert_eq!(used(meter.update(&update("newer", 175, 25), Some("newer"))), Some(25));
    let mut silent = TokenMeter::default();
    silent.start_turn();
    assert_eq!(used(silent.update(&update("new", 130, 30), Some("new"))), Some(30));
}
