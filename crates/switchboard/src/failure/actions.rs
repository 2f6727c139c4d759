//! Conversion of action errors into failures.

use switchboard_actions::{Action, ActionError};
use switchboard_core::Kind;

use super::{Exit, Failure};
use crate::show;

impl Failure {
    /// Builds the failure of a rejected action, with its fields named as the verb's options.
    pub(crate) fn of_action(action: &str, error: ActionError) -> Self {
        let action = Action::named(action);
        let option = |field: &'static str| action.and_then(|action| action.option(field)).unwrap_or(field);
        match error {
            ActionError::EmptyText => Self::new("no_text", Exit::Usage, "the text is empty")
                .hint("say something, or carry data with --metadata"),
            ActionError::Empty { field } => {
                Self::new("bad_field", Exit::Usage, format!("{} is empty", option(field)))
                    .hint("give it a value, or leave it out")
            }
            ActionError::Invalid { field, problem } => {
                Self::new("bad_field", Exit::Usage, format!("{} {problem}", option(field)))
            }
            ActionError::Conflict { first, second } => {
                let message = format!("{} and {} exclude each other", option(first), option(second));
                Self::new("bad_field", Exit::Usage, message)
            }
            ActionError::ReplacesNoTask { kind } => {
                Self::new("bad_kind", Exit::Usage, format!("--replace is for tasks, and this is {kind}"))
                    .hint("leave out --replace, or send it as delegate_task")
            }
            ActionError::UnknownKind { near, .. } => {
                let failure = Self::new("bad_kind", Exit::Usage, error.to_string());
                match near {
                    Some(near) => failure.hint(format!("did you mean '{near}'?")),
                    None => failure.hint(format!("use one of {}", Kind::ACTIONS.join(", "))),
                }
            }
            ActionError::BadClaim { given } => {
                let message = format!("--claim '{}' is not TASK:NUMBER", given.escape_debug());
                Self::new("bad_claim", Exit::Usage, message)
                    .hint("the number is the one that `switchboard claim` gave")
            }
            ActionError::NotReserved { patterns } => {
                let quoted: Vec<String> =
                    patterns.iter().map(|pattern| format!("'{}'", show::inline(pattern))).collect();
                let message = format!("{} is not reserved by you in this tree", quoted.join(", "));
                Self::new("not_reserved", Exit::NotFound, message)
                    .hint("`switchboard reserve` lists all reservations")
            }
            ActionError::NotLocal { .. } => Self::new("not_local", Exit::NotAllowed, error.to_string()),
            ActionError::Workspace(error) => error.into(),
            ActionError::Name(error) => error.into(),
            ActionError::Task(error) => error.into(),
            ActionError::Tree(error) => error.into(),
        }
    }
}
