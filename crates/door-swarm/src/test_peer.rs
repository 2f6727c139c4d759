//! Test hubs with swarms, each behind a TLS listener, and clients that send arbitrary requests.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use jiff::Timestamp;
use serde_json::{Value, json};
use switchboard_core::{AgentId, Delivery, Door, Message, MessageId};
use switchboard_https::{Client, ClientSettings, Limits, Mode, Settings, Url};
use switchboard_hub::{Hub, HubConfig, Registration, Stored};
use switchboard_sys::clock::Clock;
use tempfile::TempDir;
use test_support::ca::{PrivateCa, Validity};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::agent_id::PeerId;
use crate::config::Config;
use crate::invite::InviteLink;
use crate::join_client::JoinOutcome;
use crate::keys::SecretKey;
use crate::model::Swarm;
use crate::signing::{ENVELOPE_SIGNATURE, Payload, sign_envelope};
use crate::swarms::Swarms;
use crate::timestamp;
use crate::wire::MessageType;

/// Timeout for a loaded machine.
const PATIENCE: Duration = Duration::from_mins(1);

/// Awaits a future with a timeout.
pub(crate) async fn with_timeout<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(PATIENCE, future).await.expect("it should have happened by now")
}

/// The CA that all hubs of a test trust, and a client without an identity.
pub(crate) struct World {
    ca: PrivateCa,
    pub(crate) client: Client,
}

/// A hub with one agent in swarms, whose door runs or not.
pub(crate) struct TestPeer {
    pub(crate) swarms: Swarms,
    pub(crate) id: PeerId,
    pub(crate) port: u16,
    config: Config,
    folder: TempDir,
    serving: Option<(CancellationToken, JoinHandle<()>)>,
}

impl World {
    pub(crate) fn new() -> Arc<Self> {
        let ca = PrivateCa::new();
        ca.issue_files(&["127.0.0.1"], Validity::Valid);
        let client = Client::new(ClientSettings {
            ca_file: Some(ca.file()),
            allow: vec!["127.0.0.0/8".to_owned()],
            ..ClientSettings::default()
        });
        Arc::new(Self { ca, client: client.unwrap() })
    }

    /// Returns the CA.
    pub(crate) fn ca(&self) -> &PrivateCa {
        &self.ca
    }

    fn settings(&self, port: u16) -> Settings {
        let folder = self.ca.file().parent().unwrap().to_owned();
        let mode = Mode::Files { cert: folder.join("cert.pem"), key: folder.join("key.pem") };
        Settings::new(SocketAddr::from(([127, 0, 0, 1], port)), mode)
    }

    /// Creates a hub with an agent and starts its door.
    pub(crate) async fn peer(&self, id: &str) -> TestPeer {
        self.peer_with(id, |_| ()).await
    }

    pub(crate) async fn peer_with(&self, id: &str, configure: impl FnOnce(&mut Config)) -> TestPeer {
        self.peer_at(id, Clock::system(), configure).await
    }

    /// Creates a hub with its own clock.
    pub(crate) async fn peer_at(
        &self,
        id: &str,
        clock: Clock,
        configure: impl FnOnce(&mut Config),
    ) -> TestPeer {
        let folder = TempDir::with_prefix("switchboard-swarm-").unwrap();
        let port = free_port();
        let mut config = Config::new(folder.path().join("swarm"));
        config.listen = Some(self.settings(port));
        config.client.ca_file = Some(self.ca.file());
        config.client.allow = vec!["127.0.0.0/8".to_owned()];
        config.timeout = Duration::from_secs(10);
        configure(&mut config);
        std::fs::create_dir(folder.path().join("hub")).unwrap();
        let hub_config = HubConfig { clock, ..HubConfig::new(folder.path().join("hub")) };
        let hub = Hub::open(hub_config).await.unwrap();
        let swarms = Swarms::open(config.clone(), hub).await.unwrap();
        Box::pin(swarms.init(id, &format!("https://127.0.0.1:{port}/swarm"))).await.unwrap();
        let mut peer =
            TestPeer { swarms, id: PeerId::parse(id).unwrap(), port, config, folder, serving: None };
        peer.serve().await;
        peer
    }

    /// Posts as a client without an identity and returns the answer.
    pub(crate) async fn post(&self, peer: &TestPeer, resource: &str, body: &Value) -> (StatusCode, Value) {
        self.post_bytes(peer, resource, body.to_string().into_bytes(), HeaderMap::new()).await
    }

    pub(crate) async fn post_url(&self, url: &str, body: &Value) -> (StatusCode, Value) {
        let limits = Limits { time: PATIENCE, body: 1 << 20 };
        let (url, body) = (Url::parse(url).unwrap(), Bytes::from(body.to_string()));
        let answer = self.client.post_json(&url, HeaderMap::new(), body, limits).await.unwrap();
        (answer.status, serde_json::from_slice(&answer.body).unwrap_or(Value::Null))
    }

    pub(crate) async fn post_bytes(
        &self,
        peer: &TestPeer,
        resource: &str,
        body: Vec<u8>,
        headers: HeaderMap,
    ) -> (StatusCode, Value) {
        let url = Url::parse(&peer.url(resource)).unwrap();
        let limits = Limits { time: PATIENCE, body: 1 << 20 };
        let answer = self.client.post_json(&url, headers, Bytes::from(body), limits).await.unwrap();
        (answer.status, serde_json::from_slice(&answer.body).unwrap_or(Value::Null))
    }

    pub(crate) async fn get(&self, peer: &TestPeer, resource: &str) -> (StatusCode, Value) {
        let url = Url::parse(&peer.url(resource)).unwrap();
        let answer = self.client.get(&url, HeaderMap::new(), Limits::default()).await.unwrap();
        (answer.status, serde_json::from_slice(&answer.body).unwrap_or(Value::Null))
    }
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl TestPeer {
    pub(crate) fn url(&self, resource: &str) -> String {
        format!("https://127.0.0.1:{}/swarm/{resource}", self.port)
    }

    pub(crate) fn hub(&self) -> &Hub {
        self.swarms.hub()
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.hub().now()
    }

    /// Starts the door, as `serve` does.
    pub(crate) async fn serve(&mut self) {
        let outbound = self.hub().deliveries().open_door(Door::Swarm).await.unwrap();
        let (shutdown, swarms) = (CancellationToken::new(), self.swarms.clone());
        let running = crate::run::start_on(swarms, outbound, shutdown.clone()).await.unwrap();
        let task = tokio::spawn(async move { running.await.unwrap() });
        self.serving = Some((shutdown, task));
    }

    /// Stops the door; the hub still accepts messages.
    pub(crate) async fn stop(&mut self) {
        if let Some((shutdown, task)) = self.serving.take() {
            shutdown.cancel();
            with_timeout(task).await.unwrap();
        }
    }

    /// Reopens everything from disk, as after a restart.
    pub(crate) async fn restart(mut self) -> Self {
        self.stop().await;
        self.hub().shut_down().await;
        let hub = Hub::open(HubConfig::new(self.folder.path().join("hub"))).await.unwrap();
        self.swarms = Swarms::open(self.config.clone(), hub).await.unwrap();
        self.serve().await;
        self
    }

    pub(crate) async fn register(&self, agent: &str) {
        self.hub().agents().register(Registration::mailbox(agent.parse().unwrap())).await.unwrap();
    }

    pub(crate) fn home(&self) -> std::path::PathBuf {
        self.folder.path().join("swarm")
    }

    pub(crate) async fn create(&self, name: &str) -> Swarm {
        self.swarms.create(None, name, None, <_>::default()).await.unwrap()
    }

    pub(crate) async fn invite(&self) -> InviteLink {
        self.swarms.invite(None, Some(crate::INVITE_LIFETIME), None).await.unwrap().link
    }

    pub(crate) async fn join(&self, link: &InviteLink) -> Swarm {
        match with_timeout(Box::pin(self.swarms.join(None, link, None))).await.unwrap() {
            JoinOutcome::Joined(swarm) => *swarm,
            JoinOutcome::Pending { .. } => panic!("it should not have to wait"),
        }
    }

    /// Returns the swarm as this hub stores it now.
    pub(crate) fn swarm(&self) -> Swarm {
        self.swarms.swarms()[0].1.as_ref().clone()
    }

    pub(crate) fn members(&self) -> Vec<String> {
        self.swarm().members.keys().map(ToString::to_string).collect()
    }

    /// Waits until this hub has exactly these members.
    pub(crate) async fn wait_for_members(&self, members: &[&str]) {
        self.wait_until(&format!("{} knows {members:?}", self.id), || self.members() == members).await;
    }

    pub(crate) async fn wait_until(&self, what: &str, is_so: impl Fn() -> bool) {
        let mut changes = self.hub().changes();
        let waiting = async {
            while !is_so() {
                changes.next().await;
                self.swarms.refresh().await.unwrap();
            }
        };
        tokio::time::timeout(PATIENCE, waiting)
            .await
            .unwrap_or_else(|_| panic!("never: {what}; {:?}", self.swarm()));
    }

    /// Sends a text to an address, as any door would.
    pub(crate) async fn send(
        &self,
        from: &str,
        to: &str,
        text: &str,
        reply_to: Option<MessageId>,
    ) -> MessageId {
        let id = self.hub().next_id();
        let draft = switchboard_hub::Draft {
            id,
            from: from.parse().unwrap(),
            to: to.parse().unwrap(),
            kind: switchboard_core::Kind::delegate_task(),
            body: text.to_owned(),
            in_reply_to: reply_to,
            sent_at: self.now(),
            expires_at: None,
            metadata: serde_json::Map::new(),
            native: switchboard_core::NativeId {
                door: Door::Workspace,
                scope: from.to_owned(),
                id: id.to_string(),
            },
            key: None,
            native_is_id: true,
            verified: true,
            route: None,
            signed: None,
            allow_unregistered: false,
            restored: None,
        };
        self.hub().submit(draft).await.unwrap().id
    }

    /// Returns all messages of the journal.
    pub(crate) async fn journal(&self) -> Vec<Stored> {
        self.hub().journal().entries(0, 10_000).await.unwrap().items
    }

    /// Waits for a message with this text.
    pub(crate) async fn wait_for_text(&self, text: &str) -> Stored {
        self.wait_for_message(text, |message| message.body == text).await
    }

    /// Waits for a message that satisfies a condition.
    pub(crate) async fn wait_for_message(&self, what: &str, is_it: impl Fn(&Message) -> bool) -> Stored {
        let mut changes = self.hub().changes();
        let waiting = async {
            loop {
                if let Some(found) = self.journal().await.into_iter().find(|stored| is_it(&stored.message)) {
                    return found;
                }
                changes.next().await;
            }
        };
        tokio::time::timeout(PATIENCE, waiting)
            .await
            .unwrap_or_else(|_| panic!("{} never got '{what}'", self.id))
    }

    /// Counts the messages with a text in the journal.
    pub(crate) async fn count(&self, text: &str) -> usize {
        self.journal().await.iter().filter(|stored| stored.message.body == text).count()
    }

    /// Waits until the delivery of a message to one recipient satisfies a condition.
    pub(crate) async fn delivery(
        &self,
        id: MessageId,
        what: &str,
        is_so: impl Fn(&Delivery) -> bool,
    ) -> Delivery {
        let mut changes = self.hub().changes();
        let waiting = async {
            loop {
                let delivery =
                    self.hub().journal().receipt(id).await.unwrap().unwrap().1.deliveries.remove(0);
                if is_so(&delivery) {
                    return delivery;
                }
                changes.next().await;
            }
        };
        tokio::time::timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("never: {what}"))
    }

    /// Waits until no delivery of a message is pending.
    pub(crate) async fn wait_for_deliveries(&self, id: MessageId) -> Vec<Delivery> {
        let mut changes = self.hub().changes();
        let waiting = async {
            loop {
                let deliveries = self.hub().journal().receipt(id).await.unwrap().unwrap().1.deliveries;
                if deliveries.iter().all(|delivery| !delivery.state.is_pending()) {
                    return deliveries;
                }
                changes.next().await;
            }
        };
        with_timeout(waiting).await
    }

    pub(crate) fn key(&self) -> Arc<SecretKey> {
        self.swarms.snapshot().keys[&self.id].clone()
    }
}

impl Drop for TestPeer {
    fn drop(&mut self) {
        if let Some((shutdown, _)) = &self.serving {
            shutdown.cancel();
        }
    }
}

/// A message as another program builds it.
#[derive(Clone)]
pub(crate) struct Forged {
    pub(crate) value: Value,
}

impl Forged {
    pub(crate) fn new(swarm: Uuid, sender: &str, content: &str, now: Timestamp) -> Self {
        let value = json!({
            "protocol_version": "0.1.0", "message_id": Uuid::new_v4().to_string(), "timestamp": timestamp::render(now),
            "sender": { "agent_id": sender, "endpoint": "https://elsewhere.example.com/swarm" },
            "recipient": "broadcast", "swarm_id": swarm.to_string(), "type": "message", "content": content,
            "signature": "",
        });
        Self { value }
    }

    pub(crate) fn with(mut self, field: &str, value: impl Into<Value>) -> Self {
        self.value[field] = value.into();
        self
    }

    pub(crate) fn system(self, content: &Value) -> Self {
        self.with("type", "system").with("content", content.to_string())
    }

    /// Adds the protocol's signature.
    pub(crate) fn signed(mut self, key: &SecretKey) -> Self {
        let signature = {
            let text = |field: &str| self.value[field].as_str().unwrap();
            let payload = Payload {
                message_id: text("message_id"),
                timestamp: text("timestamp"),
                swarm_id: text("swarm_id"),
                recipient: text("recipient"),
                kind: MessageType::from_wire(text("type")).unwrap(),
                content: text("content"),
            };
            payload.sign(key)
        };
        self.value["signature"] = signature.into();
        self
    }

    /// Adds the envelope signature as well.
    pub(crate) fn whole(self, key: &SecretKey) -> Self {
        let mut signed = self.signed(key);
        let signature = sign_envelope(key, &signed.value).unwrap();
        signed.value["metadata"][ENVELOPE_SIGNATURE] = signature.into();
        signed
    }
}

pub(crate) fn agent(text: &str) -> AgentId {
    text.parse().unwrap()
}
