//! The waiting reader: a separate process that writes a byte for each message that arrives.

use std::io::{Read, Write};
use std::path::Path;
use std::thread;

use door_workspace::{Config, Workspace};
use switchboard_core::AgentId;
use switchboard_hub::{MailboxQuery, Part};
use tokio_util::sync::CancellationToken;

use crate::load::READER;

/// Byte that is written once, as soon as every later message will be noticed.
pub(crate) const READY: u8 = b'r';

/// Request byte that the reader echoes.
pub(crate) const ECHO: u8 = b'e';

/// Byte that is written for each message.
pub(crate) const MAIL: u8 = b'm';

/// Waits for messages in this workspace until stdin is closed, and writes a byte for each.
pub(crate) async fn run(folder: &Path) -> anyhow::Result<()> {
    let workspace = Workspace::open(folder, Config::default(), |_| {}).await?;
    let (hub, agent) = (workspace.hub(), READER.parse::<AgentId>()?);
    let mut changes = hub.changes();
    let (mut after, mut is_ready) = (0, false);
    let closed = CancellationToken::new();
    let over = closed.clone();
    thread::spawn(move || echo(&over));
    loop {
        let query = MailboxQuery { agent: agent.clone(), after, limit: 20, part: Part::Unseen };
        for mail in hub.mailboxes().page(query).await?.items {
            after = mail.stored.seq;
            write_byte(MAIL)?;
        }
        if !is_ready {
            write_byte(READY)?;
            is_ready = true;
        }
        if closed.run_until_cancelled(changes.next()).await.is_none() {
            break;
        }
    }
    workspace.close().await;
    Ok(())
}

/// Echoes each byte of stdin, and cancels `over` when stdin ends.
fn echo(over: &CancellationToken) {
    let (mut stdin, mut byte) = (std::io::stdin(), [0]);
    while stdin.read_exact(&mut byte).and_then(|()| write_byte(byte[0])).is_ok() {}
    over.cancel();
}

fn write_byte(byte: u8) -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(&[byte])?;
    stdout.flush()
}
