use super::*;

fn id(text: &str) -> PeerId {
    PeerId::parse(text).unwrap()
}

#[test]
fn id_allows_only_safe_ascii() {
    for good in ["a", "agent-1", "A_b.c", &"x".repeat(128)] {
        assert_eq!(PeerId::parse(good).unwrap().as_str(), good);
    }
    // Homoglyphs, prompt injection through the wake-up call, and paths.
    for bad in ["", "аlpha", "evil\nline", "a b", "../x/", "a/b", "é", "a\u{0}", &"x".repeat(129)] {
        assert!(PeerId::parse(bad).is_err(), "{bad:?}");
    }
}

#[test]
fn new_id_is_valid_name() {
    for bad in ["broadcast", "Broadcaster", "all", "..", ".hidden", "con", "user"] {
        assert!(PeerId::parse_new(bad).is_err(), "{bad}");
    }
    assert!(PeerId::parse_new("code-agent-alpha").is_ok());
}

#[test]
fn ids_overlapping_type_words_conflict() {
    assert!(id("bob").conflicts_with(&id("bobmessage")));
    assert!(id("bobsystem2").conflicts_with(&id("bob")));
    assert!(id("Bob").conflicts_with(&id("bob")));
    assert!(!id("bob").conflicts_with(&id("bobby")));
    assert!(!id("message").conflicts_with(&id("bob")));
}

/// The type words overlap: `system` ends with the start of `message`, and `notification` with its own start.
#[test]
fn overlapping_type_words_conflict() {
    for (short, long) in [("bob", "bobsyste"), ("bob", "bobnotificatio"), ("commit", "commitmessage")] {
        assert!(id(short).conflicts_with(&id(long)) && id(long).conflicts_with(&id(short)), "{short} {long}");
    }
    assert!(!id("bob").conflicts_with(&id("bobsyst")));
    assert!(!id("bob").conflicts_with(&id("bobmessag")));
}

#[test]
fn reserved_ids_are_refused() {
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
