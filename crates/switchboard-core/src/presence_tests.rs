use super::*;

#[test]
fn silence_makes_stale_then_offline() {
    let start = Timestamp::from_second(1_763_000_000).unwrap();
    let beat = Heartbeat { agent: AgentId::human(), at: start, status: "working".into(), message: None };
    let table = [
        (-3600, PresenceState::Awake),
        (0, PresenceState::Awake),
        (299, PresenceState::Awake),
        (300, PresenceState::Stale),
        (1199, PresenceState::Stale),
        (1200, PresenceState::Offline),
    ];
    for (seconds, expected) in table {
        let now = start + SignedDuration::from_secs(seconds);
        let presence = Presence::derive(
            AgentId::human(),
            Some(&beat),
            now,
            PresenceTimeouts::default(),
            SilenceMeaning::Absence,
        );
        assert_eq!(presence.state, expected, "after {seconds} s");
    }
    let never =
        Presence::derive(AgentId::human(), None, start, PresenceTimeouts::default(), SilenceMeaning::Absence);
    assert_eq!((never.state, never.since), (PresenceState::Offline, None));
}

#[test]
fn remote_agent_without_heartbeat_is_unknown() {
    let (now, after) = (Timestamp::from_second(1_763_000_000).unwrap(), PresenceTimeouts::default());
    let bob: AgentId = "bob@research".parse().unwrap();
    let never = Presence::derive(bob.clone(), None, now, after, SilenceMeaning::Absence);
    assert_eq!((never.state, never.since), (PresenceState::Unknown, None));
    let beat = Heartbeat { agent: bob.clone(), at: now, status: OFFLINE.into(), message: None };
    assert_eq!(
        Presence::derive(bob, Some(&beat), now, after, SilenceMeaning::Absence).state,
        PresenceState::Offline
    );
}

#[test]
fn sign_off_makes_offline() {
    let at = Timestamp::from_second(1_763_000_000).unwrap();
    let beat = Heartbeat { agent: AgentId::human(), at, status: OFFLINE.into(), message: Some("bye".into()) };
    let presence = Presence::derive(
        AgentId::human(),
        Some(&beat),
        at,
        PresenceTimeouts::default(),
        SilenceMeaning::Absence,
    );
    assert_eq!((presence.state, presence.message.as_deref()), (PresenceState::Offline, Some("bye")));
}

#[test]
fn unobserved_silence_is_unknown() {
    let at = Timestamp::from_second(1_763_000_000).unwrap();
    let beat = |status: &str| Heartbeat { agent: AgentId::human(), at, status: status.into(), message: None };
    let awareness = |heartbeat: Option<&Heartbeat>, seconds| {
        let (agent, now) = (AgentId::human(), at + SignedDuration::from_secs(seconds));
        Presence::derive(agent, heartbeat, now, PresenceTimeouts::default(), SilenceMeaning::Unobserved).state
    };
    assert_eq!(awareness(None, 0), PresenceState::Unknown);
    for (seconds, expected) in
        [(299, PresenceState::Awake), (300, PresenceState::Unknown), (9999, PresenceState::Unknown)]
    {
        assert_eq!(awareness(Some(&beat("idle")), seconds), expected, "after {seconds} s");
    }
    assert_eq!(awareness(Some(&beat(OFFLINE)), 0), PresenceState::Offline);
}
