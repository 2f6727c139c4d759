//! Roster: the agents of a hub, as announced to other hubs.

use switchboard_core::{Directory, GroupId, Name, Route};
use switchboard_hub::RemoteAgent;

use crate::interest::Interest;
use crate::wire::{Roster, RosterAgent, VERSION, first_fitting, parse_entries, truncate};

/// Builds the roster of this hub: its agents and its person, as many as fit into one payload.
///
/// The roster lists only channels and teams that the hub receives, so a sender that sees a reader can also reach that
/// reader.
pub(crate) fn build_roster(
    me: &Name,
    directory: &Directory,
    received: &Interest,
    max_payload: usize,
) -> Roster {
    let is_received = |group: fn(Name) -> GroupId, name: &Name| received.covers(&group(name.clone()));
    let person = RosterAgent { name: Name::human(), role: None, team: None, channels: vec![] };
    let own = directory.agents().filter(|agent| agent.id.realm.is_none()).map(|agent| {
        let channel = |route: &Route| match route {
            Route::Channel { channel } if is_received(GroupId::Channel, channel) => Some(channel.clone()),
            _ => None,
        };
        RosterAgent {
            name: agent.id.name.clone(),
            role: agent.role.as_deref().map(truncate),
            team: agent.team.clone().filter(|team| is_received(GroupId::Team, team)),
            channels: agent.routes.iter().filter_map(channel).collect(),
        }
    });
    let all: Vec<_> = std::iter::once(person).chain(own).collect();
    let agents = first_fitting(&all, max_payload);
    if agents.len() < all.len() {
        tracing::warn!(
            agents = all.len(),
            "only the first {} agents are announced to other hubs",
            agents.len()
        );
    }
    Roster { v: VERSION, hub: me.clone(), agents }
}

/// Converts another hub's roster to its remote agents.
pub(crate) fn parse_roster(roster: Roster) -> Vec<RemoteAgent> {
    let resident = |agent: RosterAgent| RemoteAgent {
        name: agent.name,
        role: agent.role,
        team: agent.team,
        channels: agent.channels,
    };
    parse_entries(roster.agents).into_iter().map(resident).collect()
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use switchboard_core::AgentRecord;

    use super::*;

    #[test]
    fn roster_round_trips_own_agents_and_person() {
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
        let received = Interest::of(&directory);
        let parsed = parse_roster(build_roster(&name("lab"), &directory, &received, 1 << 20));
        let person = RemoteAgent { name: Name::human(), role: None, team: None, channels: vec![] };
        let codex = RemoteAgent {
            name: name("codex"),
            role: Some("reviewer".into()),
            team: Some(name("backend")),
            channels: vec![name("general")],
        };
        assert_eq!(parsed, [person.clone(), codex.clone()]);
        // Channels and teams that the hub does not receive yet are omitted.
        let parsed = parse_roster(build_roster(&name("lab"), &directory, &Interest::default(), 1 << 20));
        assert_eq!(parsed, [person, RemoteAgent { team: None, channels: vec![], ..codex }]);
    }

    #[test]
    fn roster_fits_the_payload_limit() {
        const LIMIT: usize = 64 << 10;
        let mut directory = Directory::default();
        for number in 0..1000 {
            directory.put_agent(AgentRecord {
                id: format!("agent-{number:04}").parse().unwrap(),
                role: Some("ü".repeat(120_000)),
                team: None,
                routes: vec![],
                registered_at: Timestamp::UNIX_EPOCH,
            });
        }
        let roster = build_roster(&Name::parse("lab").unwrap(), &directory, &Interest::default(), LIMIT);
        assert!(crate::wire::to_bytes(&roster).len() <= LIMIT);
        let parsed = parse_roster(roster);
        assert!(parsed.len() > 100, "{}", parsed.len());
        assert_eq!(parsed[1].role.as_ref().map(|role| role.chars().count()), Some(200));
    }
}
