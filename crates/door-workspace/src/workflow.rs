//! Workflows: work in phases, each of which is completed with evidence.
//!
//! A [`Workflow`] is data. Eight workflows are built in, and `.switchboard/workflows/*.json` replaces them or adds
//! others. [`rules`] implements the transitions as pure functions. The progress of a workflow is stored in
//! `state.json`, in the session or in an agent's record, and changed under the lock of `state.json`. Therefore several
//! processes and programs can work on one workflow, and a restart loses nothing.
//!
//! An agent is governed by its own workflow if it has one, otherwise by the workflow of the session.

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

pub use self::artifacts::{Artifact, MissingArtifact, locate_artifact};
pub use self::definition::{ArtifactPattern, Phase, Workflow, WorkflowRoute};
pub use self::error::WorkflowError;
pub use self::library::{SkippedWorkflow, WorkflowLibrary};
pub use self::progress::{CompletePhase, StartWorkflow};
pub use self::rules::{PhaseCompleted, WorkflowStarted, WorkflowStopped};
pub use self::workflow_state::{Target, is_any_workflow_active};
