//! Databases that came from elsewhere: listed, shown and adopted; side files that were planted beside ours.

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

    /// Where files were moved to that were planted beside the database before this hub was opened.
    pub fn planted_files(&self) -> &[PathBuf] {
        &self.inner.planted
    }

    /// Names the files in a folder that were planted beside its database and moved aside.
    pub async fn planted_side_files(folder: Dir) -> Result<Vec<String>, HubError> {
        blocking(move || side_files::list(&folder)).await
    }

    /// Looks at whose messages a foreign database holds.
    pub async fn describe_foreign(folder: Dir, name: String) -> Result<ForeignDatabase, HubError> {
        blocking(move || adopt::describe(&folder, &name)).await
    }

    /// Binds a foreign database to this user and machine and puts it in place; returns where the one went that was
    /// there meanwhile. A person has to have decided that: from then on its messages are believed.
    pub async fn adopt(folder: Dir, name: String, key: HubKey) -> Result<Option<PathBuf>, HubError> {
        blocking(move || adopt::adopt(&folder, &name, &key)).await
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, HubError> + Send + 'static,
) -> Result<T, HubError> {
    switchboard_sys::blocking::run(work).await.map_err(|_| HubError::Closed)?
}
