//! Tests of a shutdown while requests are in flight.

use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::Instant;

use super::rig::{Rig, with_timeout};

#[tokio::test]
async fn shutdown_finishes_responses_in_flight() {
    let rig = Rig::with(|settings| settings.limits.shutdown_grace = super::rig::PATIENCE).await;
    let first = rig.client().http1_only().build().unwrap().get(rig.url("/wait")).send();
    let second = rig.client().http2_prior_knowledge().build().unwrap().get(rig.url("/wait")).send();
    let (first, second) = (tokio::spawn(first), tokio::spawn(second));
    rig.gate.arrivals(2).await;
    rig.shutdown.cancel();
    // New connections fail as soon as the socket is closed.
    with_timeout(async { while TcpStream::connect(rig.address()).await.is_ok() {} }).await;
    rig.gate.open.add_permits(2);
    for answer in [first, second] {
        assert_eq!(with_timeout(answer).await.unwrap().unwrap().text().await.unwrap(), "done");
    }
    with_timeout(rig.listening.finished()).await;
}

#[tokio::test]
async fn shutdown_aborts_hanging_request() {
    let rig = Rig::with(|settings| settings.limits.shutdown_grace = Duration::from_millis(100)).await;
    let client = rig.client().build().unwrap();
    let hanging = tokio::spawn(client.get(rig.url("/wait")).send());
    rig.gate.arrivals(1).await;
    let started = Instant::now();
    rig.shutdown.cancel();
    with_timeout(rig.listening.finished()).await;
    assert!(started.elapsed() >= Duration::from_millis(100));
    assert!(with_timeout(hanging).await.unwrap().is_err());
}
