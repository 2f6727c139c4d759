//! The actions of people and agents in a workspace: send, reply, wait, acknowledge, claim, reserve …
//!
//! Each action is one function of an [`Actor`] and one request. The faces of Switchboard are the command line, the MCP
//! tools and others. They call these functions and add only their own way to read options and to show results, so an
//! action has the same rules on every face. [`ACTIONS`] lists the actions with their names on each face.
//!
//! This crate knows nothing of clap, MCP, terminals or JSON results.

mod acknowledge;
mod actor;
mod agents;
mod claim;
mod error;
mod list;
mod receipt;
mod reserve;
mod search;
mod send;
mod send_team;
mod terminal;
mod wait;
mod workflow;

pub use acknowledge::{AckStatus, Acknowledge, Acknowledged, acknowledge};
pub use actor::{Actor, known_agent};
pub use agents::{
    CreateTeam, RegisterAgent, SetStatus, assign_role, assign_to_team, create_team, register_agent,
    remove_agent, remove_from_team, rename_agent, set_status,
};
pub use claim::{Claim, check_claim, claim, release, renew};
pub use error::ActionError;
pub use list::{ACTIONS, Action, Field};
pub use receipt::{ReceiptView, receipt};
pub use reserve::{Reserve, release_reservations, reserve};
pub use search::{Found, Search, search};
pub use send::{Send, Sent, kind_of, send};
pub use send_team::{SendTeam, send_team};
pub use terminal::run_in_terminal;
pub use wait::{Arrival, Wait, wait};
pub use workflow::{
    complete_phase, list_workflows, start_workflow, stop_workflow, workflow_owner, workflow_state,
};

#[cfg(test)]
#[path = "actions_tests.rs"]
mod tests;
