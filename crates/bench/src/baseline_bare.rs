//! Baseline: the two files of a delivery (message and receipt), created by two threads without other work.

use std::path::Path;
use std::thread;

use anyhow::anyhow;
use door_workspace::{file_name, to_native};
use switchboard_core::IdClock;
use switchboard_sys::files::{Dir, Durability};

use crate::load::{Load, Round, Template, new_id};

/// Number of threads that create files: one per core of the machine on which the targets were set.
const THREADS: usize = 2;

/// Size of a receipt in bytes.
const RECEIPT: usize = 320;

/// Runs one round in an empty folder. Each counted operation is a message and its receipt.
pub(crate) fn round(folder: &Path, load: Load) -> anyhow::Result<Round> {
    let root = Dir::open_root(folder)?;
    let (mailbox, receipts) = (root.ensure_subdir("inbox")?, root.ensure_subdir("outbox")?);
    let (template, receipt, window) = (Template::new(), [b' '; RECEIPT], load.window());
    let deliver = || {
        let (mut round, mut ids) = (Round::default(), IdClock::default());
        while let Some(began) = window.is_open() {
            let id = new_id(&mut ids);
            let name = file_name(&to_native(id));
            mailbox.create_new_from(&root, &name, &template.with(id), Durability::Unsynced)?;
            receipts.create_new_from(&root, &name, &receipt, Durability::Unsynced)?;
            round.note(window, began);
        }
        anyhow::Ok(round)
    };
    let mut total = Round { length: load.length, ..Round::default() };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(deliver)).collect();
        for thread in threads {
            total.add(thread.join().map_err(|_| anyhow!("a thread panicked"))??);
        }
        anyhow::Ok(())
    })?;
    Ok(total)
}
