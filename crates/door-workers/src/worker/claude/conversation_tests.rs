//! Recorded transcripts, and random interleavings of turns.

use proptest::prelude::*;

use super::*;

/// Replays a recording. Sends each own prompt once the one before has ended, as a node does.
///
/// Returns one line per end of a turn: owner, status, answer and tokens.
fn replay(name: &str, is_ours: impl Fn(&str) -> bool) -> Vec<String> {
    let path = format!("{}/../../fixtures/claude/2.1.327-{name}.jsonl", env!("CARGO_MANIFEST_DIR"));
    let recorder = std::fs::read_to_string(path).unwrap();
    let mut conversation = Conversation::default();
    let (mut waiting, mut running) = (std::collections::VecDeque::new(), None::<String>);
    let (mut answer, mut tokens, mut lines) = (None, 0, Vec::new());
    for line in recorder.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        if let Some(uuid) = line.pointer("/>/uuid").and_then(Value::as_str) {
            waiting.extend(is_ours(uuid).then(|| uuid.to_owned()));
        }
        if running.is_none()
            && let Some(next) = waiting.pop_front()
        {
            conversation.prompt(next.clone(), "any");
            running = Some(next);
        }
        let Some(frame) = line.get("<") else { continue };
        for report in conversation.handle_frame(frame).reports {
            match report {
                Report::Answer(text) => answer = Some(text),
                Report::Usage(used) => tokens = used.total_tokens,
                Report::Ended { status, .. } => {
                    let answer = short(answer.take());
                    lines.push(format!("{} {} {answer} {tokens}", running.take().unwrap(), status.as_str()));
                }
                Report::OwnTurn(OwnTurnReport::Ended { status, answer, tokens, .. }) => {
                    let tokens = tokens.map_or(0, |tokens| tokens.total_tokens);
                    lines.push(format!("own {} {} {tokens}", status.as_str(), short(answer)));
                }
                _ => {}
            }
        }
    }
    lines
}

fn short(answer: Option<String>) -> String {
    answer.map_or("-".to_owned(), |answer| answer.chars().take(10).collect::<String>().replace(' ', "_"))
}

#[test]
fn transcripts_end_each_prompt_once() {
    let all = |_: &str| true;
    assert_eq!(
        replay("text-two-turns", all),
        ["inj-1 completed one_two_th 159", "0f8fad5b-d9cb-469f-a165-70867728950e completed second 159"]
    );
    assert_eq!(replay("api-errors-retry", all), ["inj-500 failed - 0"]);
    assert_eq!(
        replay("approvals-accept-decline-cancel", all),
        [
            "inj-accept completed ok_|_tool_ 318",
            "inj-decline completed ok2_|_tool 318",
            "inj-cancel failed - 159",
            "inj-int completed ok3_|_tool 159",
            "inj-after completed after_inte 159"
        ]
    );
    assert_eq!(replay("interrupt-while-streaming", all), ["inj-int failed a_b_c_d_ 0"]);
    assert_eq!(
        replay("interrupt-tool-queue-interrupt-ask-background-turn", all),
        [
            "inj-int2 failed - 159",
            "inj-A completed first_a_b_ 159",
            "inj-B completed second 159",
            "inj-int3 failed - 159",
            "inj-bg completed started_bg 318",
            "own completed GOT[nuine_ 159"
        ]
    );
}

#[test]
fn merged_prompt_gets_its_part_of_turn() {
    let name = "second-frame-merged-mid-turn";
    assert_eq!(replay(name, |uuid| uuid == "inj-A"), ["inj-A completed finished_A 477"]);
    // The turn was another's until it merged the prompt: one of its three requests counts for the injection.
    assert_eq!(
        replay(name, |uuid| uuid == "inj-B"),
        ["own completed - 159", "inj-B completed finished_A 318"]
    );
}

#[test]
fn foreign_question_is_not_asked_for_injection() {
    let mut conversation = Conversation::default();
    let question = json!({ "type": "control_request", "request_id": "q", "request": {
        "subtype": "can_use_tool", "tool_name": "Bash", "input": { "command": "ls" } } });
    conversation.handle_frame(&json!({ "type": "system", "subtype": "init" }));
    conversation.prompt("a".into(), "any");
    let reports = conversation.handle_frame(&question).reports;
    assert!(
        matches!(reports.as_slice(), [Report::OwnTurn(OwnTurnReport::Question { key: 1, .. })]),
        "{reports:?}"
    );
    let answer = conversation.decide(1, Decision::Accept).unwrap();
    assert_eq!(answer["response"]["request_id"], "q");
}

#[test]
fn subagent_text_is_no_answer() {
    let mut conversation = Conversation::default();
    conversation.prompt("a".into(), "any");
    let line = json!({ "type": "assistant", "parent_tool_use_id": "t1",
        "message": { "content": [{ "type": "text", "text": "inner" }] } });
    assert_eq!(conversation.handle_frame(&line).reports, []);
}

/// Simulation of Claude Code, reduced to its turns.
#[derive(Default)]
struct Simulated {
    /// True if it names prompts, as newer versions do.
    names: bool,
    /// The queued prompt.
    queued: Option<String>,
    /// Prompts of the running turn; empty in an own turn.
    turn: Option<Vec<String>>,
    requests: u64,
    own_turns: usize,
}

impl Simulated {
    /// Adds the fields that name the prompts of the running turn.
    fn named(&self, mut frame: Value) -> Value {
        let prompts = self.turn.clone().unwrap_or_default();
        if self.names && !prompts.is_empty() {
            frame["user_message_uuids"] = json!(prompts);
        }
        frame
    }

    fn lifecycle(&self, prompt: &str, state: &str) -> Option<Value> {
        self.names.then(|| json!({ "type": "command_lifecycle", "command_uuid": prompt, "state": state }))
    }

    fn receive(&mut self, prompt: String) -> Vec<Value> {
        let frames = self.lifecycle(&prompt, "queued").into_iter().collect();
        self.queued = Some(prompt);
        frames
    }

    /// Starts a turn with the queued prompt, or an own turn.
    fn begin(&mut self) -> Vec<Value> {
        let prompt = self.queued.take();
        let mut frames: Vec<Value> =
            prompt.iter().filter_map(|prompt| self.lifecycle(prompt, "started")).collect();
        self.own_turns += usize::from(prompt.is_none());
        self.turn = Some(prompt.iter().cloned().collect());
        self.requests = 0;
        frames.push(self.named(json!({ "type": "system", "subtype": "init" })));
        frames.extend(prompt.map(|prompt| repeated(&prompt)));
        frames
    }

    /// Merges the queued prompt into the running turn.
    fn merge(&mut self) -> Vec<Value> {
        let Some(prompt) = self.queued.take() else { return Vec::new() };
        self.turn.as_mut().unwrap().push(prompt.clone());
        let mut frames = vec![repeated(&prompt)];
        frames.extend(self.lifecycle(&prompt, "started"));
        frames.push(self.named(json!({ "type": "system", "subtype": "status", "status": "requesting" })));
        frames
    }

    /// Sends text that names the prompts it answers.
    fn say(&mut self) -> Vec<Value> {
        self.requests += 1;
        let text = self.string_at();
        let delta = json!({ "type": "content_block_delta", "delta": { "type": "text_delta", "text": text } });
        let message = json!({ "content": [{ "type": "text", "text": text }] });
        let usage = json!({ "type": "message_delta", "usage": { "output_tokens": 10 } });
        vec![
            json!({ "type": "stream_event", "event": delta }),
            json!({ "type": "assistant", "message": message }),
            json!({ "type": "stream_event", "event": usage }),
        ]
    }

    fn string_at(&self) -> String {
        self.turn.as_ref().unwrap().last().cloned().unwrap_or_else(|| "own".to_owned())
    }

    fn handle_result(&mut self, is_error: bool) -> Vec<Value> {
        let subtype = if is_error { "error_during_execution" } else { "success" };
        let mut result = self.named(json!({
            "type": "result", "subtype": subtype, "is_error": is_error,
            "usage": { "output_tokens": 10 * self.requests },
        }));
        if !is_error && self.requests > 0 {
            result["result"] = json!(self.string_at());
        }
        let prompts = self.turn.take().unwrap();
        if self.names && prompts.is_empty() {
            result["origin"] = json!({ "kind": "task" });
        }
        let after = prompts.last().and_then(|prompt| self.lifecycle(prompt, "completed"));
        [result].into_iter().chain(after).collect()
    }
}

fn repeated(prompt: &str) -> Value {
    json!({ "type": "user", "isReplay": true, "uuid": prompt, "message": { "content": "any" } })
}

#[derive(Debug, Clone, Copy)]
enum Action {
    Give,
    Begin,
    BeginOwn,
    Merge,
    Say,
    End,
    Break,
}

/// The node's view: reports about the running injection.
#[derive(Default)]
struct Recorder {
    running: Option<(String, u64)>,
    given: usize,
    ended: usize,
    own_turn_end: usize,
}

impl Recorder {
    fn record(&mut self, reports: Vec<Report>) -> Result<(), TestCaseError> {
        for report in reports {
            let running = self.running.as_ref().map(|(id, _)| id.clone());
            match report {
                Report::Delta(text) | Report::Answer(text) => prop_assert_eq!(Some(text), running),
                Report::Usage(tokens) => {
                    let counted = self.running.as_ref().map(|(_, counted)| *counted);
                    prop_assert_eq!(Some(tokens.total_tokens), counted, "only its own requests count");
                }
                Report::Ended { .. } => {
                    prop_assert!(self.running.take().is_some(), "an end without an injection");
                    self.ended += 1;
                }
                Report::OwnTurn(OwnTurnReport::Ended { answer, .. }) => {
                    prop_assert!(answer.is_none_or(|answer| answer == "own"));
                    self.own_turn_end += 1;
                }
                _ => {}
            }
        }
        Ok(())
    }
}

fn run(names: bool, actions: &[Action]) -> Result<(), TestCaseError> {
    let mut claude = Simulated { names, ..Simulated::default() };
    let (mut conversation, mut recorder) = (Conversation::default(), Recorder::default());
    // Every turn ends.
    let rest = [Action::End, Action::Begin, Action::Say, Action::End];
    for action in actions.iter().copied().chain(rest) {
        let is_idle = claude.turn.is_none();
        let frames = match action {
            Action::Give if recorder.running.is_none() => {
                recorder.given += 1;
                let id = format!("inj-{}", recorder.given);
                conversation.prompt(id.clone(), "any");
                recorder.running = Some((id.clone(), 0));
                claude.receive(id)
            }
            Action::Begin if is_idle && claude.queued.is_some() => claude.begin(),
            // Without names, an own turn that starts beside a prompt cannot be told from the prompt's turn.
            Action::BeginOwn if is_idle && (claude.queued.is_none() || names) => {
                let queued = claude.queued.take();
                let frames = claude.begin();
                claude.queued = queued;
                frames
            }
            Action::Merge if !is_idle => claude.merge(),
            Action::Say if !is_idle => {
                let frames = claude.say();
                if let Some((id, tokens)) = &mut recorder.running
                    && *id == claude.string_at()
                {
                    *tokens += 10;
                }
                frames
            }
            Action::End if !is_idle => claude.handle_result(false),
            Action::Break if !is_idle => claude.handle_result(true),
            _ => Vec::new(),
        };
        for frame in frames {
            recorder.record(conversation.handle_frame(&frame).reports)?;
        }
    }
    prop_assert_eq!((recorder.given, recorder.running), (recorder.ended, None));
    prop_assert_eq!(recorder.own_turn_end, claude.own_turns);
    Ok(())
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let action = prop_oneof![
        3 => Just(Action::Give),
        3 => Just(Action::Begin),
        2 => Just(Action::BeginOwn),
        1 => Just(Action::Merge),
        4 => Just(Action::Say),
        3 => Just(Action::End),
        1 => Just(Action::Break),
    ];
    proptest::collection::vec(action, 0..60)
}

proptest! {
    #[test]
    fn interleaved_turns_have_separate_answers(names in any::<bool>(), actions in actions()) {
        run(names, &actions)?;
    }
}
