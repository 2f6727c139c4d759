//! Door 1: mailboxes, receipts, `state.json`, teams and workflows in `.switchboard/`.
//!
//! Implements the file side of the Switchboard Protocol. [`Workspace`] is the handle for the operations of people and
//! agents. [`run`] keeps a workspace running: it ingests files that other programs put into mailboxes, delivers the
//! hub's handoffs, and runs housekeeping. [`run_terminals`] types into terminals. This crate knows nothing of channels,
//! workers or peers.

mod config;
mod delivery;
mod error;
mod housekeeping;
mod ids;
mod inspect;
mod intake;
mod mailbox;
mod own_files;
mod personas;
mod push_mail;
mod rebuild;
mod receipts;
mod registration;
mod rejected_files;
pub mod render;
mod repair;
mod resolve_id;
mod retention;
mod roles;
mod run;
mod snapshot;
pub mod state;
mod team_send;
mod terminal;
#[cfg(test)]
mod test_workspace;
mod translate;
mod tree;
mod watcher;
pub mod wire;
mod workflow;
mod workspace;

pub use config::{Config, Retention};
pub use error::WorkspaceError;
pub use ids::{file_name, from_native, native_id, to_native};
pub use inspect::{Finding, inspect, inspect_extent};
pub use intake::ScanSummary;
pub use personas::Persona;
pub use push_mail::{Digest, PushPolicy};
pub use registration::{ChatRegistration, TerminalRegistration, check_title};
pub use rejected_files::RejectedFile;
pub use roles::{Role, RoleError};
pub use run::{run, run_deliveries};
pub use snapshot::{COUNTED, INBOX_PAGE, Inbox, MailboxView, Snapshot};
pub use state::{AgentState, StateFile};
pub use team_send::{MemberSendResult, OutgoingTeamMessage, TeamSendError, TeamSendResult};
pub use terminal::{
    EXECUTE, Emulator, ExecuteRequest, ExecuteResult, InputMode, LeftoverText, Notice, Notices, Obstacle,
    Refusal, Screen, Step, TerminalConfig, TerminalExecutor, TerminalOutcome, TerminalRun, Typist,
    check_field, dismiss_completion, encode_keystrokes, paste_end, run_terminals, sanitize_input,
};
pub use tree::{FOLDER, Section, Tree};
pub use workflow::{
    Artifact, ArtifactPattern, CompletePhase, MissingArtifact, Phase, PhaseCompleted, SkippedWorkflow,
    StartWorkflow, Target, Workflow, WorkflowError, WorkflowLibrary, WorkflowRoute, WorkflowStarted,
    WorkflowStopped, is_any_workflow_active, locate_artifact,
};
pub use workspace::{OutgoingMessage, SendPermit, Workspace};
