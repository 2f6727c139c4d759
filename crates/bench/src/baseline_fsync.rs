//! Baseline: the time that this disk takes to make one page durable.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Page size of SQLite, and of most file systems.
const PAGE: usize = 4096;

/// Overwrites one page `count` times, with an fsync after each write; returns the durations.
///
/// The file is allocated in advance, so this is the minimum cost of an fsync of written data.
pub(crate) fn overwriting(folder: &Path, count: usize) -> anyhow::Result<Vec<Duration>> {
    measure(&folder.join("page"), count, |_| 0)
}

/// Appends one page `count` times, with an fdatasync after each, like a growing log; returns the durations.
pub(crate) fn growing(folder: &Path, count: usize) -> anyhow::Result<Vec<Duration>> {
    measure(&folder.join("log"), count, |number| (1 + number) * PAGE as u64)
}

/// Writes and syncs `count` pages of a new file; `place` returns the offset of each page.
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
