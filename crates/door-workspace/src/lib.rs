//! Door 1: mailboxes, receipts, `state.json` and teams in `.switchboard/`.
//!
//! Implements the Switchboard Protocol, file side. [`Workspace`] is what the command line and the MCP
//! tools work with; [`run`] keeps a workspace going: it takes in what other programs put into
//! mailboxes, delivers what the hub hands over, and keeps house. Knows nothing of channels, child
//! processes or peers.

mod config;
mod delivery;
mod error;
mod housekeeping;
mod ids;
mod inspect;
mod intake;
mod mailbox;
mod problems;
mod rebuild;
mod receipts;
mod repair;
mod run;
mod state;
#[cfg(test)]
mod test_workspace;
mod translate;
mod tree;
pub mod wire;
mod workspace;

pub use config::{Config, Retention};
pub use error::WorkspaceError;
pub use ids::{file_name, from_native, native_of, to_native};
pub use inspect::{Finding, inspect};
pub use intake::Swept;
pub use problems::Problem;
pub use run::{run, run_deliveries};
pub use state::{AgentState, StateFile};
pub use tree::{FOLDER, Section, Tree};
pub use workspace::{Letter, Workspace};
