use super::*;
use crate::Name;

fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

fn trust(from: &str, verified: bool, hub: Option<&str>) -> Trust {
    Trust::of(&from.parse().unwrap(), verified, hub.map(name).as_ref())
}

#[test]
fn trust_depends_on_realm_and_verification() {
    for (from, verified, hub, expected) in [
        ("claude", true, None, Trust::Ours),
        ("claude", false, None, Trust::Unverified),
        ("alice@research", true, None, Trust::OtherOwner),
        ("alice@research", false, None, Trust::OtherOwner),
        ("codex@office", true, Some("office"), Trust::Ours),
        ("codex@office", false, Some("office"), Trust::Unverified),
        ("alice@research", true, Some("office"), Trust::OtherOwner),
    ] {
        assert_eq!(trust(from, verified, hub), expected, "{from} {verified} {hub:?}");
    }
}
