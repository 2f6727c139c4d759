//! Fills hubs with a given number of messages.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use door_workspace::{OutgoingMessage, Workspace};
use switchboard_core::{AgentId, Kind, Name};
use switchboard_hub::{MailboxQuery, Part, Registration};
use switchboard_sys::files::{Dir, Durability};

use crate::load::sender;
use crate::ours::{DoorPart, Serving};

/// Number of mailboxes over which the messages are spread.
pub(super) const READERS: usize = 10;

/// Number of concurrent senders, large enough that they share each wait for the disk.
const SENDERS: usize = 64;

/// Text length of a message, in bytes.
const TEXT: usize = 320;

/// Returns the name of the reader with this number.
pub(super) fn reader(number: usize) -> String {
    format!("reader-{number}")
}

/// Creates a workspace with its readers and closes the workspace.
pub(super) async fn prepare(folder: &Path) -> anyhow::Result<()> {
    // No agent reads the messages here. Otherwise, every process would notify the senders, 1,000 messages at a time up
    // to the end of the journal, which takes many minutes in the large hub.
    let settings = serde_json::json!({ "hub": { "unseenSeconds": 0 } }).to_string();
    let root = Dir::open_root(folder)?;
    root.create_new("switchboard.config.json", settings.as_bytes(), Durability::Unsynced)?;
    let serving = Serving::create(folder, DoorPart::Nothing).await?;
    for number in 0..READERS {
        serving.workspace.register(Registration::mailbox(Name::parse(&reader(number))?)).await?;
    }
    serving.close().await
}

/// Adds `count` unread messages, indexed and with their files, and closes the workspace.
pub(super) async fn fill(folder: &Path, count: usize) -> anyhow::Result<()> {
    let serving = Serving::create(folder, DoorPart::Deliveries).await?;
    let mut senders = tokio::task::JoinSet::new();
    for number in 0..SENDERS {
        let workspace = serving.workspace.clone();
        senders.spawn(async move {
            for at in (number..count).step_by(SENDERS) {
                send(&workspace, at).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(sent) = senders.join_next().await {
        sent??;
    }
    let hub = serving.workspace.hub();
    loop {
        let mut delivered = 0;
        for number in 0..READERS {
            delivered += hub.mailboxes().unread(reader(number).parse()?, usize::MAX).await?;
        }
        if delivered >= count {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    // A search for a word that no message contains updates the index for all messages.
    hub.journal().search("nowhere", None, 1).await?;
    serving.close().await
}

async fn send(workspace: &Workspace, number: usize) -> anyhow::Result<()> {
    let (from, to) =
        (sender(number % READERS).parse::<AgentId>()?, reader(number % READERS).parse::<AgentId>()?);
    let mut text = format!("unique{number} ");
    text.extend("The quick brown fox jumps over the lazy dog. ".chars().cycle().take(TEXT - text.len()));
    workspace.send(OutgoingMessage::new(from, to.into(), Kind::status_update(), text)).await?;
    Ok(())
}

/// Number and size of the files in some folders.
#[derive(Debug, Default)]
pub(super) struct Held {
    pub(super) files: u64,
    /// Allocated size in bytes, which is a multiple of the block size.
    pub(super) bytes: u64,
}

/// Counts the files in the subfolders of these folders and adds up their allocated sizes.
pub(super) fn held_in(folders: &[&Path]) -> anyhow::Result<Held> {
    let mut held = Held::default();
    for folder in folders {
        for entry in std::fs::read_dir(folder)? {
            for file in std::fs::read_dir(entry?.path())? {
                held.files += 1;
                held.bytes += file?.metadata()?.blocks() * 512;
            }
        }
    }
    Ok(held)
}

/// Acknowledges all messages and removes them from the journal.
///
/// Returns the size of the database before and after, in MiB.
pub(super) async fn retire(folder: &Path) -> anyhow::Result<[f64; 2]> {
    const PAGE: usize = 1000;
    let size = || -> anyhow::Result<f64> {
        let bytes = std::fs::metadata(folder.join(".switchboard/hub.db"))?.len();
        #[expect(clippy::cast_precision_loss, reason = "sizes far below 2^52")]
        let mebibytes = bytes as f64 / f64::from(1 << 20);
        Ok(mebibytes)
    };
    let before = size()?;
    let serving = Serving::create(folder, DoorPart::Nothing).await?;
    let hub = serving.workspace.hub().clone();
    for number in 0..READERS {
        let agent: AgentId = reader(number).parse()?;
        loop {
            let query = MailboxQuery { agent: agent.clone(), after: 0, limit: PAGE, part: Part::Waiting };
            let page = hub.mailboxes().page(query).await?;
            if page.items.is_empty() {
                break;
            }
            let mut acknowledging = tokio::task::JoinSet::new();
            for mail in page.items {
                let (hub, agent) = (hub.clone(), agent.clone());
                acknowledging.spawn(async move {
                    hub.mailboxes().acknowledge(agent, mail.stored.message.id, None).await
                });
            }
            while let Some(acknowledged) = acknowledging.join_next().await {
                acknowledged??;
            }
        }
    }
    hub.journal().prune(hub.now()).await?;
    while hub.database().shrink().await? {}
    serving.close().await?;
    let connection = rusqlite::Connection::open(folder.join(".switchboard/hub.db"))?;
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    drop(connection);
    Ok([before, size()?])
}
