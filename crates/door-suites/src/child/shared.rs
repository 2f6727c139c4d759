//! What belongs to a child however often it is started: its name, its log, its counters, its events.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use switchboard_sys::files::Dir;
use switchboard_sys::guard::Guard;
use tokio::sync::{broadcast, watch};
use tokio::time::Instant;

use super::error::ChildError;
use super::log::{ChildLog, Redact};
use super::status::{ChildEvent, Counters, ListKind};
use crate::spec::ChildSpec;

/// How many events a receiver may be behind. Whoever is further behind is told that it missed some.
const EVENTS: usize = 256;

/// How often a change of the same list is made known at most.
const LIST_CHANGES: Duration = Duration::from_millis(100);

/// The things a child is given beside its description.
#[derive(Clone)]
pub struct ChildOptions {
    /// The folder for `<name>.log`.
    pub log: Option<Dir>,
    /// The folder where is remembered how a child wants to be written to.
    pub cache: Option<Dir>,
    /// What ends the child when this process is killed.
    pub guard: Option<Guard>,
    /// What takes secrets out of texts before they are logged or quoted.
    pub redact: Option<Redact>,
    /// How long a message of a child may be.
    pub message_cap: usize,
    /// How many requests may wait for their turn; one more is turned away as [`ChildError::Busy`].
    pub queue: usize,
    /// How long a child is given to end after its stdin was closed, and again after SIGTERM.
    pub grace: Duration,
    /// When a child that failed is started again.
    pub recovery: RecoveryRules,
}

/// When a child that failed is started again.
#[derive(Debug, Clone, Copy)]
pub struct RecoveryRules {
    /// The wait after the first failure. It doubles with each, and up to half of it is left to chance.
    pub first: Duration,
    /// The longest wait.
    pub most: Duration,
    /// After so many failed starts in a row the child is left alone.
    pub failures: u32,
    /// For so long.
    pub open: Duration,
    /// A child that ran for so long counts as well again.
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
            // Twice this, and the last signal, stay below the five seconds in which all is to be gone.
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

/// What all parts of a child's client share.
pub(super) struct Shared {
    pub(super) spec: Arc<ChildSpec>,
    pub(super) options: ChildOptions,
    pub(super) log: ChildLog,
    pub(super) counters: Counters,
    /// How many connections are not gone yet, ended ones included.
    living: watch::Sender<usize>,
    /// Made when somebody listens: its places take 20 kB, and most children are never started.
    events: OnceLock<broadcast::Sender<ChildEvent>>,
    list_changes: Mutex<HashMap<ListKind, ListChange>>,
    /// How often the list of tools was announced as changed. Counted at once, while events are debounced.
    pub(super) tool_changes: AtomicU64,
}

/// Something that is left of a child as long as this is.
pub(super) struct Living(Arc<Shared>);

impl Drop for Living {
    fn drop(&mut self) {
        self.0.living.send_modify(|living| *living -= 1);
    }
}

/// When a list's change was last made known, and whether the next time is set.
#[derive(Clone, Copy)]
struct ListChange {
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

    /// Marks something that has to be gone before the child counts as stopped.
    pub(super) fn lives(self: &Arc<Self>) -> Living {
        self.living.send_modify(|living| *living += 1);
        Living(Arc::clone(self))
    }

    /// Waits until nothing is left of the child.
    pub(super) async fn gone(&self) {
        // The sender is ours: it does not go away while we wait.
        let _ = self.living.subscribe().wait_for(|&living| living == 0).await;
    }

    /// The child's name.
    pub(super) fn name(&self) -> &str {
        &self.spec.name
    }

    /// The file that describes the child.
    pub(super) fn file(&self) -> &PathBuf {
        &self.spec.file
    }

    pub(super) fn events(&self) -> broadcast::Receiver<ChildEvent> {
        self.events.get_or_init(|| broadcast::channel(EVENTS).0).subscribe()
    }

    /// Makes something known to whoever listens. That nobody does is fine.
    pub(super) fn tell(&self, event: ChildEvent) {
        if let Some(events) = self.events.get() {
            let _ = events.send(event);
        }
    }

    /// Makes a list's change known, at once or when the last time is long enough ago.
    pub(super) fn list_changed(self: &Arc<Self>, what: ListKind) {
        if what == ListKind::Tools {
            self.tool_changes.fetch_add(1, Ordering::Relaxed);
        }
        let now = Instant::now();
        let mut changes = self.list_changes.lock();
        match changes.get(&what).copied() {
            Some(ListChange { is_due: true, .. }) => {}
            Some(ListChange { sent, .. }) if now < sent + LIST_CHANGES => {
                changes.insert(what, ListChange { sent, is_due: true });
                let shared = Arc::clone(self);
                tokio::spawn(async move {
                    tokio::time::sleep_until(sent + LIST_CHANGES).await;
                    let change = ListChange { sent: Instant::now(), is_due: false };
                    shared.list_changes.lock().insert(what, change);
                    shared.tell(ChildEvent::ListChanged(what));
                });
            }
            _ => {
                changes.insert(what, ListChange { sent: now, is_due: false });
                self.tell(ChildEvent::ListChanged(what));
            }
        }
    }

    /// The error of a child that could not be started.
    pub(super) fn cannot_start(&self, cause: impl Into<String>, hint: impl Into<String>) -> ChildError {
        ChildError::CannotStart {
            child: self.name().to_owned(),
            cause: self.log.clean(&cause.into()),
            said: self.log.last(),
            hint: hint.into(),
        }
    }
}
