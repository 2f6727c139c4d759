//! How a child is started and opened, by its transport.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use switchboard_hub::platform;
use tokio::time::{Instant, sleep, sleep_until};

use super::connection::{Connection, EndKind};
use super::error::ChildError;
use super::fetching::fetches;
use super::log::file_name;
use super::opening;
use super::shared::Shared;
use super::{http, sse, stdio, ws};
use crate::host::Caller;
use crate::spec::{Framing, Launch};

/// How often, and how far apart, a program is looked at to see whether it is busy.
const BUSY_LOOKS: u32 = 10;
const BUSY_PAUSE: Duration = Duration::from_millis(50);

/// The ticks of processor time, 10 ms each, that a program uses in that time if it is busy: a tenth of a processor.
const BUSY_TICKS: u64 = 5;

/// How much the file with a remembered framing may hold: one word.
const FRAMING_FILE_CAP: u64 = 64;

/// What to do about a server elsewhere that cannot be opened.
const CHECK_REMOTE: &str = "check its `url`, `type` and `headers`, and that the server runs";

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
            Launch::Stdio { framing: Framing::Auto, command, .. } => {
                self.start_by_trying(caller, fetches(command)).await
            }
            Launch::Stdio { framing, command, .. } => {
                let limit = self.first_limit(fetches(command));
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
    /// One that is known to download a server before it runs it is waited for at once. Any other that says nothing
    /// to blocks either, but wrote something beside its protocol, may be busy with such a thing: it is started once
    /// more, and given that time.
    async fn start_by_trying(&self, caller: &Caller, may_fetch: bool) -> Result<Arc<Connection>, ChildError> {
        let limits = &self.shared.spec.limits;
        let first = self.remembered();
        let first_limit = self.first_limit(may_fetch);
        let (error, was_mute) = match self.start_program(caller, first, first_limit).await {
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
        match self.start_program(caller, second, limits.spawn).await {
            Ok(connection) => {
                self.remember(second);
                Ok(connection)
            }
            Err(_) if was_mute && limits.fetch > first_limit && !self.shared.log.last().is_empty() => {
                tracing::debug!(child = self.shared.name(), "it may be busy; it is given more time");
                let last = self.start_program(caller, Framing::Newline, limits.fetch).await;
                last.map_err(|(error, _)| error)
            }
            // What is told is why the usual way failed: the other one fails for every child that is merely slow.
            Err(_) => Err(error),
        }
    }

    /// How long a program has when it is started as it usually is.
    fn first_limit(&self, may_fetch: bool) -> Duration {
        let limits = &self.shared.spec.limits;
        if may_fetch { limits.fetch } else { limits.spawn }
    }

    /// Starts the program and opens it. The error says also whether it ran and said nothing.
    ///
    /// One that is busy when its time is over is still starting, and has more time, as long as a download would have.
    async fn start_program(
        &self,
        caller: &Caller,
        framing: Framing,
        limit: Duration,
    ) -> Result<Arc<Connection>, (ChildError, bool)> {
        let connection = stdio::start(&self.shared, framing).await.map_err(|error| (error, false))?;
        let starting = Unopened::new(&connection);
        let most = self.shared.spec.limits.fetch.max(limit);
        let begun = Instant::now();
        let opened = tokio::select! {
            biased;
            opened = opening::initialize(&connection, caller, most) => opened,
            () = over(&connection, begun, limit, most) => Err(spawn_timeout(&self.shared, begun.elapsed())),
        };
        match opened {
            Ok(()) => {
                starting.opened();
                Ok(connection)
            }
            Err(error) => {
                let was_mute = !connection.is_heard() && connection.ending().is_none();
                let error = as_start_error(&self.shared, error, limit);
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

/// Waits until the time of a start is over: after the limit as soon as the program is idle, at the latest after `most`.
async fn over(connection: &Connection, begun: Instant, limit: Duration, most: Duration) {
    sleep_until(begun + limit).await;
    let Some(pid) = connection.pid else { return };
    while begun.elapsed() < most && is_busy(pid).await {
        tracing::debug!(child = connection.shared.name(), pid, "it is busy starting; it is given more time");
    }
}

/// Whether a program uses the processor, or would if it had one, for a good part of a moment.
async fn is_busy(pid: u32) -> bool {
    let activity =
        || async move { tokio::task::spawn_blocking(move || platform::activity(pid)).await.ok().flatten() };
    let Some(first) = activity().await else { return false };
    let (mut last, mut running) = (first, 0);
    for _ in 0..BUSY_LOOKS {
        sleep(BUSY_PAUSE).await;
        let Some(now) = activity().await else { return false };
        running += u32::from(now.is_running);
        last = now;
    }
    running * 2 >= BUSY_LOOKS || last.ticks.saturating_sub(first.ticks) >= BUSY_TICKS
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
    opening::initialize(&connection, caller, limit)
        .await
        .map_err(|error| as_start_error(&shared, error, limit))?;
    starting.opened();
    Ok(connection)
}

/// The error of a start that took longer than this.
pub(super) fn spawn_timeout(shared: &Shared, after: Duration) -> ChildError {
    let advice = match &shared.spec.launch {
        Launch::Stdio { .. } => "run its command by hand once, which also fetches what it may lack",
        Launch::Http { .. } | Launch::Sse { .. } | Launch::Ws { .. } => CHECK_REMOTE,
    };
    let hint = format!("{advice}; or raise `spawnTimeoutMs` in {}", shared.file().display());
    ChildError::SpawnTimeout { child: shared.name().to_owned(), after, said: shared.log.last(), hint }
}

/// What went wrong while a child was opened, told as a start that failed within this time.
pub(super) fn as_start_error(shared: &Shared, error: ChildError, limit: Duration) -> ChildError {
    match error {
        ChildError::Timeout { .. } => spawn_timeout(shared, limit),
        ChildError::Gone { cause, said, .. } => {
            let hint = match &shared.spec.launch {
                Launch::Stdio { .. } => "try the command by hand: it has to stay and answer on stdout",
                Launch::Http { .. } | Launch::Sse { .. } | Launch::Ws { .. } => CHECK_REMOTE,
            };
            ChildError::CannotStart { child: shared.name().to_owned(), cause, said, hint: hint.to_owned() }
        }
        ChildError::Refused { cause, .. } => shared.cannot_start(cause, CHECK_REMOTE),
        ChildError::Rpc(error) => shared
            .cannot_start(format!("it answered with an error: {error}"), "check that it is an MCP server"),
        error => error,
    }
}
