//! The loop: the model takes a turn, the calls that it wants are made, and it is told what came of them.
//!
//! It ends with an answer or at a bound, whichever comes first. Calls of one turn are made one after the other, in the
//! model's order: they may change things, and the model wrote them in an order.

use serde::Serialize;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::content::{shown_args, summary};
use super::error::ModelError;
use super::model::{Done, End, Model, Room, TurnInput, Wanted};
use super::settings::Bounds;
use super::toolbox::{Cancelled, Toolbox};
use crate::child::Child;
use crate::host::Caller;

/// Most calls of one turn. A model that wants more is told so.
const MOST_CALLS: usize = 32;

/// What the model is told before its last turn.
const LAST_TURN: &str =
    "This is your last turn: no more tools. Answer now with what you know, and say what is missing.";

/// What a question came to.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Log {
    pub(super) answer: String,
    pub(super) calls: Vec<CallMade>,
    pub(super) usage: Usage,
    pub(super) turns: u32,
    pub(super) stopped: Stopped,
}

/// A call that was made for an answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct CallMade {
    /// The tool, as the model called it.
    pub(super) tool: String,
    /// Its arguments.
    pub(super) args: Value,
    /// Whether the tool did what was asked.
    pub(super) ok: bool,
    /// The beginning of what it answered.
    pub(super) summary: String,
}

/// How many tokens were read and written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Usage {
    /// Read by the model.
    pub(super) input_tokens: u64,
    /// Written by it.
    pub(super) output_tokens: u64,
    /// Whether they are counted by length, because the model does not say.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) estimated: bool,
}

/// Why it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Stopped {
    /// The model answered.
    Answered,
    /// It took all turns.
    Turns,
    /// It took all tokens.
    Tokens,
    /// It took all the time.
    Time,
    /// Its answer is cut, at the length that the API allows.
    Length,
    /// It does not want to answer.
    Declined,
    /// Whoever asked no longer wants to know.
    Cancelled,
    /// The model or the child could not be had.
    #[default]
    Failed,
}

/// The two sides of the conversation, and what it may cost.
pub(super) struct Conversation<'c> {
    pub(super) model: Model,
    pub(super) child: &'c Child,
    pub(super) toolbox: &'c Toolbox,
    pub(super) bounds: Bounds,
    /// Steps for whoever wants to watch. When they are not read in time, some are left out.
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
    /// Converses until there is an answer or a bound is reached. What was done by then is in the log in any case.
    pub(super) async fn run(
        mut self,
        log: &mut Log,
        until: Instant,
        cancelled: &CancellationToken,
    ) -> Result<(), ModelError> {
        let off = cancelled.child_token();
        {
            let work = self.converse(log, until, &off);
            tokio::pin!(work);
            tokio::select! {
                biased;
                done = &mut work => return done,
                () = sleep_until(until) => {
                    // The child hears that its call is off before we leave.
                    off.cancel();
                    let _ = work.await;
                }
            }
        }
        log.stopped = Stopped::Time;
        Ok(())
    }

    async fn converse(
        &mut self,
        log: &mut Log,
        until: Instant,
        off: &CancellationToken,
    ) -> Result<(), ModelError> {
        let caller = Caller { cancelled: off.clone(), ..Caller::default() };
        let mut said = TurnInput::default();
        log.stopped = Stopped::Turns;
        while log.turns < self.bounds.turns {
            let left = self.bounds.tokens.saturating_sub(log.usage.total());
            if left == 0 {
                log.stopped = Stopped::Tokens;
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
                () = off.cancelled() => {
                    log.stopped = Stopped::Cancelled;
                    return Ok(());
                }
                turn = self.model.next(said, Room { tokens: left, until }).instrument(span.clone()) => match turn {
                    Ok(turn) => turn,
                    Err(error) => {
                        log.stopped = Stopped::Failed;
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
                End::Cut => Stopped::Length,
                End::Declined => Stopped::Declined,
                End::Whole if turn.wants.is_empty() => Stopped::Answered,
                End::Whole if log.turns == self.bounds.turns => Stopped::Turns,
                End::Whole => {
                    let Ok(results) = self.call_all(turn.wants, log, &caller).await else {
                        log.stopped = Stopped::Cancelled;
                        return Ok(());
                    };
                    let note = (log.turns + 1 == self.bounds.turns).then(|| LAST_TURN.to_owned());
                    said = TurnInput { results, note };
                    log.stopped = Stopped::Turns;
                    continue;
                }
            };
            return Ok(());
        }
        Ok(())
    }

    /// Makes the calls of one turn.
    async fn call_all(
        &self,
        wants: Vec<Wanted>,
        log: &mut Log,
        caller: &Caller,
    ) -> Result<Vec<Done>, Cancelled> {
        let mut results = Vec::with_capacity(wants.len());
        for (at, Wanted { id, tool, args }) in wants.into_iter().enumerate() {
            self.step(format!("uses {tool}"));
            let args = args.and_then(|args| {
                let too_many =
                    || format!("only {MOST_CALLS} calls are made in one turn; ask for the others again");
                (at < MOST_CALLS).then_some(args).ok_or_else(too_many)
            });
            let (shown, is_error, text) = match args {
                Ok(args) => {
                    let read = self.toolbox.call(self.child, &tool, &args, caller).await?;
                    (shown_args(&args), read.is_error, read.text)
                }
                Err(problem) => (Value::Null, true, problem),
            };
            let call = CallMade { tool: tool.clone(), args: shown, ok: !is_error, summary: summary(&text) };
            log.calls.push(call);
            results.push(Done { id, tool, text, is_error });
        }
        Ok(results)
    }

    fn step(&self, step: String) {
        let _ = self.steps.try_send(step);
    }
}
