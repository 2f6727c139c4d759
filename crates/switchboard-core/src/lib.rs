//! The nouns and the pure rules of Switchboard.
//!
//! A [`Message`] goes from an [`AgentId`] to an [`Address`]. [`resolve`] turns the address into agents,
//! [`plan`] turns the agents into one [`Route`] each, [`after_attempt`] says what follows a delivery
//! attempt, and [`Receipt::of`] says what the sender may be told. All of them are functions of their
//! arguments: this crate does no IO, knows no protocol and has no clock (`now` is an argument).

mod address;
mod agent;
mod budget;
mod delivery;
mod directory;
mod json_line;
mod json_words;
mod kind;
mod limits;
mod links;
mod message;
mod message_id;
mod name;
mod nearest;
mod pattern;
mod plan;
mod presence;
mod receipt;
mod render;
mod resolve;
mod retry;
mod route;
mod sanitize;
mod task;
mod trust;

pub use address::{Address, AddressError, GroupId, JobId, NodeId};
pub use agent::AgentId;
pub use budget::{Budget, Budgets, Spent, check_budget, tokens_of};
pub use delivery::{Delivery, DeliveryId, DeliveryState, Milestones, NO_ANSWER};
pub use directory::{AgentRecord, Directory, TeamRecord};
pub use json_line::escape_json_line;
pub use json_words::in_json_words;
pub use kind::{Kind, KindError};
pub use limits::{LoopLimits, Recent, Stop, check_loops};
pub use links::{HEARD, LinkError, LinkTarget, Links};
pub use message::{Door, Hop, Message, NativeId, Origin, PASSED_ON, POSTED_IN};
pub use message_id::{IdClock, MessageId, MessageIdError};
pub use name::{HUMAN, Name, NameError};
pub use nearest::nearest;
pub use pattern::{Pattern, PatternError, has_wildcard};
pub use plan::{Considered, Fit, Plan, Planned, consider, plan};
pub use presence::{Awareness, Heartbeat, OFFLINE, Presence, PresenceTimeouts, Silence};
pub use receipt::{Receipt, Standing};
pub use render::{BODY_PREFIX, Mark, quote_continuation, quote_lines};
pub use resolve::{Because, Recipient, ResolveError, broken_links, resolve, trace};
pub use retry::{Outcome, RetryPolicy, after_attempt};
pub use route::Route;
pub use sanitize::{
    Flag, Sanitized, clean, clean_value, is_hidden, label_inline, quote_inline, reveal, reveal_command,
    sanitize, sanitize_description, sanitize_description_value, sanitize_inline, sanitize_value,
};
pub use task::{TaskName, TaskNameError};
pub use trust::Trust;
