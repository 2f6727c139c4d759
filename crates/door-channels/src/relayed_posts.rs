//! Relayed posts: writes posts of linked hubs that are addressed to one agent into their channel.
//!
//! A message to a channel is delivered into the channel. A message to one agent is delivered only to that agent. This
//! module also shows such a message in the channel, as on the hub where it was posted.

use std::convert::Infallible;
use std::time::Duration;

use switchboard_core::{Door, Name, error_chain};
use switchboard_hub::Stored;

use crate::channels::Channels;
use crate::error::ChannelError;

/// Number of journal entries per read.
const PAGE: usize = 1000;

/// Note topic of this module's cursor in the journal.
const TOPIC: &str = "brought";
const CURSOR: &str = "cursor";

/// Retry delay after a file error, and while another hub is about to write the file.
const PAUSE: Duration = Duration::from_millis(500);

/// Writes relayed posts into their channels until the hub closes.
pub(crate) async fn run(channels: &Channels) -> Result<Infallible, ChannelError> {
    let hub = channels.hub();
    let mut changes = hub.changes();
    let mut after = cursor(channels).await?;
    let mut noted = after;
    loop {
        let page = hub.relay().posts(after, PAGE).await?;
        for post in &page.posts {
            write_with_retry(channels, post).await?;
        }
        after = page.until;
        // The cursor is saved only occasionally: a post that is processed again after a restart already has its file.
        if !page.posts.is_empty() || usize::try_from(after - noted).is_ok_and(|since| since >= PAGE) {
            hub.notes(Door::Channels).put(TOPIC, CURSOR.to_owned(), Some(after.to_string())).await?;
            noted = after;
        }
        if !page.more {
            changes.next().await;
        }
    }
}

async fn cursor(channels: &Channels) -> Result<i64, ChannelError> {
    let notes = channels.hub().notes(Door::Channels).all(TOPIC).await?;
    let noted = notes.iter().find(|(key, _)| key == CURSOR);
    Ok(noted.and_then(|(_, cursor)| cursor.parse().ok()).unwrap_or(0))
}

/// Writes a post into its channel. Retries while the folder is not writable, because later posts need the same folder.
async fn write_with_retry(channels: &Channels, post: &Stored) -> Result<(), ChannelError> {
    let mut is_told = false;
    loop {
        match write_file(channels, post).await {
            Err(ChannelError::FilePending { .. }) => {}
            Err(error) if error.is_unmounted() || matches!(error, ChannelError::File(_)) => {
                if !is_told {
                    let (id, error) = (post.message.id, error_chain(&error));
                    tracing::warn!(message = %id, error, "cannot write a post of another hub into its channel");
                }
                is_told = true;
            }
            done => return done,
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn write_file(channels: &Channels, post: &Stored) -> Result<(), ChannelError> {
    match post.message.posted_in() {
        Some(channel) if is_read_here(channels, &channel).await? => {
            channels.write_file(&post.message, post.seq, &channel).await
        }
        _ => Ok(()),
    }
}

/// Returns true if an agent of this hub reads the channel. Relayed posts are written only to such channels.
async fn is_read_here(channels: &Channels, channel: &Name) -> Result<bool, ChannelError> {
    let directory = channels.hub().directory().await?;
    Ok(directory.channel(channel).any(|reader| reader.id.realm.is_none()))
}

#[cfg(test)]
#[path = "relayed_posts_tests.rs"]
mod tests;
