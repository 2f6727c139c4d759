//! `command`: any program, one process per turn, with the prompt on stdin or as its last argument.
//!
//! The output of the program is the answer. This includes any line that looks like an event of the router.

use std::ffi::OsString;

use super::per_turn::ProgramEvent;
use super::program::Program;
use super::{Report, WorkerPipe, WorkerSpec};
use crate::wire::command::Input;
use crate::wire::event::TurnStatus;

pub(super) async fn run(spec: WorkerSpec, mut pipe: WorkerPipe) -> String {
    pipe.report(Report::Ready { pid: None, session: None }).await;
    while let Some(content) = pipe.next_prompt().await {
        let (status, error) = turn(&spec, content, &mut pipe).await;
        pipe.report_end(status, error).await;
    }
    "it was stopped".to_owned()
}

async fn turn(spec: &WorkerSpec, content: String, pipe: &mut WorkerPipe) -> (TurnStatus, Option<String>) {
    let (args, prompt) = match spec.launch.input {
        Input::Stdin => (Vec::new(), content),
        Input::Argument => (vec![OsString::from(content)], String::new()),
    };
    let mut program = match Program::start(spec, args).await {
        Ok(program) => program,
        Err(error) => return (TurnStatus::Failed, Some(error)),
    };
    program.send_prompt(prompt);
    pipe.report(Report::Accepted).await;
    pipe.report(Report::Started).await;
    let mut answer = String::new();
    loop {
        match pipe.next_event(&mut program).await {
            ProgramEvent::Line(line) => {
                let piece = format!("{}\n", String::from_utf8_lossy(&line));
                answer.push_str(&piece);
                pipe.report(Report::Delta(piece)).await;
            }
            ProgramEvent::End => break,
            ProgramEvent::Stopped => {
                program.stop().await;
                return (TurnStatus::Interrupted, None);
            }
        }
    }
    let (is_well, how) = program.wait_exit().await;
    pipe.report(Report::Answer(answer.trim_end_matches('\n').to_owned())).await;
    if is_well {
        return (TurnStatus::Completed, None);
    }
    let last_line =
        spec.log.drain_last_line().map(|last_line| format!("; it said: {last_line}")).unwrap_or_default();
    (TurnStatus::Failed, Some(format!("{how}{last_line}")))
}
