//! Domain types and pure rules of Switchboard.
//!
//! A [`Message`] is sent from an [`AgentId`] to an [`Address`]. [`resolve`] turns the address into agents, [`plan`]
//! selects one [`Route`] for each, [`after_attempt`] returns the state after a delivery attempt, and [`Receipt::of`]
//! derives the receipt for the sender. All of them are pure functions: this crate does no IO, knows no protocol and has
//! no clock (`now` is an argument).

mod address;
mod agent;
mod budget;
mod delivery;
mod directory;
mod error_chain;
pub mod json;
mod json_error;
mod json_line;
mod kind;
mod limits;
mod message;
mod message_id;
mod name;
mod pattern;
mod plan;
mod presence;
mod receipt;
mod render;
mod resolve;
mod retry;
mod route;
mod routing_rules;
mod sanitize;
mod suggest;
mod task;
mod trust;

pub use address::{Address, AddressError, GroupId, JobId, NodeId};
pub use agent::AgentId;
pub use budget::{Budget, Budgets, Usage, check_budget, estimate_tokens};
pub use delivery::{Delivery, DeliveryId, DeliveryState, Milestones, NO_ANSWER};
pub use directory::{AgentRecord, Directory, TeamRecord};
pub use error_chain::error_chain;
pub use json_error::{describe_field_error, describe_json_error};
pub use json_line::escape_json_line;
pub use kind::{Kind, KindError};
pub use limits::{LoopLimits, RecentReplies, TripReason, check_loops};
pub use message::{Door, Hop, Message, NO_RELAY, NativeId, Origin, POSTED_IN};
pub use message_id::{IdClock, MessageId, MessageIdError};
pub use name::{HUMAN, Name, NameError};
pub use pattern::{Pattern, PatternError, has_wildcard};
pub use plan::{Plan, PlanEntry, RouteCandidates, RouteRank, plan, rank_routes};
pub use presence::{Heartbeat, OFFLINE, Presence, PresenceState, PresenceTimeouts, SilenceMeaning};
pub use receipt::{OverallState, Receipt};
pub use render::{BODY_PREFIX, FrameNonce, quote_continuation, quote_lines};
pub use resolve::{Recipient, ResolveError, ResolvedVia, find_broken_rules, resolve, resolve_recipients};
pub use retry::{Outcome, RetryPolicy, after_attempt};
pub use route::Route;
pub use routing_rules::{ForwardError, RECEIVED_BY, RoutingRules, RuleTarget};
pub use sanitize::{
    Flag, Sanitized, clean, clean_value, is_hidden, label_inline, quote_inline, reveal, reveal_command,
    sanitize, sanitize_description, sanitize_description_value, sanitize_inline, sanitize_value,
};
pub use suggest::suggest_similar;
pub use task::{TaskName, TaskNameError};
pub use trust::Trust;
