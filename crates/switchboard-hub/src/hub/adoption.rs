//! Foreign databases: listed, described and adopted; and side files that were planted beside ours.

use std::path::PathBuf;

use switchboard_sys::files::Dir;

use super::Hub;
use crate::error::HubError;
use crate::store::adopt::{self, ForeignDatabase};
use crate::store::binding::HubKey;
use crate::store::side_files;

impl Hub {
    /// Names the databases in a folder that are not bound to this user and machine.
    pub async fn foreign_databases(folder: Dir, key: HubKey) -> Result<Vec<String>, HubError> {
        blocking(move || adopt::list(&folder, Some(&key))).await
    }

    /// Paths that planted side files were moved to before this hub was opened.
    pub fn planted_files(&self) -> &[PathBuf] {
        &self.inner.planted
    }

    /// Names the planted side files in a folder that were moved aside.
    pub async fn planted_side_files(folder: Dir) -> Result<Vec<String>, HubError> {
        blocking(move || side_files::list(&folder)).await
    }

    /// Describes a foreign database by the senders of its messages.
    pub async fn describe_foreign(folder: Dir, name: String) -> Result<ForeignDatabase, HubError> {
        blocking(move || adopt::describe(&folder, &name)).await
    }

    /// Binds a foreign database to this user and machine and puts it in place; returns the path that the
    /// previous one was moved to. Requires a person's decision: from then on its messages are trusted.
    pub async fn adopt(folder: Dir, name: String, key: HubKey) -> Result<Option<PathBuf>, HubError> {
        blocking(move || adopt::adopt(&folder, &name, &key)).await
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, HubError> + Send + 'static,
) -> Result<T, HubError> {
    switchboard_sys::blocking::run(work).await.map_err(|_| HubError::Closed)?
}
