//! Door 1: mailboxes, receipts, `state.json`, teams and workflows in `.switchboard/`.
//!
//! Implements the Switchboard Protocol, file side. [`Workspace`] is what the command line and the MCP
//! tools work with; [`run`] keeps a workspace going: it takes in what other programs put into
//! mailboxes, delivers what the hub hands over, and keeps house; [`run_terminals`] types into terminals.
//! Knows nothing of channels, workers or peers.

mod config;
mod delivery;
mod error;
mod find;
mod housekeeping;
mod ids;
mod inspect;
mod intake;
mod letters;
mod mailbox;
mod mcp;
mod own_files;
mod personas;
mod problems;
mod rebuild;
mod receipts;
mod registration;
mod repair;
mod retention;
mod roles;
mod run;
mod showing;
mod snapshot;
mod state;
mod team_mail;
mod terminal;
#[cfg(test)]
mod test_workspace;
mod translate;
mod tree;
mod watch;
pub mod wire;
mod workflow;
mod workspace;

pub use config::{Config, Retention};
pub use error::WorkspaceError;
pub use ids::{file_name, from_native, native_of, to_native};
pub use inspect::{Finding, inspect, inspect_extent};
pub use intake::Swept;
pub use mcp::{Profile, ToolConfig, ToolServer, call_key, is_prompt, may_repeat, says_who, tool_names};
pub use personas::Persona;
pub use problems::Problem;
pub use registration::{ChatRegistration, TerminalRegistration};
pub use roles::{Role, RoleError};
pub use run::{run, run_deliveries};
pub use showing::{Digest, Unasked};
pub use state::{AgentState, StateFile};
pub use team_mail::{MemberSent, TeamLetter, TeamMailError, TeamSent};
pub use terminal::{
    Emulator, Execute, ExecuteResult, InputMode, Notice, Notices, Obstacle, Refusal, Screen, Step, Stray,
    TerminalConfig, TerminalOutcome, TerminalPost, TerminalRun, Typist, check_field, close_completion,
    keystrokes, neutral, paste_end, run_terminals,
};
pub use tree::{FOLDER, Section, Tree};
pub use workflow::{
    Artifact, CompletePhase, LeftOut, Library, Missing, Pattern, Phase, PhaseCompleted, StartWorkflow,
    Started, Stopped, Target, Workflow, WorkflowError, WorkflowRoute,
};
pub use workspace::{Letter, Workspace};
