use serde_json::json;

use super::*;

#[test]
fn the_conversation_says_what_became_of_a_prompt() {
    let resumed = json!({ "thread": { "turns": [
        { "status": "completed", "items": [
            { "type": "userMessage", "clientId": "one" }, { "type": "agentMessage", "text": "1" },
            { "type": "agentMessage", "text": "the answer" },
        ] },
        { "status": "interrupted", "items": [{ "type": "userMessage", "clientId": "two" }] },
    ] } });
    assert_eq!(fate(&resumed, "one"), Fate::Answered { answer: Some("the answer".into()) });
    assert_eq!(fate(&resumed, "two"), Fate::CutShort);
    assert_eq!(fate(&resumed, "three"), Fate::NotReceived);
    assert_eq!(fate(&json!({}), "one"), Fate::Unknown);
}

#[test]
fn a_remark_does_not_take_the_place_of_the_answer() {
    let mut items = Items::default();
    let message = |text: &str, phase: &str| json!({ "item": { "type": "agentMessage", "id": "m", "text": text, "phase": phase } });
    assert_eq!(items.take(&message("so far", "commentary"), true), Some(Report::Answer("so far".into())));
    assert_eq!(items.take(&message("done", "final_answer"), true), Some(Report::Answer("done".into())));
    assert_eq!(items.take(&message("by the way", "commentary"), true), None);
}
