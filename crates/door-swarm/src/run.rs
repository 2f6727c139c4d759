//! The door at work: serves the endpoints, delivers, keeps rosters and keys current, until it is told to stop.

use std::time::Duration;

use switchboard_core::Door;
use switchboard_https::ListenerHandle;
use switchboard_hub::{Hub, Outbound};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::delivery::run_deliveries;
use crate::error::{SwarmError, describe};
use crate::github;
use crate::keeper::Asked;
use crate::operations::Merge;
use crate::server::{Server, Task};
use crate::swarms::Swarms;
use crate::wake::{Arrival, wake};

/// Most that wait to be done after their answer was given; what comes beyond is dropped and found again.
const TASKS: usize = 1024;

/// How often it is looked whether somebody is to be asked again.
const HOUSEKEEPING: Duration = Duration::from_secs(20);

/// Pause between two refreshes of the ledger for background work. Requests and deliveries read the current version
/// themselves; each message changes the journal, and to reload after each would take as long as the message itself.
const FOLLOW_PAUSE: Duration = Duration::from_millis(20);

/// How many keys are confirmed in one go.
const CONFIRMED_AT_ONCE: usize = 8;

/// Keeps the swarms of this hub going until `shutdown`.
pub async fn run(
    config: Config,
    hub: Hub,
    outbound: Outbound,
    shutdown: CancellationToken,
) -> Result<(), SwarmError> {
    start(config, hub, outbound, shutdown).await?.await
}

/// Opens the swarms and starts to listen; what is returned keeps them going. What is wrong with the settings is said here.
pub async fn start(
    config: Config,
    hub: Hub,
    outbound: Outbound,
    shutdown: CancellationToken,
) -> Result<impl Future<Output = Result<(), SwarmError>> + Send, SwarmError> {
    start_on(Swarms::open(config, hub).await?, outbound, shutdown).await
}

/// The same for swarms that are open.
pub(crate) async fn start_on(
    swarms: Swarms,
    outbound: Outbound,
    shutdown: CancellationToken,
) -> Result<impl Future<Output = Result<(), SwarmError>> + Send, SwarmError> {
    // What is wrong with whom to believe and whom to call is said now, and not by the first message that waits.
    if swarms.config().says_whom_to_call() {
        swarms.client()?;
    }
    swarms.recover().await?;
    let (tasks, queue) = mpsc::channel(TASKS);
    let (told, arrivals) = mpsc::channel(TASKS);
    let told = swarms.config().wake.is_some().then_some(told);
    let listening = listen(&swarms, tasks, told, shutdown.clone()).await?;
    let hooks = listen_to_github(&swarms, shutdown.clone()).await?;
    Ok(keep_going(swarms, outbound, queue, arrivals, [listening, hooks], shutdown))
}

async fn keep_going(
    swarms: Swarms,
    outbound: Outbound,
    queue: mpsc::Receiver<Task>,
    arrivals: mpsc::Receiver<Arrival>,
    listeners: [Option<ListenerHandle>; 2],
    shutdown: CancellationToken,
) -> Result<(), SwarmError> {
    let deliveries = Box::pin(run_deliveries(&swarms, outbound));
    let deliveries = swarms.hub().run_door(Door::Swarm, deliveries, shutdown.clone());
    let work = async {
        tokio::select! {
            result = follow(&swarms) => result,
            () = tend(&swarms, queue) => Ok(()),
            () = wake(&swarms, arrivals) => Ok(()),
            () = keep_house(&swarms) => Ok(()),
        }
    };
    let work = async {
        match shutdown.run_until_cancelled(Box::pin(work)).await {
            Some(result) => result,
            // The deliveries end it.
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
    tracing::info!(address = %listening.local_addr(), "listening for webhooks of GitHub");
    Ok(Some(listening))
}

/// Follows what other processes of this hub change, such as a command that mutes somebody.
async fn follow(swarms: &Swarms) -> Result<(), SwarmError> {
    let mut changes = swarms.hub().changes();
    loop {
        changes.next().await;
        if let Err(error) = swarms.refresh().await {
            if matches!(error, SwarmError::Hub(switchboard_hub::HubError::Closed)) {
                return Err(error);
            }
            tracing::warn!(error = %describe(&error), "the swarms could not be read");
        }
        tokio::time::sleep(FOLLOW_PAUSE).await;
    }
}

/// Does what requests have left to be done.
async fn tend(swarms: &Swarms, mut queue: mpsc::Receiver<Task>) {
    let mut asked = Asked::default();
    while let Some(task) = queue.recv().await {
        swarms.tend(task, &mut asked).await;
    }
    // Without a listener nothing is left to be done, which is no reason to end.
    std::future::pending::<()>().await;
}

async fn keep_house(swarms: &Swarms) {
    loop {
        let now = swarms.hub().now();
        swarms.ask_again(now).await;
        swarms.end_unanswered(now).await;
        swarms.complete_announced(CONFIRMED_AT_ONCE, now).await;
        swarms.confirm_stale(CONFIRMED_AT_ONCE).await;
        tokio::time::sleep(HOUSEKEEPING).await;
    }
}

impl Swarms {
    /// Finishes what an interruption has left: things to be said, a directory and a file behind the ledger.
    async fn recover(&self) -> Result<(), SwarmError> {
        for identity in self.identities() {
            self.register(&identity.agent).await?;
            if let Err(error) = self.resume_rotation(&identity.agent).await {
                tracing::error!(agent = %identity.agent, error = %describe(&error), "the change of a key is not finished");
            }
            if let Err(error) = self.take_over_state(&identity.agent, Merge::Unheard).await {
                // The ledger is what counts; a file that cannot be used is written again below.
                tracing::warn!(agent = %identity.agent, error = %describe(&error), "state.json is not taken over");
            }
            self.write_state(&identity.agent).await?;
        }
        for (agent, swarm) in self.swarms() {
            self.say_announcements(&agent, swarm.swarm_id).await?;
            self.tell_directory(&agent, swarm.swarm_id).await?;
        }
        Ok(())
    }
}
