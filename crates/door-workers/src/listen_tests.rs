use std::os::unix::fs::PermissionsExt;

use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::client::{Client, EndpointFile};
use crate::session::AccessToken;
use crate::test_router::{Rig, TestClient};

#[tokio::test]
async fn socket_is_private_and_replaces_stale_one() {
    let rig = Rig::new().await;
    let path = rig.folder.path().join("r.sock");
    let address = format!("unix:{}", path.display());
    // A killed router left this socket.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let listener = Listener::bind(&address).await.unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(matches!(Listener::bind(&address).await, Err(RouterError::Listen { .. })));
    let (router, done) = (rig.router.clone(), CancellationToken::new());
    let stop = done.clone();
    let listening = tokio::spawn(async move { listen(&router, listener, Access::default(), stop).await });
    let mut client = TestClient { client: Client::connect_to(&address).await.unwrap() };
    let job = client.launch(json!({ "agent": "echo" })).await;
    client.injected(&job, 0, "x").await;
    client.next_of("turn_complete").await;
    done.cancel();
    let parting = client.next_of("cut_off").await;
    assert_eq!(parting.data["reason"], "the router was stopped");
    listening.await.unwrap();
    assert!(!path.exists());
    rig.close().await;
}

/// Without TLS, the router listens on loopback addresses only.
#[tokio::test]
async fn tcp_listener_needs_token_and_loopback() {
    let rig = Rig::new().await;
    for (address, is_outside) in [("0.0.0.0:0", true), ("nonsense", false), ("localhost:1", false)] {
        let refused = Listener::bind(address).await;
        let expected = match refused {
            Err(RouterError::NotLoopback { .. }) => is_outside,
            Err(RouterError::InvalidAddress { .. }) => !is_outside,
            _ => false,
        };
        assert!(expected, "{address}");
    }
    let listener = Listener::bind("127.0.0.1:0").await.unwrap();
    let signpost = EndpointFile::new(listener.address(), Some("secret".into()));
    signpost.write(rig.hub.folder()).unwrap();
    assert!(!format!("{signpost:?}").contains("secret"));
    let access =
        Access { tokens: vec![AccessToken { token: "secret".into(), owner: None }], ..Access::default() };
    let (router, done) = (rig.router.clone(), CancellationToken::new());
    let stop = done.clone();
    let listening = tokio::spawn(async move { listen(&router, listener, access, stop).await });
    let mut stranger = TestClient { client: Client::connect_to(&signpost.listen).await.unwrap() };
    stranger.send_line("nonsense").await;
    assert_eq!(stranger.next().await.event, "command_rejected");
    assert!(stranger.client.next().await.is_err(), "it was not hung up on");
    let mut known = TestClient { client: Client::connect(rig.hub.folder(), None).await.unwrap() };
    known.launch(json!({ "agent": "echo" })).await;
    signpost.remove(rig.hub.folder()).unwrap();
    assert!(matches!(Client::connect(rig.hub.folder(), None).await, Err(RouterError::NotRunning)));
    done.cancel();
    listening.await.unwrap();
    rig.close().await;
}

#[tokio::test]
async fn excess_client_is_refused_with_reason() {
    let rig = Rig::new().await;
    let address = format!("unix:{}", rig.folder.path().join("r.sock").display());
    let listener = Listener::bind(&address).await.unwrap();
    let (router, done) = (rig.router.clone(), CancellationToken::new());
    let stop = done.clone();
    let listening = tokio::spawn(async move { listen(&router, listener, Access::default(), stop).await });
    let mut clients = Vec::new();
    for _ in 0..MAX_CLIENTS {
        clients.push(TestClient { client: Client::connect_to(&address).await.unwrap() });
    }
    let mut one_more = TestClient { client: Client::connect_to(&address).await.unwrap() };
    let parting = one_more.next().await;
    assert_eq!(parting.event, "cut_off");
    assert!(parting.data["reason"].as_str().unwrap().contains("256 clients"), "{}", parting.line);
    assert_eq!(clients[0].request("jobs_list", json!({})).await.event, "jobs_list");
    done.cancel();
    listening.await.unwrap();
    rig.close().await;
}
