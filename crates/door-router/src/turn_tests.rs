use proptest::prelude::*;

use super::*;

fn injection() -> Injection {
    let at = At { job_id: "j".into(), swarm_id: None, node_id: 0, injection_id: "i".into() };
    Injection { request_id: "r".into(), client: "c".into(), at }
}

/// One letter per event, so that an order can be told by a pattern.
fn letters(events: &[EventBody]) -> String {
    let letter = |event: &EventBody| match event {
        EventBody::InjectDelivered(_) => 'd',
        EventBody::InjectFailed(_) => 'f',
        EventBody::TurnStarted(_) => 's',
        EventBody::AssistantDelta(_) | EventBody::ReasoningDelta(_) => 'p',
        EventBody::CommandStarted(_) | EventBody::CommandCompleted(_) | EventBody::FileChange(_) => 'h',
        EventBody::Assistant(_) => 'a',
        EventBody::Usage(_) => 'u',
        EventBody::TurnComplete(_) => 'c',
        other => panic!("{other:?}"),
    };
    events.iter().map(letter).collect()
}

#[test]
fn a_plain_turn() {
    let mut turn = Turn::new(injection());
    let mut events = Vec::new();
    let reports = [
        Report::Accepted,
        Report::Started,
        Report::Delta("a".into()),
        Report::Answer("ab".into()),
        Report::Usage(Tokens { total_tokens: 7, ..Tokens::default() }),
    ];
    for report in reports {
        events.extend(turn.take(report));
    }
    events.extend(turn.end(TurnStatus::Completed, None, 10));
    assert_eq!(letters(&events), "dspauc");
    let EventBody::Usage(usage) = &events[4] else { panic!("{events:?}") };
    assert_eq!((usage.tokens.total_tokens, usage.job_total_tokens), (7, 17));
}

#[test]
fn r7_an_agent_that_never_took_it_fails_it_and_ends_it() {
    let mut turn = Turn::new(injection());
    assert_eq!(letters(&turn.end(TurnStatus::WorkerLost, Some("gone".into()), 0)), "fc");
    assert_eq!(turn.end(TurnStatus::Failed, None, 0), []);
    assert_eq!(turn.take(Report::Delta("late".into())), []);
}

fn any_report() -> impl Strategy<Value = Report> {
    prop_oneof![
        Just(Report::Accepted),
        Just(Report::Started),
        "[a-z]{0,3}".prop_map(Report::Delta),
        "[a-z]{0,3}".prop_map(Report::Reasoning),
        "[a-z]{0,3}".prop_map(Report::Answer),
        (0_u64..100).prop_map(|n| Report::Usage(Tokens { total_tokens: n, ..Tokens::default() })),
        Just(Report::Happened(Happening::CommandStarted {
            item_id: "x".into(),
            command: "ls".into(),
            cwd: None
        })),
    ]
}

fn any_status() -> impl Strategy<Value = TurnStatus> {
    prop_oneof![
        Just(TurnStatus::Completed),
        Just(TurnStatus::Failed),
        Just(TurnStatus::Interrupted),
        Just(TurnStatus::Timeout),
        Just(TurnStatus::WorkerLost),
    ]
}

/// Whether the letters follow the protocol: delivered, started, pieces in any order, answer, usage, complete.
fn is_ordered(letters: &str) -> bool {
    let Some(rest) = letters.strip_suffix('c') else { return false };
    if rest == "f" || rest == "fu" {
        return true;
    }
    let Some(rest) = rest.strip_prefix('d') else { return false };
    let rest = rest.strip_suffix('u').unwrap_or(rest);
    match rest.strip_prefix('s') {
        None => rest.is_empty(),
        Some(rest) => rest.strip_suffix('a').unwrap_or(rest).chars().all(|letter| "ph".contains(letter)),
    }
}

proptest! {
    // Together with those of a run in CI, more than a million schedules.
    #![proptest_config(ProptestConfig { cases: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn r10_any_schedule_gives_events_in_order_and_one_end(
        reports in prop::collection::vec(any_report(), 0..12),
        ends in prop::collection::vec((0_usize..12, any_status()), 1..3),
    ) {
        let mut turn = Turn::new(injection());
        let mut events = Vec::new();
        for (number, report) in reports.into_iter().enumerate() {
            for (at, status) in &ends {
                if *at == number {
                    events.extend(turn.end(*status, None, 0));
                }
            }
            events.extend(turn.take(report));
        }
        for (_, status) in ends {
            events.extend(turn.end(status, None, 0));
        }
        prop_assert!(is_ordered(&letters(&events)), "{}", letters(&events));
    }
}
