//! The link at work: one session after the other, until it is told to stop.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use parking_lot::Mutex;
use switchboard_core::Name;
use switchboard_hub::{Hub, HubError};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::connection::Connection;
use crate::cursor::Cursor;
use crate::error::{NatsError, describe};
use crate::hubs::Hubs;
use crate::identity::{home, identity};
use crate::link::Link;
use crate::status::Board;
use crate::{claims, delivery, intake, interest, presence, words};

/// The pause after a first failure; it doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// The longest pause: whoever starts the server should not have to wait for us.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// A session that lasted this long was none that failed.
const LASTED: Duration = Duration::from_secs(10);

/// How often to give up what nobody will answer any more.
const HOUSEKEEPING: Duration = Duration::from_mins(10);

/// Keeps this hub linked with the others until `shutdown`. NATS being away is no error: it is tried again, and
/// everything for other hubs waits in the journal.
pub async fn run(config: Config, hub: Hub, shutdown: CancellationToken) -> Result<(), NatsError> {
    let me = identity(&hub, &config).await?;
    // What is written from now on is for the others, also while no server has been reached yet.
    Cursor::load(&hub).await?;
    let board = Board::new(&hub, me.clone(), config.shown());
    let run = presence::Run { id: hub.next_id().to_string(), home: home(&hub).await? };
    let runner = Runner { config: Arc::new(config), hub, me, board, run, link: Mutex::default() };
    let work = async {
        tokio::select! {
            () = runner.board.keep() => Ok(()),
            result = runner.keep_linked() => result.map(|never| match never {}),
        }
    };
    let result = shutdown.run_until_cancelled(Box::pin(work)).await.unwrap_or(Ok(()));
    let link = runner.link.lock().take();
    if let Some(link) = link {
        presence::say_goodbye(&link).await;
    }
    runner.board.away(runner.hub.now(), "the hub was stopped");
    runner.board.write().await;
    match result {
        Err(NatsError::Hub(HubError::Closed)) => Ok(()),
        result => result,
    }
}

/// Fails to compile where [`run`] could not be spawned.
#[cfg(test)]
fn _is_send(config: Config, hub: Hub, shutdown: CancellationToken) -> impl Send {
    run(config, hub, shutdown)
}

struct Runner {
    config: Arc<Config>,
    hub: Hub,
    me: Name,
    board: Board,
    run: presence::Run,
    /// The current session, for a last word.
    link: Mutex<Option<Link>>,
}

impl Runner {
    async fn keep_linked(&self) -> Result<Infallible, NatsError> {
        let (mut servers, mut failures) = (self.config.servers.clone(), 0);
        loop {
            let began = Instant::now();
            let Err(error) = Box::pin(self.session(&mut servers)).await;
            let was_linked = self.link.lock().take().is_some();
            if let NatsError::Hub(HubError::Closed) = error {
                return Err(error);
            }
            if was_linked && began.elapsed() > LASTED {
                failures = 0;
            }
            self.wait_after(&error, &mut failures).await;
        }
    }

    /// Works over one connection until something fails. The next session continues from the cursors, as after a crash.
    ///
    /// `servers` gains those that the cluster names, so that the next session finds one when this one is gone.
    async fn session(&self, servers: &mut Vec<String>) -> Result<Infallible, NatsError> {
        let connection = Connection::open(&self.config, servers.clone()).await?;
        *servers = known_servers(&self.config.servers, connection.client.server_info().connect_urls);
        let opening = Link::open(
            self.config.clone(),
            self.hub.clone(),
            self.me.clone(),
            self.board.clone(),
            connection,
        );
        let link = opening.await?;
        presence::check_name(&link, &self.run).await?;
        let (hubs, told) = Hubs::open(&link).await?;
        *self.link.lock() = Some(link.clone());
        self.board.linked(self.hub.now());
        tracing::info!(hub = %self.me, servers = self.config.shown(), "linked with other hubs");
        // Whoever goes through many messages has a task of its own: below, a wake for one has all of them asked.
        let mut busy = JoinSet::new();
        let own = link.clone();
        busy.spawn(async move { delivery::run(&own).await });
        let own = link.clone();
        busy.spawn(async move { intake::run(&own).await });
        let ended = tokio::select! {
            Some(result) = busy.join_next() => result.unwrap_or(Err(NatsError::Lost)),
            result = words::run(&link) => result,
            result = claims::run(&link) => result,
            result = interest::follow(&link) => result,
            result = presence::tell(&link, &self.run, told) => result,
            result = hubs.hear() => result,
            result = self.keep_house() => result,
            () = link.connection.wait_until_lost() => Err(NatsError::Lost),
        };
        // The next session begins when nobody is at work for this one any more.
        busy.shutdown().await;
        ended
    }

    /// Gives up what its hub can no longer find in the stream.
    async fn keep_house(&self) -> Result<Infallible, NatsError> {
        let retention = SignedDuration::try_from(self.config.retention).unwrap_or(SignedDuration::MAX);
        loop {
            if let Ok(before) = self.hub.now().checked_sub(retention) {
                while !self.hub.expire_remote_deliveries(before, "its hub did not answer").await?.is_empty() {
                }
            }
            tokio::time::sleep(HOUSEKEEPING).await;
        }
    }

    async fn wait_after(&self, error: &NatsError, failures: &mut u32) {
        let reason = describe(error);
        if self.board.away(self.hub.now(), &reason) {
            tracing::warn!(reason, "not linked with other hubs; what is for them waits");
        }
        // Six doublings are beyond the longest pause.
        let pause = FIRST_PAUSE * 2_u32.pow((*failures).min(6));
        *failures = failures.saturating_add(1);
        tokio::time::sleep(pause.min(LONGEST_PAUSE)).await;
    }
}

/// The configured servers, and the others of their cluster.
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
