use super::*;

fn id(text: &str) -> AgentId {
    text.parse().unwrap()
}

#[test]
fn forward_chain_has_one_target() {
    let mut links = RoutingRules::default();
    links.forward(id("old"), id("Codex")).unwrap();
    links.forward(id("older"), id("OLD")).unwrap();
    assert_eq!(links.forward_target(&id("older")), Some(&id("codex")));
    assert_eq!(links.forward_target(&id("codex")), None);
}

#[test]
fn forward_loop_and_duplicate_are_refused() {
    let mut links = RoutingRules::default();
    links.forward(id("a"), id("b")).unwrap();
    links.forward(id("b"), id("c@office")).unwrap();
    let circle = links.forward(id("c@office"), id("a")).unwrap_err();
    assert_eq!(circle.to_string(), "the forwards of 'c@office' form a loop: c@office → a → b → c@office");
    assert_eq!(
        links.forward(id("d"), id("D")).unwrap_err().to_string(),
        "the forwards of 'd' form a loop: d → D"
    );
    let twice = links.forward(id("A"), id("d")).unwrap_err();
    assert_eq!(twice, ForwardError::AlreadyForwarded { from: id("a"), first: id("b") });
    assert_eq!(links.forward(id("human"), id("a")), Err(ForwardError::Human));
}

#[test]
fn subscriptions_are_found_from_both_sides() {
    let mut links = RoutingRules::default();
    let name = |text| Name::parse(text).unwrap();
    links.subscribe(name("general"), name("research"));
    links.subscribe(name("news"), name("Research"));
    assert_eq!(links.subscribers(&name("General")).collect::<Vec<_>>(), [&name("research")]);
    assert_eq!(
        links.subscriptions_of(&name("research")).collect::<Vec<_>>(),
        [&name("general"), &name("news")]
    );
}
