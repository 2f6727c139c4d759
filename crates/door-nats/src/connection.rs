//! The way to a server.

use std::path::Path;

use async_nats::connection::State;
use async_nats::{Client, ConnectOptions, Event};
use tokio::sync::watch;

use crate::config::{Auth, Config};
use crate::error::NatsError;

/// What a server said of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probed {
    /// Its version.
    pub version: String,
    /// Whether it keeps messages, which the link needs.
    pub jetstream: bool,
}

/// Asks the servers of these settings, once, and lets go again.
pub async fn probe(config: &Config) -> Result<Probed, NatsError> {
    let client = options(config).await?.connect(&config.servers).await.map_err(unreachable(config))?;
    let info = client.server_info();
    // Nothing was sent that could be lost with the connection.
    let _ = client.drain().await;
    Ok(Probed { version: info.version, jetstream: info.jetstream })
}

/// Connects, and goes on connecting whenever the connection is lost. `up` tells how it stands.
pub(crate) async fn connect(config: &Config, up: &watch::Sender<bool>) -> Result<Client, NatsError> {
    let told = up.clone();
    let events = move |event| {
        match event {
            Event::Connected => drop(told.send_replace(true)),
            Event::Disconnected | Event::Closed => drop(told.send_replace(false)),
            Event::ServerError(error) => tracing::warn!(error = %error, "NATS complains"),
            other => tracing::debug!(event = %other, "NATS"),
        }
        std::future::ready(())
    };
    let connecting = options(config).await?.event_callback(events).connect(&config.servers);
    let client = connecting.await.map_err(unreachable(config))?;
    up.send_replace(client.connection_state() == State::Connected);
    Ok(client)
}

fn unreachable(config: &Config) -> impl Fn(async_nats::ConnectError) -> NatsError {
    let servers = config.shown();
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
