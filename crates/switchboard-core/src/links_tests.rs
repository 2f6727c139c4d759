use super::*;

fn id(text: &str) -> AgentId {
    text.parse().unwrap()
}

#[test]
fn a_chain_of_forwards_has_one_end() {
    let mut links = Links::default();
    links.forward(id("old"), id("Codex")).unwrap();
    links.forward(id("older"), id("OLD")).unwrap();
    assert_eq!(links.end_of(&id("older")), Some(&id("codex")));
    assert_eq!(links.end_of(&id("codex")), None);
}

#[test]
fn no_circle_and_no_second_forward() {
    let mut links = Links::default();
    links.forward(id("a"), id("b")).unwrap();
    links.forward(id("b"), id("c@office")).unwrap();
    let circle = links.forward(id("c@office"), id("a")).unwrap_err();
    assert_eq!(circle.to_string(), "mail for 'c@office' would come back to it: c@office → a → b → c@office");
    assert_eq!(
        links.forward(id("d"), id("D")).unwrap_err().to_string(),
        "mail for 'd' would come back to it: d → D"
    );
    let twice = links.forward(id("A"), id("d")).unwrap_err();
    assert_eq!(twice, LinkError::Twice { from: id("a"), first: id("b") });
    assert_eq!(links.forward(id("human"), id("a")), Err(LinkError::Human));
}

#[test]
fn channels_are_found_from_both_ends() {
    let mut links = Links::default();
    let name = |text| Name::parse(text).unwrap();
    links.join(name("general"), name("research"));
    links.join(name("news"), name("Research"));
    assert_eq!(links.realms(&name("General")).collect::<Vec<_>>(), [&name("research")]);
    assert_eq!(links.channels_of(&name("research")).collect::<Vec<_>>(), [&name("general"), &name("news")]);
}
