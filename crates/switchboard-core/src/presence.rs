//! Presence of agents, derived from heartbeats.

use std::fmt;

use jiff::{SignedDuration, Timestamp};

use crate::AgentId;

/// Status of an agent that has signed off.
pub const OFFLINE: &str = "offline";

/// Last heartbeat of an agent. It is kept in memory only, because presence is never journaled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heartbeat {
    /// The agent.
    pub agent: AgentId,
    /// When the heartbeat was received, by the hub's own clock.
    pub at: Timestamp,
    /// Status that the agent reported: `working`, `idle` …
    pub status: String,
    /// Status message, if the agent sent one.
    pub message: Option<String>,
}

/// Presence of an agent at one moment, derived from its last heartbeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Presence {
    /// The agent.
    pub agent: AgentId,
    /// The derived state.
    pub state: PresenceState,
    /// Status of the last heartbeat.
    pub status: Option<String>,
    /// Status message of the last heartbeat.
    pub message: Option<String>,
    /// Time of the last heartbeat.
    pub since: Option<Timestamp>,
}

/// Presence state of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PresenceState {
    /// The last heartbeat is recent.
    Awake,
    /// The last heartbeat is older than the `stale` timeout.
    Stale,
    /// The last heartbeat is older than the `offline` timeout, there is none, or the agent signed off.
    Offline,
    /// The agent's heartbeats cannot be observed, so the agent may be awake.
    Unknown,
}

/// Meaning of missing heartbeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SilenceMeaning {
    /// The agent is away, because its heartbeats would be received here.
    Absence,
    /// Nothing is known: heartbeats cannot be read now, for example because the folder of the watcher is not mounted.
    Unobserved,
}

/// Timeouts after which an agent without heartbeats is stale and offline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PresenceTimeouts {
    /// Age of the last heartbeat at which an agent becomes stale.
    pub stale: SignedDuration,
    /// Age of the last heartbeat at which an agent becomes offline.
    pub offline: SignedDuration,
}

impl Default for PresenceTimeouts {
    /// Returns timeouts of 5 minutes (stale) and 20 minutes (offline).
    ///
    /// The command `who` of the channel scripts uses five minutes. Four times that is longer than a coffee break.
    fn default() -> Self {
        Self { stale: SignedDuration::from_mins(5), offline: SignedDuration::from_mins(20) }
    }
}

impl Presence {
    /// Derives the presence of `agent` at `now` from its last heartbeat.
    ///
    /// - An agent of this hub without a heartbeat is offline, because every way to read mail on this hub sends
    ///   heartbeats.
    /// - A remote or unobserved agent without a heartbeat is unknown, because its silence is not evidence. The same
    ///   holds for an unobserved agent whose last heartbeat is stale.
    /// - A heartbeat from the future (the clock was set back) counts as just received.
    /// - An agent whose last status is [`OFFLINE`] is offline at once.
    pub fn derive(
        agent: AgentId,
        heartbeat: Option<&Heartbeat>,
        now: Timestamp,
        after: PresenceTimeouts,
        meaning: SilenceMeaning,
    ) -> Self {
        let Some(beat) = heartbeat else {
            let is_remote = agent.realm.is_some();
            let awareness = match meaning {
                SilenceMeaning::Absence if !is_remote => PresenceState::Offline,
                SilenceMeaning::Absence | SilenceMeaning::Unobserved => PresenceState::Unknown,
            };
            return Self { agent, state: awareness, status: None, message: None, since: None };
        };
        let silence = now.duration_since(beat.at);
        let awareness = if beat.status == OFFLINE {
            PresenceState::Offline
        } else if silence < after.stale {
            PresenceState::Awake
        } else if meaning == SilenceMeaning::Unobserved {
            PresenceState::Unknown
        } else if silence < after.offline {
            PresenceState::Stale
        } else {
            PresenceState::Offline
        };
        Self {
            agent,
            state: awareness,
            status: Some(beat.status.clone()),
            message: beat.message.clone(),
            since: Some(beat.at),
        }
    }
}

impl PresenceState {
    /// Returns the name of the state as shown in all output.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Awake => "awake",
            Self::Stale => "stale",
            Self::Offline => "offline",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for PresenceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
#[path = "presence_tests.rs"]
mod tests;
