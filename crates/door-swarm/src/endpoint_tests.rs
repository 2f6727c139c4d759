use super::*;

#[test]
fn resources_extend_endpoint_path() {
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
fn ambiguous_urls_are_refused() {
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

#[test]
fn noncanonical_spellings_are_refused() {
    for bad in [
        "https:a.example.com/swarm",
        "https:/a.example.com/swarm",
        "https:////a.example.com/swarm",
        "HTTPS://a.example.com/swarm",
        "Https://a.example.com/swarm",
        " https://a.example.com/swarm",
        "https:\\\\a.example.com/swarm",
        "https://a.example.com\\swarm",
        "https://a.exa\tmple.com/swarm",
        "https://a.example.com/sw\rarm",
        "https://@a.example.com/swarm",
        "https://a@b@a.example.com/swarm",
        "https://",
        "https:///",
        "https://:443/swarm",
        "https://.example.com/swarm",
        "https://a..example.com/swarm",
        "https://a.example.com./swarm",
        "https://./swarm",
        "https://%61.example.com/swarm",
        "https://a.example.com/sw%61rm",
        "https://a.example.com:0/swarm",
        "https://a.example.com:/swarm",
        "https://a.example.com:00443/swarm",
        "https://a.example.com:65536/swarm",
        "https://a.example.com:+443/swarm",
        "https://a.example.com:443:443/swarm",
        "https://bücher.example/swarm",
        "https://a。example.com/swarm",
        "https://127.1/swarm",
        "https://0x7f.0.0.1/swarm",
        "https://2130706433/swarm",
        "https://[::ffff:127.0.0.1]x/swarm",
        "https://[0:0:0:0:0:0:0:1]/swarm",
        "https://[::1/swarm",
        "https://a.example.com/./swarm",
        "https://a.example.com/../swarm",
        "https://a.example.com/a|b",
        "https://a.example.com/\"",
        "https://a.example.com/swarm?",
    ] {
        assert!(Endpoint::parse(bad).is_err(), "{bad:?}");
    }
    for (good, written) in [
        ("https://A.Example.com:443/Swarm/", "https://a.example.com/Swarm"),
        ("https://127.0.0.1:9443/swarm", "https://127.0.0.1:9443/swarm"),
        ("https://[::1]:9443/swarm", "https://[::1]:9443/swarm"),
        ("https://xn--bcher-kva.example/swarm", "https://xn--bcher-kva.example/swarm"),
        ("https://host/a/b-c_d.e~f", "https://host/a/b-c_d.e~f"),
    ] {
        assert_eq!(Endpoint::parse(good).unwrap().to_string(), written);
    }
}

proptest::proptest! {
    /// An accepted URL begins with `https://` and keeps its spelling, except for the letter case of the host.
    #[test]
    fn accepted_urls_keep_their_spelling(text in "(https|HTTPS|http)(://|:/|:|:///|:\\\\\\\\)[a-zA-Z0-9.:@/%?#\\[\\]\\\\ _\t-]{0,24}") {
        if let Ok(endpoint) = Endpoint::parse(&text) {
            let written = endpoint.to_string();
            proptest::prop_assert!(text.starts_with("https://"));
            proptest::prop_assert_eq!(&Endpoint::parse(&written).unwrap(), &endpoint);
            let spelling = text.trim_end_matches('/').to_ascii_lowercase();
            let without_port = spelling.replacen(":443", "", 1);
            let same = [spelling, without_port].contains(&written.to_ascii_lowercase());
            proptest::prop_assert!(same, "{} became {}", text, written);
        }
    }
}
