//! Baseline: what this disk needs to make one page durable.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// A page of SQLite, and of most file systems.
const PAGE: usize = 4096;

/// Overwrites one page and waits for it with fsync, `count` times. The file has its size and its blocks
/// from the start, so this is the least that an fsync of written data costs.
pub(crate) fn overwriting(folder: &Path, count: usize) -> anyhow::Result<Vec<Duration>> {
    measure(&folder.join("page"), count, |_| 0)
}

/// Appends one page and waits for it with fdatasync, `count` times: a log that grows.
pub(crate) fn growing(folder: &Path, count: usize) -> anyhow::Result<Vec<Duration>> {
    measure(&folder.join("log"), count, |number| (1 + number) * PAGE as u64)
}

/// Writes and syncs `count` pages of a new file; `place` says where each goes.
fn measure(path: &Path, count: usize, place: impl Fn(u64) -> u64) -> anyhow::Result<Vec<Duration>> {
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
    file.write_all_at(&[0; PAGE], 0)?;
    file.sync_all()?;
    let mut samples = Vec::with_capacity(count);
    for number in 0..count as u64 {
        let page = [fastrand::u8(..); PAGE];
        let began = Instant::now();
        file.write_all_at(&page, place(number))?;
        file.sync_data()?;
        samples.push(began.elapsed());
    }
    Ok(samples)
}
