use super::*;

fn http(session: Option<&str>) -> Caller {
    Caller {
        transport: Transport::StreamableHttp,
        session: session.map(str::to_owned),
        agent: Some("codex".to_owned()),
    }
}

#[test]
fn missing_extension_means_stdio() {
    let stdio = Caller { transport: Transport::Stdio, session: None, agent: None };
    assert_eq!(Caller::of_extensions(&Extensions::new()), stdio);
}

#[test]
fn caller_is_read_from_http_parts() {
    let (mut parts, ()) = ::http::Request::new(()).into_parts();
    parts.extensions.insert(http(None));
    let mut extensions = Extensions::new();
    extensions.insert(parts);
    assert_eq!(Caller::of_extensions(&extensions), http(None));
}

#[test]
fn own_extension_precedes_http_parts() {
    let (mut parts, ()) = ::http::Request::new(()).into_parts();
    parts.extensions.insert(http(None));
    let mut extensions = Extensions::new();
    extensions.insert(parts);
    extensions.insert(http(Some("s1")));
    assert_eq!(Caller::of_extensions(&extensions), http(Some("s1")));
}
