//! `echo`: answers with what it was asked. For tests and measurements.

use std::time::Duration;

use super::{Link, Order, Report, Seat};
use crate::wire::event::{Tokens, TurnStatus};

pub(super) async fn run(seat: Seat, mut link: Link) -> String {
    let echo = seat.launch.echo;
    link.report(Report::Ready { pid: None, session: None }).await;
    while let Some(content) = link.prompt().await {
        link.report(Report::Accepted).await;
        link.report(Report::Started).await;
        let (status, error) = turn(content, echo.deltas, echo.millis, &mut link).await;
        link.ended(status, error).await;
    }
    "it was stopped".to_owned()
}

async fn turn(
    mut content: String,
    deltas: u32,
    millis: u32,
    link: &mut Link,
) -> (TurnStatus, Option<String>) {
    let until = tokio::time::sleep(Duration::from_millis(millis.into()));
    tokio::pin!(until);
    let mut is_waiting = millis > 0;
    while is_waiting {
        tokio::select! {
            () = &mut until => is_waiting = false,
            () = link.stop.cancelled() => return (TurnStatus::Interrupted, None),
            order = link.orders.recv() => match order {
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
        link.report(Report::Delta(content.clone())).await;
    }
    let total_tokens = content.split_whitespace().count() as u64;
    link.report(Report::Answer(content)).await;
    link.report(Report::Usage(Tokens { total_tokens, ..Tokens::default() })).await;
    (TurnStatus::Completed, None)
}
