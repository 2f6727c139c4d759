//! Child MCP servers, folded into one tool each.

mod across;
mod answer;
mod arguments;
mod aside;
mod cache;
mod canonical;
mod catalogue;
mod child;
mod config;
mod descriptions;
mod difference;
mod discovery;
mod done;
mod edit;
mod error;
mod expand;
mod expose;
mod flat;
mod host;
mod import;
mod introspect;
mod limits;
mod mcp_json;
mod metrics;
mod names;
mod overview;
mod passthrough;
mod pins;
mod places;
mod raw;
mod redact;
mod rules;
mod savings;
mod schema;
mod search;
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
mod top;
mod trust;
mod unseen;
mod via;
mod watch;
mod wrapper;

pub use child::{
    Child, ChildError, ChildEvent, ChildOptions, ChildState, ChildStatus, Counts, Listed, Listing, Opened,
    RecoveryRules, log_name,
};
pub use config::{
    CacheSettings, Config, ExposeMode, ExposeSettings, Introspection, IntrospectionMode, RateLimit,
    SuiteSettings, Timeouts, UnknownKey, unknown_keys,
};
pub use descriptions::{DESCRIPTIONS_NAME, Description, Descriptions, suite_description};
pub use discovery::{Discovered, Problem, discover, discover_with, is_reserved};
pub use edit::{Put, put_child, remove_child};
pub use error::SuiteError;
pub use expand::{ExpandError, Lookup, expand};
pub use expose::is_within;
pub use host::{Caller, ClientRef, Host, RpcError};
pub use import::{Candidate, Client, Imported, Reverted, RootFile, Servers, import, read_client, revert};
pub use mcp_json::{CommandLine, McpFile, Transport};
pub use names::child_name;
pub use overview::Overview;
pub use pins::{PinProblem, Pins};
pub use places::Places;
pub use redact::{REDACTED, Secrets, redact, redact_values};
pub use savings::{ChildSavings, Counted, Measured, SavingsReport};
pub use spec::{ChildSpec, Expose, Framing, Launch, Limits, Written};
pub use suites::{Suites, SuitesEvent, Warmed};
pub use trust::{Trust, TrustState, shown_launch};
pub use via::VARIABLE as VIA;
pub use watch::watch;
pub use wrapper::{
    ProviderKind, Unwrapped, Wrapped, Wrapper, WrapperError, WrapperSettings, is_wrapper, original_name,
    unwrap_child, wrap_child,
};
