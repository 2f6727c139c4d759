//! `claude`: Claude Code through stream-json in both directions and the control protocol, one process per node.
//!
//! A prompt counts as accepted when the agent names it or repeats it with the injection's id, or sends any frame about
//! it.

mod conversation;
mod turns;

use std::ffi::OsString;

use serde_json::Value;

use self::conversation::Conversation;
use super::program::Program;
use super::{Order, Report, WorkerPipe, WorkerSpec};

pub(super) async fn run(spec: WorkerSpec, mut pipe: WorkerPipe) -> String {
    let program = match Program::start(&spec, arguments(&spec)).await {
        Ok(program) => program,
        Err(error) => return error,
    };
    let pid = Some(program.pid());
    let conversation = Conversation::new(pid, spec.session.clone());
    let mut claude = Claude { program, conversation };
    // Claude Code is ready at once: it sends nothing before its first prompt.
    pipe.report(Report::Ready { pid, session: spec.session }).await;
    loop {
        tokio::select! {
            line = claude.program.line() => {
                let Some(line) = line else { return claude.program.wait_exit().await.1 };
                if let Ok(frame) = serde_json::from_slice::<Value>(&line) {
                    claude.handle_frame(&frame, &pipe).await;
                }
            }
            order = pipe.orders.recv() => {
                let Some(order) = order else { break };
                if let Err(error) = claude.handle_order(order).await {
                    claude.program.stop().await;
                    return error;
                }
            }
            () = pipe.stop.cancelled() => break,
        }
    }
    claude.program.stop().await
}

fn arguments(spec: &WorkerSpec) -> Vec<OsString> {
    let mut args: Vec<OsString> = [
        "-p",
        "--input-format",
        "stream-json",
        "--output-format",
        "stream-json",
        "--verbose",
        "--include-partial-messages",
        "--replay-user-messages",
        "--permission-prompt-tool",
        "stdio",
    ]
    .map(OsString::from)
    .to_vec();
    let settings = [
        ("--model", &spec.launch.model),
        ("--permission-mode", &spec.launch.approval_policy),
        ("--append-system-prompt", &spec.launch.instructions),
        ("--resume", &spec.session),
    ];
    for (name, value) in settings {
        if let Some(value) = value {
            args.extend([name.into(), value.into()]);
        }
    }
    args
}

struct Claude {
    program: Program,
    conversation: Conversation,
}

impl Claude {
    async fn handle_order(&mut self, order: Order) -> Result<(), String> {
        match order {
            Order::Turn { injection, content } => {
                let frame = self.conversation.prompt(injection, &content);
                self.write(frame).await
            }
            Order::Steer { answer, .. } => {
                // Claude Code would queue a second prompt for the next turn, which would then have no injection.
                let _ = answer.send(Err("claude accepts no input during a turn; inject instead".to_owned()));
                Ok(())
            }
            Order::Interrupt => {
                let frame = self.conversation.interrupt();
                self.write(frame).await
            }
            Order::Decide { key, decision } => match self.conversation.decide(key, decision) {
                Some(frame) => self.write(frame).await,
                None => Ok(()),
            },
        }
    }

    async fn write(&mut self, frame: Value) -> Result<(), String> {
        self.program.write(format!("{frame}\n").as_bytes()).await
    }

    async fn handle_frame(&mut self, frame: &Value, pipe: &WorkerPipe) {
        let effects = self.conversation.handle_frame(frame);
        for report in effects.reports {
            pipe.report(report).await;
        }
        if let Some(answer) = effects.answer
            && let Err(error) = self.write(answer).await
        {
            tracing::debug!(error, "claude does not read its stdin");
        }
    }
}
