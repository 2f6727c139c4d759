//! The door at work: takes in, delivers, watches, hears who is awake, until it is told to stop.

use std::time::Duration;

use notify::RecursiveMode;
use switchboard_hub::{Hub, Outbound};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::brought;
use crate::channels::Channels;
use crate::config::Config;
use crate::delivery::run_deliveries;
use crate::error::ChannelError;
use crate::intake::Swept;
use crate::lookout::Lookout;
use crate::tree::blocking;
use crate::watch;

/// For how many times its own length a look is followed by none: looking takes a tenth of one core at most.
const REST: u32 = 9;

/// The longest such rest: a look that took in thousands of files was long for a good reason.
const LONGEST_REST: Duration = Duration::from_secs(2);

/// How soon to look again at files that may still be being written.
const SETTLING: Duration = Duration::from_millis(200);

/// When to look for interrupted posts again: once those that were just being written at the start have had the time,
/// and then seldom, for whoever dies meanwhile.
const REPAIR_SOON: Duration = Duration::from_secs(70);
const REPAIR_SELDOM: Duration = Duration::from_mins(10);

/// How often the heartbeat files are read.
const PRESENCE: Duration = Duration::from_secs(10);

/// Keeps the channels going: takes in, delivers and runs the configured watchers until `shutdown`.
pub async fn run(
    config: Config,
    hub: Hub,
    outbound: Outbound,
    shutdown: CancellationToken,
) -> Result<(), ChannelError> {
    let channels = Channels::open(config, hub).await?;
    run_channels(channels, outbound, shutdown).await
}

/// The same for channels that are open.
pub async fn run_channels(
    channels: Channels,
    outbound: Outbound,
    shutdown: CancellationToken,
) -> Result<(), ChannelError> {
    // Known before the first look, so that what came while they were down is theirs.
    channels.enlist_watchers().await?;
    let watchers = watch::run_all(&channels, shutdown.clone());
    let work = async {
        tokio::select! {
            () = run_deliveries(&channels, outbound) => Ok(()),
            result = Box::pin(take_in(&channels)) => result,
            result = Box::pin(brought::run(&channels)), if channels.config().linked => {
                result.map(|never| match never {})
            }
        }
    };
    let work = async {
        tokio::select! {
            () = shutdown.cancelled() => Ok(()),
            result = work => { shutdown.cancel(); result }
        }
    };
    // The watchers end by the same token, and say goodbye before this returns.
    let ((), result) = tokio::join!(watchers, work);
    result
}

async fn take_in(channels: &Channels) -> Result<(), ChannelError> {
    let tree = channels.tree().clone();
    let folder = blocking(move || Ok(tree.channels()?)).await?;
    // Watch first, then look: what comes between the two is seen twice rather than never.
    let mut lookout = Lookout::open(&folder, RecursiveMode::Recursive, channels.config()).await;
    let (mut listen, mut repair_at, mut repair_again) = (Instant::now(), Instant::now(), REPAIR_SOON);
    let (mut is_due, mut swept) = (true, Swept::default());
    loop {
        let began = Instant::now();
        if is_due {
            if let Err(error) = channels.check_touched(&folder, lookout.touched()).await {
                tracing::warn!(error = %error, "changed files could not be compared with the journal");
            }
            swept = match channels.sweep().await {
                Err(ChannelError::Closed) => return Err(ChannelError::Closed),
                swept => swept.unwrap_or_else(|error| {
                    // A mount that is gone now may be back at the next look.
                    tracing::warn!(error = %error, "the channels could not be read");
                    Swept::default()
                }),
            };
        }
        if repair_at <= Instant::now() && repair(channels).await {
            repair_at = Instant::now() + repair_again;
            repair_again = REPAIR_SELDOM;
        }
        if listen <= Instant::now() {
            listen = Instant::now() + PRESENCE;
            if let Err(error) = channels.hear_presence().await {
                tracing::warn!(error = %error, "the heartbeat files could not be read");
            }
        }
        let rested = (began.elapsed() * REST).min(LONGEST_REST);
        let is_settling = swept.settling > 0;
        let most = if is_settling { SETTLING } else { PRESENCE };
        is_due = lookout.next(swept.taken > 0 || is_settling, most).await || is_settling;
        tokio::time::sleep_until(began + rested).await;
    }
}

/// Whether what a process left half done that died is whole again, or gone.
async fn repair(channels: &Channels) -> bool {
    match channels.clear_leftovers().await {
        Ok(0) => {}
        Ok(removed) => tracing::info!(removed, "removed files that were never finished"),
        Err(error) => tracing::warn!(error = %error, "unfinished files could not be removed"),
    }
    match channels.repair().await {
        Ok(0) => true,
        Ok(repaired) => {
            tracing::info!(repaired, "wrote the files of posts that were interrupted");
            true
        }
        Err(error) => {
            tracing::warn!(error = %error, "interrupted posts could not be completed");
            false
        }
    }
}
