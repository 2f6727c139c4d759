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

/// The type words overlap: `system` ends as `message` begins, and `notification` as it begins itself.
#[test]
fn overlapping_type_words_clash() {
    for (short, long) in [("bob", "bobsyste"), ("bob", "bobnotificatio"), ("commit", "commitmessage")] {
        assert!(id(short).clashes_with(&id(long)) && id(long).clashes_with(&id(short)), "{short} {long}");
    }
    assert!(!id("bob").clashes_with(&id("bobsyst")));
    assert!(!id("bob").clashes_with(&id("bobmessag")));
}

#[test]
fn reserved_ids_are_no_members() {
    let words = ["system", "switchboard", "human", "all", "me", "root", "admin", "broadcast"];
    let other = ["-rf", "--help", "-", "broadcaster", "broadcastmessage", "Broadcast-x", "a b"];
    for word in words {
        for text in
            [word.to_owned(), word.to_uppercase(), format!("{}{}", word[..1].to_uppercase(), &word[1..])]
        {
            assert!(PeerId::parse_member(&text).is_err() && PeerId::parse_new(&text).is_err(), "{text}");
        }
    }
    for text in other {
        assert!(PeerId::parse_member(text).is_err() && PeerId::parse_new(text).is_err(), "{text}");
    }
    for good in ["systems", "human-1", "meg", "bob", "message", "allan", "a-", "_root"] {
        assert!(PeerId::parse_member(good).is_ok(), "{good}");
    }
}
