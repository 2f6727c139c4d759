//! Suites: child MCP servers, each offered as a single tool.
//!
//! This crate discovers the children of a workspace, checks trust and pins, runs one MCP client per child, and offers
//! the children's tools to models. [`Suites`] is the entry point. The crate implements the suite proxy's architecture
//! and does not depend on mailboxes, channels or the hub.

mod arguments;
mod blocking;
mod cache;
mod call_outcome;
mod catalogue;
mod child;
mod config;
mod content_hash;
mod descriptions;
mod diff;
mod discovery;
mod edit;
mod error;
mod expand;
mod expose;
mod flat_tools;
mod host;
mod import;
mod introspect;
mod mcp_json;
mod metrics;
mod names;
mod overview;
mod passthrough;
mod paths;
mod pending_catalogues;
mod pins;
mod proxy_loop;
mod ranking;
mod redact;
mod rules;
mod savings;
mod schema;
mod signature;
mod spec;
mod suite;
mod suites;
#[cfg(test)]
mod suites_tests;
mod summary;
#[cfg(test)]
mod test_files;
mod tool;
mod tool_index;
mod tool_result;
mod tool_search;
mod trust;
mod watch;
mod wrapper;

pub use child::{
    Child, ChildError, ChildEvent, ChildOptions, ChildState, ChildStatus, Counts, InitializeResult, ListKind,
    Listing, RecoveryRules, log_name,
};
pub use config::{
    CacheSettings, Config, ExposeMode, ExposeSettings, Introspection, IntrospectionMode, RateLimit,
    SuiteSettings, Timeouts, UnknownKey, unknown_keys,
};
pub use descriptions::{DESCRIPTIONS_NAME, Description, Descriptions, suite_description};
pub use discovery::{Discovery, Issue, discover, discover_with, is_reserved};
pub use edit::{AddOutcome, add_child, remove_child};
pub use error::SuiteError;
pub use expand::{ExpandError, Lookup, expand};
pub use expose::is_covered_by;
pub use host::{Caller, ClientRef, Host, RpcError};
pub use import::{
    Candidate, Client, ImportOutcome, RevertOutcome, RootFile, Servers, import, read_client, revert,
};
pub use mcp_json::{CommandLine, McpFile, TransportKind};
pub use names::child_name;
pub use overview::Overview;
pub use paths::SuitePaths;
pub use pins::{ChangedTool, Pins};
pub use proxy_loop::VARIABLE as PROXY_CHAIN_VARIABLE;
pub use redact::{REDACTED, Secrets, redact, redact_values};
pub use savings::{ChildSavings, MeasuredSavings, SavingsReport, UsageCounts};
pub use spec::{ChildSpec, Expose, Framing, Launch, LaunchTemplate, Limits};
pub use suites::{Suites, SuitesEvent, WarmReport};
pub use trust::{TrustState, TrustStore, render_launch};
pub use watch::watch;
pub use wrapper::{
    ProviderKind, UnwrapOutcome, WrapOutcome, Wrapper, WrapperError, WrapperSettings, is_wrapper,
    original_name, unwrap_child, wrap_child,
};
