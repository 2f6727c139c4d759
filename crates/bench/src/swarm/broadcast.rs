//! Latency of a broadcast to slow peers, compared with a message to one of them.
//!
//! Each peer has its own loopback address, as each would have its own host. The measured time runs from the start of
//! `switchboard swarm send` until the last peer has answered.

use std::collections::HashSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::HOST;
use ed25519_dalek::SigningKey;
use switchboard_https::{ListenerHandle, Mode, Settings};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::BENCH;
use super::authority::Authority;
use super::messages::{Senders, public};
use super::stage::{Peer, Stage};
use crate::figure::{Figure, Target};
use crate::mcp::pipe::TOO_LONG;
use crate::progress::say;
use crate::run_folder::RunFolder;
use crate::stats::{median, millis};

/// Number of peers.
const PEERS: usize = 50;

/// Response time of each peer.
const SLOW: Duration = Duration::from_millis(200);

/// Host name of a peer that has answered, and the time of the answer.
type Answered = (String, Instant);

/// The peers, all behind one listener.
struct Peers {
    listening: ListenerHandle,
    answers: mpsc::Receiver<Answered>,
    stop: CancellationToken,
}

pub(super) async fn run(place: &RunFolder, authority: &Authority, rounds: usize) -> anyhow::Result<()> {
    let mut peers = Peers::listen(place, authority).await?;
    let port = peers.listening.local_addr().port();
    let senders = Senders::new(PEERS, "peer");
    let member = |(number, (id, key)): (usize, &(String, SigningKey))| Peer {
        id: id.clone(),
        endpoint: format!("https://{}:{port}/swarm", address(number)),
        public_key: public(key),
    };
    let members: Vec<Peer> = senders.senders.iter().enumerate().map(member).collect();
    let stage = Stage::build(place, authority, &members).await?;
    let serve = stage.serve().await?;
    // The first broadcast is not measured, because it opens all connections.
    let first = peers.measure_answers(&stage, &["swarm", "send", "to all of you"], PEERS).await?;
    let (mut one, mut all) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        one.push(peers.measure_answers(&stage, &["swarm", "send", "--to", "peer-0", "to you"], 1).await?);
        all.push(peers.measure_answers(&stage, &["swarm", "send", "to all of you"], PEERS).await?);
    }
    serve.close().await?;
    peers.stop.cancel();
    peers.listening.finished().await;
    let (one, all) = (median(&millis(&one)), median(&millis(&all)));
    say!("{rounds} broadcasts to {PEERS} peers: {all:.0} ms; one peer: {one:.0} ms");
    Figure::new(BENCH, "broadcast_50_slow_peers_p50", all, "ms", rounds)
        .with_baseline("one_slow_peer", one)
        .print_against(Target::AtMost(3.0))?;
    Figure::new(BENCH, "broadcast_50_slow_peers_first", millis(&[first])[0], "ms", 1)
        .with_baseline("one_slow_peer", one)
        .print()
}

impl Peers {
    async fn listen(place: &RunFolder, authority: &Authority) -> anyhow::Result<Self> {
        let files = authority.issue((0..PEERS).map(|n| address(n).to_string()).collect(), &place.fresh()?)?;
        let mode = Mode::Files { cert: files.cert, key: files.key };
        let mut settings = Settings::new(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)), mode);
        // The per-client limit is raised, because all peers are called from one address.
        settings.limits.connections_per_client = settings.limits.connections;
        // The channel must not fill up, or an answer would be missed and the run would fail. No broadcast has as many
        // answers.
        let (answered, answers) = mpsc::channel(4 * PEERS);
        let stop = CancellationToken::new();
        let app = Router::new().fallback(answer).with_state(answered);
        let listening = switchboard_https::listen(settings, app, stop.clone()).await?;
        Ok(Self { listening, answers, stop })
    }

    /// Runs the program and waits until this many peers have answered.
    async fn measure_answers(
        &mut self,
        stage: &Stage,
        args: &[&str],
        count: usize,
    ) -> anyhow::Result<Duration> {
        let began = Instant::now();
        let received = async {
            let mut last = began;
            let mut recipients = HashSet::new();
            while recipients.len() < count {
                let (host, at) = self.answers.recv().await.context("the peers are gone")?;
                ensure!(recipients.insert(host), "a peer was told twice");
                last = at;
            }
            anyhow::Ok(last - began)
        };
        let (_, received) = tokio::try_join!(stage.run(args), async {
            timeout(TOO_LONG, received).await.context("some peers were not told")?
        })?;
        Ok(received)
    }
}

async fn answer(State(answered): State<mpsc::Sender<Answered>>, request: Request) -> &'static str {
    let host = request.headers().get(HOST).and_then(|host| host.to_str().ok());
    // HTTP/2 requests carry the host in the URI.
    let host = host.or_else(|| request.uri().host()).unwrap_or_default().to_owned();
    tokio::time::sleep(SLOW).await;
    // If the channel is full, the answer is missed and the run ends with an error.
    let _ = answered.try_send((host, Instant::now()));
    r#"{"status":"queued"}"#
}

/// Returns the loopback address of a peer.
fn address(number: usize) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 1, u8::try_from(number + 1).unwrap_or(u8::MAX))
}
