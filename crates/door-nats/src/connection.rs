//! Connections to a server.

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

/// Threads that resolve the names of servers.
const RESOLVER_THREADS: usize = 1;

/// What a server said of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeReport {
    /// Its version.
    pub version: String,
    /// Whether it keeps messages, which the link needs.
    pub jetstream: bool,
}

/// Asks the servers of these settings, once, and lets go again.
pub async fn probe(config: &Config) -> Result<ProbeReport, NatsError> {
    let client = options(config).await?.connect(&config.servers).await.map_err(unreachable(config))?;
    let info = client.server_info();
    // Nothing was sent that could be lost with the connection.
    let _ = client.drain().await;
    Ok(ProbeReport { version: info.version, jetstream: info.jetstream })
}

/// A client that never reconnects.
///
/// async-nats drops what it was writing when a connection breaks, and publishes what is still queued on the next
/// connection. The messages in between would come behind those. So a connection ends with its client and the queue.
pub(crate) struct Connection {
    pub(crate) client: Client,
    lost: CancellationToken,
    /// Runs the tasks of the client. None of them ends by itself once the connection is lost.
    _runtime: ClientRuntime,
}

impl Connection {
    /// Connects to one of these servers, which belong to one cluster.
    pub(crate) async fn open(config: &Config, servers: Vec<String>) -> Result<Self, NatsError> {
        let (lost, is_connected) = (CancellationToken::new(), Arc::new(AtomicBool::new(false)));
        let (told, was_connected) = (lost.clone(), is_connected.clone());
        let events = move |event| {
            match event {
                Event::Disconnected | Event::Closed => told.cancel(),
                Event::ServerError(error) => tracing::warn!(error = %error, "NATS complains"),
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

/// A runtime with one thread, for the tasks of one client. It ends with this value.
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
        // A server that is gone without a word is noticed after two of these.
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
        // The library's own message may hold what it could not read.
        Auth::Creds(path) => options.credentials(&read(path).await?).map_err(|_| NatsError::Credentials {
            path: path.clone(),
            reason: "it holds no user JWT with its seed".to_owned(),
        })?,
    })
}

async fn read(path: &Path) -> Result<String, NatsError> {
    let own = path.to_owned();
    let read = tokio::task::spawn_blocking(move || std::fs::read_to_string(own)).await;
    let broken = |reason: String| NatsError::Credentials { path: path.to_owned(), reason };
    read.map_err(|error| broken(error.to_string()))?.map_err(|error| broken(error.to_string()))
}
