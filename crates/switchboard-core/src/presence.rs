//! Who is awake.

use std::fmt;

use jiff::{SignedDuration, Timestamp};

use crate::AgentId;

/// The status of an agent that says it has gone.
pub const OFFLINE: &str = "offline";

/// The last sign of life of an agent. Kept in memory only: presence is never journaled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heartbeat {
    /// Who.
    pub agent: AgentId,
    /// When it was heard, by the hub's own clock.
    pub at: Timestamp,
    /// What it said it is doing: `working`, `idle` …
    pub status: String,
    /// A sentence more, if it gave one.
    pub message: Option<String>,
}

/// An agent's presence at one moment, derived from its last heartbeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Presence {
    /// Who.
    pub agent: AgentId,
    /// Whether it is awake.
    pub awareness: Awareness,
    /// What it said last that it is doing.
    pub status: Option<String>,
    /// The sentence that came with it.
    pub message: Option<String>,
    /// When it was last heard.
    pub since: Option<Timestamp>,
}

/// Whether an agent is awake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Awareness {
    /// Heard a short while ago.
    Awake,
    /// Not heard for a while.
    Stale,
    /// Not heard for long, or never.
    Offline,
    /// No sign of life can be read, so that the agent may be awake all the same.
    Unknown,
}

/// Meaning of an agent's silence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Silence {
    /// The agent is away: its signs of life would be heard.
    Absence,
    /// Nothing: its signs of life cannot be read now, for instance because the folder of its watcher is not mounted.
    Unobserved,
}

/// After how long a silence an agent counts as stale, and as offline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PresenceTimeouts {
    /// From awake to stale.
    pub stale: SignedDuration,
    /// From stale to offline.
    pub offline: SignedDuration,
}

impl Default for PresenceTimeouts {
    /// Five minutes is what `who` of the channel scripts uses; four times that is a coffee break.
    fn default() -> Self {
        Self { stale: SignedDuration::from_mins(5), offline: SignedDuration::from_mins(20) }
    }
}

impl Presence {
    /// What `heartbeat` says about `agent` at `now`.
    ///
    /// An agent of this hub that was never heard is offline, because each way of reading mail here gives a sign of life. Of one
    /// behind a swarm or a link nothing is known then, and neither of one that is unobserved: its silence is no evidence. A heartbeat from the future (the clock was set back) counts as just heard. An agent that said last that it
    /// is [`OFFLINE`] is: a goodbye is no sign of life.
    pub fn derive(
        agent: AgentId,
        heartbeat: Option<&Heartbeat>,
        now: Timestamp,
        after: PresenceTimeouts,
        meaning: Silence,
    ) -> Self {
        let Some(beat) = heartbeat else {
            let is_remote = agent.realm.is_some();
            let awareness = match meaning {
                Silence::Absence if !is_remote => Awareness::Offline,
                Silence::Absence | Silence::Unobserved => Awareness::Unknown,
            };
            return Self { agent, awareness, status: None, message: None, since: None };
        };
        let silence = now.duration_since(beat.at);
        let awareness = if beat.status == OFFLINE {
            Awareness::Offline
        } else if silence < after.stale {
            Awareness::Awake
        } else if meaning == Silence::Unobserved {
            Awareness::Unknown
        } else if silence < after.offline {
            Awareness::Stale
        } else {
            Awareness::Offline
        };
        Self {
            agent,
            awareness,
            status: Some(beat.status.clone()),
            message: beat.message.clone(),
            since: Some(beat.at),
        }
    }
}

impl Awareness {
    /// The word for it, everywhere the same.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Awake => "awake",
            Self::Stale => "stale",
            Self::Offline => "offline",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for Awareness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
#[path = "presence_tests.rs"]
mod tests;
