//! Baseline: bare group commit, with one SQLite table and one writer thread.
//!
//! The settings and the queue are those of the hub, so the difference is the hub's work beyond storing bytes.

use std::path::Path;
use std::thread;

use anyhow::anyhow;
use rusqlite::{Connection, TransactionBehavior, params};
use std::sync::{Arc, Mutex, PoisonError};
use switchboard_core::{IdClock, MessageId};
use tokio::sync::{mpsc, oneshot};

use crate::load::{Load, Round, Template, new_id};

/// Queue capacity, the same as in the hub; when the queue is full, senders wait.
const QUEUE: usize = 1024;

/// Maximum number of messages per commit, more than there are senders.
///
/// All waiting senders therefore share the next commit, which is optimal without other work.
const BATCH: usize = 256;

/// Message to store, with the channel for the reply to its sender.
struct Insert {
    id: MessageId,
    bytes: Vec<u8>,
    reply: oneshot::Sender<()>,
}

/// Runs one round in an empty folder.
pub(crate) async fn round(folder: &Path, load: Load) -> anyhow::Result<Round> {
    let connection = open(&folder.join("baseline.db"))?;
    let (queue, jobs) = mpsc::channel(QUEUE);
    let writer =
        thread::Builder::new().name("baseline-sqlite".into()).spawn(move || run(connection, jobs))?;
    let (template, ids) = (Template::new(), Arc::new(Mutex::new(IdClock::default())));
    let send = move |_| {
        let id = new_id(&mut ids.lock().unwrap_or_else(PoisonError::into_inner));
        let (bytes, queue) = (template.with(id), queue.clone());
        async move {
            let (reply, answer) = oneshot::channel();
            queue.send(Insert { id, bytes, reply }).await.map_err(|_| anyhow!("the writer has ended"))?;
            Ok(answer.await?)
        }
    };
    let round = load.drive(send).await?;
    writer.join().map_err(|_| anyhow!("the writer panicked"))??;
    Ok(round)
}

fn open(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    connection.pragma_update(None, "cell_size_check", true)?;
    connection.pragma_update(None, "cache_size", -16_384)?;
    connection.execute_batch(
        "CREATE TABLE messages (seq INTEGER PRIMARY KEY, id BLOB NOT NULL UNIQUE, body BLOB NOT NULL)",
    )?;
    Ok(connection)
}

/// Commits batches of messages until the last sender has ended.
fn run(mut connection: Connection, mut jobs: mpsc::Receiver<Insert>) -> rusqlite::Result<()> {
    while let Some(first) = jobs.blocking_recv() {
        let mut batch = vec![first];
        while batch.len() < BATCH
            && let Ok(next) = jobs.try_recv()
        {
            batch.push(next);
        }
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        for job in &batch {
            transaction
                .prepare_cached("INSERT INTO messages (id, body) VALUES (?1, ?2)")?
                .execute(params![job.id.as_bytes(), job.bytes])?;
        }
        transaction.commit()?;
        for job in batch {
            // A sender that has already ended needs no reply.
            let _ = job.reply.send(());
        }
    }
    Ok(())
}
