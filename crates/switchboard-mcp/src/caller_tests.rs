use super::*;

fn http(session: Option<&str>) -> Caller {
    Caller {
        transport: Transport::StreamableHttp,
        session: session.map(str::to_owned),
        agent: Some("codex".to_owned()),
    }
}

#[test]
fn without_a_note_it_is_stdio() {
    let stdio = Caller { transport: Transport::Stdio, session: None, agent: None };
    assert_eq!(Caller::of_extensions(&Extensions::new()), stdio);
}

#[test]
fn the_caller_is_found_among_the_parts_of_a_request() {
    let (mut parts, ()) = ::http::Request::new(()).into_parts();
    parts.extensions.insert(http(None));
    let mut extensions = Extensions::new();
    extensions.insert(parts);
    assert_eq!(Caller::of_extensions(&extensions), http(None));
}

#[test]
fn a_note_of_its_own_counts_more_than_the_request() {
    let (mut parts, ()) = ::http::Request::new(()).into_parts();
    parts.extensions.insert(http(None));
    let mut extensions = Extensions::new();
    extensions.insert(parts);
    extensions.insert(http(Some("s1")));
    assert_eq!(Caller::of_extensions(&extensions), http(Some("s1")));
}
