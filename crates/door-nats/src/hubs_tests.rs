use super::*;

fn agent(name: &str, silent_ms: u64) -> AgentActivity {
    let name = Name::parse(name).unwrap();
    AgentActivity { name, status: "working".into(), message: None, silent_ms, is_awake: true }
}

#[test]
fn heartbeat_time_never_goes_back() {
    let now = Timestamp::UNIX_EPOCH + SignedDuration::from_hours(10);
    let first = status(agent("qc-1", 2_000), None, now);
    assert_eq!(first.at, now - SignedDuration::from_secs(2));
    // The second message took longer, so its heartbeat seems older.
    let again = status(agent("qc-1", 2_005), Some(first.at), now);
    assert_eq!(again.at, first.at);
    let forged = status(agent("qc-1", u64::MAX), None, now);
    assert!(forged.at <= now);
}

#[test]
fn elapsed_silence_is_no_change() {
    assert!(agent("a", 1).is_like(&agent("a", 900)));
    let idle = AgentActivity { status: "idle".into(), ..agent("a", 1) };
    assert!(!agent("a", 1).is_like(&idle));
    assert!(!agent("a", 1).is_like(&AgentActivity { is_awake: false, ..agent("a", 1) }));
}

#[test]
fn agent_of_online_hub_stays_awake() {
    let (minutes, seconds) = (SignedDuration::from_mins, Duration::from_secs);
    assert_eq!(max_silence(minutes(5), seconds(15)), SignedDuration::from_secs(270));
    assert_eq!(max_silence(minutes(5), seconds(1000)), SignedDuration::from_secs(150));
}

#[test]
fn entry_reads_the_same_stored_and_published() {
    let message = |subject: &str, headers| Message {
        subject: subject.into(),
        reply: None,
        payload: "{}".into(),
        headers,
        status: None,
        description: None,
        length: 0,
    };
    let mut headers = HeaderMap::new();
    headers.insert(SEQUENCE, "7");
    let live = parse_change(&message("sb_live.agents.lab.qc-1", Some(headers.clone())), None).unwrap();
    assert_eq!((live.sequence, live.key.as_str(), live.value.as_deref()), (7, "lab.qc-1", Some(&b"{}"[..])));
    let stored = parse_change(&message("$KV.sb_agents.lab.qc-1", None), Some(7)).unwrap();
    assert_eq!((stored.sequence, stored.key.as_str()), (7, "lab.qc-1"));
    headers.insert("KV-Operation", "DEL");
    assert!(parse_change(&message("sb_live.agents.lab.qc-1", Some(headers)), None).unwrap().value.is_none());
    assert!(parse_change(&message("sb_live.agents.lab", None), None).is_none(), "no number");
}
