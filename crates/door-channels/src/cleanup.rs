//! Cleanup of temporary files whose writers were killed.

use jiff::Timestamp;

use crate::channels::Channels;
use crate::error::ChannelError;
use crate::tree::{Tree, archives, blocking};

impl Channels {
    /// Removes temporary files of writers that have ended; returns their number.
    pub(crate) async fn remove_unfinished(&self) -> Result<usize, ChannelError> {
        let (tree, now) = (self.tree().clone(), self.hub().now());
        blocking(move || remove_stale_temps(&tree, now)).await
    }
}

fn remove_stale_temps(tree: &Tree, now: Timestamp) -> Result<usize, ChannelError> {
    let mut folders = tree.lease_folders()?;
    folders.push(tree.presence()?);
    for channel in tree.channel_names()? {
        // A plain file that has the name of a channel is ignored.
        if let Ok(Some(channel)) = tree.channel(&channel) {
            folders.extend(archives(&channel)?);
            folders.push(channel);
        }
    }
    let mut cleared = 0;
    for folder in folders {
        cleared += folder.clear_stale_temps(now)?;
    }
    Ok(cleared)
}

#[cfg(test)]
#[path = "cleanup_tests.rs"]
mod tests;
