//! A broadcast to fifty peers that take their time: it should not take fifty times as long as one.

use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use axum::Router;
use axum::routing::post;
use door_swarm::Letter;
use switchboard_https::{Mode, Settings, listen};
use test_support::ca::PrivateCa;
use tokio_util::sync::CancellationToken;

use super::{BENCH, SLOW, Serving, any_key};
use crate::figure::{Figure, Target};
use crate::place::Place;
use crate::stats::median;

const PEERS: usize = 50;

pub(super) async fn broadcast(place: &Place, ca: &Arc<PrivateCa>, rounds: usize) -> anyhow::Result<()> {
    let shutdown = CancellationToken::new();
    let folder = ca.file().parent().context("the CA has a folder")?.to_owned();
    let mode = Mode::Files { cert: folder.join("cert.pem"), key: folder.join("key.pem") };
    let slow = || async {
        tokio::time::sleep(SLOW).await;
        "{\"status\":\"queued\",\"message_id\":\"\"}"
    };
    let mut settings = Settings::new(([0, 0, 0, 0], 0).into(), mode);
    settings.limits.connections_per_client = 1024;
    let peers = listen(settings, Router::new().route("/swarm/message", post(slow)), shutdown.clone()).await?;
    let port = peers.local_addr().port();
    let mut members = Vec::new();
    for n in 0..PEERS {
        // Each at an address of its own, as peers are.
        let endpoint = format!("https://127.0.0.{}:{port}/swarm", n + 2);
        members.push((format!("peer-{n}"), endpoint, any_key()?));
    }
    let serving = Serving::with_members(&place.fresh()?, ca, members).await?;
    let (mut one, mut all) = (Vec::new(), Vec::new());
    for round in 0..=rounds {
        for (to, times) in [(Some("peer-0"), &mut one), (None, &mut all)] {
            let mut letter = Letter::new("is anybody there?");
            letter.to = to.map(str::to_owned);
            let began = Instant::now();
            let accepted = serving.swarms.send(letter).await?;
            settled(&serving, accepted.id).await?;
            // The first round makes the connections.
            if round > 0 {
                times.push(began.elapsed().as_secs_f64() * 1e3);
            }
        }
    }
    serving.stop().await;
    shutdown.cancel();
    peers.finished().await;
    let figure = Figure::new(BENCH, "broadcast_50_slow", median(&all), "ms", rounds);
    figure.beside("one_peer", median(&one)).print_against(Target::AtMost(3.0))
}

/// Returns once every recipient has the message.
async fn settled(serving: &Serving, id: switchboard_core::MessageId) -> anyhow::Result<()> {
    let hub = serving.swarms.hub();
    let mut changes = hub.changes();
    loop {
        let receipt = hub.receipt(id).await?.context("it is in the journal")?.1;
        if receipt.deliveries.iter().all(|delivery| !delivery.state.is_pending()) {
            return Ok(());
        }
        changes.next().await;
    }
}
