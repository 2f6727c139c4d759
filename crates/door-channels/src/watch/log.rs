//! Log file of a watcher, `logs/{agent}-watcher.log`.

use jiff::Timestamp;
use switchboard_core::{Name, error_chain};

use crate::tree::{Tree, blocking};
use crate::wire::iso;

/// Log size at which the older half is dropped.
const LONGEST: u64 = 1 << 20;

/// Appends a line to the log. An error is reported, but does not stop the watcher.
pub(super) async fn write(tree: &Tree, agent: &Name, now: Timestamp, line: &str) {
    let line: String = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let (tree, name) = (tree.clone(), format!("{agent}-watcher.log"));
    let line = format!("{} {line}\n", iso(now));
    let written = blocking(move || {
        let logs = tree.logs()?;
        if logs.stat(&name)?.is_some_and(|log| log.len > LONGEST)
            && let Some(log) = logs.read(&name, LONGEST * 2).ok().flatten()
        {
            let half = log.bytes.len() / 2;
            let cut =
                log.bytes[half..].iter().position(|byte| *byte == b'\n').map_or(half, |at| half + at + 1);
            logs.replace(&name, &log.bytes[cut..], 0o600)?;
        }
        logs.append(&name, line.as_bytes())?;
        Ok(())
    });
    if let Err(error) = written.await
        && !error.is_unmounted()
    {
        tracing::warn!(%agent, error = %error_chain(&error), "cannot write the watcher's log");
    }
}
