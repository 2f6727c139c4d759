use super::*;

#[test]
fn resources_lie_below_the_endpoint() {
    let endpoint = Endpoint::parse("https://a.example.com:8443/swarm/").unwrap();
    assert_eq!(endpoint.to_string(), "https://a.example.com:8443/swarm");
    assert_eq!(endpoint.resource("message").as_str(), "https://a.example.com:8443/swarm/message");
    assert_eq!(endpoint.resource_below_swarm("message"), None);
    assert_eq!(endpoint.authority(), "a.example.com:8443");
    let bare = Endpoint::parse("https://a.example.com").unwrap();
    assert_eq!(bare.to_string(), "https://a.example.com");
    assert_eq!(bare.resource("join").as_str(), "https://a.example.com/join");
    assert_eq!(bare.resource_below_swarm("join").unwrap().as_str(), "https://a.example.com/swarm/join");
    assert_eq!(bare.path(), "");
}

#[test]
fn what_could_lead_elsewhere_is_refused() {
    for bad in [
        "http://a.example.com/swarm",
        "https://user@a.example.com/swarm",
        "https://:pw@a.example.com/swarm",
        "https://a.example.com/swarm?x=1",
        "https://a.example.com/any/path?x=1#",
        "https://a.example.com/swarm#",
        "https://a.example.com/a//b",
        "https://a.example.com/%2e%2e/b",
        "https://a.example.com\\@evil.example.com/",
        "https://a.example.com/\nb",
        "https:///swarm",
        "ftp://a.example.com",
        "a.example.com",
        "",
    ] {
        assert!(Endpoint::parse(bad).is_err(), "{bad:?}");
    }
}
