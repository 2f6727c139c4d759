//! Claims and reservations per agent, shown in lists of agents.

use switchboard_core::AgentId;
use switchboard_hub::{Hub, Reservation, TaskClaim};

use crate::failure::Failure;

/// Snapshot of the current claims and reservations.
pub(crate) struct Holdings {
    claims: Vec<TaskClaim>,
    reservations: Vec<Reservation>,
}

impl Holdings {
    pub(crate) async fn load(hub: &Hub) -> Result<Self, Failure> {
        Ok(Self { claims: hub.claims().list().await?, reservations: hub.claims().reservations().await? })
    }

    /// Returns the tasks that an agent has claimed.
    pub(crate) fn tasks(&self, agent: &AgentId) -> Vec<String> {
        let own = self.claims.iter().filter(|claim| claim.holder == *agent);
        own.map(|claim| claim.task.to_string()).collect()
    }

    /// Returns the files that an agent has reserved.
    pub(crate) fn files(&self, agent: &AgentId) -> Vec<String> {
        let own = self.reservations.iter().filter(|reservation| reservation.holder == *agent);
        own.map(|reservation| reservation.pattern.clone()).collect()
    }

    /// Describes an agent's claims and reservations as text; returns `None` if there are none.
    pub(crate) fn describe(&self, agent: &AgentId) -> Option<String> {
        let (tasks, files) = (self.tasks(agent), self.files(agent));
        let say = |verb: &str, things: &[String]| {
            (!things.is_empty()).then(|| format!("{verb} {}", things.join(", ")))
        };
        let words: Vec<String> =
            [say("has", &tasks), say("works at", &files)].into_iter().flatten().collect();
        (!words.is_empty()).then(|| words.join("; "))
    }
}
