//! Workflows: work in phases, each of which is done when its evidence is there.
//!
//! A [`Workflow`] is data: eight are built in, `.switchboard/workflows/*.json` replaces them or adds
//! others. [`rules`] says what may follow what, as functions of values; where a workflow stands is kept
//! in `state.json`, in the session or in an agent's record, and changed under its lock. So several
//! processes, and programs of others, can work on one workflow, and a restart forgets nothing.
//!
//! An agent is under its own workflow where it has one, and under the session's otherwise.

mod artifacts;
mod definition;
mod error;
mod library;
mod progress;
mod routing;
mod rules;
mod summary;
mod tools;
mod workflow_state;

pub(crate) use self::artifacts::locate;
pub use self::artifacts::{Artifact, MissingArtifact};
pub use self::definition::{ArtifactPattern, Phase, Workflow, WorkflowRoute};
pub use self::error::WorkflowError;
pub use self::library::{SkippedWorkflow, WorkflowLibrary};
pub use self::progress::{CompletePhase, StartWorkflow};
pub use self::rules::{PhaseCompleted, WorkflowStarted, WorkflowStopped};
pub use self::workflow_state::Target;
pub(crate) use self::workflow_state::is_any_active;
