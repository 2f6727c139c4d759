//! Foreign databases: listed, described and adopted.

use std::path::PathBuf;

use switchboard_sys::files::Dir;

use crate::error::HubError;
use crate::store::adopt::{self, ForeignDatabase};
use crate::store::binding::HubKey;

impl ForeignDatabase {
    /// Names the databases in a folder that are not bound to this user and machine.
    pub async fn list(folder: Dir, key: HubKey) -> Result<Vec<String>, HubError> {
        blocking(move || adopt::list(&folder, Some(&key))).await
    }

    /// Describes a foreign database by the senders of its messages.
    pub async fn describe(folder: Dir, name: String) -> Result<Self, HubError> {
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
