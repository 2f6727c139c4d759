//! Agents with a process for each turn: waiting for the next prompt, and hearing a program that takes nothing more.

use super::program::Program;
use super::{Order, WorkerPipe};

/// What comes of a program that runs.
pub(super) enum ProgramEvent {
    /// A line of its output.
    Line(Vec<u8>),
    /// There is no more of that.
    End,
    /// The turn is to stop.
    Stopped,
}

impl WorkerPipe {
    /// The next prompt; nothing when the worker is to end.
    pub(super) async fn next_prompt(&mut self) -> Option<String> {
        loop {
            let order = tokio::select! {
                order = self.orders.recv() => order,
                () = self.stop.cancelled() => None,
            };
            match order? {
                Order::Turn { content, .. } => return Some(content),
                Order::Steer { answer, .. } => drop(answer.send(Err("no turn runs".to_owned()))),
                Order::Interrupt | Order::Decide { .. } => {}
            }
        }
    }

    /// What comes next of a program that has its prompt.
    pub(super) async fn next_event(&mut self, program: &mut Program) -> ProgramEvent {
        loop {
            let order = tokio::select! {
                line = program.line() => return line.map_or(ProgramEvent::End, ProgramEvent::Line),
                order = self.orders.recv() => order,
                () = self.stop.cancelled() => None,
            };
            match order {
                Some(Order::Steer { answer, .. }) => {
                    drop(answer.send(Err("this agent takes nothing while it runs".to_owned())));
                }
                Some(Order::Turn { .. } | Order::Decide { .. }) => {}
                Some(Order::Interrupt) | None => return ProgramEvent::Stopped,
            }
        }
    }
}
