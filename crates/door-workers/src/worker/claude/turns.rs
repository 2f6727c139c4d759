//! Turn ownership: which turn of Claude Code belongs to the injection, and which one the agent started itself.
//!
//! Claude Code starts a turn of its own when a background command has ended. In newer versions, frames name the prompts
//! that a turn answers (`user_message_uuids`, `command_lifecycle`); a turn that does not name our prompt is the agent's
//! own. Older versions only repeat a prompt, or do not even repeat it. For those, the order of turns decides.

use serde_json::Value;

use crate::wire::event::Tokens;
use crate::worker::rpc::string_at;

/// Owner of a turn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Owner {
    /// No turn runs, or its owner is unknown.
    #[default]
    Unknown,
    /// The injection that was sent last.
    Injection,
    /// Claude Code itself.
    Agent,
}

/// Change in the state of turns that a frame reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// No change.
    Same,
    /// Claude Code has accepted the prompt.
    Accepted,
    /// The agent has started a turn of its own.
    OwnTurnStarted,
    /// The agent's own turn has merged the prompt and continues as the injection's turn.
    Merged,
    /// The turn has ended.
    Ended(Owner),
    /// The prompt was cancelled before its turn started.
    Cancelled,
}

/// Turns of one Claude Code process.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// The injection whose prompt was sent and whose turn has not ended.
    prompt: Option<String>,
    running: Owner,
    /// True if this version of Claude Code names the prompts of a turn.
    names_prompts: bool,
    /// True if this version of Claude Code repeats prompts.
    repeats_prompts: bool,
    /// Tokens that the running turn has used so far.
    spent: u64,
    /// Tokens that the running turn had used when it merged the prompt.
    before_merge: u64,
}

impl Turns {
    /// Registers the injection whose prompt is being sent.
    pub(super) fn register_prompt(&mut self, injection: String) {
        self.prompt = Some(injection);
    }

    /// Returns the owner of the turn to which the current frames belong.
    pub(super) fn owner(&self) -> Owner {
        match self.running {
            Owner::Unknown if self.prompt.is_some() && !self.names_prompts => Owner::Injection,
            owner => owner,
        }
    }

    /// Returns the tokens of the running turn so far.
    pub(super) fn spent(&self) -> u64 {
        self.spent
    }

    /// Returns the injection's share of the tokens, without those that were used before the merge.
    pub(super) fn share(&self, tokens: Tokens) -> Tokens {
        if self.before_merge == 0 {
            return tokens;
        }
        Tokens { total_tokens: tokens.total_tokens.saturating_sub(self.before_merge), ..Tokens::default() }
    }

    /// Updates the turns from a frame.
    pub(super) fn update(&mut self, frame: &Value) -> Step {
        let subtype = frame.get("subtype").and_then(Value::as_str);
        match frame.get("type").and_then(Value::as_str).unwrap_or_default() {
            "command_lifecycle" => self.follow_command(frame),
            "system" if subtype == Some("init") => self.handle_init(frame),
            "system" if subtype == Some("status") && self.is_named(frame) == Some(true) => {
                self.mark_started()
            }
            "user" if frame.get("isReplay").and_then(Value::as_bool) == Some(true) => {
                self.repeats_prompts = true;
                if string_at(frame, "/uuid") == self.prompt { self.mark_started() } else { Step::Same }
            }
            "result" => self.handle_result(frame),
            _ => Step::Same,
        }
    }

    /// Adds the tokens of one model response.
    pub(super) fn add_tokens(&mut self, tokens: Tokens) {
        self.spent = self.spent.saturating_add(tokens.total_tokens);
    }

    /// Resets the state after the end of a turn.
    pub(super) fn reset(&mut self, owner: Owner) {
        if owner == Owner::Injection {
            self.prompt = None;
        }
        self.running = Owner::Unknown;
        self.spent = 0;
        self.before_merge = 0;
    }

    /// Returns true if a frame names our prompt, false if it names only others, and `None` if it names no prompt.
    fn is_named(&self, frame: &Value) -> Option<bool> {
        let list = frame.get("user_message_uuids").and_then(Value::as_array);
        let single = frame.get("user_message_uuid").filter(|uuid| uuid.is_string());
        let mut named = list.into_iter().flatten().chain(single).filter_map(Value::as_str).peekable();
        named.peek()?;
        Some(named.any(|uuid| Some(uuid) == self.prompt.as_deref()))
    }

    fn follow_command(&mut self, frame: &Value) -> Step {
        self.names_prompts = true;
        if string_at(frame, "/command_uuid") != self.prompt || self.prompt.is_none() {
            return Step::Same;
        }
        match frame.get("state").and_then(Value::as_str).unwrap_or_default() {
            "queued" => Step::Accepted,
            "started" => self.mark_started(),
            "cancelled" | "discarded" if self.running != Owner::Injection => Step::Cancelled,
            // A turn that has started ends with its result frame instead.
            _ => Step::Same,
        }
    }

    fn handle_init(&mut self, frame: &Value) -> Step {
        let is_named = self.is_named(frame);
        self.names_prompts |= is_named.is_some();
        match is_named {
            Some(true) => self.mark_started(),
            None if self.prompt.is_some() && !self.names_prompts => Step::Same,
            _ if self.running == Owner::Agent => Step::Same,
            _ => {
                self.running = Owner::Agent;
                Step::OwnTurnStarted
            }
        }
    }

    /// Marks our prompt as the owner of the running turn.
    fn mark_started(&mut self) -> Step {
        match std::mem::replace(&mut self.running, Owner::Injection) {
            Owner::Injection => Step::Same,
            Owner::Unknown => Step::Accepted,
            Owner::Agent => {
                self.before_merge = self.spent;
                Step::Merged
            }
        }
    }

    fn handle_result(&mut self, frame: &Value) -> Step {
        let is_named = self.is_named(frame);
        self.names_prompts |= is_named.is_some();
        let has_origin = frame.get("origin").is_some_and(|origin| !origin.is_null());
        let is_error = frame.get("is_error").and_then(Value::as_bool).unwrap_or(false);
        let is_ours = match is_named {
            Some(is_ours) => is_ours,
            None if has_origin || self.names_prompts => false,
            None => match self.running {
                Owner::Agent => false,
                Owner::Injection => true,
                // A version that repeats prompts still has to start our turn, unless the turn failed before that.
                Owner::Unknown => self.prompt.is_some() && (is_error || !self.repeats_prompts),
            },
        };
        Step::Ended(if is_ours { Owner::Injection } else { Owner::Agent })
    }
}

#[cfg(test)]
#[path = "turns_tests.rs"]
mod tests;
