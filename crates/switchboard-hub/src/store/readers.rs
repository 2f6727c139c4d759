//! Pool of read connections.

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

/// Maximum number of idle connections that are retained. More may be open for a short time.
const MAX_IDLE: usize = 4;

/// Time that a reader waits for a busy connection before it opens another one.
///
/// Most reads end sooner, while a new connection takes as long to open and uses a hundred kilobytes for the life of the
/// process.
const WAIT_FOR_IDLE: Duration = Duration::from_millis(1);

/// Pool of read connections of one process.
#[derive(Debug)]
pub(crate) struct Readers {
    database: PathBuf,
    /// Binding that is verified before each connection is opened.
    ///
    /// The file may have been replaced meanwhile.
    binding: Option<(Dir, HubKey)>,
    /// The writer's connection, if writer and readers take turns on one thread.
    ///
    /// A separate read connection would only cost time to open.
    writer_connection: Option<Arc<Mutex<Connection>>>,
    state: Mutex<State>,
    returned: Condvar,
}

#[derive(Debug, Default)]
struct State {
    idle: Vec<Connection>,
    lent: usize,
    /// True while all connections are closed and none may be opened.
    is_paused: bool,
}

impl Readers {
    pub(crate) fn of(database: PathBuf) -> Self {
        Self {
            database,
            binding: None,
            writer_connection: None,
            state: Mutex::default(),
            returned: Condvar::new(),
        }
    }

    /// Sets the folder and the key with which the binding of the database is verified.
    pub(crate) fn bound(self, folder: Dir, key: Option<HubKey>) -> Self {
        Self { binding: key.map(|key| (folder, key)), ..self }
    }

    /// Makes reads use the writer's connection instead of new ones.
    pub(crate) fn share_with_writer(self, connection: Arc<Mutex<Connection>>) -> Self {
        Self { writer_connection: Some(connection), ..self }
    }

    /// Opens another connection, which is read-only if the disk does not allow writes.
    fn open(&self) -> Result<Connection, HubError> {
        let opened = self.open_reader();
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

    fn open_reader(&self) -> Result<Connection, HubError> {
        if let Some((folder, key)) = &self.binding {
            binding::verify(folder, Some(key))?;
            side_files::verify(folder, Some(key))?;
            let connection = open_for_reading(&self.database, AtClose::KeepLog)?;
            side_files::verify(folder, Some(key))?;
            return Ok(connection);
        }
        open_for_reading(&self.database, AtClose::RemoveLog)
    }

    /// Runs `work` with an idle connection, or returns `None` if there is none.
    pub(crate) fn try_lend<T>(&self, work: impl FnOnce(&mut Connection) -> T) -> Option<T> {
        if let Some(connection) = &self.writer_connection {
            return Some(work(&mut *connection.try_lock()?));
        }
        let mut state = self.state.lock();
        let connection = state.idle.pop()?;
        state.lent += 1;
        drop(state);
        Some(self.lend_connection(connection, work))
    }

    /// Runs `work` with a connection, which is opened if none is idle. May block.
    pub(crate) fn lend<T>(&self, work: impl FnOnce(&mut Connection) -> T) -> Result<T, HubError> {
        if let Some(connection) = &self.writer_connection {
            return Ok(work(&mut connection.lock()));
        }
        let mut state = self.state.lock();
        while state.is_paused {
            self.returned.wait(&mut state);
        }
        if state.idle.is_empty() && state.lent > 0 {
            self.returned.wait_for(&mut state, WAIT_FOR_IDLE);
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
        Ok(self.lend_connection(connection, work))
    }

    fn lend_connection<T>(&self, mut connection: Connection, work: impl FnOnce(&mut Connection) -> T) -> T {
        let mut loan = Loan { readers: self, returned: None };
        let result = work(&mut connection);
        loan.returned = Some(connection);
        result
    }

    /// Runs `work` while this process has no read connection open.
    ///
    /// Waits until lent connections are returned, and lends none meanwhile.
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

    /// Closes the idle connections.
    pub(crate) fn close(&self) {
        self.state.lock().idle.clear();
    }
}

/// Guard of a lent connection: returns the connection to the pool on drop, or closes it after a panic.
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
            // A connection that is still in a transaction would keep reading an old snapshot.
            && connection.is_autocommit()
            && state.idle.len() < MAX_IDLE
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
