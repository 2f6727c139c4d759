//! Main loop of the channels door: intake, deliveries, watchers and presence, until shutdown.

use std::time::Duration;

use switchboard_core::{Door, Outcome, error_chain};
use switchboard_hub::{Handoff, Hub, Outbound};
use switchboard_sys::debounce::{Debounce, Debouncer};
use switchboard_sys::file_watcher::Depth;
use switchboard_sys::files::Dir;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::channels::Channels;
use crate::config::Config;
use crate::delivery::run_deliveries;
use crate::error::ChannelError;
use crate::folder_watcher::{Changes, FolderWatcher, is_message_file};
use crate::intake::ScanSummary;
use crate::relayed_posts;
use crate::tree::blocking;
use crate::{presence, watch};

/// Delay after which incomplete files are read again.
const SETTLE_RECHECK: Duration = Duration::from_millis(200);

/// Delay of the second repair of interrupted posts, after the first one at the start. By then the posts in progress
/// have finished. Later repairs, for processes that die later, have the longer interval [`REPAIR_SELDOM`].
const REPAIR_SOON: Duration = Duration::from_secs(70);
const REPAIR_SELDOM: Duration = Duration::from_mins(10);

/// Interval at which the heartbeat files are read.
const PRESENCE_POLL: Duration = Duration::from_secs(10);

/// Interval at which an unmounted folder is checked. The protocol specifies two seconds.
const MOUNT_POLL: Duration = Duration::from_secs(2);

/// Maximum number of deliveries per batch.
const BATCH: usize = 64;

/// Runs the channels door until `shutdown`: intake, deliveries and the configured watchers. While the folder is not
/// mounted, it waits.
pub async fn run(
    config: Config,
    hub: Hub,
    mut outbound: Outbound,
    shutdown: CancellationToken,
) -> Result<(), ChannelError> {
    let mut is_told = false;
    let channels = loop {
        let error = match open_writable(&config, &hub).await {
            Ok(channels) => break channels,
            Err(error) if error.is_unmounted() => error,
            Err(error) => return Err(error),
        };
        if !is_told {
            tracing::error!(error = %error_chain(&error), "the channels folder cannot be used; the channels wait for it");
            is_told = true;
        }
        tokio::select! {
            () = shutdown.cancelled() => return Ok(()),
            () = return_deliveries(&mut outbound, &error) => return Ok(()),
            () = tokio::time::sleep(MOUNT_POLL) => {}
        }
    };
    if is_told {
        tracing::info!("the channels folder is available");
    }
    run_channels(channels, outbound, shutdown).await
}

/// Opens the channels below a root that must be writable.
async fn open_writable(config: &Config, hub: &Hub) -> Result<Channels, ChannelError> {
    let channels = Channels::open(config.clone(), hub.clone()).await?;
    channels.check_writable().await?;
    Ok(channels)
}

/// Returns all handoffs to the outbox for redelivery, until the hub shuts down.
async fn return_deliveries(outbound: &mut Outbound, error: &ChannelError) {
    loop {
        let handoffs = outbound.next(BATCH).await;
        if handoffs.is_empty() {
            return;
        }
        let reason = error_chain(error);
        let unreachable = |handoff| (handoff, Outcome::Unreachable { reason: reason.clone() });
        for answer in Handoff::report_all(handoffs.into_iter().map(unreachable).collect()).await {
            if let Err(error) = answer {
                tracing::warn!(error = %error, "cannot save the outcome of a delivery");
            }
        }
    }
}

/// Runs the channels door like [`run`], with channels that are already open.
pub async fn run_channels(
    channels: Channels,
    outbound: Outbound,
    shutdown: CancellationToken,
) -> Result<(), ChannelError> {
    // Register the watchers before the first scan, so that they also get messages that arrived while they were down.
    channels.register_watchers().await?;
    let watchers = watch::run_all(&channels, shutdown.clone());
    let deliveries = Box::pin(run_deliveries(&channels, outbound));
    let deliveries = channels.hub().deliveries().run_door(Door::Channels, deliveries, shutdown.clone());
    let intake = async {
        tokio::select! {
            result = Box::pin(run_intake(&channels)) => result,
            result = Box::pin(relayed_posts::run(&channels)), if channels.config().linked => {
                result.map(|never| match never {})
            }
            result = presence::follow(&channels), if channels.config().linked => {
                result.map(|never| match never {})
            }
        }
    };
    let intake = async {
        match shutdown.run_until_cancelled(intake).await {
            Some(result) => result,
            // The deliveries end on shutdown by themselves.
            None => std::future::pending().await,
        }
    };
    let work = async {
        let result = tokio::select! {
            () = deliveries => Ok(()),
            result = intake => result,
        };
        shutdown.cancel();
        result
    };
    // The watchers end by the same token, and write their offline heartbeat before this function returns.
    let ((), result) = tokio::join!(watchers, work);
    result
}

/// Runs the intake while the hub is open. While the folder is not mounted, it waits.
async fn run_intake(channels: &Channels) -> Result<(), ChannelError> {
    loop {
        match ingest_while_mounted(channels).await {
            Err(ChannelError::Closed) => return Err(ChannelError::Closed),
            Err(error) => {
                let error = error_chain(&error);
                tracing::error!(error, "the channels folder cannot be used; the channels wait for it");
            }
            Ok(()) => {}
        }
        while open_folder(channels).await.is_err() {
            tokio::time::sleep(MOUNT_POLL).await;
        }
        tracing::info!("the channels folder is watched again");
    }
}

/// Opens the folder of all channels and returns it with its device and inode. The caller must not hold it open, which
/// would prevent an unmount.
async fn open_folder(channels: &Channels) -> Result<(Dir, (i128, u64)), ChannelError> {
    let tree = channels.tree().clone();
    blocking(move || {
        let folder = tree.channels()?;
        let place = folder.device_and_inode()?;
        Ok((folder, place))
    })
    .await
}

/// Ingests message files until the folder is replaced or its events stop.
async fn ingest_while_mounted(channels: &Channels) -> Result<(), ChannelError> {
    // Start watching before the scan: a concurrent change is then seen twice rather than missed.
    let (mut watcher, path, place) = {
        let (folder, place) = open_folder(channels).await?;
        let watcher = FolderWatcher::open(&folder, Depth::Tree, is_message_file, channels.config()).await;
        (watcher, folder.path().to_owned(), place)
    };
    let (mut listen, mut repair_at, mut repair_again) = (Instant::now(), Instant::now(), REPAIR_SOON);
    let (mut due, mut summary) = (Some(Changes::Unknown), ScanSummary::default());
    let mut is_first = true;
    let mut rest = Debouncer::new(Debounce::REST_ONLY);
    loop {
        let began = Instant::now();
        if let Some(changes) = due {
            let is_by_clock = matches!(changes, Changes::Clock);
            if let Err(error) = channels.check_touched(&path, watcher.touched()).await {
                tracing::warn!(error = %error, "cannot compare changed files with the journal");
            }
            let looked = match &changes {
                Changes::Named(paths) => channels.scan_named(&path, paths).await,
                Changes::Unknown | Changes::Clock => channels.scan().await,
            };
            summary = match looked {
                Err(error) if error.is_unmounted() || matches!(error, ChannelError::Closed) => {
                    return Err(error);
                }
                summary => summary.unwrap_or_else(|error| {
                    tracing::warn!(error = %error, "cannot read the channels");
                    ScanSummary::default()
                }),
            };
            if is_by_clock && !is_first && summary.ingested > 0 && watcher.relies_on_events() {
                // A poll found files without an event, so the folder may have been remounted. Reopen it.
                return Ok(());
            }
            is_first = false;
        }
        if repair_at <= Instant::now() && repair(channels).await {
            repair_at = Instant::now() + repair_again;
            repair_again = REPAIR_SELDOM;
        }
        if listen <= Instant::now() {
            listen = Instant::now() + PRESENCE_POLL;
            if open_folder(channels).await?.1 != place {
                return Ok(());
            }
            if let Err(error) = channels.report_presence().await {
                tracing::warn!(error = %error, "cannot read the heartbeat files");
            }
            match channels.write_postponed().await {
                Ok(0) => {}
                Ok(written) => tracing::info!(written, "wrote the files of postponed posts"),
                // The sender has already received the error, and the next round retries.
                Err(error) => tracing::debug!(error = %error_chain(&error), "postponed posts still wait"),
            }
        }
        rest.record_round(began);
        let is_settling = summary.settling > 0;
        let most = if is_settling { SETTLE_RECHECK } else { PRESENCE_POLL };
        due = watcher.next(summary.ingested > 0 || is_settling, most).await;
        if due.is_none() && is_settling {
            due = Some(Changes::Named(Vec::new()));
        }
        rest.wait().await;
    }
}

/// Repairs the incomplete work of dead processes; returns false if it has to be retried.
async fn repair(channels: &Channels) -> bool {
    match channels.remove_unfinished().await {
        Ok(0) => {}
        Ok(removed) => tracing::info!(removed, "removed unfinished files"),
        Err(error) => tracing::warn!(error = %error, "cannot remove unfinished files"),
    }
    match channels.repair().await {
        Ok(0) => true,
        Ok(repaired) => {
            tracing::info!(repaired, "wrote the files of posts that were interrupted");
            true
        }
        Err(error) => {
            tracing::warn!(error = %error, "cannot complete interrupted posts");
            false
        }
    }
}
