//! Log of a worker's stderr, with a size limit and rotation.

use parking_lot::Mutex;
use switchboard_sys::clock::Clock;
use switchboard_sys::files::Dir;

use crate::wire::format_timestamp;

/// Size in bytes at which a log is rotated; one older file is retained.
const FILE_CAP: u64 = 256 << 10;

/// Maximum length of a line in the log, in bytes.
const LINE_CAP: usize = 4 << 10;

/// Maximum length of a line that is quoted in an event, in characters.
const QUOTE_CAP: usize = 300;

/// Stderr log of one node.
#[derive(Debug)]
pub(crate) struct WorkerLog {
    folder: Dir,
    name: String,
    clock: Clock,
    last: Mutex<Option<String>>,
}

impl WorkerLog {
    pub(crate) fn new(folder: Dir, node: u32, clock: Clock) -> Self {
        Self { folder, name: file_name(node), clock, last: Mutex::default() }
    }

    /// Appends a line, which may contain any bytes, after removing control characters.
    pub(crate) fn append_line(&self, line: &[u8]) {
        let line = String::from_utf8_lossy(&line[..line.len().min(LINE_CAP)]);
        let line: String = line.chars().filter(|char| !char.is_control()).collect();
        if line.trim().is_empty() {
            return;
        }
        let text = format!("{} {line}\n", format_timestamp(self.clock.now()));
        *self.last.lock() = Some(line.chars().take(QUOTE_CAP).collect());
        match self.folder.append(&self.name, text.as_bytes()) {
            Ok(size) if size > FILE_CAP => self.rotate(),
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, "cannot write a worker's log"),
        }
    }

    /// Returns and clears the last line, truncated so that it can be quoted in an event.
    pub(crate) fn drain_last_line(&self) -> Option<String> {
        self.last.lock().take()
    }

    fn rotate(&self) {
        let older = format!("{}.1", self.name);
        let moved =
            self.folder.remove(&older).and_then(|_| self.folder.move_new(&self.name, &self.folder, &older));
        if let Err(error) = moved {
            tracing::warn!(%error, "cannot rotate a worker's log");
        }
    }
}

/// Returns true for the name of a current or rotated log in the folder of a job.
pub(crate) fn is_log_file(name: &str) -> bool {
    let node = name.strip_suffix(".1").unwrap_or(name).strip_suffix(".log");
    node.is_some_and(|node| node.starts_with("node-"))
}

/// Returns the name of a node's log in the folder of its job.
fn file_name(node: u32) -> String {
    format!("node-{node}.log")
}
