use http::HeaderValue;

use super::*;

#[test]
fn address_formats_of_proxies_are_parsed() {
    for (text, expected) in [
        ("192.0.2.1", Some("192.0.2.1")),
        ("192.0.2.1:4711", Some("192.0.2.1")),
        ("2001:db8::1", Some("2001:db8::1")),
        ("[2001:db8::1]", Some("2001:db8::1")),
        ("[2001:db8::1]:4711", Some("2001:db8::1")),
        ("::ffff:192.0.2.1", Some("192.0.2.1")),
        ("", None),
        ("unknown", None),
        ("192.0.2", None),
        ("192.0.2.1 192.0.2.2", None),
    ] {
        assert_eq!(parse_address(text), expected.map(|text| text.parse().unwrap()), "{text}");
    }
}

#[test]
fn non_text_value_is_rejected() {
    let header = HeaderName::from_static("x-forwarded-for");
    let peer = "127.0.0.1".parse().unwrap();
    let mut headers = HeaderMap::new();
    assert_eq!(client_address(&headers, &header, peer), Ok(peer));
    headers.insert(header.clone(), HeaderValue::from_bytes(b"192.0.2.1\xff").unwrap());
    assert_eq!(client_address(&headers, &header, peer), Err(ForwardedError { header }));
}
