//! Baseline: one durable file per message, written with write, fsync, rename and fsync of the directory.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::thread;

use anyhow::anyhow;
use door_workspace::{file_name, to_native};
use switchboard_core::IdClock;

use crate::load::{Load, Round, Template, new_id};

/// Runs one round in an empty folder, with one thread per sender.
pub(crate) fn round(folder: &Path, load: Load) -> anyhow::Result<Round> {
    let (template, directory, window) = (Template::new(), File::open(folder)?, load.window());
    let send = || {
        let (mut round, mut ids) = (Round::default(), IdClock::default());
        while let Some(began) = window.is_open() {
            let id = new_id(&mut ids);
            put(folder, &directory, &file_name(&to_native(id)), &template.with(id))?;
            round.note(window, began);
        }
        anyhow::Ok(round)
    };
    let mut total = Round { length: load.length, ..Round::default() };
    thread::scope(|scope| {
        let senders: Vec<_> = (0..load.senders).map(|_| scope.spawn(send)).collect();
        for sender in senders {
            total.add(sender.join().map_err(|_| anyhow!("a sender panicked"))??);
        }
        anyhow::Ok(())
    })?;
    Ok(total)
}

#[expect(clippy::disallowed_methods, reason = "the baseline is the bare call")]
fn put(folder: &Path, directory: &File, name: &str, bytes: &[u8]) -> anyhow::Result<()> {
    let temp = folder.join(format!(".tmp-{name}"));
    let mut file = OpenOptions::new().write(true).create_new(true).open(&temp)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&temp, folder.join(name))?;
    directory.sync_all()?;
    Ok(())
}
