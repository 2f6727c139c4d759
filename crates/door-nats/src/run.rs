//! Session loop of the link, with exponential backoff between failed sessions.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use parking_lot::Mutex;
use switchboard_core::{Name, error_chain};
use switchboard_hub::{Hub, HubError};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::connection::Connection;
use crate::cursor::Cursor;
use crate::error::NatsError;
use crate::hubs::RemoteHubs;
use crate::identity::{load_home_id, resolve_name};
use crate::session::Session;
use crate::status::StatusWriter;
use crate::{claims, delivery, intake, interest, presence, receipts};

/// Initial backoff; it doubles with each further failure.
const MIN_BACKOFF: Duration = Duration::from_millis(100);

/// Maximum backoff. After a server restart, the link is back within this time.
const MAX_BACKOFF: Duration = Duration::from_secs(5);

/// Session length after which the backoff is reset.
const STABLE: Duration = Duration::from_secs(10);

/// Interval at which expired remote deliveries are cleaned up.
const HOUSEKEEPING: Duration = Duration::from_mins(10);

/// Keeps this hub linked with the other hubs until `shutdown` fires.
///
/// An unreachable NATS server is not an error: the link retries, and messages for other hubs stay in the journal.
pub async fn run(config: Config, hub: Hub, shutdown: CancellationToken) -> Result<(), NatsError> {
    let me = resolve_name(&hub, &config).await?;
    // From now on, messages are for other hubs as well, even before a server is reached.
    Cursor::load(&hub).await?;
    let status_writer = StatusWriter::new(&hub, me.clone(), config.redacted_servers());
    let run = presence::HubRun { id: hub.next_id().to_string(), home: load_home_id(&hub).await? };
    let runner = Runner { config: Arc::new(config), hub, me, status_writer, run, session: Mutex::default() };
    let work = async {
        tokio::select! {
            () = runner.status_writer.run() => Ok(()),
            result = runner.run_sessions() => result.map(|never| match never {}),
        }
    };
    let result = shutdown.run_until_cancelled(Box::pin(work)).await.unwrap_or(Ok(()));
    let session = runner.session.lock().take();
    if let Some(session) = session {
        presence::announce_stop(&session).await;
    }
    runner.status_writer.record_away(runner.hub.now(), "the hub was stopped");
    runner.status_writer.write().await;
    match result {
        Err(NatsError::Hub(HubError::Closed)) => Ok(()),
        result => result,
    }
}

/// Fails to compile if the future of [`run`] is not `Send`.
#[cfg(test)]
fn _is_send(config: Config, hub: Hub, shutdown: CancellationToken) -> impl Send {
    run(config, hub, shutdown)
}

struct Runner {
    config: Arc<Config>,
    hub: Hub,
    me: Name,
    status_writer: StatusWriter,
    run: presence::HubRun,
    /// The current session, used to announce the stop.
    session: Mutex<Option<Session>>,
}

impl Runner {
    async fn run_sessions(&self) -> Result<Infallible, NatsError> {
        let (mut servers, mut failures) = (self.config.servers.clone(), 0);
        loop {
            let began = Instant::now();
            let Err(error) = Box::pin(self.run_session(&mut servers)).await;
            let was_linked = self.session.lock().take().is_some();
            if let NatsError::Hub(HubError::Closed) = error {
                return Err(error);
            }
            if was_linked && began.elapsed() > STABLE {
                failures = 0;
            }
            self.back_off(&error, &mut failures).await;
        }
    }

    /// Runs one session until an error occurs.
    ///
    /// The next session continues from the cursors, as after a crash. Adds the cluster's servers to `servers`, so that
    /// the next session finds another server if this one is down.
    async fn run_session(&self, servers: &mut Vec<String>) -> Result<Infallible, NatsError> {
        let connection = Connection::open(&self.config, servers.clone()).await?;
        *servers = known_servers(&self.config.servers, connection.client.server_info().connect_urls);
        let opening = Session::open(
            self.config.clone(),
            self.hub.clone(),
            self.me.clone(),
            self.status_writer.clone(),
            connection,
        );
        let session = opening.await?;
        presence::check_name(&session, &self.run).await?;
        let (hubs, published) = RemoteHubs::open(&session).await?;
        *self.session.lock() = Some(session.clone());
        self.status_writer.record_linked(self.hub.now());
        tracing::info!(hub = %self.me, servers = self.config.redacted_servers(), "linked with other hubs");
        // The two tasks with heavy traffic are spawned, because a single `select!` would poll all branches at each
        // wake-up.
        let mut busy = JoinSet::new();
        let own = session.clone();
        busy.spawn(async move { delivery::run(&own).await });
        let own = session.clone();
        busy.spawn(async move { intake::run(&own).await });
        let ended = tokio::select! {
            Some(result) = busy.join_next() => result.unwrap_or(Err(NatsError::Lost)),
            result = receipts::run(&session) => result,
            result = claims::run(&session) => result,
            result = interest::follow(&session) => result,
            result = presence::run(&session, &self.run, published) => result,
            result = hubs.follow() => result,
            result = self.expire_deliveries() => result,
            () = session.connection.wait_until_lost() => Err(NatsError::Lost),
        };
        // All tasks of this session must end before the next session starts.
        busy.shutdown().await;
        ended
    }

    /// Expires deliveries that their hubs can no longer read because the stream has dropped the messages.
    async fn expire_deliveries(&self) -> Result<Infallible, NatsError> {
        let retention = SignedDuration::try_from(self.config.retention).unwrap_or(SignedDuration::MAX);
        loop {
            if let Ok(before) = self.hub.now().checked_sub(retention) {
                while !self
                    .hub
                    .relay()
                    .expire_remote_deliveries(before, "its hub did not answer")
                    .await?
                    .is_empty()
                {}
            }
            tokio::time::sleep(HOUSEKEEPING).await;
        }
    }

    async fn back_off(&self, error: &NatsError, failures: &mut u32) {
        let reason = error_chain(error);
        if self.status_writer.record_away(self.hub.now(), &reason) {
            tracing::warn!(reason, "not linked with other hubs; messages for them wait");
        }
        // Six doublings already exceed the maximum backoff.
        let pause = MIN_BACKOFF * 2_u32.pow((*failures).min(6));
        *failures = failures.saturating_add(1);
        tokio::time::sleep(pause.min(MAX_BACKOFF)).await;
    }
}

/// Returns the configured servers and the discovered ones of their cluster.
fn known_servers(configured: &[String], of_cluster: Vec<String>) -> Vec<String> {
    fn host(server: &str) -> Option<&str> {
        server.rsplit(['/', '@']).next()
    }
    let is_configured = |server: &String| configured.iter().any(|known| host(known) == host(server));
    let discovered = of_cluster.into_iter().filter(|server| !is_configured(server));
    configured.iter().cloned().chain(discovered).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn discovered_servers_follow_configured_ones() {
        let configured = ["nats://hub:secret@n1:4222".to_owned(), "n2:4222".to_owned()];
        let of_cluster = ["n1:4222", "n2:4222", "n3:4222"].map(str::to_owned).to_vec();
        let known = known_servers(&configured, of_cluster);
        assert_eq!(known, ["nats://hub:secret@n1:4222", "n2:4222", "n3:4222"]);
    }
}
