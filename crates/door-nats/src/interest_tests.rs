use jiff::Timestamp;
use switchboard_core::AgentRecord;

use super::*;

fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

fn agent(id: &str, team: Option<&str>, routes: Vec<Route>) -> AgentRecord {
    let (role, registered_at) = (None, Timestamp::UNIX_EPOCH);
    AgentRecord { id: id.parse().unwrap(), role, team: team.map(name), routes, registered_at }
}

fn reads(channel: &str) -> Route {
    Route::Channel { channel: name(channel) }
}

#[test]
fn interest_has_local_channels_and_teams_only() {
    let mut directory = Directory::default();
    directory.put_agent(agent("codex", Some("backend"), vec![reads("General")]));
    directory.put_agent(agent("bob@research", None, vec![reads("papers")]));
    let far = Route::Hub { hub: name("office") };
    directory.put_agent(agent("qc-1@office", Some("quality"), vec![far, reads("tests")]));
    let interest = Interest::of(&directory);
    assert_eq!(interest.to_string(), "all channel.general channel.papers channel.team-backend team.backend");
    assert_eq!(Interest::parse(interest.to_string().split(' ')), interest);
    for (group, expected) in [
        (GroupId::Channel(name("general")), true),
        (GroupId::Channel(name("tests")), false),
        (GroupId::Team(name("backend")), true),
        (GroupId::Team(name("quality")), false),
    ] {
        assert_eq!(interest.covers(&group), expected, "{group}");
    }
    let filters = interest.filters(&Subjects::new("sb"), &name("lab"));
    assert_eq!(filters[..2], ["sb.*.hub.lab.*", "sb.*.group.all"]);
}

#[test]
fn hub_never_linked_receives_direct_messages_only() {
    let none = Interest::parse("".split(' '));
    assert_eq!(none, Interest::default());
    assert_eq!(none.filters(&Subjects::new("sb"), &name("lab")), ["sb.*.hub.lab.*"]);
}

#[test]
fn hub_with_too_many_groups_receives_all() {
    // A team counts twice: its channel `team-NAME` belongs to it.
    for (channels, teams, is_all) in
        [(MAX_GROUPS, 0, false), (MAX_GROUPS + 1, 0, true), (2, MAX_GROUPS / 2, true)]
    {
        let mut directory = Directory::default();
        let routes = (0..channels).map(|number| reads(&format!("c{number}"))).collect();
        directory.put_agent(agent("codex", None, routes));
        for number in 0..teams {
            directory.put_agent(agent(&format!("a{number}"), Some(&format!("t{number}")), Vec::new()));
        }
        let interest = Interest::of(&directory);
        assert_eq!(interest.to_string() == "all channel.* team.*", is_all, "{channels} {teams}");
        assert_eq!(interest.covers(&GroupId::Channel(name("anything"))), is_all, "{channels} {teams}");
        assert!(interest.covers(&GroupId::Everyone));
    }
}
