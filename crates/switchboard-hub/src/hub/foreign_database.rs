//! Foreign databases: lists, describes and adopts them.

use std::path::PathBuf;

use switchboard_sys::files::Dir;

use crate::error::HubError;
use crate::store::adopt::{self, ForeignDatabase};
use crate::store::binding::HubKey;

impl ForeignDatabase {
    /// Lists the names of foreign databases in a folder.
    ///
    /// They are not bound to this user and machine.
    pub async fn list(folder: Dir, key: HubKey) -> Result<Vec<String>, HubError> {
        blocking(move || adopt::list(&folder, Some(&key))).await
    }

    /// Describes a foreign database by the senders of its messages.
    pub async fn describe(folder: Dir, name: String) -> Result<Self, HubError> {
        blocking(move || adopt::describe(&folder, &name)).await
    }

    /// Adopts a foreign database: binds it to this user and machine and puts it in place.
    ///
    /// Returns the path to which the previous database was moved. Adoption requires a person's decision, because the
    /// messages in the database are trusted from then on.
    pub async fn adopt(folder: Dir, name: String, key: HubKey) -> Result<Option<PathBuf>, HubError> {
        blocking(move || adopt::adopt(&folder, &name, &key)).await
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, HubError> + Send + 'static,
) -> Result<T, HubError> {
    switchboard_sys::blocking::run(work).await.map_err(|_| HubError::Closed)?
}
