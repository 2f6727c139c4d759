//! Who lives on this hub, as it tells the others.

use switchboard_core::{Directory, Name, Route};
use switchboard_hub::Resident;

use crate::wire::{MOST_AGENTS, Roster, RosterAgent, VERSION, readable};

/// The agents of this hub, and its person.
pub(crate) fn roster(me: &Name, directory: &Directory) -> Roster {
    let person = RosterAgent { name: Name::human(), role: None, team: None, channels: vec![] };
    let own = directory.agents().filter(|agent| agent.id.realm.is_none()).map(|agent| {
        let channel = |route: &Route| match route {
            Route::Channel { channel } => Some(channel.clone()),
            _ => None,
        };
        RosterAgent {
            name: agent.id.name.clone(),
            role: agent.role.clone(),
            team: agent.team.clone(),
            channels: agent.routes.iter().filter_map(channel).collect(),
        }
    });
    let all: Vec<_> = std::iter::once(person).chain(own).collect();
    if all.len() > MOST_AGENTS {
        tracing::warn!(agents = all.len(), "other hubs are told of the first {MOST_AGENTS} agents only");
    }
    let value = |agent: &RosterAgent| serde_json::to_value(agent).unwrap_or_default();
    Roster { v: VERSION, hub: me.clone(), agents: all.iter().take(MOST_AGENTS).map(value).collect() }
}

/// The agents of another hub, as it tells of them.
pub(crate) fn residents(roster: Roster) -> Vec<Resident> {
    let resident = |agent: RosterAgent| Resident {
        name: agent.name,
        role: agent.role,
        team: agent.team,
        channels: agent.channels,
    };
    readable(roster.agents).into_iter().map(resident).collect()
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use switchboard_core::AgentRecord;

    use super::*;

    #[test]
    fn a_hub_tells_of_its_own_agents_and_its_person_and_is_understood() {
        let name = |text: &str| Name::parse(text).unwrap();
        let mut directory = Directory::default();
        for (id, route) in [
            ("codex", Route::Channel { channel: name("general") }),
            ("far-1@attic", Route::Hub { hub: name("attic") }),
            ("alice@research", Route::Peer { agent: "alice@research".parse().unwrap() }),
        ] {
            directory.put_agent(AgentRecord {
                id: id.parse().unwrap(),
                role: Some("reviewer".into()),
                team: Some(name("backend")),
                routes: vec![route],
                registered_at: Timestamp::UNIX_EPOCH,
            });
        }
        let told = residents(roster(&name("lab"), &directory));
        let person = Resident { name: Name::human(), role: None, team: None, channels: vec![] };
        let codex = Resident {
            name: name("codex"),
            role: Some("reviewer".into()),
            team: Some(name("backend")),
            channels: vec![name("general")],
        };
        assert_eq!(told, [person, codex]);
    }
}
