//! The event log: every event in order, in files that outlive the process, and the newest in memory.
//!
//! The log is also the buffer of every client: each reads from its own place in it, so that a slow one costs
//! no memory and delays nobody. A line is in its file before any client sees it, which is enough to survive
//! the death of the process. It does not wait for the disk: what must not be lost is in the hub's journal.
//! After a power failure, which may have taken the last lines, numbers go on a million further up, so that no
//! number ever means two things.

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

/// How much of the newest is kept in memory. What is older is read from its file.
const RING_BYTES: usize = 4 << 20;

/// How much may wait while the disk takes nothing. Beyond that, pieces of answers are dropped: the whole answer
/// comes at the end of the turn.
const PENDING_BYTES: usize = 16 << 20;

/// How many times what is to be kept may lie there because of injections that still run. Beyond that, pieces of answers
/// are dropped as well: an agent that talks without end must not fill the disk.
const OVERFULL: u64 = 4;

/// How far numbers jump when the last ones may have been lost.
const SEQ_JUMP: u64 = 1_000_000;

/// The file that says since when the machine has been up.
const BOOT_FILE: &str = "boot";

/// The event log.
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
    /// The first number and the size of each file; the last is the one that is written.
    segments: BTreeMap<u64, u64>,
    next: u64,
    /// Numbered and not yet in the file.
    pending: Vec<Entry>,
    pending_bytes: usize,
    ring: VecDeque<Entry>,
    ring_bytes: usize,
    /// The last time that was written, in milliseconds and in words: many events have the same.
    stamp: (i64, String),
    /// The events that injections under way began with: no file from there on is removed.
    pins: BTreeMap<u64, u32>,
    /// Whether there is more than may be kept, and whether that was told.
    is_full: bool,
    is_reported: bool,
}

#[derive(Debug, Clone)]
struct Entry {
    seq: u64,
    job: Option<Arc<str>>,
    line: Vec<u8>,
}

/// Lines for a client.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Batch {
    /// The lines.
    pub(crate) bytes: Vec<u8>,
    /// Everything up to here has been looked at.
    pub(crate) seq: u64,
}

/// The events after a cursor are not all kept any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Expired {
    /// The oldest one that is.
    pub(crate) oldest: u64,
}

/// Which events a client wants.
pub(crate) trait EventPredicate: Send {
    /// Whether it wants everything, so that nothing has to be looked at.
    fn matches_all(&self) -> bool;
    /// Whether it wants what is about this job, or about none.
    fn matches(&self, job: Option<&str>) -> bool;
}

impl EventLog {
    /// Opens the log in its folder. A line that was cut off by a crash is taken away.
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

    /// Numbers an event. Nobody sees it before [`EventLog::flush`].
    pub(crate) fn append(&self, body: &EventBody) -> u64 {
        let mut state = self.state.lock();
        let is_piece = matches!(body, EventBody::AssistantDelta(_) | EventBody::ReasoningDelta(_));
        if is_piece && state.pending_bytes > PENDING_BYTES {
            return state.next - 1;
        }
        if is_piece && state.is_full {
            return match dropped_pieces_notice(body) {
                Some(told) if !std::mem::replace(&mut state.is_reported, true) => {
                    self.number(&mut state, &told)
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
        // One allocation serves a run of events about the same job.
        let last = state.pending.last().or(state.ring.back()).and_then(|entry| entry.job.clone());
        let job = body.job().map(|job| match last {
            Some(last) if *last == *job => last,
            _ => job.into(),
        });
        state.pending.push(Entry { seq, job, line });
        seq
    }

    /// Writes what was appended to its file, and then lets clients see it.
    ///
    /// On a disk that takes nothing it stays where it is and is tried again with the next event.
    pub(crate) fn flush(&self) {
        let newest = {
            let mut state = self.state.lock();
            let Some(last) = state.pending.last() else { return };
            let newest = last.seq;
            if let Err(error) = self.write(&mut state) {
                tracing::error!(%error, "events cannot be logged; they wait");
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
            // What was written of it is taken back, so that no line is torn or doubled.
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

    /// Goes on in a new file.
    fn rotate(&self, state: &mut State) {
        match open_segment(&self.folder, state.next) {
            Ok((first, file)) => {
                state.file = file;
                state.segments.insert(first, 0);
            }
            // The old file goes on growing.
            Err(error) => tracing::warn!(%error, "the event log cannot begin a new file"),
        }
        self.remove_expired(state);
    }

    /// Removes what is older than has to be kept.
    fn remove_expired(&self, state: &mut State) {
        let pinned = state.pins.keys().next().copied().unwrap_or(u64::MAX);
        let mut total: u64 = state.segments.values().sum();
        while let Some((&first, &size)) = state.segments.first_key_value()
            && total - size >= self.retention
            && state.segments.keys().nth(1).is_some_and(|second| *second <= pinned)
        {
            if let Err(error) = self.folder.remove(&segment_name(first)) {
                tracing::warn!(%error, "an old file of the event log cannot be removed");
                break;
            }
            state.segments.remove(&first);
            total -= size;
        }
        state.is_full = total > self.retention.saturating_mul(OVERFULL);
        state.is_reported &= state.is_full;
    }

    /// Removes files of earlier runs in which nothing was ever written.
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

    /// Keeps everything from this event on until [`EventLog::unpin`].
    pub(crate) fn pin(&self, seq: u64) {
        *self.state.lock().pins.entry(seq).or_default() += 1;
    }

    /// Lets go of it.
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

    /// The number of the newest event that clients may see.
    pub(crate) fn newest(&self) -> u64 {
        *self.newest.borrow()
    }

    /// The number of the oldest event that is kept.
    pub(crate) fn oldest(&self) -> u64 {
        self.state.lock().segments.keys().next().copied().unwrap_or(1)
    }

    /// Tells when there is more.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }

    /// The next lines after `seq` where they are in memory; nothing where a file has to be read.
    pub(crate) fn read_ring(&self, seq: u64, predicate: &dyn EventPredicate, most: usize) -> Option<Batch> {
        let state = self.state.lock();
        let last = state.ring.back().map_or(seq, |entry| entry.seq);
        if last <= seq && seq + 1 >= state.next - state.pending.len() as u64 {
            return Some(Batch { bytes: Vec::new(), seq });
        }
        let start = state.ring.partition_point(|entry| entry.seq <= seq);
        // The one before must be there as well, or something may be missing between them.
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

    /// The next lines after `seq` from their file, up to its end. Waits for the disk.
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
                tracing::error!(%error, "a file of the event log cannot be read; it is passed over");
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
        // A file that has no more leads to the next one, over the gap between them if there is one.
        if let Some(following) = following {
            batch.seq = batch.seq.max(following - 1);
        }
        Ok(batch)
    }

    /// Looks at every event that is kept, oldest first.
    pub(crate) fn scan(&self, mut each: impl FnMut(EventHead)) -> Result<(), RouterError> {
        let segments: Vec<u64> = self.state.lock().segments.keys().copied().collect();
        for segment in segments {
            scan::scan_segment(&self.folder, segment, &mut each)?;
        }
        Ok(())
    }
}

/// What is told in the place of the first piece that is dropped.
fn dropped_pieces_notice(piece: &EventBody) -> Option<EventBody> {
    let (EventBody::AssistantDelta(text) | EventBody::ReasoningDelta(text)) = piece else { return None };
    let InjectionRef { job_id, swarm_id, node_id, injection_id } = text.at.clone();
    Some(EventBody::AgentError(AgentError {
        node: EventNode { job_id, swarm_id, node_id },
        injection_id: Some(injection_id),
        error: "the event log is full; pieces of answers are left out until turns have ended".to_owned(),
        will_retry: true,
    }))
}

/// Makes the file that begins with this number, or goes on in it where it is there.
fn open_segment(folder: &Dir, first: u64) -> Result<(u64, File), RouterError> {
    let mut file = folder.open_own(&segment_name(first))?;
    let failed = |source| RouterError::Log { folder: folder.path().to_owned(), action: "written", source };
    file.seek(SeekFrom::End(0)).map_err(failed)?;
    Ok((first, file))
}

#[cfg(test)]
#[path = "log_tests.rs"]
mod tests;
