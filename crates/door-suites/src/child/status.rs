//! Status, events and counters of a child.

use std::sync::atomic::{AtomicU64, Ordering};

use jiff::Timestamp;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::host::ClientRef;

/// Kind of list that a child offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ListKind {
    /// Tools.
    Tools,
    /// Resources.
    Resources,
    /// Resource templates.
    ResourceTemplates,
    /// Prompts.
    Prompts,
}

impl ListKind {
    /// Returns the MCP method that lists these items.
    pub fn method(self) -> &'static str {
        match self {
            Self::Tools => "tools/list",
            Self::Resources => "resources/list",
            Self::ResourceTemplates => "resources/templates/list",
            Self::Prompts => "prompts/list",
        }
    }

    /// Returns the result member that contains them.
    pub fn member(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Resources => "resources",
            Self::ResourceTemplates => "resourceTemplates",
            Self::Prompts => "prompts",
        }
    }

    /// Returns the server capability for them.
    pub(super) fn capability(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Resources | Self::ResourceTemplates => "resources",
            Self::Prompts => "prompts",
        }
    }
}

/// Result of the handshake: MCP's `InitializeResult`.
#[derive(Debug, Clone, PartialEq)]
pub struct InitializeResult {
    /// Negotiated protocol revision.
    pub protocol_version: String,
    /// Server capabilities.
    pub capabilities: Value,
    /// Server name and version.
    pub server_info: Value,
    /// Instructions for models.
    pub instructions: Option<String>,
}

/// Event of a child.
#[derive(Debug, Clone)]
pub enum ChildEvent {
    /// A list has changed. Debounced to one event per list in 100 ms.
    ListChanged(ListKind),
    /// A resource was updated; carries the notification's parameters.
    ResourceUpdated(Box<RawValue>),
    /// A notification for one client: a log message, or the completion of an elicitation.
    Notification {
        /// Method of the notification.
        method: &'static str,
        /// Its parameters.
        params: Box<RawValue>,
        /// The receiving client.
        to: ClientRef,
    },
    /// The child has stopped or was disconnected.
    Stopped {
        /// Cause.
        reason: String,
    },
}

/// Status of a child.
#[derive(Debug, Clone)]
pub struct ChildStatus {
    /// Lifecycle state.
    pub state: ChildState,
    /// Counters since the handle was created.
    pub counts: Counts,
    /// Last error.
    pub last_error: Option<String>,
}

/// Lifecycle state of a child.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChildState {
    /// Never started, or stopped.
    NotStarted,
    /// Starting.
    Starting,
    /// Running.
    Running {
        /// Process id, if it is a local process.
        pid: Option<u32>,
        /// Start time.
        since: Timestamp,
        /// Number of requests in flight.
        in_flight: usize,
    },
    /// Failed; in backoff until `until`.
    Backoff {
        /// Earliest time of the next start.
        until: Timestamp,
        /// Cause of the failure.
        reason: String,
    },
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters of a child.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct Counts { $($(#[$doc])* pub $name: u64,)* }

        /// Live counters behind [`Counts`].
        #[derive(Debug, Default)]
        pub(super) struct Counters { $(pub(super) $name: AtomicU64,)* }

        impl Counters {
            /// Returns the current values.
            pub(super) fn read(&self) -> Counts {
                Counts { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }
    };
}

counters! {
    /// Successful starts.
    starts,
    /// Failed starts.
    failed_starts,
    /// Unexpected ends.
    crashes,
    /// Requests sent.
    calls,
    /// Requests that timed out.
    timeouts,
    /// Cancelled requests.
    cancelled,
    /// Answers without a matching request: unknown, duplicate or late ones.
    stray_answers,
    /// Lines on stdout that are not messages.
    stdout_lines,
    /// Progress notifications dropped because their caller was slow.
    dropped_progress,
    /// Refused requests of the child.
    refused_requests,
}

/// Increments a counter.
pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
