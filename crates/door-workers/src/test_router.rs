//! Test router on a real hub in a temporary folder, and clients that validate every line against the schemas.

use std::collections::HashMap;
use std::sync::LazyLock;
use std::time::Duration;

use serde_json::{Value, json};
use switchboard_core::Door;
use switchboard_hub::{Hub, HubConfig};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::client::{Client, Received, command_line};
use crate::config::Config;
use crate::error::RouterError;
use crate::router::Router;
use crate::session::{Access, Transport, serve};
use crate::wire::schema;

/// Upper bound for every wait of a test.
pub(crate) const TIMEOUT: Duration = Duration::from_mins(1);

static SCHEMAS: LazyLock<HashMap<String, jsonschema::Validator>> = LazyLock::new(|| {
    schema::all()
        .into_iter()
        .map(|(name, schema)| {
            let validator = jsonschema::options().should_validate_formats(true).build(&schema);
            (name, validator.unwrap())
        })
        .collect()
});

pub(crate) struct Rig {
    pub(crate) folder: TempDir,
    pub(crate) hub: Hub,
    pub(crate) router: Router,
    done: CancellationToken,
    deliveries: JoinHandle<()>,
}

impl Rig {
    pub(crate) async fn new() -> Self {
        Self::with(Config::default()).await
    }

    pub(crate) async fn with(config: Config) -> Self {
        Self::open(TempDir::new().unwrap(), config, Duration::from_mins(1)).await
    }

    /// Opens a router. A second one in the same process has to wait until the leases of the first expire.
    pub(crate) async fn open(folder: TempDir, config: Config, lease: Duration) -> Self {
        let hub = HubConfig { lease, ..HubConfig::new(folder.path()) };
        Self::open_with(folder, config, hub).await
    }

    /// Opens a router on a hub with other settings.
    pub(crate) async fn open_with(folder: TempDir, config: Config, hub: HubConfig) -> Self {
        let hub = Hub::open(hub).await.unwrap();
        let router = Router::open(hub.clone(), folder.path().to_owned(), config, None).await.unwrap();
        let outbound = hub.deliveries().open_door(Door::Workers).await.unwrap();
        let (working, done) = (router.clone(), CancellationToken::new());
        let stop = done.clone();
        let deliveries = tokio::spawn(async move { crate::delivery::run(&working, outbound, stop).await });
        Self { folder, hub, router, done, deliveries }
    }

    /// Connects a client on its own stream.
    pub(crate) fn client(&self) -> TestClient {
        self.client_with(Access::default())
    }

    pub(crate) fn client_with(&self, access: Access) -> TestClient {
        self.client_until(access, self.done.clone())
    }

    /// Connects a client that is served until `done`.
    pub(crate) fn client_until(&self, access: Access, done: CancellationToken) -> TestClient {
        // About the buffer of a socket.
        let (ours, theirs) = tokio::io::duplex(64 << 10);
        let router = self.router.clone();
        tokio::spawn(async move {
            let (reader, writer) = tokio::io::split(theirs);
            let eof = CancellationToken::new();
            serve(&router, reader, writer, Transport::Socket, &access, eof, done).await
        });
        let (reader, writer) = tokio::io::split(ours);
        TestClient { client: Client::from_streams(reader, writer) }
    }

    /// Stops deliveries from the hub and commands of clients.
    pub(crate) async fn stop_deliveries(&mut self) {
        self.done.cancel();
        std::mem::replace(&mut self.deliveries, tokio::spawn(std::future::ready(()))).await.unwrap();
    }

    /// Resumes deliveries from the hub.
    pub(crate) async fn resume_deliveries(&mut self) {
        let outbound = self.hub.deliveries().open_door(Door::Workers).await.unwrap();
        let (working, stop) = (self.router.clone(), CancellationToken::new());
        self.done = stop.clone();
        self.deliveries = tokio::spawn(async move { crate::delivery::run(&working, outbound, stop).await });
    }

    /// Closes the router as a signal would, and returns its folder.
    pub(crate) async fn close(self) -> TempDir {
        self.router.close().await;
        self.done.cancel();
        self.deliveries.await.unwrap();
        self.hub.shut_down().await;
        self.folder
    }
}

pub(crate) struct TestClient {
    pub(crate) client: Client,
}

impl TestClient {
    pub(crate) async fn next(&mut self) -> Received {
        let received = timeout(TIMEOUT, self.client.next()).await.expect("an event").unwrap();
        validate_event(&received);
        received
    }

    /// Returns the next event with this name; skips others.
    pub(crate) async fn next_of(&mut self, event: &str) -> Received {
        let mut skipped = Vec::new();
        let looking = async {
            loop {
                let received = self.next().await;
                if received.event == event {
                    return received;
                }
                skipped.push(received.event);
            }
        };
        timeout(TIMEOUT, looking).await.unwrap_or_else(|_| panic!("no {event}, but {skipped:?}"))
    }

    /// Returns all events up to the end of an injection: this one, or the next to end.
    pub(crate) async fn until_complete(&mut self, injection: Option<&str>) -> Vec<Received> {
        let mut all = Vec::new();
        loop {
            let received = self.next().await;
            let is_end = received.event == "turn_complete"
                && injection.is_none_or(|injection| received.data["injection_id"] == injection);
            all.push(received);
            if is_end {
                return all;
            }
        }
    }

    /// Sends a command after validating it; returns its request id.
    pub(crate) async fn send(&mut self, command: &str, payload: Value) -> String {
        check_command(command, &payload);
        self.client.send(command, &payload).await.unwrap()
    }

    /// Injects all of these with one write; returns their request ids.
    pub(crate) async fn inject_all(&mut self, job: &str, contents: &[&str]) -> Vec<String> {
        let ids: Vec<String> = (0..contents.len()).map(|number| format!("many-{number}")).collect();
        let payload = |content: &str| json!({ "job_id": job, "node_id": 0, "content": content });
        let lines: String = ids
            .iter()
            .zip(contents)
            .map(|(id, content)| command_line("inject", id, &payload(content)))
            .collect();
        self.client.write(lines.as_bytes()).await.unwrap();
        ids
    }

    pub(crate) async fn send_line(&mut self, line: &str) {
        self.client.write(format!("{line}\n").as_bytes()).await.unwrap();
    }

    pub(crate) async fn request(&mut self, command: &str, payload: Value) -> Received {
        check_command(command, &payload);
        let received =
            timeout(TIMEOUT, self.client.request(command, &payload)).await.expect("an answer").unwrap();
        validate_event(&received);
        received
    }

    /// Returns the code of a rejection.
    pub(crate) async fn rejected(&mut self, command: &str, payload: Value) -> String {
        match timeout(TIMEOUT, self.client.request(command, &payload)).await.expect("an answer") {
            Err(RouterError::Rejected { code, .. }) => code,
            other => panic!("{other:?}"),
        }
    }

    /// Launches a job; returns its id.
    pub(crate) async fn launch(&mut self, payload: Value) -> String {
        let launched = self.request("launch", payload).await;
        assert_eq!(launched.event, "job_launched");
        launched.data["job_id"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn inject(&mut self, job: &str, node: u32, content: &str) -> String {
        self.send("inject", json!({ "job_id": job, "node_id": node, "content": content })).await
    }

    /// Injects and waits for the acknowledgement; returns the injection's id.
    pub(crate) async fn injected(&mut self, job: &str, node: u32, content: &str) -> String {
        let ack = self.request("inject", json!({ "job_id": job, "node_id": node, "content": content })).await;
        assert_eq!(ack.event, "inject_ack");
        ack.data["injection_id"].as_str().unwrap().to_owned()
    }
}

/// Validates an event against its schema.
pub(crate) fn validate_event(received: &Received) {
    validate(&format!("event.{}", received.event), &received.line);
}

/// Validates a command against its schema.
fn check_command(command: &str, payload: &Value) {
    validate(&format!("command.{command}"), &command_line(command, "any", payload));
}

fn validate(schema: &str, line: &str) {
    let value: Value = serde_json::from_str(line).unwrap();
    let errors = SCHEMAS[&format!("{schema}.schema.json")].iter_errors(&value);
    let errors: Vec<String> = errors.map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{line}: {errors:?}");
}

/// Returns the names of events, without those about the node.
pub(crate) fn names(events: &[Received]) -> Vec<&str> {
    let is_turn = |name: &&str| !matches!(*name, "node_status" | "heartbeat" | "worker_exited");
    events.iter().map(|event| event.event.as_str()).filter(is_turn).collect()
}
