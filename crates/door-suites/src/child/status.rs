//! Status, events and counters of a child.

use std::sync::atomic::{AtomicU64, Ordering};

use jiff::Timestamp;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::host::ClientRef;

/// Kind of MCP list that a child offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ListKind {
    /// MCP tools.
    Tools,
    /// MCP resources.
    Resources,
    /// MCP resource templates.
    ResourceTemplates,
    /// MCP prompts.
    Prompts,
}

impl ListKind {
    /// Returns the MCP method that lists items of this kind.
    pub fn method(self) -> &'static str {
        match self {
            Self::Tools => "tools/list",
            Self::Resources => "resources/list",
            Self::ResourceTemplates => "resources/templates/list",
            Self::Prompts => "prompts/list",
        }
    }

    /// Returns the member of the method's result that contains the items.
    pub fn member(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Resources => "resources",
            Self::ResourceTemplates => "resourceTemplates",
            Self::Prompts => "prompts",
        }
    }

    /// Returns the server capability required for items of this kind.
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
    /// Server instructions for models.
    pub instructions: Option<String>,
}

/// Event published by a child.
#[derive(Debug, Clone)]
pub enum ChildEvent {
    /// A list has changed. Debounced to one event per list in 100 ms.
    ListChanged(ListKind),
    /// A resource was updated. Carries the parameters of the notification.
    ResourceUpdated(Box<RawValue>),
    /// A notification for one client: a log message or the completion of an elicitation.
    Notification {
        /// Method of the notification.
        method: &'static str,
        /// Parameters of the notification.
        params: Box<RawValue>,
        /// Client that receives the notification.
        to: ClientRef,
    },
    /// The child has stopped or its connection has ended.
    Stopped {
        /// Reason why the child stopped.
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
    /// Text of the last error, if there was one.
    pub last_error: Option<String>,
}

/// Lifecycle state of a child.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChildState {
    /// The child was never started, or has stopped.
    NotStarted,
    /// The child is starting.
    Starting,
    /// The child is running.
    Running {
        /// Process id, if the child is a local process.
        pid: Option<u32>,
        /// Time of the start.
        since: Timestamp,
        /// Number of requests in flight.
        in_flight: usize,
    },
    /// The child failed and is in backoff.
    Backoff {
        /// Earliest time at which the child is started again.
        until: Timestamp,
        /// Cause of the failure.
        reason: String,
    },
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters of a child since its handle was created.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct Counts { $($(#[$doc])* pub $name: u64,)* }

        /// Live counters, from which [`Counts`] are read.
        #[derive(Debug, Default)]
        pub(super) struct Counters { $(pub(super) $name: AtomicU64,)* }

        impl Counters {
            /// Returns a snapshot of the counters.
            pub(super) fn read(&self) -> Counts {
                Counts { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }
    };
}

counters! {
    /// Number of successful starts.
    starts,
    /// Number of failed starts.
    failed_starts,
    /// Number of unexpected ends.
    crashes,
    /// Number of requests sent.
    calls,
    /// Number of requests that timed out.
    timeouts,
    /// Number of requests that were cancelled.
    cancelled,
    /// Number of answers without a matching request, because the id is unknown, duplicate or late.
    stray_answers,
    /// Number of lines on stdout that are not messages.
    stdout_lines,
    /// Number of progress notifications dropped because the caller was slow.
    dropped_progress,
    /// Number of requests of the child that were refused.
    refused_requests,
}

/// Increments a counter.
pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
