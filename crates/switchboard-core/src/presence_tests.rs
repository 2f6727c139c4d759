use super::*;

#[test]
fn c12_silence_makes_stale_then_offline() {
    let start = Timestamp::from_second(1_763_000_000).unwrap();
    let beat = Heartbeat { agent: AgentId::human(), at: start, status: "working".into(), message: None };
    let table = [
        (-3600, Awareness::Awake),
        (0, Awareness::Awake),
        (299, Awareness::Awake),
        (300, Awareness::Stale),
        (1199, Awareness::Stale),
        (1200, Awareness::Offline),
    ];
    for (seconds, expected) in table {
        let now = start + SignedDuration::from_secs(seconds);
        let presence = Presence::derive(
            AgentId::human(),
            Some(&beat),
            now,
            PresenceTimeouts::default(),
            Silence::Absence,
        );
        assert_eq!(presence.awareness, expected, "after {seconds} s");
    }
    let never =
        Presence::derive(AgentId::human(), None, start, PresenceTimeouts::default(), Silence::Absence);
    assert_eq!((never.awareness, never.since), (Awareness::Offline, None));
}

#[test]
fn unheard_remote_agent_is_unknown() {
    let (now, after) = (Timestamp::from_second(1_763_000_000).unwrap(), PresenceTimeouts::default());
    let bob: AgentId = "bob@research".parse().unwrap();
    let never = Presence::derive(bob.clone(), None, now, after, Silence::Absence);
    assert_eq!((never.awareness, never.since), (Awareness::Unknown, None));
    let beat = Heartbeat { agent: bob.clone(), at: now, status: OFFLINE.into(), message: None };
    assert_eq!(
        Presence::derive(bob, Some(&beat), now, after, Silence::Absence).awareness,
        Awareness::Offline
    );
}

#[test]
fn a_goodbye_is_no_sign_of_life() {
    let at = Timestamp::from_second(1_763_000_000).unwrap();
    let beat = Heartbeat { agent: AgentId::human(), at, status: OFFLINE.into(), message: Some("bye".into()) };
    let presence =
        Presence::derive(AgentId::human(), Some(&beat), at, PresenceTimeouts::default(), Silence::Absence);
    assert_eq!((presence.awareness, presence.message.as_deref()), (Awareness::Offline, Some("bye")));
}

#[test]
fn unobserved_silence_is_unknown() {
    let at = Timestamp::from_second(1_763_000_000).unwrap();
    let beat = |status: &str| Heartbeat { agent: AgentId::human(), at, status: status.into(), message: None };
    let awareness = |heartbeat: Option<&Heartbeat>, seconds| {
        let (agent, now) = (AgentId::human(), at + SignedDuration::from_secs(seconds));
        Presence::derive(agent, heartbeat, now, PresenceTimeouts::default(), Silence::Unobserved).awareness
    };
    assert_eq!(awareness(None, 0), Awareness::Unknown);
    for (seconds, expected) in
        [(299, Awareness::Awake), (300, Awareness::Unknown), (9999, Awareness::Unknown)]
    {
        assert_eq!(awareness(Some(&beat("idle")), seconds), expected, "after {seconds} s");
    }
    assert_eq!(awareness(Some(&beat(OFFLINE)), 0), Awareness::Offline);
}
