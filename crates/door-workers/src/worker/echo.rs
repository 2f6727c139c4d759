//! `echo`: returns its prompt as the answer, for tests and measurements.

use std::time::Duration;

use super::{Order, Report, WorkerPipe, WorkerSpec};
use crate::wire::event::{Tokens, TurnStatus};

pub(super) async fn run(spec: WorkerSpec, mut pipe: WorkerPipe) -> String {
    let echo = spec.launch.echo;
    pipe.report(Report::Ready { pid: None, session: None }).await;
    while let Some(content) = pipe.next_prompt().await {
        pipe.report(Report::Accepted).await;
        pipe.report(Report::Started).await;
        let (status, error) = turn(content, echo.deltas, echo.millis, &mut pipe).await;
        pipe.report_end(status, error).await;
    }
    "it was stopped".to_owned()
}

async fn turn(
    mut content: String,
    deltas: u32,
    millis: u32,
    pipe: &mut WorkerPipe,
) -> (TurnStatus, Option<String>) {
    let until = tokio::time::sleep(Duration::from_millis(millis.into()));
    tokio::pin!(until);
    let mut is_waiting = millis > 0;
    while is_waiting {
        tokio::select! {
            () = &mut until => is_waiting = false,
            () = pipe.stop.cancelled() => return (TurnStatus::Interrupted, None),
            order = pipe.orders.recv() => match order {
                Some(Order::Interrupt) | None => return (TurnStatus::Interrupted, None),
                Some(Order::Steer { content: more, answer }) => {
                    content.push_str(&more);
                    let _ = answer.send(Ok(()));
                }
                Some(Order::Turn { .. } | Order::Decide { .. }) => {}
            },
        }
    }
    for _ in 0..deltas {
        pipe.report(Report::Delta(content.clone())).await;
    }
    let total_tokens = content.split_whitespace().count() as u64;
    pipe.report(Report::Answer(content)).await;
    pipe.report(Report::Usage(Tokens { total_tokens, ..Tokens::default() })).await;
    (TurnStatus::Completed, None)
}
