//! Runs the door: intake, deliveries, watchers and presence, until shutdown.

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

/// How soon incomplete files are read again.
const SETTLE_RECHECK: Duration = Duration::from_millis(200);

/// Interrupted posts are repaired once after a start, when current posts have had time to finish, and then
/// rarely, for processes that die later.
const REPAIR_SOON: Duration = Duration::from_secs(70);
const REPAIR_SELDOM: Duration = Duration::from_mins(10);

/// How often the heartbeat files are read.
const PRESENCE_POLL: Duration = Duration::from_secs(10);

/// How often an unmounted folder is checked: the protocol's two seconds.
const MOUNT_POLL: Duration = Duration::from_secs(2);

/// Most deliveries per batch.
const BATCH: usize = 64;

/// Runs the channels door until `shutdown`: intake, deliveries and the configured watchers. Waits for the
/// folder while it is not mounted.
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

/// Opens the channels below a writable root.
async fn open_writable(config: &Config, hub: &Hub) -> Result<Channels, ChannelError> {
    let channels = Channels::open(config.clone(), hub.clone()).await?;
    channels.check_writable().await?;
    Ok(channels)
}

/// Returns all handoffs to the outbox for a retry, until the hub shuts down.
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

/// Like [`run`], for channels that are open.
pub async fn run_channels(
    channels: Channels,
    outbound: Outbound,
    shutdown: CancellationToken,
) -> Result<(), ChannelError> {
    // Registered before the first scan, so that messages from while they were down are theirs.
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
            // The deliveries end on shutdown.
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
    // The watchers end by the same token and write their offline heartbeat before this returns.
    let ((), result) = tokio::join!(watchers, work);
    result
}

/// Runs the intake while the hub is open. Waits for the folder while it is unmounted.
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

/// Opens the folder of all channels and returns it with its device and inode. It is not held open, which
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

/// Ingests until the folder is replaced or its events stop.
async fn ingest_while_mounted(channels: &Channels) -> Result<(), ChannelError> {
    // Watch first, then scan: a change between the two is seen twice, not missed.
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
                // These files had no event: the folder may have been remounted.
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
                // Its sender has the error, and the next round retries.
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

/// Repairs what dead processes left incomplete; returns false if it has to be retried.
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
