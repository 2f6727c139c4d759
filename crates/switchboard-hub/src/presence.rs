//! The presence board: who gave a sign of life when. In memory, never journaled.

use std::collections::HashMap;

use jiff::Timestamp;
use parking_lot::Mutex;
use switchboard_core::{AgentId, Heartbeat, Presence, PresenceTimeouts};

/// The last heartbeat of every agent heard by this process.
#[derive(Debug, Default)]
pub(crate) struct PresenceBoard {
    beats: Mutex<HashMap<AgentId, Heartbeat>>,
}

impl PresenceBoard {
    /// Takes a heartbeat; an older one than is known changes nothing.
    pub(crate) fn hear(&self, beat: Heartbeat) {
        let mut beats = self.beats.lock();
        match beats.get(&beat.agent) {
            Some(known) if known.at > beat.at => {}
            _ => drop(beats.insert(beat.agent.clone(), beat)),
        }
    }

    pub(crate) fn forget(&self, agent: &AgentId) {
        self.beats.lock().remove(agent);
    }

    pub(crate) fn of(&self, agent: &AgentId, now: Timestamp, after: PresenceTimeouts) -> Presence {
        Presence::derive(agent.clone(), self.beats.lock().get(agent), now, after)
    }
}
