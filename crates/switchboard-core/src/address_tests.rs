use super::*;

fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

#[test]
fn every_address_form_round_trips() {
    let job = || JobId::parse("272900").unwrap();
    let table = [
        ("codex", Address::Agent(AgentId::local(name("codex")))),
        ("coder 1", Address::Agent(AgentId::local(name("coder 1")))),
        ("human", Address::Agent(AgentId::human())),
        ("alice@research", Address::Agent(AgentId { name: name("alice"), realm: Some(name("research")) })),
        ("team:backend", Address::Group(GroupId::Team(name("backend")))),
        ("#general", Address::Group(GroupId::Channel(name("general")))),
        ("job:272900", Address::Group(GroupId::Job(job()))),
        ("job:272900/0", Address::Node(NodeId { job: job(), node: 0 })),
        ("all", Address::EVERYONE),
        ("all@research", Address::Group(GroupId::Swarm(name("research")))),
    ];
    for (text, address) in table {
        assert_eq!(text.parse(), Ok(address.clone()), "{text}");
        assert_eq!(address.to_string(), text);
    }
}

#[test]
fn invalid_address_is_refused_with_reason() {
    let job = |text: &str| AddressError::Job { text: text.into() };
    let node = |text: &str| AddressError::Node { text: text.into() };
    let bad = |text: &str, source| AddressError::Name { text: text.into(), source };
    let table = [
        ("", bad("", NameError::Empty)),
        ("team:", bad("team:", NameError::Empty)),
        ("#a/b", bad("#a/b", NameError::Character { character: '/' })),
        ("@research", bad("@research", NameError::Empty)),
        ("alice@", bad("alice@", NameError::Empty)),
        ("job:", job("job:")),
        ("job:a b", job("job:a b")),
        ("job:1/", node("job:1/")),
        ("job:1/-1", node("job:1/-1")),
        ("job:1/1.0", node("job:1/1.0")),
        ("job:1/99999999999", node("job:1/99999999999")),
        ("../x", bad("../x", NameError::Character { character: '/' })),
    ];
    for (text, expected) in table {
        assert_eq!(text.parse::<Address>(), Err(expected), "{text:?}");
    }
}

proptest::proptest! {
    #[test]
    fn parsed_address_round_trips(text in "(team:|#|job:)?[a-zA-Z0-9 ._@/-]{0,20}") {
        if let Ok(address) = text.parse::<Address>() {
            proptest::prop_assert_eq!(address.to_string().parse::<Address>(), Ok(address));
        }
    }
}
