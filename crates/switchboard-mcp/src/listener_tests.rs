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
async fn the_default_is_one_of_the_ports_that_clients_look_at() {
    let mut held = Vec::new();
    let error = loop {
        match Listener::bind(PortChoice::Default).await {
            Ok(listener) => held.push(listener),
            Err(error) => break error,
        }
    };
    assert!(held.iter().all(|listener| (FIRST_PORT..=LAST_PORT).contains(&listener.port())), "{held:?}");
    assert!(matches!(error, McpError::NoFreePort { first: FIRST_PORT, last: LAST_PORT }), "{error}");
}
