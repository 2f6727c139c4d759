//! Directory reads through the in-process cache.

use std::sync::Arc;

use parking_lot::Mutex;
use rusqlite::Connection;
use switchboard_core::Directory;

use super::Hub;
use crate::error::HubError;
use crate::store::writer::CachedDirectory;

/// Reads the directory through the cache.
///
/// The lock is never held during the database read, so no thread waits for it.
pub(super) fn read_directory(
    cached: &Mutex<CachedDirectory>,
    db: &Connection,
) -> Result<Arc<Directory>, HubError> {
    let mut known = cached.lock().clone();
    if known.refresh(db)? {
        *cached.lock() = known.clone();
    }
    Ok(known.value)
}

impl Hub {
    /// Returns the current directory.
    pub async fn directory(&self) -> Result<Arc<Directory>, HubError> {
        if let Some(directory) = self.try_read(&|db| read_directory(&self.inner.directory, db)) {
            return Ok(directory);
        }
        let hub = self.clone();
        self.read(move |db| read_directory(&hub.inner.directory, db)).await
    }

    /// Returns the current directory; may be called only on a thread that may block.
    pub fn directory_blocking(&self) -> Result<Arc<Directory>, HubError> {
        self.read_blocking(|db| read_directory(&self.inner.directory, db))
    }
}
