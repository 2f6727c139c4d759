use super::*;

fn injection() -> Injection {
    let at = InjectionRef { job_id: "j".into(), node_id: 0, injection_id: "i".into() };
    Injection { request_id: "r".into(), client: "c".into(), at }
}

/// Encodes events as one letter each, so that a pattern can check their order.
fn letters(events: &[EventBody]) -> String {
    let code = |event: &EventBody| match event {
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
    events.iter().map(code).collect()
}

#[test]
fn turn_without_deltas_has_ordered_events() {
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
        events.extend(turn.apply(report));
    }
    events.extend(turn.end(TurnStatus::Completed, None, 10));
    assert_eq!(letters(&events), "dspauc");
    let EventBody::Usage(usage) = &events[4] else { panic!("{events:?}") };
    assert_eq!((usage.tokens.total_tokens, usage.job_total_tokens), (7, 17));
}

#[test]
fn unaccepted_prompt_fails_and_ends_turn() {
    let mut turn = Turn::new(injection());
    assert_eq!(letters(&turn.end(TurnStatus::WorkerLost, Some("gone".into()), 0)), "fc");
    assert_eq!(turn.end(TurnStatus::Failed, None, 0), []);
    assert_eq!(turn.apply(Report::Delta("late".into())), []);
}

fn any_report(random: &mut fastrand::Rng) -> Report {
    let text = |random: &mut fastrand::Rng| "abc"[..random.usize(0..4)].to_owned();
    match random.u8(0..7) {
        0 => Report::Accepted,
        1 => Report::Started,
        2 => Report::Delta(text(random)),
        3 => Report::Reasoning(text(random)),
        4 => Report::Answer(text(random)),
        5 => Report::Usage(Tokens { total_tokens: random.u64(0..100), ..Tokens::default() }),
        _ => {
            let (item_id, command) = (text(random), text(random));
            Report::Activity(AgentActivity::CommandStarted { item_id, command, cwd: None })
        }
    }
}

const STATUSES: [TurnStatus; 5] = [
    TurnStatus::Completed,
    TurnStatus::Failed,
    TurnStatus::Interrupted,
    TurnStatus::Timeout,
    TurnStatus::WorkerLost,
];

/// True if the letters follow the protocol: delivered, started, deltas in any order, answer, usage, complete.
fn is_ordered(letters: &str) -> bool {
    let Some(rest) = letters.strip_suffix('c') else { return false };
    if rest == "f" || rest == "fu" {
        return true;
    }
    let Some(rest) = rest.strip_prefix('d') else { return false };
    let rest = rest.strip_suffix('u').unwrap_or(rest);
    match rest.strip_prefix('s') {
        None => rest.is_empty(),
        Some(rest) => rest.strip_suffix('a').unwrap_or(rest).chars().all(|code| "ph".contains(code)),
    }
}

#[test]
fn million_schedules_give_ordered_events() {
    let seed = fastrand::u64(..);
    let mut random = fastrand::Rng::with_seed(seed);
    for round in 0..1_000_000 {
        let mut turn = Turn::new(injection());
        let mut events = Vec::new();
        for _ in 0..random.usize(0..10) {
            if random.u8(0..12) == 0 {
                events.extend(turn.end(STATUSES[random.usize(..5)], None, 0));
            }
            events.extend(turn.apply(any_report(&mut random)));
        }
        for _ in 0..random.usize(1..3) {
            events.extend(turn.end(STATUSES[random.usize(..5)], None, 0));
        }
        let letters = letters(&events);
        assert!(is_ordered(&letters), "round {round} with seed {seed}: {letters}");
    }
}
