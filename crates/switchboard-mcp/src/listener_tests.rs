use super::*;

#[tokio::test]
async fn any_port_is_one_on_the_loopback_address() {
    let listener = Listener::bind(PortChoice::Exactly(0)).await.unwrap();
    assert_ne!(listener.port(), 0);
    let address = listener.into_socket().local_addr().unwrap();
    assert!(address.ip().is_loopback(), "{address}");
}

#[tokio::test]
async fn a_taken_port_is_an_error_that_names_it() {
    let first = Listener::bind(PortChoice::Exactly(0)).await.unwrap();
    let error = Listener::bind(PortChoice::Exactly(first.port())).await.unwrap_err();
    assert!(error.to_string().contains(&format!("127.0.0.1:{}", first.port())), "{error}");
}

#[tokio::test]
async fn default_is_a_known_port_then_any_free_one() {
    let mut known = Vec::new();
    // Other programs may hold some of the five as well.
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
