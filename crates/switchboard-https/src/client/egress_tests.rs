use proptest::prelude::*;

use super::*;

fn url(text: &str) -> Url {
    Url::parse(text).unwrap()
}

#[test]
fn public_addresses_are_allowed() {
    for address in [
        "1.1.1.1",
        "9.255.255.255",
        "11.0.0.0",
        "100.63.255.255",
        "100.128.0.0",
        "126.255.255.255",
        "128.0.0.0",
        "169.253.255.255",
        "169.255.0.0",
        "172.15.255.255",
        "172.32.0.0",
        "191.255.255.255",
        "192.0.1.0",
        "192.0.3.0",
        "192.167.255.255",
        "192.169.0.0",
        "198.17.255.255",
        "198.20.0.0",
        "223.255.255.255",
        "2606:4700:4700::1111",
        "2a00:1450::1",
        "2001:200::1",
        "2003::1",
        "64:ff9b::1.1.1.1",
    ] {
        assert_eq!(special_range(address.parse().unwrap()), None, "{address}");
    }
}

#[test]
fn special_ranges_have_exact_edges() {
    for (range, addresses) in [
        ("this network", &["0.0.0.0", "0.255.255.255"][..]),
        (
            "private",
            &["10.0.0.0", "10.255.255.255", "172.16.0.0", "172.31.255.255", "192.168.0.0", "192.168.255.255"],
        ),
        ("shared between the customers of a provider", &["100.64.0.0", "100.127.255.255"]),
        ("loopback", &["127.0.0.0", "127.0.0.1", "127.255.255.255", "::1", "64:ff9b::127.0.0.1"]),
        (
            "link-local",
            &[
                "169.254.0.0",
                "169.254.169.254",
                "169.254.255.255",
                "fe80::1",
                "febf::1",
                "64:ff9b::169.254.169.254",
            ],
        ),
        (
            "reserved for protocols",
            &["192.0.0.0", "192.0.0.170", "192.0.0.255", "2001::1", "2001:1ff:ffff::1"],
        ),
        (
            "for documentation",
            &["192.0.2.1", "198.51.100.1", "203.0.113.255", "2001:db8::1", "3fff::1", "3fff:fff::1"],
        ),
        ("a 6to4 relay", &["192.88.99.1"]),
        ("for benchmarks", &["198.18.0.0", "198.19.255.255"]),
        ("multicast", &["224.0.0.1", "239.255.255.255", "ff02::1"]),
        ("reserved", &["240.0.0.1", "255.255.255.254"]),
        ("broadcast", &["255.255.255.255"]),
        ("unspecified", &["::"]),
        ("an IPv4 address in disguise", &["::ffff:10.0.0.1", "::ffff:1.1.1.1", "::ffff:169.254.169.254"]),
        ("an IPv4 address in disguise (6to4)", &["2002:7f00:1::1"]),
        ("for discarding", &["100::1"]),
        ("unique local", &["fc00::1", "fd12:3456::1", "fdff::1"]),
        ("site-local", &["fec0::1"]),
        (
            "not a public address",
            &["::10.0.0.1", "64:ff9b:1::1", "100:0:0:1::1", "5f00::1", "1fff::1", "4000::1", "::2"],
        ),
    ] {
        for address in addresses {
            assert_eq!(special_range(address.parse().unwrap()), Some(range), "{address}");
        }
    }
}

#[test]
fn forbidden_address_is_rejected_in_every_encoding() {
    let egress = EgressPolicy::default();
    for text in [
        "https://169.254.169.254/latest/meta-data",
        "https://127.0.0.1/",
        "https://127.1/",
        "https://2130706433/",
        "https://0x7f000001/",
        "https://0177.0.0.1/",
        "https://0x7f.1:8443/",
        "https://127.0.0.1./",
        "https://①②⑦.0.0.1/",
        "https://0/",
        "https://[::1]/",
        "https://[::ffff:10.0.0.1]/",
        "https://[::ffff:a00:1]/",
        "https://[::127.0.0.1]/",
        "https://[64:ff9b::7f00:1]/",
        "https://[fd00::1]:8443/",
    ] {
        let refused = egress.check_url(&url(text));
        assert!(matches!(refused, Err(Error::Forbidden { .. })), "{text}: {refused:?}");
    }
}

#[test]
fn only_https_urls_without_credentials_pass() {
    let egress = EgressPolicy::default();
    for (text, reason) in [
        ("http://example.org/", "not https"),
        ("http://169.254.169.254/", "not https"),
        ("ftp://example.org/", "not https"),
        ("file:///etc/passwd", "not https"),
        ("https://user@example.org/", "user name"),
        ("https://:secret@example.org/", "user name"),
        ("https://example.org:22/", "port"),
        ("https://example.org:25/", "port"),
        ("https://example.org:80/", "port"),
        ("https://1.1.1.1:22/", "port"),
    ] {
        let refused = egress.check_url(&url(text)).unwrap_err().to_string();
        assert!(refused.contains(reason), "{text}: {refused}");
        assert!(!refused.contains("secret"), "{refused}");
    }
    for (text, host) in [
        ("https://example.org/swarm", "example.org"),
        ("https://Example.ORG.:443/", "example.org"),
        ("https://example.org:8443/?token=x", "example.org"),
        ("https://1.1.1.1/", "1.1.1.1"),
    ] {
        assert_eq!(egress.check_url(&url(text)).unwrap(), host, "{text}");
    }
}

#[test]
fn error_redacts_query() {
    let refused =
        EgressPolicy::default().check_url(&url("http://example.org/join?token=secret#secret")).unwrap_err();
    assert_eq!(refused.to_string(), "http://example.org/join is blocked: it is not https");
}

#[test]
fn allow_list_permits_private_addresses() {
    let allow = ["10.1.0.0/16", "192.168.7.7", "fd00:1::/32", "Peer.Example.", "localhost"];
    let egress = EgressPolicy::new(&allow.map(str::to_owned)).unwrap();
    let may = |text: &str| egress.check_url(&url(text)).is_ok();
    assert!(may("https://10.1.2.3/"));
    assert!(may("https://10.1.2.3:22/"));
    assert!(may("https://192.168.7.7:8443/"));
    assert!(may("https://[fd00:1::5]/"));
    assert!(may("https://peer.example:636/"));
    assert!(!may("https://10.2.0.1/"));
    assert!(!may("https://192.168.7.8/"));
    assert!(!may("https://[fd00:2::5]/"));
    assert!(!may("https://other.example:636/"));
    // An allowed name may have any address; other names only those of allowed networks.
    let private = "172.16.0.1".parse().unwrap();
    assert!(egress.check_address("PEER.example", private).is_ok());
    assert!(egress.check_address("other.example", private).is_err());
    assert!(egress.check_address("other.example", "10.1.2.3".parse().unwrap()).is_ok());
}

#[test]
fn allow_list_rejects_malformed_entries() {
    for entry in [
        "",
        "10.0.0.0/33",
        "10.0.0",
        "host name",
        "https://example.org",
        "*.example.org",
        "a..b",
        "1.2.3.4.5",
    ] {
        let refused = EgressPolicy::new(&[entry.to_owned()]);
        assert!(matches!(refused, Err(Error::BadAllowed { .. })), "{entry}: {refused:?}");
    }
}

proptest! {
    /// All addresses that the standard library treats as special are special here, in every encoding.
    #[test]
    fn special_ipv4_address_is_rejected(bits: u32) {
        let address = Ipv4Addr::from_bits(bits);
        let is_known = address.is_private() || address.is_loopback() || address.is_link_local()
            || address.is_multicast() || address.is_documentation() || address.is_broadcast()
            || address.is_unspecified();
        let found = special_range(address.into());
        prop_assert!(found.is_some() || !is_known, "{address}");
        let [a, b, c, d] = address.octets().map(u16::from);
        let (high, low) = (a << 8 | b, c << 8 | d);
        let nat64 = Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low);
        prop_assert_eq!(special_range(nat64.into()), found);
        for disguise in [
            address.to_ipv6_mapped(),
            Ipv6Addr::new(0, 0, 0, 0, 0, 0, high, low),
            Ipv6Addr::new(0x2002, high, low, 0, 0, 0, 0, 1),
        ] {
            prop_assert!(special_range(disguise.into()).is_some(), "{disguise}");
        }
    }

    #[test]
    fn special_ipv6_address_is_rejected(bits: u128) {
        let address = Ipv6Addr::from_bits(bits);
        let is_known = address.is_loopback() || address.is_unspecified() || address.is_multicast()
            || address.is_unique_local() || address.is_unicast_link_local() || bits >> 125 != 1;
        prop_assert!(special_range(address.into()).is_some() || !is_known, "{address}");
    }
}
