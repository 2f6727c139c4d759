//! Old messages out of the way: moved to dated folders inside their channel, where they can still be read.
//!
//! A channel of many thousand files takes time to list. Nothing moves by itself: other programs that share the
//! folder may want to read it all.

use jiff::{SignedDuration, Timestamp};
use switchboard_core::Name;
use switchboard_sys::files::Moved;

use crate::channels::Channels;
use crate::error::ChannelError;
use crate::ids::{id_of_file, month_of, second_of};
use crate::tree::{blocking, create_archive};

/// A file that was written less than this ago stays, however old its name: whoever reads the channel has to have
/// had the time to see it.
const FRESH: SignedDuration = SignedDuration::from_hours(1);

/// What was moved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ArchiveSummary {
    /// Messages that are in the archive now and were not before.
    pub moved: usize,
    /// Old files that stay where they are: they could not be taken in, or came a moment ago.
    pub skipped: usize,
}

impl Channels {
    /// Moves the messages of a channel that are older than `age` to `archive/YYYY-MM/` in its folder.
    ///
    /// What the journal does not have is taken in first, and what cannot be taken in stays: nothing disappears
    /// before it was delivered. A move that was interrupted is ended by the next one.
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
            // A name without a time tells nothing about its age, and the file itself does.
            let named = second_of(id);
            if named.is_some_and(|at| !is_older(at, age)) {
                continue;
            }
            let Some(found) = dir.stat(&name)? else { continue };
            let written = Timestamp::from_nanosecond(found.mtime_ns).unwrap_or(now);
            let said = named.unwrap_or(written);
            if !is_older(said, age) {
                continue;
            }
            if !found.is_regular || !is_older(written, FRESH) || !self.is_known(channel, id) {
                archived.skipped += 1;
                continue;
            }
            let month = create_archive(&dir, &month_of(said))?;
            match dir.move_new(&name, &month, &name)? {
                Moved::Moved => archived.moved += 1,
                Moved::AlreadyThere => archived.skipped += 1,
                Moved::SourceMissing => {}
            }
        }
        Ok(archived)
    }
}

#[cfg(test)]
#[path = "archive_tests.rs"]
mod tests;
