//! Starts a child and opens its session, for each kind of transport.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use switchboard_sys::platform;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::connection::{Connection, EndKind};
use super::downloaders::may_download;
use super::error::ChildError;
use super::handshake;
use super::log::file_name;
use super::shared::Shared;
use super::{http, sse, stdio, ws};
use crate::host::Caller;
use crate::spec::{Framing, Launch};

/// Number of CPU samples that decide whether a program is busy. `BUSY_INTERVAL` is the interval between two samples.
const BUSY_SAMPLES: u32 = 10;
const BUSY_INTERVAL: Duration = Duration::from_millis(50);

/// Minimum number of CPU ticks during the samples of a busy program.
///
/// A tick takes 10 ms, so this is a tenth of a core.
const BUSY_TICKS: u64 = 5;

/// Extra time for the `initialize` request, ten times the duration of a busy check.
///
/// It keeps the request from timing out before the final busy check.
const FINAL_CHECK: Duration = Duration::from_secs(5);

/// Maximum size of a framing cache file, which contains one word.
const FRAMING_FILE_CAP: u64 = 64;

/// Hint for a remote server that cannot be opened.
const CHECK_REMOTE: &str = "check its `url`, `type` and `headers`, and that the server runs";

/// Starts a child, and caches the framing that was detected for it.
pub(super) struct Starter {
    shared: Arc<Shared>,
    framing: Mutex<Option<Framing>>,
}

impl Starter {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, framing: Mutex::new(None) }
    }

    /// Starts the child and opens its session. On failure, everything that was started is cleaned up.
    pub(super) async fn start(&self, caller: &Caller) -> Result<Arc<Connection>, ChildError> {
        self.shared.log.start_run();
        match &self.shared.spec.launch {
            Launch::Stdio { framing: Framing::Auto, command, .. } => {
                self.start_with_fallback(caller, may_download(command)).await
            }
            Launch::Stdio { framing, command, .. } => {
                let limit = self.first_limit(may_download(command));
                self.start_program(caller, *framing, limit).await.map_err(|failure| failure.error)
            }
            Launch::Http { url, headers } => http::start(&self.shared, url, headers, caller).await,
            Launch::Sse { url, headers } => sse::start(&self.shared, url, headers, caller).await,
            Launch::Ws { url, headers } => ws::start(&self.shared, url, headers, caller).await,
        }
    }

    /// Starts a program, trying both framings: the cached one first, by default lines.
    ///
    /// A program that is idle and wrote nothing may be waiting for the end of a header block. Its stdin is unusable by
    /// then, so the program is restarted with the other framing.
    ///
    /// A known package runner gets the download timeout at once. Any other program that does not answer in either
    /// framing, but wrote to its log, may be busy with a download. It is restarted once more with the download timeout.
    async fn start_with_fallback(
        &self,
        caller: &Caller,
        may_fetch: bool,
    ) -> Result<Arc<Connection>, ChildError> {
        let limits = &self.shared.spec.limits;
        let first = self.cached_framing();
        let first_limit = self.first_limit(may_fetch);
        let failure = match self.start_program(caller, first, first_limit).await {
            Ok(connection) => return Ok(connection),
            Err(failure) => failure,
        };
        let was_mute = failure.kind == FailureKind::Mute;
        // The cached framing may be outdated, in which case the program may fail in any way.
        let may_be_outdated = first == Framing::ContentLength && failure.kind != FailureKind::Busy;
        if !was_mute && !may_be_outdated {
            return Err(failure.error);
        }
        let second = match first {
            Framing::ContentLength => Framing::Newline,
            Framing::Auto | Framing::Newline => Framing::ContentLength,
        };
        tracing::debug!(child = self.shared.name(), ?second, "no answer; trying the other message framing");
        match self.start_program(caller, second, limits.spawn).await {
            Ok(connection) => {
                self.cache_framing(second);
                Ok(connection)
            }
            Err(busy) if busy.kind == FailureKind::Busy => Err(busy.error),
            Err(_) if was_mute && limits.fetch > first_limit && !self.shared.log.last().is_empty() => {
                tracing::debug!(child = self.shared.name(), "it may be busy; the timeout is extended");
                let last = self.start_program(caller, Framing::Newline, limits.fetch).await;
                last.map_err(|failure| failure.error)
            }
            // Report the failure of the first framing, because the other framing fails for every slow child.
            Err(_) => Err(failure.error),
        }
    }

    /// Returns the timeout of the first start.
    fn first_limit(&self, may_fetch: bool) -> Duration {
        let limits = &self.shared.spec.limits;
        if may_fetch { limits.fetch } else { limits.spawn }
    }

    /// Starts the program and opens a session.
    ///
    /// If the program is still busy at the timeout, the timeout is extended to the download timeout.
    async fn start_program(
        &self,
        caller: &Caller,
        framing: Framing,
        limit: Duration,
    ) -> Result<Arc<Connection>, StartFailure> {
        let started = stdio::start(&self.shared, framing).await;
        let connection = started.map_err(|error| StartFailure { error, kind: FailureKind::Other })?;
        let starting = OpeningGuard::new(&connection);
        let most = self.shared.spec.limits.fetch.max(limit);
        let started = Instant::now();
        let (error, was_busy) = tokio::select! {
            biased;
            opened = handshake::initialize(&connection, caller, most + FINAL_CHECK) => match opened {
                Ok(()) => {
                    starting.complete();
                    return Ok(connection);
                }
                Err(error) => (as_start_error(&self.shared, error, started.elapsed()), false),
            },
            was_busy = wait_out_start(&connection, started, limit, most) => {
                (spawn_timeout(&self.shared, started.elapsed()), was_busy)
            }
        };
        let kind = match (was_busy, connection.has_output() || connection.ending().is_some()) {
            (true, _) => FailureKind::Busy,
            (false, false) => FailureKind::Mute,
            (false, true) => FailureKind::Other,
        };
        drop(starting);
        self.shared.wait_stopped().await;
        Err(StartFailure { error, kind })
    }

    fn cached_framing(&self) -> Framing {
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

    pub(super) fn cache_framing(&self, framing: Framing) {
        *self.framing.lock() = Some(framing);
        let Some(dir) = &self.shared.options.cache else { return };
        let kept = match framing {
            Framing::ContentLength => dir.replace(&self.framing_file(), b"content-length\n", 0o600),
            Framing::Auto | Framing::Newline => dir.remove(&self.framing_file()).map(drop),
        };
        if let Err(error) = kept {
            tracing::warn!(child = self.shared.name(), %error, "the message framing cannot be cached");
        }
    }

    fn framing_file(&self) -> String {
        format!("{}.framing", file_name(self.shared.name()))
    }
}

/// A failed start, with a classification that decides whether to try another framing.
struct StartFailure {
    error: ChildError,
    kind: FailureKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FailureKind {
    /// The program was idle and wrote nothing: it may expect another framing.
    Mute,
    /// The program was still busy at the timeout: a restart would not help.
    Busy,
    /// The program ended, or wrote something other than an answer.
    Other,
}

/// Waits for the start timeout: `limit` for an idle program, up to `most` for a busy one.
///
/// Returns true if the program was busy at the end of the wait.
async fn wait_out_start(connection: &Connection, started: Instant, limit: Duration, most: Duration) -> bool {
    sleep_until(started + limit).await;
    let Some(pid) = connection.pid else { return false };
    loop {
        let is_busy = is_busy(pid).await;
        if !is_busy || started.elapsed() >= most {
            return is_busy;
        }
        tracing::debug!(
            child = connection.shared.name(),
            pid,
            "it is still starting; the timeout is extended"
        );
    }
}

/// Returns true if a program was running or runnable in a large part of the samples.
async fn is_busy(pid: u32) -> bool {
    let activity =
        || async move { tokio::task::spawn_blocking(move || platform::activity(pid)).await.ok().flatten() };
    let Some(first) = activity().await else { return false };
    let (mut last, mut running) = (first, 0);
    for _ in 0..BUSY_SAMPLES {
        sleep(BUSY_INTERVAL).await;
        let Some(now) = activity().await else { return false };
        running += u32::from(now.is_running);
        last = now;
    }
    running * 2 >= BUSY_SAMPLES || last.ticks.saturating_sub(first.ticks) >= BUSY_TICKS
}

/// Guard of an incomplete handshake. Ends the connection if it is dropped before `complete`.
pub(super) struct OpeningGuard {
    connection: Arc<Connection>,
    is_open: bool,
}

impl OpeningGuard {
    pub(super) fn new(connection: &Arc<Connection>) -> Self {
        Self { connection: Arc::clone(connection), is_open: false }
    }

    /// Marks the handshake as complete, so that dropping the guard does not end the connection.
    pub(super) fn complete(mut self) {
        self.is_open = true;
    }
}

impl Drop for OpeningGuard {
    fn drop(&mut self) {
        if !self.is_open {
            // A program that never completed the handshake is killed without a grace period.
            self.connection.end("the connection was not opened", EndKind::Fault);
        }
    }
}

/// Opens a connection whose handshake is a plain `initialize`, within the start timeout.
pub(super) async fn open_session(
    connection: Arc<Connection>,
    caller: &Caller,
) -> Result<Arc<Connection>, ChildError> {
    let shared = Arc::clone(&connection.shared);
    let starting = OpeningGuard::new(&connection);
    let limit = shared.spec.limits.spawn;
    handshake::initialize(&connection, caller, limit)
        .await
        .map_err(|error| as_start_error(&shared, error, limit))?;
    starting.complete();
    Ok(connection)
}

/// Runs the opening of a remote child within its start timeout.
pub(super) async fn within_spawn_limit<T>(
    shared: &Shared,
    starting: impl Future<Output = Result<T, ChildError>>,
) -> Result<T, ChildError> {
    let limit = shared.spec.limits.spawn;
    timeout(limit, starting).await.unwrap_or_else(|_| Err(spawn_timeout(shared, limit)))
}

/// Builds the error for a start that timed out after `after`.
pub(super) fn spawn_timeout(shared: &Shared, after: Duration) -> ChildError {
    let advice = match &shared.spec.launch {
        Launch::Stdio { .. } => "run its command by hand once, which also downloads what it needs",
        Launch::Http { .. } | Launch::Sse { .. } | Launch::Ws { .. } => CHECK_REMOTE,
    };
    let hint = format!("{advice}; or raise `spawnTimeoutMs` in {}", shared.file().display());
    ChildError::SpawnTimeout { child: shared.name().to_owned(), after, last_line: shared.log.last(), hint }
}

/// Converts an error of the handshake into an error of the start.
pub(super) fn as_start_error(shared: &Shared, error: ChildError, limit: Duration) -> ChildError {
    match error {
        ChildError::Timeout { .. } => spawn_timeout(shared, limit),
        ChildError::Disconnected { cause, last_line, .. } => {
            let hint = match &shared.spec.launch {
                Launch::Stdio { .. } => "try the command by hand: it must keep running and answer on stdout",
                Launch::Http { .. } | Launch::Sse { .. } | Launch::Ws { .. } => CHECK_REMOTE,
            };
            ChildError::CannotStart {
                child: shared.name().to_owned(),
                cause,
                last_line,
                hint: hint.to_owned(),
            }
        }
        ChildError::Refused { cause, .. } => shared.cannot_start(cause, CHECK_REMOTE),
        ChildError::Rpc(error) => shared
            .cannot_start(format!("it answered with an error: {error}"), "check that it is an MCP server"),
        error => error,
    }
}
