//! Main loop of the door, which runs until shutdown.
//!
//! It serves the endpoints, delivers messages and refreshes rosters and keys.

use std::time::Duration;

use switchboard_core::{Door, error_chain};
use switchboard_https::ListenerHandle;
use switchboard_hub::{Hub, Outbound};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::delivery::run_deliveries;
use crate::error::SwarmError;
use crate::github;
use crate::operations::ImportMode;
use crate::refresh::RequestThrottle;
use crate::server::{Server, Task};
use crate::swarms::Swarms;
use crate::wake::{Arrival, wake};

/// Capacity of the task queue. Further tasks are dropped, and their causes are detected again later.
const TASK_CAPACITY: usize = 1024;

/// Interval of the check for due retries.
const HOUSEKEEPING_INTERVAL: Duration = Duration::from_secs(20);

/// Minimum time between two reloads of the store for background work.
///
/// Requests and deliveries read the current version themselves. Each message changes the journal, and a reload after
/// each would take as long as the message itself.
const RELOAD_PAUSE: Duration = Duration::from_millis(20);

/// Maximum number of keys that are checked per housekeeping round.
const KEYS_PER_ROUND: usize = 8;

/// Runs the swarms of this hub until `shutdown`.
pub async fn run(
    config: Config,
    hub: Hub,
    outbound: Outbound,
    shutdown: CancellationToken,
) -> Result<(), SwarmError> {
    start(config, hub, outbound, shutdown).await?.await
}

/// Opens the swarms and starts the listeners. Fails if the settings are invalid.
///
/// The returned future runs the swarms.
pub async fn start(
    config: Config,
    hub: Hub,
    outbound: Outbound,
    shutdown: CancellationToken,
) -> Result<impl Future<Output = Result<(), SwarmError>> + Send, SwarmError> {
    start_on(Swarms::open(config, hub).await?, outbound, shutdown).await
}

/// Starts the door for swarms that are already open.
pub(crate) async fn start_on(
    swarms: Swarms,
    outbound: Outbound,
    shutdown: CancellationToken,
) -> Result<impl Future<Output = Result<(), SwarmError>> + Send, SwarmError> {
    // Report invalid client settings now instead of at the first delivery.
    if swarms.config().has_network_settings() {
        swarms.client()?;
    }
    swarms.recover().await?;
    let (tasks, queue) = mpsc::channel(TASK_CAPACITY);
    let (arrival_sender, arrivals) = mpsc::channel(TASK_CAPACITY);
    let arrival_sender = swarms.config().wake.is_some().then_some(arrival_sender);
    let listening = listen(&swarms, tasks, arrival_sender, shutdown.clone()).await?;
    let hooks = listen_to_github(&swarms, shutdown.clone()).await?;
    Ok(run_until_shutdown(swarms, outbound, queue, arrivals, [listening, hooks], shutdown))
}

async fn run_until_shutdown(
    swarms: Swarms,
    outbound: Outbound,
    queue: mpsc::Receiver<Task>,
    arrivals: mpsc::Receiver<Arrival>,
    listeners: [Option<ListenerHandle>; 2],
    shutdown: CancellationToken,
) -> Result<(), SwarmError> {
    let deliveries = Box::pin(run_deliveries(&swarms, outbound));
    let deliveries = swarms.hub().deliveries().run_door(Door::Swarm, deliveries, shutdown.clone());
    let work = async {
        tokio::select! {
            result = follow_changes(&swarms) => result,
            () = run_tasks(&swarms, queue) => Ok(()),
            () = wake(&swarms, arrivals) => Ok(()),
            () = run_housekeeping(&swarms) => Ok(()),
        }
    };
    let work = async {
        match shutdown.run_until_cancelled(Box::pin(work)).await {
            Some(result) => result,
            // During the shutdown, the deliveries decide when the door ends.
            None => std::future::pending().await,
        }
    };
    let result = tokio::select! {
        () = deliveries => Ok(()),
        result = work => result,
    };
    shutdown.cancel();
    for listening in listeners.into_iter().flatten() {
        listening.finished().await;
    }
    match result {
        Err(SwarmError::Hub(switchboard_hub::HubError::Closed)) => Ok(()),
        result => result,
    }
}

async fn listen(
    swarms: &Swarms,
    tasks: mpsc::Sender<Task>,
    arrivals: Option<mpsc::Sender<Arrival>>,
    shutdown: CancellationToken,
) -> Result<Option<ListenerHandle>, SwarmError> {
    let Some(settings) = swarms.config().listen.clone() else { return Ok(None) };
    let server = Server::new(swarms.clone(), tasks, arrivals);
    let listening = switchboard_https::listen(settings, server.router(), shutdown).await?;
    tracing::info!(address = %listening.local_addr(), "listening for the swarm");
    Ok(Some(listening))
}

async fn listen_to_github(
    swarms: &Swarms,
    shutdown: CancellationToken,
) -> Result<Option<ListenerHandle>, SwarmError> {
    let Some(config) = swarms.config().github.clone() else { return Ok(None) };
    let router = github::router(swarms.clone(), config.clone());
    let listening = switchboard_https::listen(config.listen, router, shutdown).await?;
    tracing::info!(address = %listening.local_addr(), "listening for GitHub webhooks");
    Ok(Some(listening))
}

/// Reloads the store when another process of this hub changes it, such as a command that mutes an agent.
async fn follow_changes(swarms: &Swarms) -> Result<(), SwarmError> {
    let mut changes = swarms.hub().changes();
    loop {
        changes.next().await;
        if let Err(error) = swarms.refresh().await {
            if matches!(error, SwarmError::Hub(switchboard_hub::HubError::Closed)) {
                return Err(error);
            }
            tracing::warn!(error = %error_chain(&error), "the swarms could not be read");
        }
        tokio::time::sleep(RELOAD_PAUSE).await;
    }
}

/// Runs the tasks that requests have deferred.
async fn run_tasks(swarms: &Swarms, mut queue: mpsc::Receiver<Task>) {
    let mut throttle = RequestThrottle::default();
    while let Some(task) = queue.recv().await {
        swarms.run_task(task, &mut throttle).await;
    }
    // Without a listener there are no tasks; this must not end the door.
    std::future::pending::<()>().await;
}

async fn run_housekeeping(swarms: &Swarms) {
    loop {
        let now = swarms.hub().now();
        swarms.retry_pending_joins(now).await;
        swarms.expire_transfers(now).await;
        swarms.fetch_missing_keys(KEYS_PER_ROUND, now).await;
        swarms.confirm_stale_keys(KEYS_PER_ROUND).await;
        tokio::time::sleep(HOUSEKEEPING_INTERVAL).await;
    }
}

impl Swarms {
    /// Recovers from an interruption and reconciles the hub and the files with the store.
    ///
    /// Key rotations and pending announcements are finished, and a mailbox, directory or state file that is behind the
    /// store is updated.
    async fn recover(&self) -> Result<(), SwarmError> {
        for identity in self.identities() {
            self.register_mailbox(&identity.agent).await?;
            if let Err(error) = self.resume_rotation(&identity.agent).await {
                tracing::error!(agent = %identity.agent, error = %error_chain(&error), "a key rotation is not finished");
            }
            if let Err(error) = self.import_state_file(&identity.agent, ImportMode::UnknownOnly).await {
                // The store is authoritative; an unusable file is overwritten below.
                tracing::warn!(agent = %identity.agent, error = %error_chain(&error), "state.json was not imported");
            }
            self.write_state(&identity.agent).await?;
        }
        for (agent, swarm) in self.swarms() {
            self.send_announcements(&agent, swarm.swarm_id).await?;
            self.sync_directory(&agent, swarm.swarm_id).await?;
        }
        Ok(())
    }
}
