//! Where log lines go: to stderr, or aside while another program has the screen.

use std::io::{self, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Most bytes kept while the screen is another's. Beyond it lines are dropped: the first ones tell more.
const MOST: usize = 64 << 10;

/// What was logged while another program has the screen; `None` while it is ours.
static HELD: Mutex<Option<Vec<u8>>> = Mutex::new(None);

/// Keeps log lines off the screen until this is dropped; then they are written.
#[derive(Debug)]
pub(crate) struct Hold(());

/// A log line on its way.
pub(crate) struct Line;

/// Where the next log line goes.
pub(crate) fn writer() -> Line {
    Line
}

impl Hold {
    pub(crate) fn begin() -> Self {
        *held() = Some(Vec::new());
        Self(())
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some(lines) = held().take() {
            let _ = io::stderr().write_all(&lines);
        }
    }
}

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match held().as_mut() {
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

/// A panic elsewhere leaves whole lines behind.
fn held() -> MutexGuard<'static, Option<Vec<u8>>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}
