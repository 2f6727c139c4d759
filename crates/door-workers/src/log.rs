//! Event log: every event in order, in segment files that outlive the process; the newest events are also in memory.
//!
//! The log is also the buffer of every client: each client reads from its own cursor, so a slow client costs no memory
//! and delays no other client. A line is written to its file before a client sees it, so that it survives a crash of
//! the process. The log does not wait for the disk: data that must not be lost is in the hub's journal. After a power
//! failure, which may have lost the last lines, numbering continues a million higher, so that no number is used twice.

mod scan;

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::sync::Arc;

use parking_lot::Mutex;
use switchboard_sys::clock::Clock;
use switchboard_sys::files::Dir;
use switchboard_sys::platform;
use tokio::sync::watch;

pub(crate) use self::scan::seq_of;
use self::scan::{job_of, segment_name, segment_number};
use crate::config::Config;
use crate::error::RouterError;
use crate::wire::event::{AgentError, EventBody, EventNode, InjectionRef};
use crate::wire::{EventHead, format_event_at, format_timestamp};

/// Size of the in-memory ring buffer. Older events are read from their segment file.
const RING_BYTES: usize = 4 << 20;

/// Maximum number of unwritten bytes while the disk accepts no writes.
///
/// Beyond that, deltas are dropped: the full answer follows at the end of the turn.
const PENDING_BYTES: usize = 16 << 20;

/// Factor by which the log may exceed its retention because of pinned events.
///
/// Running injections pin their events. Beyond this factor, deltas are dropped, so that an agent that writes without
/// end does not fill the disk.
const OVERFULL: u64 = 4;

/// Gap in the numbering when events may have been lost.
const SEQ_JUMP: u64 = 1_000_000;

/// File that stores the machine's boot id, to detect a reboot.
const BOOT_FILE: &str = "boot";

/// The event log: segment files, ring buffer and pins.
#[derive(Debug)]
pub(crate) struct EventLog {
    folder: Dir,
    clock: Clock,
    segment_bytes: u64,
    retention: u64,
    state: Mutex<State>,
    newest: watch::Sender<u64>,
}

#[derive(Debug)]
struct State {
    file: File,
    /// First number and size of each segment; the last one is open for writing.
    segments: BTreeMap<u64, u64>,
    next: u64,
    /// Events that have a number but are not in the segment file yet.
    pending: Vec<Entry>,
    pending_bytes: usize,
    ring: VecDeque<Entry>,
    ring_bytes: usize,
    /// The last timestamp, as milliseconds and formatted; cached because many events share one timestamp.
    stamp: (i64, String),
    /// Pinned events: the first event of each running injection, with the number of pins.
    ///
    /// Segments from the lowest pin on are not removed.
    pins: BTreeMap<u64, u32>,
    /// True while the log exceeds its limit and drops deltas.
    is_full: bool,
    is_reported: bool,
}

#[derive(Debug, Clone)]
struct Entry {
    seq: u64,
    job: Option<Arc<str>>,
    line: Vec<u8>,
}

/// A batch of lines for one client.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Batch {
    /// The lines.
    pub(crate) bytes: Vec<u8>,
    /// Sequence number of the last event that was examined.
    pub(crate) seq: u64,
}

/// Error: the cursor is older than the oldest retained event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Expired {
    /// Sequence number of the oldest retained event.
    pub(crate) oldest: u64,
}

/// Predicate that selects the events of a client.
pub(crate) trait EventPredicate: Send {
    /// Returns true if every event matches, so that events need not be examined.
    fn matches_all(&self) -> bool;
    /// Returns true if events about this job match; `None` stands for events about no job.
    fn matches(&self, job: Option<&str>) -> bool;
}

impl EventLog {
    /// Opens the log in its folder. Removes an incomplete last line that a crash left behind.
    pub(crate) fn open(folder: Dir, config: &Config, clock: Clock) -> Result<Self, RouterError> {
        let mut segments = BTreeMap::new();
        for name in folder.names()? {
            if let (Some(first), Some(stamp)) = (segment_number(&name), folder.stat(&name)?) {
                segments.insert(first, stamp.len);
            }
        }
        let mut next = match segments.last_key_value() {
            None => 1,
            Some((first, _)) => scan::repair_segment(&folder, *first)?.map_or(*first, |last| last + 1),
        };
        let boot = platform::boot_id().unwrap_or_default();
        let before = folder.read(BOOT_FILE, 256)?.map(|found| found.bytes);
        if before.as_deref() != Some(boot.as_bytes()) {
            next = if segments.is_empty() { 1 } else { next + SEQ_JUMP };
            folder.replace(BOOT_FILE, boot.as_bytes(), 0o600)?;
        }
        let (first, file) = open_segment(&folder, next)?;
        segments.insert(first, 0);
        let state = State {
            file,
            segments,
            next,
            pending: Vec::new(),
            pending_bytes: 0,
            ring: VecDeque::new(),
            ring_bytes: 0,
            stamp: (i64::MIN, String::new()),
            pins: BTreeMap::new(),
            is_full: false,
            is_reported: false,
        };
        let (newest, _) = watch::channel(next - 1);
        let log = Self {
            folder,
            clock,
            segment_bytes: config.segment,
            retention: config.retention,
            state: Mutex::new(state),
            newest,
        };
        log.remove_empty_segments();
        Ok(log)
    }

    /// Assigns a sequence number to an event. Clients see the event after [`EventLog::flush`].
    pub(crate) fn append(&self, body: &EventBody) -> u64 {
        let mut state = self.state.lock();
        let is_piece = matches!(body, EventBody::AssistantDelta(_) | EventBody::ReasoningDelta(_));
        if is_piece && state.pending_bytes > PENDING_BYTES {
            return state.next - 1;
        }
        if is_piece && state.is_full {
            return match dropped_pieces_notice(body) {
                Some(notice) if !std::mem::replace(&mut state.is_reported, true) => {
                    self.number(&mut state, &notice)
                }
                _ => state.next - 1,
            };
        }
        self.number(&mut state, body)
    }

    fn number(&self, state: &mut State, body: &EventBody) -> u64 {
        let seq = state.next;
        state.next += 1;
        let now = self.clock.now();
        if state.stamp.0 != now.as_millisecond() {
            state.stamp = (now.as_millisecond(), format_timestamp(now));
        }
        let line = format_event_at(seq, &state.stamp.1, body);
        state.pending_bytes += line.len();
        // Consecutive events about the same job share one allocation.
        let last = state.pending.last().or(state.ring.back()).and_then(|entry| entry.job.clone());
        let job = body.job().map(|job| match last {
            Some(last) if *last == *job => last,
            _ => job.into(),
        });
        state.pending.push(Entry { seq, job, line });
        seq
    }

    /// Writes pending events to the segment, then makes them visible to clients.
    ///
    /// If the write fails, the events stay pending, and the flush after the next event retries.
    pub(crate) fn flush(&self) {
        let newest = {
            let mut state = self.state.lock();
            let Some(last) = state.pending.last() else { return };
            let newest = last.seq;
            if let Err(error) = self.write(&mut state) {
                tracing::error!(%error, "events could not be logged; the next event retries");
                return;
            }
            newest
        };
        self.newest.send_replace(newest);
    }

    /// Appends one event and flushes.
    pub(crate) fn publish(&self, body: &EventBody) -> u64 {
        let seq = self.append(body);
        self.flush();
        seq
    }

    fn write(&self, state: &mut State) -> std::io::Result<()> {
        let written = state.segments.last_key_value().map_or(0, |(_, size)| *size);
        let mut bytes = Vec::with_capacity(state.pending_bytes);
        for entry in &state.pending {
            bytes.extend_from_slice(&entry.line);
        }
        if let Err(error) = state.file.write_all(&bytes) {
            // Rolls back a partial write, so that no line is torn or duplicated.
            state.file.set_len(written)?;
            state.file.seek(SeekFrom::Start(written))?;
            return Err(error);
        }
        let size = written + bytes.len() as u64;
        if let Some(mut last) = state.segments.last_entry() {
            last.insert(size);
        }
        let pending = std::mem::take(&mut state.pending);
        state.pending_bytes = 0;
        for entry in pending {
            state.ring_bytes += entry.line.len();
            state.ring.push_back(entry);
        }
        while state.ring_bytes > RING_BYTES
            && let Some(old) = state.ring.pop_front()
        {
            state.ring_bytes -= old.line.len();
        }
        if size >= self.segment_bytes {
            self.rotate(state);
        }
        Ok(())
    }

    /// Opens the next segment.
    fn rotate(&self, state: &mut State) {
        match open_segment(&self.folder, state.next) {
            Ok((first, file)) => {
                state.file = file;
                state.segments.insert(first, 0);
            }
            // Events then continue in the old segment.
            Err(error) => tracing::warn!(%error, "the event log could not open a new segment"),
        }
        self.remove_expired(state);
    }

    /// Removes segments beyond the retention.
    fn remove_expired(&self, state: &mut State) {
        let pinned = state.pins.keys().next().copied().unwrap_or(u64::MAX);
        let mut total: u64 = state.segments.values().sum();
        while let Some((&first, &size)) = state.segments.first_key_value()
            && total - size >= self.retention
            && state.segments.keys().nth(1).is_some_and(|second| *second <= pinned)
        {
            if let Err(error) = self.folder.remove(&segment_name(first)) {
                tracing::warn!(%error, "an old segment of the event log could not be removed");
                break;
            }
            state.segments.remove(&first);
            total -= size;
        }
        state.is_full = total > self.retention.saturating_mul(OVERFULL);
        state.is_reported &= state.is_full;
    }

    /// Removes segments of earlier runs to which nothing was written.
    fn remove_empty_segments(&self) {
        let mut state = self.state.lock();
        let current = state.segments.keys().next_back().copied();
        let empty: Vec<u64> = state
            .segments
            .iter()
            .filter(|(first, size)| **size == 0 && Some(**first) != current)
            .map(|(first, _)| *first)
            .collect();
        for first in empty {
            if self.folder.remove(&segment_name(first)).is_ok() {
                state.segments.remove(&first);
            }
        }
    }

    /// Pins an event: the log retains it and all later events until [`EventLog::unpin`].
    pub(crate) fn pin(&self, seq: u64) {
        *self.state.lock().pins.entry(seq).or_default() += 1;
    }

    /// Releases a pin.
    pub(crate) fn unpin(&self, seq: u64) {
        let mut state = self.state.lock();
        if let Some(count) = state.pins.get_mut(&seq) {
            *count -= 1;
            if *count == 0 {
                state.pins.remove(&seq);
            }
        }
        if state.is_full {
            self.remove_expired(&mut state);
        }
    }

    /// Returns the number of the newest visible event.
    pub(crate) fn newest(&self) -> u64 {
        *self.newest.borrow()
    }

    /// Returns the number of the oldest retained event.
    pub(crate) fn oldest(&self) -> u64 {
        self.state.lock().segments.keys().next().copied().unwrap_or(1)
    }

    /// Subscribes to the number of the newest event.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }

    /// Reads the next lines after `seq` from memory; `None` if they are only in a segment.
    pub(crate) fn read_ring(&self, seq: u64, predicate: &dyn EventPredicate, most: usize) -> Option<Batch> {
        let state = self.state.lock();
        let last = state.ring.back().map_or(seq, |entry| entry.seq);
        if last <= seq && seq + 1 >= state.next - state.pending.len() as u64 {
            return Some(Batch { bytes: Vec::new(), seq });
        }
        let start = state.ring.partition_point(|entry| entry.seq <= seq);
        // The event right after the cursor must be in memory, or the batch would have a gap.
        let is_whole = start > 0 || state.ring.front().is_some_and(|front| front.seq == seq + 1);
        if !is_whole {
            return None;
        }
        let mut batch = Batch { bytes: Vec::new(), seq };
        for entry in state.ring.range(start..) {
            if batch.bytes.len() >= most {
                break;
            }
            if predicate.matches_all() || predicate.matches(entry.job.as_deref()) {
                batch.bytes.extend_from_slice(&entry.line);
            }
            batch.seq = entry.seq;
        }
        Some(batch)
    }

    /// Reads the next lines after `seq` from their segment, up to the segment's end. Blocks on disk I/O.
    pub(crate) fn read_segment(&self, seq: u64, predicate: &dyn EventPredicate) -> Result<Batch, Expired> {
        let (segment, following, newest) = {
            let state = self.state.lock();
            let oldest = state.segments.keys().next().copied().unwrap_or(1);
            if seq + 1 < oldest {
                return Err(Expired { oldest });
            }
            let found = state.segments.range(..=seq + 1).next_back().map(|(first, _)| *first);
            let segment = found.unwrap_or(oldest);
            let following = state.segments.range(segment + 1..).next().map(|(first, _)| *first);
            (segment, following, *self.newest.borrow())
        };
        let limit = self.segment_bytes.saturating_mul(64).max(PENDING_BYTES as u64 * 4);
        let bytes = match self.folder.read(&segment_name(segment), limit) {
            Ok(Some(found)) => found.bytes,
            Ok(None) => return Err(Expired { oldest: self.oldest() }),
            Err(error) => {
                tracing::error!(%error, "skipped a segment of the event log that cannot be read");
                Vec::new()
            }
        };
        let mut batch = Batch { bytes: Vec::new(), seq };
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            let Some(number) = seq_of(line).filter(|number| *number > batch.seq && *number <= newest) else {
                continue;
            };
            if predicate.matches_all() || predicate.matches(job_of(line).as_deref()) {
                batch.bytes.extend_from_slice(line);
            }
            batch.seq = number;
        }
        // At the end of a segment, the cursor moves to the next one, across a gap in the numbering.
        if let Some(following) = following {
            batch.seq = batch.seq.max(following - 1);
        }
        Ok(batch)
    }

    /// Visits every retained event, oldest first.
    pub(crate) fn scan(&self, mut each: impl FnMut(EventHead)) -> Result<(), RouterError> {
        let segments: Vec<u64> = self.state.lock().segments.keys().copied().collect();
        for segment in segments {
            scan::scan_segment(&self.folder, segment, &mut each)?;
        }
        Ok(())
    }
}

/// Builds the notice that replaces the first dropped delta.
fn dropped_pieces_notice(piece: &EventBody) -> Option<EventBody> {
    let (EventBody::AssistantDelta(text) | EventBody::ReasoningDelta(text)) = piece else { return None };
    let InjectionRef { job_id, node_id, injection_id } = text.at.clone();
    Some(EventBody::AgentError(AgentError {
        node: EventNode { job_id, node_id },
        injection_id: Some(injection_id),
        error: "the event log is full; it omits partial output until turns have ended".to_owned(),
        will_retry: true,
    }))
}

/// Opens the segment that starts with this number, or continues an existing one.
fn open_segment(folder: &Dir, first: u64) -> Result<(u64, File), RouterError> {
    let mut file = folder.open_own(&segment_name(first))?;
    let failed = |source| RouterError::Log { folder: folder.path().to_owned(), action: "written", source };
    file.seek(SeekFrom::End(0)).map_err(failed)?;
    Ok((first, file))
}

#[cfg(test)]
#[path = "log_tests.rs"]
mod tests;
