//! State of a child that survives restarts: spec, log, counters and events.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use switchboard_sys::debounce::Debounce;
use switchboard_sys::files::Dir;
use switchboard_sys::reaper::ReaperClient;
use tokio::sync::{broadcast, watch};
use tokio::time::Instant;

use super::error::ChildError;
use super::log::{ChildLog, Redact};
use super::status::{ChildEvent, Counters, ListKind};
use crate::spec::ChildSpec;

/// Capacity of the event channel. A receiver that lags behind gets an error that it missed events.
const EVENTS: usize = 256;

/// Options of a child that are not part of its spec.
#[derive(Clone)]
pub struct ChildOptions {
    /// Folder for the log file `<name>.log`.
    pub log: Option<Dir>,
    /// Folder in which the detected framing of a child is cached.
    pub cache: Option<Dir>,
    /// Client of the reaper, which kills the child if this process is killed.
    pub guard: Option<ReaperClient>,
    /// Function that redacts secrets before a text is logged or quoted.
    pub redact: Option<Redact>,
    /// Maximum size of an accepted message, in bytes.
    pub message_cap: usize,
    /// Maximum number of waiting requests; further requests are rejected with [`ChildError::Busy`].
    pub queue: usize,
    /// Grace period after stdin is closed, and again after SIGTERM.
    pub grace: Duration,
    /// Restart policy: backoff and circuit breaker.
    pub recovery: RecoveryRules,
}

/// Restart policy: backoff and circuit breaker.
#[derive(Debug, Clone, Copy)]
pub struct RecoveryRules {
    /// Backoff after the first failure. It doubles with each failure; jitter reduces it by up to half.
    pub first: Duration,
    /// Maximum backoff.
    pub most: Duration,
    /// Number of consecutive failed starts that opens the circuit breaker.
    pub failures: u32,
    /// Time for which the circuit breaker stays open.
    pub open: Duration,
    /// Uptime after which a crash counts as the first failure again.
    pub healthy: Duration,
}

impl Default for ChildOptions {
    fn default() -> Self {
        Self {
            log: None,
            cache: None,
            guard: None,
            redact: None,
            message_cap: 64 * 1024 * 1024,
            queue: 1024,
            // Two grace periods and the final SIGKILL must take less than the five seconds allowed for shutdown.
            grace: Duration::from_millis(1500),
            recovery: RecoveryRules {
                first: Duration::from_millis(200),
                most: Duration::from_secs(5),
                failures: 5,
                open: Duration::from_secs(30),
                healthy: Duration::from_secs(10),
            },
        }
    }
}

/// State shared by all parts of a child's client, across restarts.
pub(super) struct Shared {
    pub(super) spec: Arc<ChildSpec>,
    pub(super) options: ChildOptions,
    pub(super) log: ChildLog,
    pub(super) counters: Counters,
    /// Number of connections that are not yet cleaned up, including ended ones.
    living: watch::Sender<usize>,
    /// Event channel, created for the first listener. Its buffer takes 20 kB, and most children are never started.
    events: OnceLock<broadcast::Sender<ChildEvent>>,
    list_changes: Mutex<HashMap<ListKind, ListChangeState>>,
    /// Number of tool-list changes that the child announced. Counted immediately, whereas events are debounced.
    pub(super) tool_changes: AtomicU64,
}

/// Guard for a resource of the child that must be released before the child counts as stopped.
pub(super) struct LiveGuard(Arc<Shared>);

impl Drop for LiveGuard {
    fn drop(&mut self) {
        self.0.living.send_modify(|living| *living -= 1);
    }
}

/// Debounce state of one list: when the last event was sent, and whether another is scheduled.
#[derive(Clone, Copy)]
struct ListChangeState {
    sent: Instant,
    is_due: bool,
}

impl Shared {
    pub(super) fn new(spec: Arc<ChildSpec>, options: ChildOptions) -> Self {
        let log = ChildLog::new(options.log.clone(), &spec.name, options.redact.clone());
        let (living, _) = watch::channel(0);
        let (counters, events, list_changes) = (Counters::default(), OnceLock::new(), Mutex::default());
        let tool_changes = AtomicU64::new(0);
        Self { spec, options, log, counters, living, events, list_changes, tool_changes }
    }

    /// Registers a resource that must be released before the child counts as stopped.
    pub(super) fn track(self: &Arc<Self>) -> LiveGuard {
        self.living.send_modify(|living| *living += 1);
        LiveGuard(Arc::clone(self))
    }

    /// Waits until all resources of the child are released.
    pub(super) async fn wait_stopped(&self) {
        // The wait cannot fail: `self` owns the sender, so the sender outlives the wait.
        let _ = self.living.subscribe().wait_for(|&living| living == 0).await;
    }

    /// Returns the child's name.
    pub(super) fn name(&self) -> &str {
        &self.spec.name
    }

    /// Returns the path of the file that describes the child.
    pub(super) fn file(&self) -> &PathBuf {
        &self.spec.file
    }

    pub(super) fn events(&self) -> broadcast::Receiver<ChildEvent> {
        self.events.get_or_init(|| broadcast::channel(EVENTS).0).subscribe()
    }

    /// Publishes an event to the listeners, if there are any.
    pub(super) fn publish(&self, event: ChildEvent) {
        if let Some(events) = self.events.get() {
            let _ = events.send(event);
        }
    }

    /// Publishes a list change. Events are debounced per list.
    pub(super) fn list_changed(self: &Arc<Self>, kind: ListKind) {
        if kind == ListKind::Tools {
            self.tool_changes.fetch_add(1, Ordering::Relaxed);
        }
        let now = Instant::now();
        let mut changes = self.list_changes.lock();
        match changes.get(&kind).copied() {
            Some(ListChangeState { is_due: true, .. }) => {}
            Some(ListChangeState { sent, .. }) if now < sent + Debounce::ANNOUNCED_LISTS.delay => {
                changes.insert(kind, ListChangeState { sent, is_due: true });
                let shared = Arc::clone(self);
                tokio::spawn(async move {
                    tokio::time::sleep_until(sent + Debounce::ANNOUNCED_LISTS.delay).await;
                    let change = ListChangeState { sent: Instant::now(), is_due: false };
                    shared.list_changes.lock().insert(kind, change);
                    shared.publish(ChildEvent::ListChanged(kind));
                });
            }
            _ => {
                changes.insert(kind, ListChangeState { sent: now, is_due: false });
                self.publish(ChildEvent::ListChanged(kind));
            }
        }
    }

    /// Builds the error for a failed start.
    pub(super) fn cannot_start(&self, cause: impl Into<String>, hint: impl Into<String>) -> ChildError {
        ChildError::CannotStart {
            child: self.name().to_owned(),
            cause: self.log.clean(&cause.into()),
            last_line: self.log.last(),
            hint: hint.into(),
        }
    }
}
