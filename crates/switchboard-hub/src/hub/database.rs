//! Access to the database file: its health, its recovery, and files that were moved aside.

use std::path::PathBuf;

use switchboard_sys::blocking;
use switchboard_sys::disk::{self, DiskFault};
use switchboard_sys::files::Dir;

use super::Hub;
use crate::error::HubError;
use crate::journal::extent::Extent;
use crate::journal::maintenance;
use crate::store::binding::HubKey;
use crate::store::recover::{self, DatabaseState};
use crate::store::side_files;

/// Access to the database file: its health, its recovery, and files that were moved aside.
#[derive(Clone, Copy)]
pub struct Database<'h> {
    pub(super) hub: &'h Hub,
}

impl<'h> Database<'h> {
    /// Checks the database in a folder without opening the hub. Changes nothing.
    pub async fn check(folder: Dir, key: Option<HubKey>, extent: Extent) -> Result<DatabaseState, HubError> {
        let check = move || recover::check(&folder, key.as_ref(), extent);
        blocking::run(check).await.map_err(|_| HubError::Closed)?
    }

    /// Marks the database as suspect.
    ///
    /// The next process that opens the hub checks it as closely as [`Database::check`] does, and moves a damaged
    /// database aside.
    pub fn mark_suspect(folder: &Dir) {
        recover::mark_suspect(folder);
    }

    /// Checks the whole database. The check takes time in proportion to the database's size.
    pub async fn health(self) -> Result<maintenance::Health, HubError> {
        self.health_of(Extent::Everything).await
    }

    /// Checks a part of the journal.
    ///
    /// If that is the whole journal, checks the database as a whole too.
    pub async fn health_of(self, extent: Extent) -> Result<maintenance::Health, HubError> {
        self.hub.read(move |db| maintenance::health(db, extent.after(db)?)).await
    }

    /// Returns true if a check of this extent covers the whole journal.
    pub async fn is_covered_by(self, extent: Extent) -> Result<bool, HubError> {
        self.hub.read(move |db| Ok(extent.after(db)? == 0)).await
    }

    /// Returns a bounded number of free pages to the file system.
    ///
    /// Returns true if free pages are left.
    pub async fn shrink(self) -> Result<bool, HubError> {
        /// Maximum number of pages that one transaction moves: 2 MiB, which takes some 10 ms.
        const STEP: i64 = 512;
        if !self.hub.read(maintenance::has_free_pages).await? {
            return Ok(false);
        }
        self.hub.write(|tx| maintenance::shrink(tx, STEP)).await
    }

    /// Returns the path to which a damaged database was moved when this hub was opened.
    pub fn moved_aside(self) -> Option<&'h PathBuf> {
        self.hub.inner.moved_aside.as_ref()
    }

    /// Returns the path to which a foreign database was quarantined when this hub was opened.
    pub fn quarantined(self) -> Option<&'h PathBuf> {
        self.hub.inner.quarantined.as_ref()
    }

    /// Returns the paths to which planted side files were moved before this hub was opened.
    pub fn planted_files(self) -> &'h [PathBuf] {
        &self.hub.inner.planted
    }

    /// Lists the names of planted side files in a folder that were moved aside.
    pub async fn planted_side_files(folder: Dir) -> Result<Vec<String>, HubError> {
        let list = move || side_files::list(&folder);
        blocking::run(list).await.map_err(|_| HubError::Closed)?
    }

    /// Returns why the store cannot be written now, or `None` if it can. Reads work in both cases.
    pub fn disk_trouble(self) -> Option<DiskFault> {
        disk::probe(&self.hub.inner.folder)
    }

    /// Returns true once after each recovery of the store, so that doors read their files back.
    pub fn consume_recovery(self) -> bool {
        self.hub.inner.store.consume_recovery()
    }

    /// Waits for a recovery of the store, after which [`Database::consume_recovery`] returns true.
    pub async fn wait_for_recovery(self) {
        self.hub.inner.store.wait_for_recovery().await;
    }

    /// Returns true while agents may be missing after a recovery of the store.
    pub fn is_rebuilding(self) -> bool {
        self.hub.inner.store.is_rebuilding()
    }

    /// Returns true if the database is new, so that doors should read their files back.
    pub async fn needs_rebuild(self) -> Result<bool, HubError> {
        self.hub.read(|db| maintenance::rebuilt(db).map(|rebuilt| !rebuilt)).await
    }

    /// Records that the doors have read their files back.
    pub async fn mark_rebuilt(self) -> Result<(), HubError> {
        self.hub.write(maintenance::set_rebuilt).await?;
        self.hub.inner.store.end_rebuild();
        Ok(())
    }
}
