//! Presence board: the last heartbeat of each agent, kept in memory and never journaled.

use std::collections::{HashMap, HashSet};

use jiff::Timestamp;
use parking_lot::Mutex;
use switchboard_core::{AgentId, Heartbeat, Presence, PresenceTimeouts, SilenceMeaning};
use tokio::sync::watch;

/// Last heartbeat of each agent from which this process has received one.
#[derive(Debug, Default)]
pub(crate) struct PresenceBoard {
    beats: Mutex<HashMap<AgentId, Heartbeat>>,
    /// Agents whose heartbeats cannot currently be read.
    unobserved: Mutex<HashSet<AgentId>>,
    /// Counter of status changes of agents of this hub.
    changes: watch::Sender<u64>,
}

impl PresenceBoard {
    /// Records a heartbeat. A heartbeat that is older than the last one is ignored.
    pub(crate) fn record(&self, beat: Heartbeat) {
        let mut beats = self.beats.lock();
        let known = beats.get(&beat.agent);
        if known.is_some_and(|known| known.at > beat.at) {
            return;
        }
        let is_like = |known: &Heartbeat| known.status == beat.status && known.message == beat.message;
        let is_change = beat.agent.realm.is_none() && !known.is_some_and(is_like);
        beats.insert(beat.agent.clone(), beat);
        if is_change {
            self.changes.send_modify(|changes| *changes = changes.wrapping_add(1));
        }
    }

    /// Subscribes to status changes of agents of this hub.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    pub(crate) fn forget(&self, agent: &AgentId) {
        self.beats.lock().remove(agent);
    }

    /// Replaces the set of agents whose heartbeats cannot currently be read.
    pub(crate) fn set_unobserved(&self, agents: HashSet<AgentId>) {
        *self.unobserved.lock() = agents;
    }

    pub(crate) fn of(&self, agent: &AgentId, now: Timestamp, after: PresenceTimeouts) -> Presence {
        let is_unobserved = self.unobserved.lock().contains(agent);
        let silence = if is_unobserved { SilenceMeaning::Unobserved } else { SilenceMeaning::Absence };
        Presence::derive(agent.clone(), self.beats.lock().get(agent), now, after, silence)
    }
}
