//! Baseline: what this disk needs to make one page durable.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// A page of SQLite, and of most file systems.
const PAGE: usize = 4096;

/// Overwrites one page and waits for it with fsync, `count` times. The file has its size and its blocks
/// from the start, so this is the least that an fsync of written data costs.
pub(crate) fn samples(folder: &Path, count: usize) -> anyhow::Result<Vec<Duration>> {
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(folder.join("page"))?;
    file.write_all_at(&[0; PAGE], 0)?;
    file.sync_all()?;
    let mut samples = Vec::with_capacity(count);
    for _ in 0..count {
        let page = [fastrand::u8(..); PAGE];
        let began = Instant::now();
        file.write_all_at(&page, 0)?;
        file.sync_all()?;
        samples.push(began.elapsed());
    }
    Ok(samples)
}
