use super::*;

fn id(text: &str) -> PeerId {
    PeerId::parse(text).unwrap()
}

#[test]
fn only_harmless_ascii_is_an_id() {
    for good in ["a", "agent-1", "A_b.c", &"x".repeat(128)] {
        assert_eq!(PeerId::parse(good).unwrap().as_str(), good);
    }
    // S22: look-alikes; wake injection; paths.
    for bad in ["", "аlpha", "evil\nline", "a b", "../x/", "a/b", "é", "a\u{0}", &"x".repeat(129)] {
        assert!(PeerId::parse(bad).is_err(), "{bad:?}");
    }
}

#[test]
fn a_new_id_is_a_name_and_not_everybody() {
    for bad in ["broadcast", "Broadcaster", "all", "..", ".hidden", "con", "user"] {
        assert!(PeerId::parse_new(bad).is_err(), "{bad}");
    }
    assert!(PeerId::parse_new("code-agent-alpha").is_ok());
}

#[test]
fn ids_that_run_into_the_type_clash() {
    assert!(id("bob").clashes_with(&id("bobmessage")));
    assert!(id("bobsystem2").clashes_with(&id("bob")));
    assert!(id("Bob").clashes_with(&id("bob")));
    assert!(!id("bob").clashes_with(&id("bobby")));
    assert!(!id("message").clashes_with(&id("bob")));
}

/// A message to one of these alone would be signed as one to everybody.
#[test]
fn nobody_is_called_everybody() {
    for bad in ["broadcast", "Broadcast", "broadcastmessage", "broadcastsystem-x", "a b"] {
        assert!(PeerId::parse_member(bad).is_err(), "{bad}");
    }
    for good in ["broadcaster", "bob", "message"] {
        assert!(PeerId::parse_member(good).is_ok(), "{good}");
    }
}
