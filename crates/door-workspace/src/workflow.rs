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
mod node;
mod progress;
mod routing;
mod rules;
mod summary;
mod tools;

pub(crate) use self::artifacts::locate;
pub use self::artifacts::{Artifact, Missing};
pub use self::definition::{Pattern, Phase, Workflow, WorkflowRoute};
pub use self::error::WorkflowError;
pub use self::library::{LeftOut, Library};
pub use self::node::Target;
pub(crate) use self::node::is_any_active;
pub use self::progress::{CompletePhase, StartWorkflow};
pub use self::rules::{PhaseCompleted, Started, Stopped};
