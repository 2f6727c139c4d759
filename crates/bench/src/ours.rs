//! The measured system: a workspace whose door runs in this process, as in `switchboard serve`.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use door_workspace::{Config, OutgoingMessage, Section, Tree, Workspace};
use switchboard_core::{AgentId, Door, Kind, Name};
use switchboard_hub::Registration;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::load::{Load, READER, Round, body, sender};

/// Workspace whose door is running.
pub(crate) struct Serving {
    pub(crate) workspace: Workspace,
    door: JoinHandle<()>,
    stop: CancellationToken,
}

/// Parts of the door that run during a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DoorPart {
    /// The whole door, including the intake of files that other programs drop into mailboxes.
    Everything,
    /// Only deliveries, as in `switchboard send`.
    Deliveries,
    /// No part of the door, as if another process delivered. Sent messages stay in the journal.
    Nothing,
}

/// Result of a round with deliveries.
pub(crate) struct Sent {
    pub(crate) round: Round,
    /// Time from the first send until the last message was in the mailbox and recorded as delivered.
    pub(crate) until_delivered: Duration,
}

impl Serving {
    /// Creates a workspace in this folder, with one registered reader.
    pub(crate) async fn create(folder: &Path, at: DoorPart) -> anyhow::Result<Self> {
        Tree::create(folder)?;
        let key = crate::binding::own_key()?;
        let workspace = Workspace::open(folder, Config::default(), |hub| hub.key = Some(key)).await?;
        workspace.register(Registration::mailbox(Name::parse(READER)?)).await?;
        let outbound = match at {
            DoorPart::Nothing => None,
            DoorPart::Everything | DoorPart::Deliveries => {
                Some(workspace.hub().deliveries().open_door(Door::Workspace).await?)
            }
        };
        let (stop, working) = (CancellationToken::new(), workspace.clone());
        let stopped = stop.clone();
        let door = tokio::spawn(async move {
            match (outbound, at) {
                // If an error ends the door, the count of delivered messages reveals it.
                (Some(outbound), DoorPart::Everything) => {
                    drop(door_workspace::run(working, outbound, stopped).await);
                }
                (Some(outbound), _) => door_workspace::run_deliveries(&working, outbound, stopped).await,
                (None, _) => {}
            }
        });
        Ok(Self { workspace, door, stop })
    }

    /// Waits until the mailbox has this many messages, each recorded as delivered and present as a file.
    pub(crate) async fn delivered(&self, count: usize) -> anyhow::Result<()> {
        let (hub, reader) = (self.workspace.hub(), READER.parse::<AgentId>()?);
        let mut last = (0, Instant::now());
        loop {
            let delivered = hub.mailboxes().unread(reader.clone(), count + 1).await?;
            if delivered >= count {
                return Ok(());
            }
            if delivered > last.0 {
                last = (delivered, Instant::now());
            }
            let stuck = last.1.elapsed() > Duration::from_secs(20);
            ensure!(!stuck, "only {delivered} of {count} messages were delivered");
            // A check at every change would take part of the measured time.
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn drive(&self, load: Load) -> anyhow::Result<Round> {
        let (workspace, body) = (self.workspace.clone(), body());
        load.drive(move |number| {
            let (workspace, body) = (workspace.clone(), body.clone());
            async move { send(&workspace, number, body).await }
        })
        .await
    }

    /// Returns the number of files in the mailbox.
    pub(crate) fn files(&self) -> anyhow::Result<usize> {
        let mailbox = self.workspace.tree().folder(Section::Inbox, READER)?;
        let names = mailbox.context("the mailbox is missing")?.names()?;
        Ok(names.iter().filter(|name| name.starts_with("msg_")).count())
    }

    /// Stops the door and closes the workspace.
    pub(crate) async fn close(self) -> anyhow::Result<()> {
        self.stop.cancel();
        self.door.await?;
        self.workspace.close().await;
        Ok(())
    }
}

/// Runs one round in an empty folder, with the whole door running.
pub(crate) async fn serving_round(folder: &Path, load: Load) -> anyhow::Result<Sent> {
    let serving = Serving::create(folder, DoorPart::Everything).await?;
    let began = Instant::now();
    let round = serving.drive(load).await?;
    serving.delivered(round.all).await?;
    let until_delivered = began.elapsed();
    let files = serving.files()?;
    ensure!(files == round.all, "{files} files for {} messages", round.all);
    serving.close().await?;
    Ok(Sent { round, until_delivered })
}

/// Runs one round in an empty folder, in which messages only reach the journal.
pub(crate) async fn journal_round(folder: &Path, load: Load) -> anyhow::Result<Round> {
    let serving = Serving::create(folder, DoorPart::Nothing).await?;
    let round = serving.drive(load).await?;
    let health = serving.workspace.hub().database().health().await?;
    ensure!(health.messages == round.all as u64, "{} of {} messages", health.messages, round.all);
    serving.close().await?;
    Ok(round)
}

/// Sends one message and waits until it is accepted.
pub(crate) async fn send(workspace: &Workspace, number: usize, body: String) -> anyhow::Result<()> {
    let (from, to) = (sender(number).parse::<AgentId>()?, READER.parse::<AgentId>()?);
    workspace.send(OutgoingMessage::new(from, to.into(), Kind::status_update(), body)).await?;
    Ok(())
}

/// Creates a workspace with `count` waiting messages and closes the workspace.
pub(crate) async fn fill(folder: &Path, count: usize) -> anyhow::Result<()> {
    /// Number of concurrent senders, large enough that they share each wait for the disk.
    const SENDERS: usize = 64;
    let serving = Serving::create(folder, DoorPart::Deliveries).await?;
    let mut senders = tokio::task::JoinSet::new();
    for number in 0..SENDERS {
        let (workspace, body) = (serving.workspace.clone(), body());
        let share = count / SENDERS + usize::from(number < count % SENDERS);
        senders.spawn(async move {
            for _ in 0..share {
                send(&workspace, number, body.clone()).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(sent) = senders.join_next().await {
        sent??;
    }
    serving.delivered(count).await?;
    serving.close().await
}
