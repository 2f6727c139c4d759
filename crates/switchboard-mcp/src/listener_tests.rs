use super::*;

#[tokio::test]
async fn any_port_binds_loopback() {
    let listener = Listener::bind(PortChoice::Exactly(0)).await.unwrap();
    assert_ne!(listener.port(), 0);
    let address = listener.into_socket().local_addr().unwrap();
    assert!(address.ip().is_loopback(), "{address}");
}

#[tokio::test]
async fn occupied_port_is_an_error() {
    let first = Listener::bind(PortChoice::Exactly(0)).await.unwrap();
    let error = Listener::bind(PortChoice::Exactly(first.port())).await.unwrap_err();
    assert!(error.to_string().contains(&format!("127.0.0.1:{}", first.port())), "{error}");
}

#[tokio::test]
async fn default_is_known_or_any_free_port() {
    let mut known = Vec::new();
    // Other programs may use some of the five ports.
    let further = loop {
        let listener = Listener::bind(PortChoice::Default).await.unwrap();
        if !(FIRST_PORT..=LAST_PORT).contains(&listener.port()) {
            break listener;
        }
        known.push(listener);
    };
    assert!(known.len() <= 5, "{known:?}");
    assert_ne!(further.port(), 0);
}
