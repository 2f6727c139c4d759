use proptest::prelude::*;

use super::*;

fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

#[test]
fn tokens_have_no_special_characters() {
    let table = [("qc-1", "qc-1"), ("Office", "office"), ("a.b c", "a=2eb=20c"), ("x_Y", "x_y")];
    for (input, expected) in table {
        assert_eq!(token(&name(input)), expected);
    }
}

proptest! {
    #[test]
    fn names_have_distinct_tokens(one in "[A-Za-z0-9 ._-]{1,12}", other in "[A-Za-z0-9 ._-]{1,12}") {
        if let (Ok(one), Ok(other)) = (Name::parse(&one), Name::parse(&other)) {
            prop_assert_eq!(one == other, token(&one) == token(&other));
            let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'=');
            prop_assert!(token(&one).bytes().all(plain));
        }
    }
}

#[test]
fn subjects_name_sender_and_recipient() {
    let subjects = Subjects::new("acme");
    let (me, other) = (name("Lab 1"), name("office"));
    assert_eq!(subjects.direct(&me, &other), "acme.lab=201.hub.office.message");
    assert_eq!(subjects.receipt(&me, &other), "acme.lab=201.hub.office.receipt");
    let group = |group| subjects.group(&me, &group);
    assert_eq!(group(GroupId::Everyone).as_deref(), Some("acme.lab=201.group.all"));
    assert_eq!(group(GroupId::Team(name("a.b"))).as_deref(), Some("acme.lab=201.group.team.a=2eb"));
    assert_eq!(
        group(GroupId::Channel(name("general"))).as_deref(),
        Some("acme.lab=201.group.channel.general")
    );
    assert_eq!(subjects.writer("acme.lab=201.group.all"), Some("lab=201"));
    assert_eq!(subjects.group_of("acme.lab=201.group.channel.general"), Some("channel.general"));
    assert_eq!(subjects.group_of("acme.lab=201.hub.office.message"), None);
    assert_eq!(subjects.hub_of("acme.lab=201.hub.office.message"), Some("office"));
    assert_eq!(subjects.hub_of("acme.lab=201.group.all"), None);
    assert_eq!(subjects.announced_hub("acme_live.hubs.lab=201"), Some("lab=201"));
    assert_eq!(subjects.writer("acme2.lab.group.all"), None);
}
