//! What writers leave that are killed in the middle: files that never got their name.

use jiff::Timestamp;

use crate::channels::Channels;
use crate::error::ChannelError;
use crate::tree::{Tree, archives, blocking};

impl Channels {
    /// Removes the unfinished files of writers that are gone; returns how many.
    pub(crate) async fn remove_unfinished(&self) -> Result<usize, ChannelError> {
        let (tree, now) = (self.tree().clone(), self.hub().now());
        blocking(move || remove_stale_temps(&tree, now)).await
    }
}

fn remove_stale_temps(tree: &Tree, now: Timestamp) -> Result<usize, ChannelError> {
    let mut folders = tree.lease_folders()?;
    folders.push(tree.presence()?);
    for channel in tree.channel_names()? {
        // What is called like a channel and is no folder is none of ours.
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
