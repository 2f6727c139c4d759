//! Connections to a NATS server.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_nats::{Client, ConnectOptions, Event};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::config::{Auth, Config};
use crate::error::NatsError;

/// Number of threads that resolve server names.
const RESOLVER_THREADS: usize = 1;

/// Result of a probe: the version and features that a server reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeReport {
    /// Server version.
    pub version: String,
    /// True if JetStream, which the link requires, is enabled.
    pub jetstream: bool,
}

/// Connects once with these settings, reads the server's report and disconnects again.
pub async fn probe(config: &Config) -> Result<ProbeReport, NatsError> {
    let client = options(config).await?.connect(&config.servers).await.map_err(unreachable(config))?;
    let info = client.server_info();
    // An error is harmless, because nothing was sent that could be lost with the connection.
    let _ = client.drain().await;
    Ok(ProbeReport { version: info.version, jetstream: info.jetstream })
}

/// Connection whose client never reconnects.
///
/// When a connection breaks, async-nats drops the message that it was writing and publishes its queue on the next
/// connection. A retry of the dropped message would then arrive after the queued ones. Therefore, a client and its
/// queue end together with their connection.
pub(crate) struct Connection {
    pub(crate) client: Client,
    lost: CancellationToken,
    /// Runtime of the client's tasks, none of which ends by itself when the connection is lost.
    _runtime: ClientRuntime,
}

impl Connection {
    /// Connects to one of these servers of a cluster.
    pub(crate) async fn open(config: &Config, servers: Vec<String>) -> Result<Self, NatsError> {
        let (lost, is_connected) = (CancellationToken::new(), Arc::new(AtomicBool::new(false)));
        let (lost_events, was_connected) = (lost.clone(), is_connected.clone());
        let events = move |event| {
            match event {
                Event::Disconnected | Event::Closed => lost_events.cancel(),
                Event::ServerError(error) => tracing::warn!(error = %error, "NATS reported an error"),
                other => tracing::debug!(event = %other, "NATS"),
            }
            std::future::ready(())
        };
        let delay =
            move |_| if was_connected.load(Ordering::Acquire) { Duration::MAX } else { Duration::ZERO };
        let options = options(config).await?.event_callback(events).reconnect_delay_callback(delay);
        let runtime = ClientRuntime::start()?;
        let connecting = runtime.spawn(async move { options.connect(&servers).await });
        let client = connecting.await.map_err(|_| NatsError::Lost)?.map_err(unreachable(config))?;
        is_connected.store(true, Ordering::Release);
        Ok(Self { client, lost, _runtime: runtime })
    }

    /// Waits until the connection is lost.
    pub(crate) async fn wait_until_lost(&self) {
        self.lost.cancelled().await;
    }
}

/// Runtime with one worker thread for the tasks of one client. Dropping it ends the tasks.
struct ClientRuntime(Option<Runtime>);

impl ClientRuntime {
    fn start() -> Result<Self, NatsError> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(RESOLVER_THREADS)
            .thread_name("nats")
            .enable_all()
            .build();
        Ok(Self(Some(runtime.map_err(|source| NatsError::Thread { source })?)))
    }

    fn spawn<F>(&self, task: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        match &self.0 {
            Some(runtime) => runtime.spawn(task),
            None => tokio::spawn(task),
        }
    }
}

impl Drop for ClientRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

fn unreachable(config: &Config) -> impl Fn(async_nats::ConnectError) -> NatsError {
    let servers = config.redacted_servers();
    move |source| NatsError::Unreachable { servers: servers.clone(), source }
}

async fn options(config: &Config) -> Result<ConnectOptions, NatsError> {
    let mut options = ConnectOptions::new()
        .name("switchboard")
        .connection_timeout(config.timeout)
        .request_timeout(Some(config.timeout))
        // A server that stops responding is detected after two missed pings.
        .ping_interval(config.timeout * 2)
        .require_tls(config.tls.required);
    if let Some(ca) = &config.tls.ca {
        options = options.add_root_certificates(ca.clone());
    }
    if let Some((certificate, key)) = &config.tls.client {
        options = options.add_client_certificate(certificate.clone(), key.clone());
    }
    Ok(match &config.auth {
        Auth::None => options,
        Auth::Password { user, password } => options.user_and_password(user.clone(), password.reveal()),
        Auth::Token(token) => options.token(token.reveal()),
        Auth::Nkey(path) => options.nkey(read(path).await?.trim().to_owned()),
        // The library's error may quote content of the file that it could not parse.
        Auth::Creds(path) => options.credentials(&read(path).await?).map_err(|_| NatsError::Credentials {
            path: path.clone(),
            reason: "it has no user JWT with a seed".to_owned(),
        })?,
    })
}

async fn read(path: &Path) -> Result<String, NatsError> {
    let own = path.to_owned();
    let read = tokio::task::spawn_blocking(move || std::fs::read_to_string(own)).await;
    let broken = |reason: String| NatsError::Credentials { path: path.to_owned(), reason };
    read.map_err(|error| broken(error.to_string()))?.map_err(|error| broken(error.to_string()))
}
