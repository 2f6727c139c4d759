//! How a child is started and opened, by its transport.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use switchboard_sys::platform;
use tokio::time::{Instant, sleep, sleep_until};

use super::connection::{Connection, EndKind};
use super::downloaders::fetches;
use super::error::ChildError;
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

/// Time for the last look at a program, so that the request does not time out before it. Ten times what a look takes.
const LAST_LOOK: Duration = Duration::from_secs(5);

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
                self.start_program(caller, *framing, limit).await.map_err(|failure| failure.error)
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
        let failure = match self.start_program(caller, first, first_limit).await {
            Ok(connection) => return Ok(connection),
            Err(failure) => failure,
        };
        let was_mute = failure.kind == FailureKind::Mute;
        // The remembered framing may be out of date, and then the program may fail in any way.
        let may_be_outdated = first == Framing::ContentLength && failure.kind != FailureKind::Busy;
        if !was_mute && !may_be_outdated {
            return Err(failure.error);
        }
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
            Err(busy) if busy.kind == FailureKind::Busy => Err(busy.error),
            Err(_) if was_mute && limits.fetch > first_limit && !self.shared.log.last().is_empty() => {
                tracing::debug!(child = self.shared.name(), "it may be busy; it is given more time");
                let last = self.start_program(caller, Framing::Newline, limits.fetch).await;
                last.map_err(|failure| failure.error)
            }
            // What is told is why the usual way failed: the other one fails for every child that is merely slow.
            Err(_) => Err(failure.error),
        }
    }

    /// How long a program has when it is started as it usually is.
    fn first_limit(&self, may_fetch: bool) -> Duration {
        let limits = &self.shared.spec.limits;
        if may_fetch { limits.fetch } else { limits.spawn }
    }

    /// Starts the program and opens it.
    ///
    /// One that is busy when its time is over is still starting, and has more time, as long as a download would have.
    async fn start_program(
        &self,
        caller: &Caller,
        framing: Framing,
        limit: Duration,
    ) -> Result<Arc<Connection>, StartFailure> {
        let started = stdio::start(&self.shared, framing).await;
        let connection = started.map_err(|error| StartFailure { error, kind: FailureKind::Other })?;
        let starting = Unopened::new(&connection);
        let most = self.shared.spec.limits.fetch.max(limit);
        let begun = Instant::now();
        let (error, was_busy) = tokio::select! {
            biased;
            opened = opening::initialize(&connection, caller, most + LAST_LOOK) => match opened {
                Ok(()) => {
                    starting.opened();
                    return Ok(connection);
                }
                Err(error) => (as_start_error(&self.shared, error, begun.elapsed()), false),
            },
            was_busy = wait_out_start(&connection, begun, limit, most) => {
                (spawn_timeout(&self.shared, begun.elapsed()), was_busy)
            }
        };
        let kind = match (was_busy, connection.is_heard() || connection.ending().is_some()) {
            (true, _) => FailureKind::Busy,
            (false, false) => FailureKind::Mute,
            (false, true) => FailureKind::Other,
        };
        drop(starting);
        self.shared.gone().await;
        Err(StartFailure { error, kind })
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

    pub(super) fn remember(&self, framing: Framing) {
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

/// Failed start of a program, and whether another framing may help.
struct StartFailure {
    error: ChildError,
    kind: FailureKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FailureKind {
    /// It ran, was idle and said nothing: it may wait for another framing.
    Mute,
    /// It was busy when its time was over: it would be as busy in a second start.
    Busy,
    /// It ended, or said something else than an answer.
    Other,
}

/// Waits until the time of a start is over: after the limit once the program is idle, at the latest after `most`. True
/// where the program is busy at that moment.
async fn wait_out_start(connection: &Connection, begun: Instant, limit: Duration, most: Duration) -> bool {
    sleep_until(begun + limit).await;
    let Some(pid) = connection.pid else { return false };
    loop {
        let is_busy = is_busy(pid).await;
        if !is_busy || begun.elapsed() >= most {
            return is_busy;
        }
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
