//! The connections to read by.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use rusqlite::Connection;
use switchboard_sys::files::Dir;

use crate::error::HubError;
use crate::store::binding::{self, HubKey};
use crate::store::degraded::open_read_only;
use crate::store::open::{AtClose, open_for_reading};
use crate::store::side_files;

/// How many connections are kept. More may be open for a moment.
const KEPT: usize = 4;

/// How long a reader waits for a connection that somebody else has, before it opens one more. Most reads are over
/// sooner, and a connection takes as long to open and a hundred kilobytes for as long as the process lives.
const PATIENCE: Duration = Duration::from_millis(1);

/// The connections of one process.
#[derive(Debug)]
pub(crate) struct Readers {
    database: PathBuf,
    /// What has to verify before one more is opened: the file may have been replaced meanwhile.
    binding: Option<(Dir, HubKey)>,
    /// The writer's connection, where writer and readers take turns on one thread. A second one would only cost time to open.
    of_writer: Option<Arc<Mutex<Connection>>>,
    state: Mutex<State>,
    returned: Condvar,
}

#[derive(Debug, Default)]
struct State {
    idle: Vec<Connection>,
    lent: usize,
    /// True while all are closed and none may be opened.
    is_paused: bool,
}

impl Readers {
    pub(crate) fn of(database: PathBuf) -> Self {
        Self { database, binding: None, of_writer: None, state: Mutex::default(), returned: Condvar::new() }
    }

    /// The same for a database that is bound with this key.
    pub(crate) fn bound(self, folder: Dir, key: Option<HubKey>) -> Self {
        Self { binding: key.map(|key| (folder, key)), ..self }
    }

    /// Reads by the writer's connection instead of opening more.
    pub(crate) fn share_with_writer(self, connection: Arc<Mutex<Connection>>) -> Self {
        Self { of_writer: Some(connection), ..self }
    }

    /// Opens one more; one that writes nothing at all where the disk does not allow more.
    fn open(&self) -> Result<Connection, HubError> {
        let opened = self.open_beside_writers();
        match (&opened, &self.binding, self.database.parent()) {
            (Err(error), Some((folder, key)), _) if error.is_disk() => {
                open_read_only(folder, Some(key)).or(opened)
            }
            (Err(error), None, Some(folder)) if error.is_disk() => {
                open_read_only(&Dir::open_root(folder)?, None).or(opened)
            }
            _ => opened,
        }
    }

    fn open_beside_writers(&self) -> Result<Connection, HubError> {
        if let Some((folder, key)) = &self.binding {
            binding::verify(folder, Some(key))?;
            side_files::verify(folder, Some(key))?;
            let connection = open_for_reading(&self.database, AtClose::KeepLog)?;
            side_files::verify(folder, Some(key))?;
            return Ok(connection);
        }
        open_for_reading(&self.database, AtClose::RemoveLog)
    }

    /// Runs `work` with a connection, if one is there.
    pub(crate) fn lend_at_once<T>(&self, work: impl FnOnce(&mut Connection) -> T) -> Option<T> {
        if let Some(connection) = &self.of_writer {
            return Some(work(&mut *connection.try_lock()?));
        }
        let mut state = self.state.lock();
        let connection = state.idle.pop()?;
        state.lent += 1;
        drop(state);
        Some(self.lend_this(connection, work))
    }

    /// Runs `work` with a connection, which is opened where none is there. May wait.
    pub(crate) fn lend<T>(&self, work: impl FnOnce(&mut Connection) -> T) -> Result<T, HubError> {
        if let Some(connection) = &self.of_writer {
            return Ok(work(&mut connection.lock()));
        }
        let mut state = self.state.lock();
        while state.is_paused {
            self.returned.wait(&mut state);
        }
        if state.idle.is_empty() && state.lent > 0 {
            self.returned.wait_for(&mut state, PATIENCE);
        }
        state.lent += 1;
        let connection = match state.idle.pop() {
            Some(connection) => connection,
            None => MutexGuard::unlocked(&mut state, || self.open()).inspect_err(|_| {
                state.lent -= 1;
                self.returned.notify_all();
            })?,
        };
        drop(state);
        Ok(self.lend_this(connection, work))
    }

    fn lend_this<T>(&self, mut connection: Connection, work: impl FnOnce(&mut Connection) -> T) -> T {
        let mut loan = Loan { readers: self, returned: None };
        let result = work(&mut connection);
        loan.returned = Some(connection);
        result
    }

    /// Runs `work` while this process has no connection to read by: waits until lent ones are returned, and lends
    /// none meanwhile.
    pub(crate) fn while_closed<T>(&self, work: impl FnOnce() -> T) -> T {
        let mut state = self.state.lock();
        state.is_paused = true;
        state.idle.clear();
        while state.lent > 0 {
            self.returned.wait(&mut state);
        }
        let result = MutexGuard::unlocked(&mut state, work);
        state.is_paused = false;
        drop(state);
        self.returned.notify_all();
        result
    }

    /// Closes those that nobody has.
    pub(crate) fn close(&self) {
        self.state.lock().idle.clear();
    }
}

/// A connection that is lent. Dropped when it is returned, and when the work panics: then it is closed.
struct Loan<'r> {
    readers: &'r Readers,
    returned: Option<Connection>,
}

impl Drop for Loan<'_> {
    fn drop(&mut self) {
        let mut state = self.readers.state.lock();
        state.lent -= 1;
        if state.is_paused {
            drop(self.returned.take());
            self.readers.returned.notify_all();
        } else if let Some(connection) = self.returned.take()
            // One that is still in a transaction would go on to show the past.
            && connection.is_autocommit()
            && state.idle.len() < KEPT
        {
            state.idle.push(connection);
        }
        drop(state);
        self.readers.returned.notify_one();
    }
}

#[cfg(test)]
#[path = "readers_tests.rs"]
mod tests;
