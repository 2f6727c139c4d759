use jiff::Timestamp;
use serde_json::Map;

use super::*;
use crate::resolve;
use crate::{AgentRecord, Door, JobId, Kind, MessageId, Name, NativeId, NodeId, Origin, TeamRecord};

fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

fn agent(text: &str) -> AgentId {
    text.parse().unwrap()
}

fn session(id: &str) -> Route {
    Route::Session { session: id.into() }
}

fn worker(node: u32) -> Route {
    Route::Worker(NodeId { job: JobId::parse("7").unwrap(), node })
}

fn mailbox(agent: &str) -> Route {
    Route::Mailbox { agent: name(agent) }
}

fn channel(channel: &str) -> Route {
    Route::Channel { channel: name(channel) }
}

fn peer(peer: &str) -> Route {
    Route::Peer { agent: agent(peer) }
}

fn hub(hub: &str) -> Route {
    Route::Hub { hub: name(hub) }
}

fn message(from: &str, to: &str, came_by: Option<Route>) -> Message {
    let id = MessageId::from_parts(1, 1);
    let native = NativeId { door: Door::Workspace, scope: String::new(), id: "1".into() };
    Message {
        id,
        from: agent(from),
        to: to.parse().unwrap(),
        kind: Kind::delegate_task(),
        body: "hello".into(),
        in_reply_to: None,
        thread: id,
        sent_at: Timestamp::UNIX_EPOCH,
        expires_at: None,
        metadata: Map::new(),
        origin: Origin { native, verified: true, route: came_by },
        via: vec![],
        signed: None,
    }
}

fn put(directory: &mut Directory, id: &str, routes: Vec<Route>) {
    directory.put_agent(AgentRecord {
        id: agent(id),
        role: None,
        team: Some(name("backend")),
        routes,
        registered_at: Timestamp::UNIX_EPOCH,
    });
}

/// A team of four, each with other routes.
fn directory() -> Directory {
    let mut directory = Directory::default();
    let (id, title) = (name("backend"), "Backend".into());
    directory.put_team(TeamRecord { id, title, composite: false, created_at: Timestamp::UNIX_EPOCH });
    put(&mut directory, "claude", vec![mailbox("claude"), worker(0), session("s1"), channel("general")]);
    put(&mut directory, "Codex", vec![mailbox("Codex"), channel("general"), worker(1)]);
    put(&mut directory, "gemini", vec![]);
    put(&mut directory, "alice@research", vec![peer("alice@research")]);
    directory.put_alias(name("bard"), name("gemini"));
    directory
}

fn sent(agent_id: &str, route: Route) -> PlanEntry {
    PlanEntry { agent: agent(agent_id), route, in_place: false }
}

fn in_place(agent_id: &str, route: Route) -> PlanEntry {
    PlanEntry { agent: agent(agent_id), route, in_place: true }
}

fn deliveries(message: &Message, directory: &Directory) -> Vec<PlanEntry> {
    plan(message, directory, false).unwrap().deliveries
}

#[test]
fn most_direct_route_is_selected() {
    let (hub, peer) = (hub("office"), peer("codex@research"));
    let best_first = [session("s1"), worker(0), mailbox("codex"), channel("general"), hub, peer];
    for (best, route) in best_first.iter().enumerate() {
        for turn in 0..best_first.len() - best {
            let mut routes = best_first[best..].to_vec();
            routes.rotate_left(turn);
            let mut directory = Directory::default();
            put(&mut directory, "codex", routes.clone());
            let planned = deliveries(&message("claude", "codex", None), &directory);
            assert_eq!(planned, [sent("codex", route.clone())], "{routes:?}");
        }
    }
}

#[test]
fn agent_without_route_gets_canonical_mailbox() {
    let mut directory = directory();
    put(&mut directory, "Reviewer", vec![]);
    for (to, route) in [
        ("gemini", "mailbox:gemini"),
        ("BARD", "mailbox:gemini"),
        ("reviewer", "mailbox:Reviewer"),
        ("Human", "mailbox:human"),
    ] {
        let planned = deliveries(&message("claude", to, None), &directory);
        assert_eq!(planned.iter().map(|p| p.route.to_string()).collect::<Vec<_>>(), [route], "{to}");
    }
}

#[test]
fn remote_agent_without_route_is_peer() {
    let mut directory = Directory::default();
    let team = TeamRecord {
        id: name("backend"),
        title: "Backend".into(),
        composite: false,
        created_at: Timestamp::UNIX_EPOCH,
    };
    directory.put_team(team);
    put(&mut directory, "alice@research", vec![]);
    put(&mut directory, "alice", vec![]); // a namesake of this hub
    let (afar, here) = (sent("alice@research", peer("alice@research")), sent("alice", mailbox("alice")));
    let table = [
        ("alice@research", vec![afar.clone()]),
        ("ALICE@Research", vec![afar.clone()]),
        ("alice", vec![here.clone()]),
        ("team:backend", vec![here, afar]),
    ];
    for (to, deliveries) in table {
        for allow_unregistered in [false, true] {
            let planned = plan(&message("claude", to, None), &directory, allow_unregistered);
            assert_eq!(planned, Ok(Plan { deliveries: deliveries.clone() }), "{to}");
        }
    }
}

#[test]
fn group_member_gets_message_once() {
    let alice = || sent("alice@research", peer("alice@research"));
    let claude = || sent("claude", session("s1"));
    let codex = || sent("Codex", worker(1));
    let gemini = || sent("gemini", mailbox("gemini"));
    let table = [
        ("human", "team:backend", vec![alice(), claude(), codex(), gemini()]),
        ("claude", "team:backend", vec![alice(), codex(), gemini()]),
        // A message to a channel is posted in the channel.
        ("gemini", "#general", ["claude", "Codex"].map(|reader| sent(reader, channel("general"))).to_vec()),
        ("claude", "job:7", vec![codex()]),
        ("claude", "all", vec![codex(), gemini(), sent("human", mailbox("human"))]),
    ];
    for (from, to, expected) in table {
        assert_eq!(deliveries(&message(from, to, None), &directory()), expected, "{to} from {from}");
    }
}

#[test]
fn inbound_route_is_never_used() {
    let table = [
        ("claude", session("s1"), vec![sent("claude", worker(0))]),
        ("claude", session("s2"), vec![sent("claude", session("s1"))]),
        ("codex", worker(1), vec![sent("Codex", mailbox("Codex"))]),
        ("job:7/1", worker(1), vec![sent("Codex", mailbox("Codex"))]),
        ("job:7", worker(1), vec![sent("claude", session("s1")), sent("Codex", mailbox("Codex"))]),
    ];
    for (to, came_by, expected) in table {
        let message = message("human", to, Some(came_by));
        assert_eq!(deliveries(&message, &directory()), expected, "{to}");
    }
}

#[test]
fn no_address_returns_message_to_inbound_route() {
    let ways_in = [
        session("s1"),
        worker(0),
        worker(1),
        mailbox("claude"),
        mailbox("codex"),
        mailbox("gemini"),
        mailbox("human"),
        channel("general"),
        peer("alice@research"),
    ];
    let addresses =
        ["claude", "codex", "bard", "human", "alice@research", "team:backend", "#general", "job:7", "all"];
    for came_by in &ways_in {
        for to in addresses {
            let planned = match plan(&message("visitor", to, Some(came_by.clone())), &directory(), false) {
                Ok(plan) => plan.deliveries,
                Err(error) => {
                    let alice = agent("alice@research");
                    let no_other = (Address::from(alice.clone()), peer("alice@research"));
                    assert_eq!((to.parse().unwrap(), came_by.clone()), no_other, "{error}");
                    assert_eq!(error, ResolveError::NoRoute { to: alice.into() });
                    continue;
                }
            };
            for PlanEntry { agent, route, in_place } in planned {
                let back = route == *came_by;
                let place = matches!(route, Route::Mailbox { .. } | Route::Channel { .. });
                assert_eq!(in_place, back, "{to} by {came_by}: {agent} by {route}");
                assert!(!back || place, "{to} by {came_by}: {agent}");
            }
        }
    }
}

/// The team of four, and one with a single route.
fn directory_with_loner(route: &Route) -> Directory {
    let mut directory = directory();
    put(&mut directory, "loner", vec![route.clone()]);
    directory
}

#[test]
fn recipient_with_only_inbound_route_is_skipped() {
    let others = vec![
        sent("alice@research", peer("alice@research")),
        sent("claude", session("s1")),
        sent("Codex", worker(1)),
        sent("gemini", mailbox("gemini")),
    ];
    for route in [session("s9"), worker(9), hub("office"), peer("loner@research")] {
        let planned = |to, allow_unregistered| {
            let message = message("visitor", to, Some(route.clone()));
            plan(&message, &directory_with_loner(&route), allow_unregistered)
        };
        for allow_unregistered in [false, true] {
            let no_route = Err(ResolveError::NoRoute { to: agent("loner").into() });
            assert_eq!(planned("Loner", allow_unregistered), no_route, "{route}");
            let expected = Ok(Plan { deliveries: others.clone() });
            assert_eq!(planned("team:backend", allow_unregistered), expected, "{route}");
        }
    }
}

#[test]
fn file_in_place_is_sent_to_others() {
    let general = || channel("general");
    let alice = || sent("alice@research", peer("alice@research"));
    let claude = || sent("claude", session("s1"));
    let gemini = || sent("gemini", mailbox("gemini"));
    let loner = || in_place("loner", general());
    let readers = || vec![in_place("claude", general()), in_place("Codex", general()), loner()];
    let table = [
        ("codex", mailbox("CODEX"), vec![in_place("Codex", mailbox("Codex"))]),
        ("bard", mailbox("gemini"), vec![in_place("gemini", mailbox("gemini"))]),
        ("human", mailbox("human"), vec![in_place("human", mailbox("human"))]),
        ("claude", mailbox("codex"), vec![claude()]), // another's mailbox
        (
            "team:backend",
            mailbox("codex"),
            vec![alice(), claude(), in_place("Codex", mailbox("Codex")), gemini(), sent("loner", general())],
        ),
        ("loner", general(), vec![loner()]),
        ("claude", channel("General"), vec![in_place("claude", general())]),
        ("gemini", general(), vec![gemini()]), // no reader of the channel
        ("#general", channel("General"), readers()),
        (
            "#general",
            channel("random"),
            ["claude", "Codex", "loner"].map(|reader| sent(reader, general())).to_vec(),
        ),
        (
            "team:backend",
            general(),
            vec![alice(), in_place("claude", general()), in_place("Codex", general()), gemini(), loner()],
        ),
    ];
    for (to, came_by, expected) in table {
        let message = message("visitor", to, Some(came_by.clone()));
        assert_eq!(deliveries(&message, &directory_with_loner(&general())), expected, "{to} by {came_by}");
    }
}

#[test]
fn unregistered_agent_needs_permission() {
    let stranger = message("claude", "Newcomer", None);
    let unknown = plan(&stranger, &directory(), false).unwrap_err();
    assert!(matches!(unknown, ResolveError::UnknownAgent { .. }), "{unknown:?}");

    let expected = Plan { deliveries: vec![sent("Newcomer", mailbox("Newcomer"))] };
    assert_eq!(plan(&stranger, &directory(), true), Ok(expected));

    let dropped = message("claude", "newcomer", Some(mailbox("newcomer")));
    let expected = Plan { deliveries: vec![in_place("newcomer", mailbox("newcomer"))] };
    assert_eq!(plan(&dropped, &directory(), true), Ok(expected));
}

#[test]
fn only_local_agents_may_be_unregistered() {
    for to in ["bob@research", "team:nobody", "#nobody", "job:9", "job:7/9"] {
        let message = message("claude", to, None);
        let expected = resolve(&message.to, &message.from, &directory()).unwrap_err();
        assert_eq!(plan(&message, &directory(), true), Err(expected), "{to}");
    }
}

#[test]
fn known_agent_keeps_its_routes() {
    for (to, expected) in [("CODEX", sent("Codex", worker(1))), ("bard", sent("gemini", mailbox("gemini")))] {
        let planned = plan(&message("claude", to, None), &directory(), true);
        assert_eq!(planned, Ok(Plan { deliveries: vec![expected] }), "{to}");
    }
}

#[test]
fn channel_post_needs_no_reader() {
    let nobody = Plan { deliveries: vec![] };
    let post = |to: &str| message("claude", to, Some(channel("empty")));
    assert_eq!(plan(&post("#empty"), &directory(), false), Ok(nobody));
    let elsewhere = plan(&post("#nobody"), &directory(), true);
    assert!(matches!(elsewhere, Err(ResolveError::EmptyGroup { .. })), "{elsewhere:?}");

    let newcomer = Plan { deliveries: vec![in_place("newcomer", channel("empty"))] };
    assert_eq!(plan(&post("newcomer"), &directory(), true), Ok(newcomer));
    let person = Plan { deliveries: vec![sent("human", mailbox("human"))] };
    assert_eq!(plan(&post("human"), &directory(), true), Ok(person));
}

#[test]
fn remote_post_is_read_in_its_channel() {
    let posted = |to: &str, came_by: Route| {
        let metadata = [(crate::POSTED_IN.to_owned(), "general".into())].into_iter().collect();
        Message { metadata, ..message("qc-1@office", to, Some(came_by)) }
    };
    let planned = |to: &str, came_by| deliveries(&posted(to, came_by), &directory());
    assert_eq!(planned("codex", hub("office")), [sent("Codex", channel("general"))]);
    assert_eq!(planned("gemini", hub("office")), [sent("gemini", mailbox("gemini"))], "who does not read it");
    assert_eq!(planned("codex", session("s9")), [sent("Codex", worker(1))], "only a link is believed");
}

#[test]
fn team_channel_reaches_all_members() {
    let mut directory = directory();
    put(&mut directory, "watcher", vec![channel("team-backend")]);
    let planned = deliveries(&message("visitor", "#Team-Backend", None), &directory);
    let by: Vec<String> = planned.iter().map(|p| format!("{} {}", p.agent, p.route)).collect();
    let gemini = "gemini mailbox:gemini".to_owned();
    assert!(by.contains(&"watcher channel:team-backend".to_owned()) && by.contains(&gemini), "{by:?}");
}

/// The directory of the tests with these links.
fn linked(link: impl FnOnce(&mut crate::RoutingRules)) -> Directory {
    let mut links = crate::RoutingRules::default();
    link(&mut links);
    let mut directory = directory();
    directory.set_routing_rules(links.into());
    directory
}

#[test]
fn mail_is_forwarded_once() {
    let directory = linked(|links| {
        links.forward(agent("gemini"), agent("codex")).unwrap();
        links.forward(agent("retired"), agent("alice@research")).unwrap();
    });
    let planned = |to| deliveries(&message("claude", to, None), &directory);
    assert_eq!(planned("gemini"), [sent("Codex", worker(1))]);
    assert_eq!(planned("bard"), [sent("Codex", worker(1))]);
    assert_eq!(planned("retired"), [sent("alice@research", peer("alice@research"))]);
    // Both are in the team, and what is for both is read once.
    let team = [sent("alice@research", peer("alice@research")), sent("Codex", worker(1))];
    assert_eq!(planned("team:backend"), team);
}

#[test]
fn forward_to_unknown_agent_is_error() {
    let directory = linked(|links| links.forward(agent("gemini"), agent("codx")).unwrap());
    // To one agent or to a group that it belongs to, and also where unknown names are let pass.
    for (to, anybody) in [("gemini", false), ("gemini", true), ("all", true)] {
        let error = plan(&message("claude", to, None), &directory, anybody).unwrap_err();
        let link = "links.forwards.gemini".to_owned();
        let near = vec!["Codex".to_owned()];
        assert_eq!(error, ResolveError::UnknownRuleTarget { agent: agent("codx"), link, near }, "{to}");
    }
}

#[test]
fn rule_for_unknown_swarm_is_error() {
    let directory = linked(|links| {
        links.forward(agent("gemini"), agent("bob@nowhere")).unwrap();
        links.add_member(name("review"), agent("amy@resaerch"));
        links.subscribe(name("general"), name("elsewhere"));
        links.forward(agent("retired"), agent("Alice@research")).unwrap();
    });
    for (to, realm, link) in [
        ("gemini", "nowhere", "links.forwards.gemini"),
        ("all", "nowhere", "links.forwards.gemini"),
        ("team:review", "resaerch", "links.teams.review"),
        ("#general", "elsewhere", "links.channels.general"),
    ] {
        let error = plan(&message("claude", to, None), &directory, true).unwrap_err();
        assert_eq!(error, ResolveError::UnknownRealm { realm: name(realm), link: link.to_owned() }, "{to}");
    }
    let planned = deliveries(&message("claude", "retired", None), &directory);
    assert_eq!(planned, [sent("alice@research", peer("alice@research"))]);
    let broken: Vec<String> = crate::find_broken_rules(&directory).iter().map(ToString::to_string).collect();
    let problem = |link: &str, realm: &str| {
        format!("{link} points to '{realm}', but no swarm or hub of that name is known")
    };
    let expected = [
        problem("links.forwards.gemini", "nowhere"),
        problem("links.teams.review", "resaerch"),
        problem("links.channels.general", "elsewhere"),
    ];
    assert_eq!(broken, expected);
}

#[test]
fn broken_channel_rule_keeps_other_readers() {
    let directory = linked(|links| links.subscribe(name("general"), name("elsewhere")));
    let readers =
        |planned: Vec<PlanEntry>| planned.iter().map(|one| one.agent.to_string()).collect::<Vec<_>>();
    for (from, came_by) in [
        ("claude", Some(channel("general"))),
        ("alice@research", Some(peer("alice@research"))),
        ("dana@office", Some(hub("office"))),
    ] {
        let planned = readers(deliveries(&message(from, "#general", came_by), &directory));
        assert!(planned.contains(&"Codex".to_owned()), "{from}: {planned:?}");
    }
}

#[test]
fn rule_for_unknown_member_is_error() {
    let mut directory = linked(|links| {
        links.forward(agent("gemini"), agent("nobody@research")).unwrap();
        links.add_member(name("review"), agent("nobody@office"));
        links.forward(agent("chained"), agent("gemini")).unwrap();
        links.forward(agent("codex"), agent("ghost")).unwrap();
    });
    put(&mut directory, "dana@office", vec![hub("office")]);
    let unknown = |to: &str| plan(&message("claude", to, None), &directory, true).unwrap_err().to_string();
    assert_eq!(
        unknown("gemini"),
        "no agent is named 'nobody@research', to which links.forwards.gemini points"
    );
    assert_eq!(
        unknown("chained"),
        "no agent is named 'nobody@research', to which links.forwards.chained points"
    );
    assert_eq!(
        unknown("team:review"),
        "no agent is named 'nobody@office', to which links.teams.review points"
    );
    let broken: Vec<String> = crate::find_broken_rules(&directory).iter().map(ToString::to_string).collect();
    let expected = [
        "no agent is named 'ghost', to which links.forwards.codex points",
        "no agent is named 'nobody@research', to which links.forwards.gemini points",
        "no agent is named 'nobody@office', to which links.teams.review points",
    ];
    assert_eq!(broken, expected);
}

#[test]
fn team_with_unknown_added_member_is_error() {
    let directory = linked(|links| links.add_member(name("backend"), agent("ghost")));
    let error = plan(&message("human", "team:backend", None), &directory, true).unwrap_err();
    assert_eq!(error.to_string(), "no agent is named 'ghost', to which links.teams.backend points");
    // One that has gone may still have mail forwarded.
    let directory = linked(|links| {
        links.add_member(name("backend"), agent("ghost"));
        links.forward(agent("ghost"), agent("codex")).unwrap();
    });
    assert!(plan(&message("human", "team:backend", None), &directory, false).is_ok());
}

#[test]
fn team_includes_remote_members() {
    let mut directory = linked(|links| {
        links.add_member(name("backend"), agent("bob@research"));
        links.add_member(name("visitors"), agent("codex@office"));
    });
    put(&mut directory, "codex@office", vec![hub("office")]);
    put(&mut directory, "bob@research", vec![peer("bob@research")]);
    let everyone = deliveries(&message("human", "team:backend", None), &directory);
    assert!(everyone.contains(&sent("bob@research", peer("bob@research"))), "{everyone:?}");
    let visitors = deliveries(&message("human", "team:Visitors", None), &directory);
    assert_eq!(visitors, [sent("codex@office", hub("office"))]);
}

#[test]
fn subscribed_realm_gets_posts_except_its_own() {
    let mut directory = linked(|links| links.subscribe(name("general"), name("research")));
    put(&mut directory, "bob@research", vec![]);
    let readers = [sent("claude", channel("general")), sent("Codex", channel("general"))];
    let realm = [sent("alice@research", peer("alice@research")), sent("bob@research", peer("bob@research"))];
    let ours = deliveries(&message("human", "#general", None), &directory);
    assert_eq!(ours, [&realm[..1], &realm[1..], &readers[..]].concat());
    let theirs = deliveries(&message("alice@research", "#general", None), &directory);
    assert_eq!(theirs, readers);
    // An agent that got it from a linked hub does not get it again; this does not affect local agents.
    let mut bridged = message("dana@office", "#general", Some(hub("office")));
    bridged.metadata.insert(RECEIVED_BY.to_owned(), serde_json::json!(["Bob@research"]));
    let left = [&realm[..1], &readers[..]].concat();
    assert_eq!(deliveries(&bridged, &directory), left);
    bridged.origin.route = None;
    assert_eq!(deliveries(&bridged, &directory).len(), 4);
}

#[test]
fn ranked_routes_agree_with_plan() {
    let directory = directory();
    for (from, to, came_by) in [
        ("human", "claude", None),
        ("human", "bard", None),
        ("human", "#general", Some(channel("general"))),
        ("claude", "team:backend", None),
        ("human", "codex", Some(worker(1))),
    ] {
        let message = message(from, to, came_by);
        let considered = rank_routes(&message, &directory, false).unwrap();
        let chosen: Vec<_> = considered
            .iter()
            .filter_map(|one| Some((one.recipient.agent.clone(), one.best()?.0.clone())))
            .collect();
        let planned: Vec<_> = deliveries(&message, &directory)
            .into_iter()
            .map(|planned| (planned.agent, planned.route))
            .collect();
        assert_eq!(chosen, planned, "{to}");
    }
    let considered = rank_routes(&message("human", "codex", Some(worker(1))), &directory, false).unwrap();
    assert_eq!(
        considered[0].routes,
        [
            (mailbox("Codex"), RouteRank::Available(2)),
            (channel("general"), RouteRank::Available(3)),
            (worker(1), RouteRank::Inbound),
        ]
    );
    let reasons = |to| {
        rank_routes(&message("human", to, None), &directory, true).unwrap()[0].recipient.resolved_via.clone()
    };
    assert_eq!(reasons("claude"), ResolvedVia::Name);
    assert_eq!(reasons("bard"), ResolvedVia::Alias(name("bard")));
    assert_eq!(reasons("somebody"), ResolvedVia::Unregistered);
}
