//! Destination of log lines: stderr, or a buffer while another program uses the terminal.

use std::io::{self, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Maximum bytes that are buffered. Later lines are dropped, because the first ones are more informative.
const MOST: usize = 64 << 10;

/// Lines logged while another program uses the terminal; `None` while lines go to stderr.
static HELD: Mutex<Option<Vec<u8>>> = Mutex::new(None);

/// Guard that buffers log lines. Dropping it writes them to stderr.
#[derive(Debug)]
pub(crate) struct Hold(());

/// Writer of one log line.
pub(crate) struct Line;

/// Returns the writer of the next log line.
pub(crate) fn writer() -> Line {
    Line
}

impl Hold {
    pub(crate) fn start() -> Self {
        *lock_held() = Some(Vec::new());
        Self(())
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some(lines) = lock_held().take() {
            let _ = io::stderr().write_all(&lines);
        }
    }
}

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match lock_held().as_mut() {
            Some(lines) if lines.len() + bytes.len() <= MOST => lines.extend_from_slice(bytes),
            Some(_) => {}
            None => io::stderr().write_all(bytes)?,
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Locks the buffer. A poisoned lock is still valid: a panic elsewhere leaves only whole lines.
fn lock_held() -> MutexGuard<'static, Option<Vec<u8>>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}
