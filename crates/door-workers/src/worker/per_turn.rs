//! Agents with one process per turn: waits for the next prompt and reads the output of the program.
//!
//! Such a program accepts no further input.

use super::program::Program;
use super::{Order, WorkerPipe};

/// Event of a running program.
pub(super) enum ProgramEvent {
    /// A line of the program's output.
    Line(Vec<u8>),
    /// The end of the program's output.
    End,
    /// The turn was interrupted.
    Stopped,
}

impl WorkerPipe {
    /// Waits for the next prompt; `None` when the worker must stop.
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

    /// Waits for the next event of a program that has received its prompt.
    pub(super) async fn next_event(&mut self, program: &mut Program) -> ProgramEvent {
        loop {
            let order = tokio::select! {
                line = program.line() => return line.map_or(ProgramEvent::End, ProgramEvent::Line),
                order = self.orders.recv() => order,
                () = self.stop.cancelled() => None,
            };
            match order {
                Some(Order::Steer { answer, .. }) => {
                    drop(answer.send(Err("this agent accepts no input during a turn".to_owned())));
                }
                Some(Order::Turn { .. } | Order::Decide { .. }) => {}
                Some(Order::Interrupt) | None => return ProgramEvent::Stopped,
            }
        }
    }
}
