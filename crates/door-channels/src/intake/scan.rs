//! Channel scans: new files are listed and read in bounded batches.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use switchboard_core::{Door, Name, error_chain};
use switchboard_sys::files::{Dir, FileStat};

use super::{ChannelState, NewFile};
use crate::channels::Channels;
use crate::error::ChannelError;
use crate::folder_stamp::FolderStamp;
use crate::ids::{file_name, id_of_file, second_of};
use crate::reading::message_ids;
use crate::tree::blocking;
use crate::wire::{ChannelMessage, When, time};

/// Result of a scan.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ScanSummary {
    /// Number of messages that were ingested.
    pub ingested: usize,
    /// Number of files that may still be incomplete and should be scanned again soon.
    pub settling: usize,
}

impl ScanSummary {
    /// Adds the result of scanning one channel. An unreadable channel does not block the others.
    pub(super) fn add(
        &mut self,
        channel: &Name,
        scanned: Result<Self, ChannelError>,
    ) -> Result<(), ChannelError> {
        match scanned {
            Ok(summary) => {
                self.ingested += summary.ingested;
                self.settling += summary.settling;
            }
            Err(ChannelError::File(error)) => {
                tracing::warn!(%channel, error = %error_chain(&error), "cannot read the channel");
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

/// Maximum number of files per batch. A batch is held in memory until it is journaled.
pub(super) const BATCH: usize = 256;

/// Batch of new files that a scan found.
#[derive(Default)]
pub(super) struct ScanBatch {
    pub(super) files: Vec<NewFile>,
    /// Message files that the previous scan saw and that are missing now.
    gone: Vec<String>,
    /// True if more files are queued.
    pub(super) more: bool,
}

impl Channels {
    /// Scans all channels that changed since their last scan.
    pub async fn scan(&self) -> Result<ScanSummary, ChannelError> {
        let tree = self.tree().clone();
        let channels = blocking(move || tree.channel_names()).await?;
        let mut summary = ScanSummary::default();
        for channel in channels {
            summary.add(&channel, self.scan_channel(&channel).await)?;
        }
        Ok(summary)
    }

    /// Scans the files that events have named, and files that were incomplete at the last scan. A channel that was
    /// never listed is listed completely.
    pub(crate) async fn scan_named(
        &self,
        channels: &Path,
        paths: &[PathBuf],
    ) -> Result<ScanSummary, ChannelError> {
        // Keyed by the spelling of the folder name, of which a channel can have several.
        let mut named: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (channel, state) in self.channel_states().lock().iter() {
            if !state.settling.is_empty() {
                named.insert(channel.clone(), Vec::new());
            }
        }
        for (channel, id) in paths.iter().filter_map(|path| message_path(channels, path)) {
            named.entry(channel).or_default().push(id);
        }
        let mut summary = ScanSummary::default();
        for (channel, ids) in named {
            let Ok(channel) = Name::parse(&channel) else { continue };
            summary.add(&channel, self.scan_files(&channel, Some(ids)).await)?;
        }
        Ok(summary)
    }

    /// Scans one channel, if it changed since its last scan.
    pub async fn scan_channel(&self, channel: &Name) -> Result<ScanSummary, ChannelError> {
        self.scan_files(channel, None).await
    }

    /// Scans the named files of a channel; lists the channel if none are named.
    async fn scan_files(
        &self,
        channel: &Name,
        mut named: Option<Vec<String>>,
    ) -> Result<ScanSummary, ChannelError> {
        if !self.channel_states().lock().contains_key(channel.as_str()) {
            let ids = self.hub().native_ids().in_scope(Door::Channels, channel.as_str()).await?;
            self.channel_states()
                .lock()
                .entry(channel.to_string())
                .or_insert(ChannelState { ids, ..ChannelState::default() });
        }
        // Scans are serialized: files that one scan has queued must not count as done for another.
        let _turn = self.scan_lock().lock().await;
        let mut summary = ScanSummary::default();
        let is_listed = named.is_none();
        loop {
            let (this, place, now) = (self.clone(), channel.clone(), self.hub().now());
            let files = named.take();
            let batch = blocking(move || this.next_batch(&place, files, now)).await?;
            let Some(batch) = batch else { return Ok(summary) };
            let took = self.ingest(channel, batch.files).await?;
            summary.ingested += took.ingested;
            summary.settling += took.settling;
            self.report_deleted(channel, batch.gone).await?;
            if !batch.more {
                if let Some(state) =
                    self.channel_states().lock().get_mut(channel.as_str()).filter(|_| is_listed)
                {
                    // Record the stamp only if no file was incomplete.
                    let listed = state.listed.filter(|listed| summary.settling == 0 && listed.is_settled());
                    state.looked = listed;
                }
                return Ok(summary);
            }
        }
    }

    /// Returns the next batch of new files; `None` if the channel is unchanged.
    pub(super) fn next_batch(
        &self,
        channel: &Name,
        named: Option<Vec<String>>,
        now: Timestamp,
    ) -> Result<Option<ScanBatch>, ChannelError> {
        let Some(dir) = self.tree().channel(channel)? else { return Ok(None) };
        let mut batch = ScanBatch::default();
        let (has_pending, was_listed) = match self.channel_states().lock().get(channel.as_str()) {
            Some(state) => (!state.pending.is_empty(), state.listed.is_some()),
            None => (false, false),
        };
        if let Some(named) = named.filter(|_| was_listed) {
            self.queue_named(channel, &dir, named)?;
        } else if !has_pending {
            match self.list_new(channel, &dir, now)? {
                Some(gone) => batch.gone = gone,
                None => return Ok(None),
            }
        }
        let ids: Vec<String> = {
            let mut state = self.channel_states().lock();
            let Some(state) = state.get_mut(channel.as_str()) else { return Ok(None) };
            let count = state.pending.len().min(BATCH);
            let ids = state.pending.drain(..count).collect();
            batch.more = !state.pending.is_empty();
            ids
        };
        let settle = jiff::SignedDuration::try_from(self.config().settle).unwrap_or_default();
        for id in ids {
            let name = file_name(&id);
            let Some(stamp) = dir.stat(&name)? else { continue };
            let content = match dir.read(&name, self.config().file_limit) {
                Ok(Some(read)) => ChannelMessage::parse(&read.bytes).map_err(|error| error.to_string()),
                Ok(None) => continue,
                Err(error) => Err(error_chain(&error)),
            };
            let age = now.as_nanosecond() - stamp.mtime_ns;
            let is_young = stamp.is_regular && age.abs() < settle.as_nanos();
            batch.files.push(NewFile { id, stamp, content, is_young });
        }
        Ok(Some(batch))
    }

    /// Queues those of the named files that are new, or that changed since they were rejected.
    fn queue_named(&self, channel: &Name, dir: &Dir, named: Vec<String>) -> Result<(), ChannelError> {
        let (mut new, rejected) = {
            let mut state = self.channel_states().lock();
            let Some(state) = state.get_mut(channel.as_str()) else { return Ok(()) };
            let queued: HashSet<&String> = state.pending.iter().collect();
            let settling = std::mem::take(&mut state.settling);
            let named: BTreeSet<String> = named.into_iter().chain(settling).collect();
            let is_new = |id: &String| !state.ids.contains(id) && !queued.contains(id);
            let new: Vec<String> = named.into_iter().filter(is_new).collect();
            let rejected: Vec<Option<FileStat>> =
                new.iter().map(|id| state.rejected.get(id).copied()).collect();
            state.present.extend(new.iter().cloned());
            (new, rejected)
        };
        let mut rejected = rejected.into_iter();
        let mut failed = None;
        new.retain(|id| match rejected.next().flatten() {
            None => true,
            Some(problem) => match dir.stat(&file_name(id)) {
                Ok(stamp) => stamp != Some(problem),
                Err(error) => {
                    failed = Some(error);
                    true
                }
            },
        });
        if let Some(error) = failed {
            return Err(error.into());
        }
        if new.len() > BATCH {
            sort_by_time(dir, &mut new, self.config().file_limit);
        }
        if let Some(state) = self.channel_states().lock().get_mut(channel.as_str()) {
            state.pending.extend(new);
        }
        Ok(())
    }

    /// Lists a channel and queues its new files; returns the deleted ones, or `None` if the channel is unchanged.
    ///
    /// Of rejected files only the metadata is read, and of new files in a large batch only the time.
    fn list_new(
        &self,
        channel: &Name,
        dir: &Dir,
        now: Timestamp,
    ) -> Result<Option<Vec<String>>, ChannelError> {
        let looked = FolderStamp::at(dir, now, self.config())?;
        let (rejected, is_unchanged) = match self.channel_states().lock().get(channel.as_str()) {
            Some(state) => (state.rejected.clone(), looked.is_unchanged_since(state.looked.as_ref())),
            None => return Ok(None),
        };
        let mut changed = HashSet::new();
        for (id, stamp) in &rejected {
            if dir.stat(&file_name(id))?.as_ref() != Some(stamp) {
                changed.insert(id.as_str());
            }
        }
        if is_unchanged && changed.is_empty() {
            return Ok(None);
        }
        let present = message_ids(dir)?;
        let is_new = |state: &ChannelState, id: &String| {
            !state.ids.contains(id) && (changed.contains(id.as_str()) || !rejected.contains_key(id))
        };
        let mut new: Vec<String> = match self.channel_states().lock().get(channel.as_str()) {
            Some(state) => present.iter().filter(|id| is_new(state, id)).cloned().collect(),
            None => return Ok(None),
        };
        if new.len() > BATCH {
            sort_by_time(dir, &mut new, self.config().file_limit);
        }
        let mut state = self.channel_states().lock();
        let Some(state) = state.get_mut(channel.as_str()) else { return Ok(None) };
        state.pending = new.into();
        state.settling.clear();
        state.listed = Some(looked);
        let before = std::mem::replace(&mut state.present, present.into_iter().collect());
        Ok(Some(before.into_iter().filter(|id| !state.present.contains(id)).collect()))
    }
}

/// Parses the channel folder and the message id from a path; returns `None` for deeper paths, such as those in the
/// archive.
fn message_path(channels: &Path, path: &Path) -> Option<(String, String)> {
    let (channel, file) = path.strip_prefix(channels).ok()?.to_str()?.split_once('/')?;
    Some((channel.to_owned(), id_of_file(file)?.to_owned()))
}

/// Sorts new files by the time inside them if they exceed one batch.
///
/// Random names do not order messages within a second. Only the time of each file is held in memory.
fn sort_by_time(dir: &Dir, ids: &mut [String], limit: u64) {
    ids.sort_by_cached_key(|id| {
        let read = dir.read(&file_name(id), limit).ok().flatten();
        let when = read.and_then(|read| serde_json::from_slice::<When>(&read.bytes).ok());
        (when.and_then(|when| time(&when.timestamp)).or_else(|| second_of(id)), id.clone())
    });
}
