//! Archive of old messages: moves them into dated folders inside their channel, where they can still be read.
//!
//! Listing a channel of many thousand files is slow. Nothing is archived automatically, because other programs that
//! share the folder may want to read all of it.

use jiff::{SignedDuration, Timestamp};
use switchboard_core::Name;
use switchboard_sys::files::Moved;

use crate::channels::Channels;
use crate::error::ChannelError;
use crate::ids::{id_of_file, month_of, second_of};
use crate::tree::{blocking, create_archive};

/// Minimum age of a file to be archived, even if its name contains an older time. Readers of the channel need time to
/// see a new file.
const FRESH: SignedDuration = SignedDuration::from_hours(1);

/// Result of archiving a channel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ArchiveSummary {
    /// Number of messages that were moved to the archive.
    pub moved: usize,
    /// Number of old files that stay in place, because they are not ingested or too recent.
    pub skipped: usize,
}

impl Channels {
    /// Moves the messages of a channel that are older than `age` to `archive/YYYY-MM/` in its folder.
    ///
    /// Scans the channel first and skips files that could not be ingested, so that nothing is archived before it was
    /// delivered. The next call completes an interrupted move.
    pub async fn archive(&self, channel: &Name, age: SignedDuration) -> Result<ArchiveSummary, ChannelError> {
        self.check_writable().await?;
        self.scan_channel(channel).await?;
        let (this, channel, now) = (self.clone(), channel.clone(), self.hub().now());
        blocking(move || this.move_old(&channel, now, age)).await
    }

    fn move_old(
        &self,
        channel: &Name,
        now: Timestamp,
        age: SignedDuration,
    ) -> Result<ArchiveSummary, ChannelError> {
        let dir = self.tree().existing_channel(channel)?;
        let is_older = |at: Timestamp, age: SignedDuration| now.duration_since(at) > age;
        let mut archived = ArchiveSummary::default();
        for name in dir.names()? {
            let Some(id) = id_of_file(&name) else { continue };
            // If the name has no time, the file's modification time decides.
            let named = second_of(id);
            if named.is_some_and(|at| !is_older(at, age)) {
                continue;
            }
            let Some(found) = dir.stat(&name)? else { continue };
            let written = Timestamp::from_nanosecond(found.mtime_ns).unwrap_or(now);
            let sent_at = named.unwrap_or(written);
            if !is_older(sent_at, age) {
                continue;
            }
            if !found.is_regular || !is_older(written, FRESH) || !self.is_known(channel, id) {
                archived.skipped += 1;
                continue;
            }
            let month = create_archive(&dir, &month_of(sent_at))?;
            match dir.move_new(&name, &month, &name)? {
                Moved::Moved => archived.moved += 1,
                Moved::AlreadyExists => archived.skipped += 1,
                Moved::SourceMissing => {}
            }
        }
        Ok(archived)
    }
}

#[cfg(test)]
#[path = "archive_tests.rs"]
mod tests;
