use jiff::Timestamp;

use super::*;
use crate::{AgentRecord, JobId, Route, TeamRecord};

fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

fn agent(text: &str) -> AgentId {
    text.parse().unwrap()
}

fn record(id: &str, team: Option<&str>, routes: Vec<Route>) -> AgentRecord {
    AgentRecord {
        id: agent(id),
        role: None,
        team: team.map(name),
        routes,
        registered_at: Timestamp::UNIX_EPOCH,
    }
}

fn team(id: &str) -> TeamRecord {
    TeamRecord { id: name(id), title: id.into(), composite: false, created_at: Timestamp::UNIX_EPOCH }
}

fn worker(node: u32) -> Route {
    Route::Worker(NodeId { job: JobId::parse("7").unwrap(), node })
}

/// Three agents of this hub, one of a swarm, a former name, a team of two and a team of none.
fn directory() -> Directory {
    let general = || Route::Channel { channel: name("general") };
    let mut directory = Directory::default();
    directory.put_agent(record("gemini", None, vec![worker(1)]));
    directory.put_agent(record("Codex", Some("backend"), vec![general()]));
    directory.put_agent(record("claude", Some("backend"), vec![general(), worker(0)]));
    directory.put_agent(record("alice@research", None, vec![Route::Peer { agent: agent("alice@research") }]));
    directory.put_alias(name("old-codex"), name("codex"));
    directory.put_alias(name("gemini"), name("claude"));
    directory.put_team(team("backend"));
    directory.put_team(team("frontend"));
    directory
}

/// As text, because ids that differ only in case are equal and the spelling matters here.
fn resolved(to: &str, from: &str, directory: &Directory) -> Result<Vec<String>, ResolveError> {
    let agents = resolve(&to.parse().unwrap(), &agent(from), directory)?;
    Ok(agents.iter().map(ToString::to_string).collect())
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.into()).collect()
}

#[test]
fn agent_is_found_by_spelling_or_alias() {
    let table = [
        ("codex", "Codex"),
        ("CODEX", "Codex"),
        ("OLD-codex", "Codex"),
        ("gemini", "gemini"), // a name comes before an alias of the same spelling
        ("Alice@Research", "alice@research"),
        ("Human", "human"),
        ("job:7/0", "claude"),
        ("job:7/1", "gemini"),
        ("claude", "claude"), // a note to itself: only groups leave the sender out
    ];
    for (to, expected) in table {
        assert_eq!(resolved(to, "claude", &directory()), Ok(words(&[expected])), "{to}");
    }
    assert_eq!(resolved("human", "codex", &Directory::default()), Ok(words(&["human"])));
}

#[test]
fn group_resolves_without_sender() {
    let table: [(&str, &str, &[&str]); 10] = [
        ("team:backend", "gemini", &["claude", "Codex"]),
        ("team:BackEnd", "human", &["claude", "Codex"]),
        ("team:backend", "claude", &["Codex"]),
        ("#general", "gemini", &["claude", "Codex"]),
        ("#General", "CODEX", &["claude"]),
        ("job:7", "codex", &["claude", "gemini"]),
        ("job:7", "claude", &["gemini"]),
        ("all", "claude", &["Codex", "gemini", "human"]),
        ("ALL", "human", &["claude", "Codex", "gemini"]),
        ("all", "alice@research", &["claude", "Codex", "gemini", "human"]),
    ];
    for (to, from, expected) in table {
        assert_eq!(resolved(to, from, &directory()), Ok(words(expected)), "{to} from {from}");
    }
}

#[test]
fn group_excludes_sender_by_any_name() {
    let table: [(&str, &str, &[&str]); 5] = [
        ("team:backend", "old-codex", &["claude"]),
        ("team:backend", "OLD-Codex", &["claude"]),
        ("#general", "old-codex", &["claude"]),
        ("all", "old-codex", &["claude", "gemini", "human"]),
        ("team:backend", "old-codex@research", &["claude", "Codex"]), // another's name
    ];
    for (to, from, expected) in table {
        assert_eq!(resolved(to, from, &directory()), Ok(words(expected)), "{to} from {from}");
    }
}

#[test]
fn all_includes_person_once() {
    let table: [(&str, &[&str]); 3] = [
        ("claude", &["Codex", "gemini", "human", "Zoe"]),
        ("human", &["claude", "Codex", "gemini", "Zoe"]),
        ("HUMAN", &["claude", "Codex", "gemini", "Zoe"]),
    ];
    for recorded in [None, Some("human"), Some("Human")] {
        let mut directory = directory();
        for id in ["Zoe"].into_iter().chain(recorded) {
            directory.put_agent(record(id, None, vec![]));
        }
        for (from, expected) in table {
            assert_eq!(resolved("all", from, &directory), Ok(words(expected)), "from {from}, {recorded:?}");
        }
    }
}

#[test]
fn only_agent_reaches_person_with_all() {
    let mut directory = Directory::default();
    directory.put_agent(record("codex", None, vec![]));
    assert_eq!(resolved("all", "codex", &directory), Ok(words(&["human"])));
}

#[test]
fn group_of_only_sender_is_error() {
    let mut directory = Directory::default();
    let general = Route::Channel { channel: name("general") };
    directory.put_agent(record("codex", Some("backend"), vec![general, worker(0)]));
    directory.put_team(team("backend"));
    directory.put_team(team("frontend"));
    for (to, from) in [
        ("team:backend", "codex"),
        ("team:frontend", "codex"),
        ("#general", "codex"),
        ("#empty", "codex"),
        ("job:7", "codex"),
        ("job:8", "codex"),
    ] {
        let Address::Group(group) = to.parse().unwrap() else { panic!("{to} is a group") };
        assert_eq!(resolved(to, from, &directory), Err(ResolveError::EmptyGroup { group }), "{to}");
    }
    let nobody = Err(ResolveError::EmptyGroup { group: GroupId::Everyone });
    assert_eq!(resolved("all", "human", &Directory::default()), nobody);
}

#[test]
fn unknown_agent_error_has_suggestions() {
    let table: [(&str, &[&str]); 6] = [
        ("codx", &["Codex"]),
        ("humann", &["human"]),
        ("old-codx", &["old-codex"]),
        ("CLADUE", &["claude"]),
        ("alise@research", &["alice@research"]),
        ("zzz", &[]),
    ];
    for (to, near) in table {
        let expected = ResolveError::UnknownAgent {
            agent: agent(to),
            near: words(near),
            known: words(&["alice@research", "claude", "Codex", "gemini"]),
        };
        assert_eq!(resolved(to, "claude", &directory()), Err(expected), "{to}");
    }
}

#[test]
fn local_name_is_unknown_in_other_realm() {
    for to in ["human@research", "codex@research", "old-codex@research"] {
        let error = resolved(to, "claude", &directory()).unwrap_err();
        assert!(
            matches!(&error, ResolveError::UnknownAgent { agent: unknown, .. } if *unknown == agent(to)),
            "{to}: {error:?}"
        );
    }
}

#[test]
fn unknown_team_or_node_is_error() {
    let unknown_team =
        |team, near: &[&str]| ResolveError::UnknownTeam { team: name(team), near: words(near) };
    let table = [
        ("team:bakend", unknown_team("bakend", &["backend"])),
        ("team:zzz", unknown_team("zzz", &[])),
        ("team:codex", unknown_team("codex", &[])),
        ("job:7/9", ResolveError::UnknownNode { node: NodeId { job: JobId::parse("7").unwrap(), node: 9 } }),
    ];
    for (to, expected) in table {
        assert_eq!(resolved(to, "claude", &directory()), Err(expected), "{to}");
    }
}
