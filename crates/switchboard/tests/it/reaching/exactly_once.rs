//! Each message is shown once, however many adapters run.

use std::sync::Barrier;

use serde_json::json;
use test_support::poll;

use super::{call, hook_input, start_waiter};
use crate::mcp::stdio;
use crate::workspace;

#[test]
fn concurrent_readers_show_each_message_once() {
    const HOOKS: usize = 6;
    let sandbox = workspace();
    for round in 0..3 {
        let texts: Vec<String> = (0..5).map(|n| format!("letter {round}-{n}-")).collect();
        for text in &texts {
            sandbox.send("codex", "claude", text);
        }
        let start = Barrier::new(HOOKS + 2);
        let shown: Vec<String> = std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for number in 0..HOOKS {
                let (sandbox, start) = (&sandbox, &start);
                threads.push(scope.spawn(move || {
                    start.wait();
                    let (word, event) =
                        [("post-tool", "PostToolUse"), ("user-prompt", "UserPromptSubmit"), ("stop", "Stop")]
                            [number % 3];
                    call(sandbox, &["claude", word], &hook_input(sandbox, event)).ok()
                }));
            }
            let (of_tool, waiting) = (&sandbox, &start);
            threads.push(scope.spawn(move || {
                let mut session = stdio(of_tool, Some("claude"));
                waiting.wait();
                session.ok("wait_for_message", json!({ "timeout": 1 })).to_string()
            }));
            waiting.wait();
            let beside = start_waiter(of_tool, "s");
            let mut shown: Vec<String> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
            // Only the concurrent reader may still be about to show a message.
            let is_shown = |text: &String| shown.iter().any(|shown| shown.contains(text.as_str()));
            let left: Vec<&String> = texts.iter().filter(|text| !is_shown(text)).collect();
            let all = || left.iter().all(|text| beside.errors().contains(text.as_str())).then_some(());
            poll::within(poll::TIMEOUT, all);
            shown.push(beside.errors());
            shown
        });
        for text in &texts {
            let times: usize = shown.iter().filter(|shown| shown.contains(text.as_str())).count();
            assert_eq!(times, 1, "{text} was shown {times} times in {shown:#?}");
        }
    }
}
