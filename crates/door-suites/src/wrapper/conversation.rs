//! The agent loop: the model takes a turn, its tool calls are executed, and it receives their results.
//!
//! The loop ends with an answer or when a bound is exceeded. The calls of one turn run sequentially in the model's
//! order, because they may have side effects.

use serde::Serialize;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::content::{summary, truncate_args};
use super::error::ModelError;
use super::model::{Model, ToolCall, ToolOutcome, TurnBudget, TurnEnd, TurnInput};
use super::settings::Bounds;
use super::toolbox::{Cancelled, Toolbox};
use crate::child::Child;
use crate::host::Caller;

/// Maximum number of tool calls per turn. Further calls are refused with a note to the model.
const MOST_CALLS: usize = 32;

/// Note to the model before its last turn.
const LAST_TURN: &str =
    "This is your last turn: no more tools. Answer now with what you know, and say what is missing.";

/// Log and outcome of one question.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ConversationLog {
    pub(super) answer: String,
    pub(super) calls: Vec<CallMade>,
    pub(super) usage: Usage,
    pub(super) turns: u32,
    pub(super) stopped: StopReason,
}

/// A tool call that the model made for an answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct CallMade {
    /// Name of the tool as used by the model.
    pub(super) tool: String,
    /// Arguments of the call.
    pub(super) args: Value,
    /// True if the call succeeded.
    pub(super) ok: bool,
    /// Beginning of the result, on one line.
    pub(super) summary: String,
}

/// Token usage of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Usage {
    /// Tokens read by the model.
    pub(super) input_tokens: u64,
    /// Tokens written by the model.
    pub(super) output_tokens: u64,
    /// True if the counts were estimated from the length of the text, because the model reports no usage.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) estimated: bool,
}

/// Reason why the conversation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum StopReason {
    /// The model answered.
    Answered,
    /// The turn limit was reached.
    Turns,
    /// The token limit was reached.
    Tokens,
    /// The time limit was reached.
    Time,
    /// The answer was truncated at the API's length limit.
    Length,
    /// The model refused to answer.
    Declined,
    /// The caller cancelled the question.
    Cancelled,
    /// The model or the child failed.
    #[default]
    Failed,
}

/// Participants and bounds of a conversation.
pub(super) struct Conversation<'c> {
    pub(super) model: Model,
    pub(super) child: &'c Child,
    pub(super) toolbox: &'c Toolbox,
    pub(super) bounds: Bounds,
    /// Channel of progress messages for the caller. Messages are dropped if they are not read in time.
    pub(super) steps: mpsc::Sender<String>,
}

impl Usage {
    fn add(&mut self, turn: Self) {
        self.input_tokens = self.input_tokens.saturating_add(turn.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(turn.output_tokens);
        self.estimated |= turn.estimated;
    }

    fn total(self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }
}

impl Conversation<'_> {
    /// Runs the conversation until there is an answer or a bound is exceeded. The log is filled in either case.
    pub(super) async fn run(
        mut self,
        log: &mut ConversationLog,
        until: Instant,
        cancelled: &CancellationToken,
    ) -> Result<(), ModelError> {
        let cancel = cancelled.child_token();
        {
            let work = self.converse(log, until, &cancel);
            tokio::pin!(work);
            tokio::select! {
                biased;
                done = &mut work => return done,
                () = sleep_until(until) => {
                    // Cancel the running call of the child before returning.
                    cancel.cancel();
                    let _ = work.await;
                }
            }
        }
        log.stopped = StopReason::Time;
        Ok(())
    }

    async fn converse(
        &mut self,
        log: &mut ConversationLog,
        until: Instant,
        cancel: &CancellationToken,
    ) -> Result<(), ModelError> {
        let caller = Caller { cancelled: cancel.clone(), ..Caller::default() };
        let mut input = TurnInput::default();
        log.stopped = StopReason::Turns;
        while log.turns < self.bounds.turns {
            let left = self.bounds.tokens.saturating_sub(log.usage.total());
            if left == 0 {
                log.stopped = StopReason::Tokens;
                return Ok(());
            }
            self.step(format!("turn {} of at most {}", log.turns + 1, self.bounds.turns));
            let began = Instant::now();
            let span = tracing::info_span!(
                "model_turn",
                turn = log.turns + 1,
                input_tokens = tracing::field::Empty,
                output_tokens = tracing::field::Empty
            );
            let turn = tokio::select! {
                biased;
                () = cancel.cancelled() => {
                    log.stopped = StopReason::Cancelled;
                    return Ok(());
                }
                turn = self.model.next(input, TurnBudget { tokens: left, until }).instrument(span.clone()) => match turn {
                    Ok(turn) => turn,
                    Err(error) => {
                        log.stopped = StopReason::Failed;
                        return Err(error);
                    }
                },
            };
            log.turns += 1;
            log.usage.add(turn.usage);
            span.record("input_tokens", turn.usage.input_tokens);
            span.record("output_tokens", turn.usage.output_tokens);
            tracing::debug!(turn = log.turns, took = ?began.elapsed(), usage = ?turn.usage, "the model took a turn");
            if !turn.text.trim().is_empty() {
                turn.text.trim().clone_into(&mut log.answer);
            }
            log.stopped = match turn.end {
                TurnEnd::Cut => StopReason::Length,
                TurnEnd::Declined => StopReason::Declined,
                TurnEnd::Whole if turn.calls.is_empty() => StopReason::Answered,
                TurnEnd::Whole if log.turns == self.bounds.turns => StopReason::Turns,
                TurnEnd::Whole => {
                    let Ok(results) = self.call_all(turn.calls, log, &caller).await else {
                        log.stopped = StopReason::Cancelled;
                        return Ok(());
                    };
                    let note = (log.turns + 1 == self.bounds.turns).then(|| LAST_TURN.to_owned());
                    input = TurnInput { results, note };
                    log.stopped = StopReason::Turns;
                    continue;
                }
            };
            return Ok(());
        }
        Ok(())
    }

    /// Executes the tool calls of one turn.
    async fn call_all(
        &self,
        calls: Vec<ToolCall>,
        log: &mut ConversationLog,
        caller: &Caller,
    ) -> Result<Vec<ToolOutcome>, Cancelled> {
        let mut results = Vec::with_capacity(calls.len());
        for (at, ToolCall { id, tool, args }) in calls.into_iter().enumerate() {
            self.step(format!("uses {tool}"));
            let args = args.and_then(|args| {
                let too_many =
                    || format!("only {MOST_CALLS} calls are allowed in one turn; repeat the others");
                (at < MOST_CALLS).then_some(args).ok_or_else(too_many)
            });
            let (shown, is_error, text) = match args {
                Ok(args) => {
                    let read = self.toolbox.call(self.child, &tool, &args, caller).await?;
                    (truncate_args(&args), read.is_error, read.text)
                }
                Err(problem) => (Value::Null, true, problem),
            };
            let call = CallMade { tool: tool.clone(), args: shown, ok: !is_error, summary: summary(&text) };
            log.calls.push(call);
            results.push(ToolOutcome { id, tool, text, is_error });
        }
        Ok(results)
    }

    fn step(&self, step: String) {
        let _ = self.steps.try_send(step);
    }
}
