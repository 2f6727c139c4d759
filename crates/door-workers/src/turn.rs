//! State machine of a turn, as a value.
//!
//! An agent may report anything in any order. The resulting events still follow the order of the protocol, and each
//! turn ends exactly once.

use crate::wire::event::{
    CommandCompleted, CommandStarted, EventBody, FileChange, InjectFailed, Injection, InjectionRef, Text,
    Tokens, TurnComplete, TurnStatus, Usage,
};
use crate::worker::{AgentActivity, Report};

/// A turn: an injection whose prompt was sent to its agent, or is about to be sent.
#[derive(Debug)]
pub(crate) struct Turn {
    injection: Injection,
    stage: Stage,
    /// The last full answer; an agent may report several of them.
    answer: Option<String>,
    /// Deltas since the last full answer, for agents that report none.
    pieces: String,
    tokens: Option<Tokens>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Sent,
    Delivered,
    Started,
    Over,
}

/// Maximum number of buffered delta bytes. A longer answer loses its beginning; clients received every delta as an
/// event.
const MAX_PIECES: usize = 8 << 20;

impl Turn {
    /// Creates the turn of an injection whose prompt is about to be sent.
    pub(crate) fn new(injection: Injection) -> Self {
        Self { injection, stage: Stage::Sent, answer: None, pieces: String::new(), tokens: None }
    }

    /// Creates the turn of an injection that its agent has accepted, according to the log.
    pub(crate) fn delivered(injection: Injection) -> Self {
        Self { stage: Stage::Delivered, ..Self::new(injection) }
    }

    pub(crate) fn injection(&self) -> &Injection {
        &self.injection
    }

    pub(crate) fn at(&self) -> &InjectionRef {
        &self.injection.at
    }

    /// Returns true if the agent has accepted the prompt.
    pub(crate) fn is_delivered(&self) -> bool {
        self.stage >= Stage::Delivered
    }

    pub(crate) fn is_over(&self) -> bool {
        self.stage == Stage::Over
    }

    /// Returns the answer so far.
    pub(crate) fn answer(&self) -> Option<&str> {
        self.answer.as_deref().or((!self.pieces.is_empty()).then_some(&self.pieces))
    }

    /// Returns the tokens used, if the agent reported them.
    pub(crate) fn tokens(&self) -> Option<Tokens> {
        self.tokens
    }

    /// Returns the events that follow from a report; returns none after the end of the turn.
    pub(crate) fn apply(&mut self, report: Report) -> Vec<EventBody> {
        let mut events = Vec::new();
        if self.is_over() {
            return events;
        }
        match report {
            Report::Accepted => self.advance(Stage::Delivered, &mut events),
            Report::Started => self.advance(Stage::Started, &mut events),
            Report::Delta(content) => {
                self.advance(Stage::Started, &mut events);
                self.append_piece(&content);
                events.push(EventBody::AssistantDelta(Text { at: self.at().clone(), content }));
            }
            Report::Reasoning(content) => {
                self.advance(Stage::Started, &mut events);
                events.push(EventBody::ReasoningDelta(Text { at: self.at().clone(), content }));
            }
            Report::Answer(answer) => {
                self.advance(Stage::Started, &mut events);
                self.answer = Some(answer);
                self.pieces.clear();
            }
            Report::Usage(tokens) => self.tokens = Some(tokens),
            Report::Activity(activity) => {
                self.advance(Stage::Started, &mut events);
                events.push(activity_event(activity, self.at().clone()));
            }
            // The node itself handles these reports.
            Report::Ready { .. }
            | Report::Reconciled(_)
            | Report::Question { .. }
            | Report::QuestionClosed { .. }
            | Report::Error { .. }
            | Report::Ended { .. }
            | Report::OwnTurn(_) => {}
        }
        events
    }

    /// Returns the events that end the turn; returns none if the turn had already ended.
    pub(crate) fn end(&mut self, status: TurnStatus, error: Option<String>, used: u64) -> Vec<EventBody> {
        let mut events = Vec::new();
        if self.is_over() {
            return events;
        }
        if status == TurnStatus::Completed {
            self.advance(Stage::Started, &mut events);
        } else if !self.is_delivered() {
            let error = error.clone().unwrap_or_else(|| status.as_str().to_owned());
            events.push(EventBody::InjectFailed(InjectFailed { injection: self.injection.clone(), error }));
        }
        if self.stage == Stage::Started {
            let content = self.answer().map(str::to_owned);
            // A completed turn always has an answer, possibly an empty one.
            let content = content.or((status == TurnStatus::Completed).then(String::new));
            if let Some(content) = content {
                events.push(EventBody::Assistant(Text { at: self.at().clone(), content }));
            }
        }
        if let Some(tokens) = self.tokens {
            let job_total_tokens = used.saturating_add(tokens.total_tokens);
            events.push(EventBody::Usage(Usage { at: self.at().clone(), tokens, job_total_tokens }));
        }
        events.push(EventBody::TurnComplete(TurnComplete { at: self.at().clone(), status, error }));
        self.stage = Stage::Over;
        events
    }

    /// Advances the turn to a stage and appends the events of the stages in between.
    fn advance(&mut self, to: Stage, events: &mut Vec<EventBody>) {
        if self.stage < Stage::Delivered && to >= Stage::Delivered {
            events.push(EventBody::InjectDelivered(self.injection.clone()));
            self.stage = Stage::Delivered;
        }
        if self.stage < Stage::Started && to >= Stage::Started {
            events.push(EventBody::TurnStarted(self.at().clone()));
            self.stage = Stage::Started;
        }
    }

    fn append_piece(&mut self, piece: &str) {
        self.pieces.push_str(piece);
        if self.pieces.len() > MAX_PIECES {
            let mut cut = self.pieces.len() - MAX_PIECES / 2;
            while !self.pieces.is_char_boundary(cut) {
                cut += 1;
            }
            self.pieces.drain(..cut);
        }
    }
}

/// Builds the event for an activity of the agent.
pub(crate) fn activity_event(activity: AgentActivity, at: InjectionRef) -> EventBody {
    match activity {
        AgentActivity::CommandStarted { item_id, command, cwd } => {
            EventBody::CommandStarted(CommandStarted { at, item_id, command, cwd })
        }
        AgentActivity::CommandCompleted { item_id, command, status, exit_code, output } => {
            EventBody::CommandCompleted(CommandCompleted { at, item_id, command, status, exit_code, output })
        }
        AgentActivity::FileChange { item_id, status, changes } => {
            EventBody::FileChange(FileChange { at, item_id, status, changes })
        }
    }
}

#[cfg(test)]
#[path = "turn_tests.rs"]
mod tests;
