//! `claude`, by stream-json on both sides and the control protocol: one process a node.
//!
//! A prompt counts as accepted when the agent names or repeats it with the injection's id, or says anything about it.

mod conversation;
mod turns;

use std::ffi::OsString;

use serde_json::Value;

use self::conversation::Conversation;
use super::program::Program;
use super::{Link, Order, Report, Seat};

pub(super) async fn run(seat: Seat, mut link: Link) -> String {
    let program = match Program::start(&seat, arguments(&seat)).await {
        Ok(program) => program,
        Err(error) => return error,
    };
    let pid = Some(program.pid());
    let conversation = Conversation::new(pid, seat.session.clone());
    let mut claude = Claude { program, conversation };
    // It says nothing before its first prompt.
    link.report(Report::Ready { pid, session: seat.session }).await;
    loop {
        tokio::select! {
            line = claude.program.line() => {
                let Some(line) = line else { return claude.program.ended().await.1 };
                if let Ok(frame) = serde_json::from_slice::<Value>(&line) {
                    claude.hear(&frame, &link).await;
                }
            }
            order = link.orders.recv() => {
                let Some(order) = order else { break };
                if let Err(error) = claude.obey(order).await {
                    claude.program.stop().await;
                    return error;
                }
            }
            () = link.stop.cancelled() => break,
        }
    }
    claude.program.stop().await
}

fn arguments(seat: &Seat) -> Vec<OsString> {
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
        ("--model", &seat.launch.model),
        ("--permission-mode", &seat.launch.approval_policy),
        ("--append-system-prompt", &seat.launch.instructions),
        ("--resume", &seat.session),
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
    async fn obey(&mut self, order: Order) -> Result<(), String> {
        match order {
            Order::Turn { injection, content } => {
                let frame = self.conversation.prompt(injection, &content);
                self.write(frame).await
            }
            Order::Steer { answer, .. } => {
                // A second prompt is kept for the next turn: that would be an injection nobody knows of.
                let _ = answer.send(Err("claude takes nothing while it runs; inject instead".to_owned()));
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

    async fn hear(&mut self, frame: &Value, link: &Link) {
        let heard = self.conversation.hear(frame);
        for report in heard.reports {
            link.report(report).await;
        }
        if let Some(answer) = heard.answer
            && let Err(error) = self.write(answer).await
        {
            tracing::debug!(error, "claude does not listen");
        }
    }
}
