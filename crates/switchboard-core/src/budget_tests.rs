use super::*;

fn agent(text: &str) -> AgentId {
    text.parse().unwrap()
}

#[test]
fn budget_allows_last_message_and_token() {
    let budget = Budget { messages_per_hour: Some(3), tokens_per_day: Some(100) };
    let a = agent("a");
    let table = [
        ((0, 0), Ok(())),
        ((3, 100), Ok(())),
        ((4, 0), Err(TripReason::Messages { agent: a.clone(), count: 4, budget: 3 })),
        ((0, 101), Err(TripReason::Tokens { agent: a.clone(), tokens: 101, budget: 100 })),
    ];
    for ((messages, tokens), expected) in table {
        assert_eq!(check_budget(&a, Usage { messages, tokens }, budget), expected, "{messages}, {tokens}");
        assert_eq!(check_budget(&a, Usage { messages, tokens }, Budget::default()), Ok(()));
    }
}

#[test]
fn agent_budget_overrides_default() {
    let everyone = Budget { messages_per_hour: Some(10), tokens_per_day: Some(1000) };
    let own = Budget { messages_per_hour: Some(50), tokens_per_day: None };
    let budgets = Budgets { everyone, agents: BTreeMap::from([(Name::parse("Codex").unwrap(), own)]) };
    let codex = Budget { messages_per_hour: Some(50), tokens_per_day: Some(1000) };
    assert_eq!(budgets.of(&agent("codex")), codex);
    assert_eq!(budgets.of(&agent("claude")), everyone);
    assert_eq!(budgets.of(&AgentId::human()), Budget::default());
    assert_eq!(budgets.of(&agent("codex@research")), Budget::default());
    assert!(!Budgets::default().of(&agent("a")).is_limited());
    assert!(Budgets::default().is_unlimited() && !budgets.is_unlimited());
}

#[test]
fn token_estimate_is_four_bytes() {
    for (text, tokens) in [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2), ("€€", 2)] {
        assert_eq!(estimate_tokens(text), tokens, "{text}");
    }
}
