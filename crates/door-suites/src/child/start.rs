//! How a child is started and opened, by its transport.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, timeout_at};

use super::connection::{Connection, EndKind};
use super::error::ChildError;
use super::log::file_name;
use super::opening;
use super::shared::Shared;
use super::{http, sse, stdio, ws};
use crate::host::Caller;
use crate::spec::{Framing, Launch};

/// How much the file with a remembered framing may hold: one word.
const FRAMING_FILE_CAP: u64 = 64;

/// Starts children of one description, and remembers how they want to be written to.
pub(super) struct Starter {
    shared: Arc<Shared>,
    framing: Mutex<Option<Framing>>,
}

impl Starter {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, framing: Mutex::new(None) }
    }

    /// Starts and opens the child, or says why not and leaves nothing behind.
    pub(super) async fn start(&self, caller: &Caller) -> Result<Arc<Connection>, ChildError> {
        self.shared.log.begin();
        match &self.shared.spec.launch {
            Launch::Stdio { framing: Framing::Auto, .. } => self.start_by_trying(caller).await,
            Launch::Stdio { framing, .. } => {
                let limit = self.shared.spec.limits.spawn;
                self.start_program(caller, *framing, limit).await.map_err(|(error, _)| error)
            }
            Launch::Http { url, headers } => http::start(&self.shared, url, headers, caller).await,
            Launch::Sse { url, headers } => sse::start(&self.shared, url, headers, caller).await,
            Launch::Ws { url, headers } => ws::start(&self.shared, url, headers, caller).await,
        }
    }

    /// Writes lines at first. A program that said nothing at all to them and still runs may be waiting for the end
    /// of a header block: it is started anew, since its stdin is spoilt, and written to in blocks.
    ///
    /// One that says nothing to those either, but wrote something beside its protocol, may be busy: `npx` and its
    /// like download a server before they start it. It is started once more, and given the time of a request.
    async fn start_by_trying(&self, caller: &Caller) -> Result<Arc<Connection>, ChildError> {
        let limits = &self.shared.spec.limits;
        let first = self.remembered();
        let (error, was_mute) = match self.start_program(caller, first, limits.spawn).await {
            Ok(connection) => return Ok(connection),
            // What was remembered may be out of date, and then the program may fail in any way.
            Err((error, was_mute)) if was_mute || first == Framing::ContentLength => (error, was_mute),
            Err((error, _)) => return Err(error),
        };
        let second = match first {
            Framing::ContentLength => Framing::Newline,
            Framing::Auto | Framing::Newline => Framing::ContentLength,
        };
        tracing::debug!(
            child = self.shared.name(),
            ?second,
            "it said nothing; it is written to in another way"
        );
        let connection = match self.start_program(caller, second, limits.spawn).await {
            Ok(connection) => {
                self.remember(second);
                return Ok(connection);
            }
            Err(_) if was_mute && limits.rpc > limits.spawn && !self.shared.log.last().is_empty() => {
                tracing::debug!(child = self.shared.name(), "it may be busy; it is given more time");
                self.start_program(caller, Framing::Newline, limits.rpc).await
            }
            failed => failed,
        };
        // What is told is why the usual way failed: the other one fails for every child that is merely slow.
        connection.map_err(|_| error)
    }

    /// Starts the program and opens it. The error says also whether it ran and said nothing.
    async fn start_program(
        &self,
        caller: &Caller,
        framing: Framing,
        limit: Duration,
    ) -> Result<Arc<Connection>, (ChildError, bool)> {
        let connection = stdio::start(&self.shared, framing).map_err(|error| (error, false))?;
        let starting = Unopened::new(&connection);
        let until = Instant::now() + limit;
        let opened = match timeout_at(until, opening::initialize(&connection, caller, limit)).await {
            Ok(opened) => opened,
            Err(_) => Err(spawn_timeout(&self.shared)),
        };
        match opened {
            Ok(()) => {
                starting.opened();
                Ok(connection)
            }
            Err(error) => {
                let was_mute = !connection.is_heard() && connection.ending().is_none();
                let error = as_start_error(&self.shared, error);
                drop(starting);
                self.shared.gone().await;
                Err((error, was_mute))
            }
        }
    }

    fn remembered(&self) -> Framing {
        let mut framing = self.framing.lock();
        *framing.get_or_insert_with(|| {
            let cache = self.shared.options.cache.as_ref();
            let file = cache.and_then(|dir| dir.read(&self.framing_file(), FRAMING_FILE_CAP).ok().flatten());
            match file {
                Some(file) if file.bytes.trim_ascii() == b"content-length" => Framing::ContentLength,
                _ => Framing::Newline,
            }
        })
    }

    fn remember(&self, framing: Framing) {
        *self.framing.lock() = Some(framing);
        let Some(dir) = &self.shared.options.cache else { return };
        let kept = match framing {
            Framing::ContentLength => dir.replace(&self.framing_file(), b"content-length\n", 0o600),
            Framing::Auto | Framing::Newline => dir.remove(&self.framing_file()).map(drop),
        };
        if let Err(error) = kept {
            tracing::warn!(child = self.shared.name(), %error, "how it is written to cannot be remembered");
        }
    }

    fn framing_file(&self) -> String {
        format!("{}.framing", file_name(self.shared.name()))
    }
}

/// A connection that is not open yet, and ends when its opening does not come to an end.
pub(super) struct Unopened {
    connection: Arc<Connection>,
    is_open: bool,
}

impl Unopened {
    pub(super) fn new(connection: &Arc<Connection>) -> Self {
        Self { connection: Arc::clone(connection), is_open: false }
    }

    /// It is open: it stays.
    pub(super) fn opened(mut self) {
        self.is_open = true;
    }
}

impl Drop for Unopened {
    fn drop(&mut self) {
        if !self.is_open {
            // A program that did not even open gets no time to end.
            self.connection.end("it was not opened", EndKind::Fault);
        }
    }
}

/// Opens a connection that needs nothing but `initialize`, within the time that a start may take.
pub(super) async fn open_session(
    connection: Arc<Connection>,
    caller: &Caller,
) -> Result<Arc<Connection>, ChildError> {
    let shared = Arc::clone(&connection.shared);
    let starting = Unopened::new(&connection);
    let limit = shared.spec.limits.spawn;
    opening::initialize(&connection, caller, limit).await.map_err(|error| as_start_error(&shared, error))?;
    starting.opened();
    Ok(connection)
}

/// The error of a start that took too long.
pub(super) fn spawn_timeout(shared: &Shared) -> ChildError {
    ChildError::SpawnTimeout {
        child: shared.name().to_owned(),
        after: shared.spec.limits.spawn,
        said: shared.log.last(),
    }
}

/// What went wrong while a child was opened, told as a start that failed.
pub(super) fn as_start_error(shared: &Shared, error: ChildError) -> ChildError {
    match error {
        ChildError::Timeout { .. } => spawn_timeout(shared),
        ChildError::Gone { cause, said, .. } => {
            let hint = match &shared.spec.launch {
                Launch::Stdio { .. } => "try the command by hand: it has to stay and answer on stdout",
                Launch::Http { .. } | Launch::Sse { .. } | Launch::Ws { .. } => {
                    "check its `url`, `type` and `headers`, and that the server runs"
                }
            };
            ChildError::CannotStart { child: shared.name().to_owned(), cause, said, hint: hint.to_owned() }
        }
        ChildError::Rpc(error) => shared
            .cannot_start(format!("it answered with an error: {error}"), "check that it is an MCP server"),
        error => error,
    }
}
