//! `command`: any program, one process a turn. Its prompt is on stdin or the last argument, its output the answer.
//!
//! Whatever it prints is text of the answer, also where it looks like one of our own events.

use std::ffi::OsString;

use super::program::Program;
use super::{Link, Order, Report, Seat};
use crate::wire::command::Input;
use crate::wire::event::TurnStatus;

pub(super) async fn run(seat: Seat, mut link: Link) -> String {
    link.report(Report::Ready { pid: None, session: None }).await;
    loop {
        let order = tokio::select! {
            order = link.orders.recv() => order,
            () = link.stop.cancelled() => None,
        };
        match order {
            None => return "it was stopped".to_owned(),
            Some(Order::Turn { content, .. }) => {
                let (status, error) = turn(&seat, &content, &mut link).await;
                link.ended(status, error).await;
            }
            Some(Order::Steer { answer, .. }) => drop(answer.send(Err("no turn runs".to_owned()))),
            Some(Order::Interrupt | Order::Decide { .. }) => {}
        }
    }
}

async fn turn(seat: &Seat, content: &str, link: &mut Link) -> (TurnStatus, Option<String>) {
    let args = match seat.launch.input {
        Input::Stdin => Vec::new(),
        Input::Argument => vec![OsString::from(content)],
    };
    let mut program = match Program::start(seat, &[], args) {
        Ok(program) => program,
        Err(error) => return (TurnStatus::Failed, Some(error)),
    };
    if seat.launch.input == Input::Stdin
        && let Err(error) = program.write(content.as_bytes()).await
    {
        // One that does not want to read may still answer.
        tracing::debug!(%error, "a command did not take its prompt");
    }
    program.close_stdin();
    link.report(Report::Accepted).await;
    link.report(Report::Started).await;
    let mut answer = String::new();
    loop {
        tokio::select! {
            line = program.line() => {
                let Some(line) = line else { break };
                let piece = format!("{}\n", String::from_utf8_lossy(&line));
                answer.push_str(&piece);
                link.report(Report::Delta(piece)).await;
            }
            order = link.orders.recv() => match order {
                Some(Order::Steer { answer, .. }) => {
                    drop(answer.send(Err("a command takes nothing while it runs".to_owned())));
                }
                Some(Order::Turn { .. } | Order::Decide { .. }) => {}
                Some(Order::Interrupt) | None => {
                    program.stop().await;
                    return (TurnStatus::Interrupted, None);
                }
            },
            () = link.stop.cancelled() => {
                program.stop().await;
                return (TurnStatus::Interrupted, None);
            }
        }
    }
    let (is_well, how) = program.ended().await;
    link.report(Report::Answer(answer.trim_end_matches('\n').to_owned())).await;
    if is_well {
        return (TurnStatus::Completed, None);
    }
    let said = seat.log.take_last().map(|said| format!("; it said: {said}")).unwrap_or_default();
    (TurnStatus::Failed, Some(format!("{how}{said}")))
}
