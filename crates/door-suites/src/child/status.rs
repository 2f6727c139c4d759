//! How a child fares, and what it makes known of itself.

use std::sync::atomic::{AtomicU64, Ordering};

use jiff::Timestamp;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::host::ClientRef;

/// What a child can list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ListKind {
    /// Its tools.
    Tools,
    /// Its resources.
    Resources,
    /// Templates of the addresses of its resources.
    ResourceTemplates,
    /// Its prompts.
    Prompts,
}

impl ListKind {
    /// The method that lists them.
    pub fn method(self) -> &'static str {
        match self {
            Self::Tools => "tools/list",
            Self::Resources => "resources/list",
            Self::ResourceTemplates => "resources/templates/list",
            Self::Prompts => "prompts/list",
        }
    }

    /// The member of the answer that holds them.
    pub fn member(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Resources => "resources",
            Self::ResourceTemplates => "resourceTemplates",
            Self::Prompts => "prompts",
        }
    }

    /// The capability of a server that has them.
    pub(super) fn capability(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Resources | Self::ResourceTemplates => "resources",
            Self::Prompts => "prompts",
        }
    }
}

/// What a child said of itself when it was opened.
#[derive(Debug, Clone, PartialEq)]
pub struct InitializeResult {
    /// The revision of MCP that is spoken with it.
    pub protocol_version: String,
    /// What it can do.
    pub capabilities: Value,
    /// Who it is.
    pub server_info: Value,
    /// What it wants a model to know.
    pub instructions: Option<String>,
}

/// What a child makes known.
#[derive(Debug, Clone)]
pub enum ChildEvent {
    /// One of its lists is no longer what it was. At most one of each kind is sent in 100 ms.
    ListChanged(ListKind),
    /// A resource changed: the parameters of its notification.
    ResourceUpdated(Box<RawValue>),
    /// It has something to say to one client: a line of its protocol's log, or that what it asked for is settled.
    Notification {
        /// The method of its notification.
        method: &'static str,
        /// The parameters.
        params: Box<RawValue>,
        /// Who is meant.
        to: ClientRef,
    },
    /// It no longer runs, or is no longer connected.
    Stopped {
        /// Why.
        reason: String,
    },
}

/// How a child fares.
#[derive(Debug, Clone)]
pub struct ChildStatus {
    /// Whether it runs.
    pub state: ChildState,
    /// What was counted since the handle was made.
    pub counts: Counts,
    /// What went wrong last.
    pub last_error: Option<String>,
}

/// Whether a child runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChildState {
    /// Nobody has called it yet, or it was stopped.
    NotStarted,
    /// It is on its way.
    Starting,
    /// It runs.
    Running {
        /// Its process, where it has one on this machine.
        pid: Option<u32>,
        /// Since when.
        since: Timestamp,
        /// How many requests it has.
        in_flight: usize,
    },
    /// It failed and is not started again before `until`.
    Waiting {
        /// When it may be started again.
        until: Timestamp,
        /// How it failed.
        reason: String,
    },
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What was counted of a child.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct Counts { $($(#[$doc])* pub $name: u64,)* }

        /// The same, while it is being counted.
        #[derive(Debug, Default)]
        pub(super) struct Counters { $(pub(super) $name: AtomicU64,)* }

        impl Counters {
            /// As they stand.
            pub(super) fn read(&self) -> Counts {
                Counts { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }
    };
}

counters! {
    /// Starts that succeeded.
    starts,
    /// Starts that failed.
    failed_starts,
    /// Ends that nobody asked for.
    crashes,
    /// Requests sent.
    calls,
    /// Requests that were not answered in time.
    timeouts,
    /// Requests that were called off.
    cancelled,
    /// Answers to no request: unknown, repeated or late ones.
    stray_answers,
    /// Lines on stdout that were no messages.
    stdout_lines,
    /// Notes of progress that were dropped because their caller was slow.
    dropped_progress,
    /// Requests of the child that were refused.
    refused_requests,
}

/// Counts one more.
pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
