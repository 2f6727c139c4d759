//! `command`: any program, one process a turn. Its prompt is on stdin or the last argument, its output the answer.
//!
//! Whatever it prints is text of the answer, also where it looks like one of our own events.

use std::ffi::OsString;

use super::once::Heard;
use super::program::Program;
use super::{Link, Report, Seat};
use crate::wire::command::Input;
use crate::wire::event::TurnStatus;

pub(super) async fn run(seat: Seat, mut link: Link) -> String {
    link.report(Report::Ready { pid: None, session: None }).await;
    while let Some(content) = link.prompt().await {
        let (status, error) = turn(&seat, content, &mut link).await;
        link.ended(status, error).await;
    }
    "it was stopped".to_owned()
}

async fn turn(seat: &Seat, content: String, link: &mut Link) -> (TurnStatus, Option<String>) {
    let (args, prompt) = match seat.launch.input {
        Input::Stdin => (Vec::new(), content),
        Input::Argument => (vec![OsString::from(content)], String::new()),
    };
    let mut program = match Program::start(seat, args).await {
        Ok(program) => program,
        Err(error) => return (TurnStatus::Failed, Some(error)),
    };
    program.feed(prompt);
    link.report(Report::Accepted).await;
    link.report(Report::Started).await;
    let mut answer = String::new();
    loop {
        match link.hear(&mut program).await {
            Heard::Line(line) => {
                let piece = format!("{}\n", String::from_utf8_lossy(&line));
                answer.push_str(&piece);
                link.report(Report::Delta(piece)).await;
            }
            Heard::End => break,
            Heard::Stopped => {
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
