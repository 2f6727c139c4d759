//! Signed messages over HTTPS: how many are accepted, beside verification and journal alone; and a broadcast to slow peers.

mod peers;
mod post;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use door_swarm::{Config, Merge, SecretKey, Swarms};
use ed25519_dalek::{SigningKey, VerifyingKey};
use serde_json::{Value, json};
use switchboard_core::{Door, Name};
use switchboard_https::{Client, ClientSettings, Mode, Settings};
use switchboard_hub::{Hub, HubConfig, Registration};
use test_support::ca::{Life, PrivateCa};
use tokio_util::sync::CancellationToken;

use self::post::{Letters, post_all};
use crate::figure::{Figure, Target};
use crate::place::Place;
use crate::progress::say;
use crate::stats::{median, percentile, rate};

const BENCH: &str = "swarm";

/// Keep-alive connections at once.
const CONNECTIONS: usize = 8;

/// The swarm of the run.
const SWARM: &str = "550e8400-e29b-41d4-a716-446655440000";

pub(crate) async fn run(place: &Place, quick: bool) -> anyhow::Result<()> {
    let (rounds, messages) = if quick { (2, 2000) } else { (5, 20_000) };
    let ca = PrivateCa::new();
    ca.issue_files(&addresses().iter().map(String::as_str).collect::<Vec<_>>(), Life::Long);
    let ca = Arc::new(ca);
    let (mut ours, mut verified, mut journaled, mut times) = (vec![], vec![], vec![], vec![]);
    let mut held = None;
    for round in 0..rounds {
        let serving = Serving::start(&place.fresh()?, &ca).await?;
        let letters = Letters::sign(SWARM, messages);
        Place::settle();
        let idle = resident();
        let began = Instant::now();
        let answered = post_all(&serving.client, &serving.url, letters, CONNECTIONS).await?;
        ours.push(rate(messages, began.elapsed()));
        times.extend(answered.iter().map(|time| time.as_secs_f64() * 1e3));
        held = Some((idle, resident()));
        serving.stop().await;
        verified.push(verify_alone(messages));
        journaled.push(journal_alone(&place.fresh()?, messages).await?);
        say!("round {} of {rounds}", round + 1);
    }
    let (verified, journaled) = (median(&verified), median(&journaled));
    let (name, slower) = if verified < journaled { ("ed25519", verified) } else { ("journal", journaled) };
    let figure = Figure::new(BENCH, "accepted_8", median(&ours), "1/s", ours.len());
    figure.beside(name, slower).print_against(Target::AtLeast(0.5))?;
    Figure::new(BENCH, "verified_alone", verified, "1/s", rounds).print()?;
    Figure::new(BENCH, "journaled_alone", journaled, "1/s", rounds).print()?;
    Figure::new(BENCH, "accepted_p99", percentile(&times, 0.99), "ms", times.len()).print()?;
    if let Some((idle, after)) = held {
        Figure::new(BENCH, "resident_after", after, "MiB", 1).beside("idle", idle).print()?;
    }
    peers::broadcast(place, &ca, if quick { 2 } else { 5 }).await
}

/// The addresses of this machine that the certificate is for: each is a host of its own.
fn addresses() -> Vec<String> {
    (1..=51).map(|n| format!("127.0.0.{n}")).collect()
}

/// A hub with one agent, and a member whose messages come in.
pub(crate) struct Serving {
    pub(crate) swarms: Swarms,
    pub(crate) client: Client,
    url: String,
    shutdown: CancellationToken,
    door: std::thread::JoinHandle<()>,
}

impl Serving {
    async fn start(folder: &Path, ca: &Arc<PrivateCa>) -> anyhow::Result<Self> {
        let member = SigningKey::from_bytes(&post::SEED).verifying_key();
        let member = door_swarm::base64(member.as_bytes());
        let members = vec![("peer".to_owned(), "https://127.0.0.1:9/swarm".to_owned(), member)];
        Self::with_members(folder, ca, members).await
    }

    pub(crate) async fn with_members(
        folder: &Path,
        ca: &Arc<PrivateCa>,
        members: Vec<(String, String, String)>,
    ) -> anyhow::Result<Self> {
        let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut config = Config::new(folder.join("swarm"));
        let certificates = ca.file().parent().context("the CA has a folder")?.to_owned();
        let mode = Mode::Files { cert: certificates.join("cert.pem"), key: certificates.join("key.pem") };
        config.listen = Some(Settings::new(([127, 0, 0, 1], port).into(), mode));
        config.client = client_settings(ca);
        // What is measured is how much can be taken, not how much may be.
        config.limits.per_sender = 0;
        config.limits.per_swarm = 0;
        config.limits.per_client = 0;
        std::fs::create_dir(folder.join("hub"))?;
        let hub = Hub::open(HubConfig::new(folder.join("hub"))).await?;
        let swarms = Swarms::open(config.clone(), hub.clone()).await?;
        let endpoint = format!("https://127.0.0.1:{port}/swarm");
        let me = swarms.init("alice", &endpoint).await?;
        let state = state(&me.public_key.to_wire(), &endpoint, &members);
        swarms.import(None, state.to_string().as_bytes(), Merge::Add).await?;
        let outbound = hub.open_door(Door::Swarm).await?;
        let (shutdown, started) = (CancellationToken::new(), tokio::sync::oneshot::channel());
        let stop = shutdown.clone();
        // On a thread of its own, with the runtime of the shipped binary.
        let door = std::thread::Builder::new().name("door".into()).spawn(move || {
            let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
                return;
            };
            runtime.block_on(async {
                let Ok(running) = door_swarm::start(config, hub, outbound, stop).await else { return };
                let _ = started.0.send(());
                let _ = running.await;
            });
        })?;
        started.1.await.context("the door did not open")?;
        let client = Client::new(client_settings(ca))?;
        Ok(Self { swarms, client, url: format!("{endpoint}/message"), shutdown, door })
    }

    pub(crate) async fn stop(self) {
        self.shutdown.cancel();
        let _ = tokio::task::spawn_blocking(move || self.door.join()).await;
        self.swarms.hub().shut_down().await;
    }
}

fn client_settings(ca: &PrivateCa) -> ClientSettings {
    ClientSettings {
        ca_file: Some(ca.file()),
        allow: vec!["127.0.0.0/8".to_owned()],
        ..ClientSettings::default()
    }
}

/// The state file of an agent in a swarm with these members.
fn state(key: &str, endpoint: &str, members: &[(String, String, String)]) -> Value {
    let at = "2026-01-01T00:00:00.000Z";
    let member = |id: &str, endpoint: &str, key: &str| json!({ "agent_id": id, "endpoint": endpoint, "public_key": key, "joined_at": at });
    let mut all = vec![member("alice", endpoint, key)];
    all.extend(members.iter().map(|(id, endpoint, key)| member(id, endpoint, key)));
    json!({
        "schema_version": "1.0.0", "agent_id": "alice", "muted_swarms": [], "muted_agents": [], "public_keys": {},
        "swarms": { SWARM: { "swarm_id": SWARM, "name": "bench", "master": "alice", "members": all, "joined_at": at,
            "settings": {} } },
    })
}

/// How many signatures a second one core verifies, strictly.
fn verify_alone(count: usize) -> f64 {
    let letters = Letters::sign(SWARM, 256);
    let key: VerifyingKey = SigningKey::from_bytes(&post::SEED).verifying_key();
    let began = Instant::now();
    let good = (0..count).filter(|n| letters.verify(n % 256, &key)).count();
    rate(good, began.elapsed())
}

/// How many messages a second the journal takes from as many submitters.
async fn journal_alone(folder: &Path, count: usize) -> anyhow::Result<f64> {
    let hub = Hub::open(HubConfig::new(folder)).await?;
    hub.register(Registration::mailbox(Name::parse("alice")?)).await?;
    let began = Instant::now();
    let submitters: Vec<_> = (0..CONNECTIONS)
        .map(|_| {
            let hub = hub.clone();
            tokio::spawn(async move {
                for _ in 0..count / CONNECTIONS {
                    hub.submit(post::draft(&hub)?).await?;
                }
                anyhow::Ok(())
            })
        })
        .collect();
    for submitter in submitters {
        submitter.await??;
    }
    let rate = rate(count / CONNECTIONS * CONNECTIONS, began.elapsed());
    hub.shut_down().await;
    Ok(rate)
}

/// What this process holds in memory, in MiB.
fn resident() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib: f64 = line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or_default();
    kib / 1024.0
}

/// A key that nothing is signed with.
pub(crate) fn any_key() -> anyhow::Result<String> {
    Ok(SecretKey::generate()?.public().to_wire())
}

/// How long a peer takes in the broadcast.
pub(crate) const SLOW: Duration = Duration::from_millis(200);
