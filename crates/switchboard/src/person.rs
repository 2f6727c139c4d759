//! Gate for decisions that only a person may make.
//!
//! A process belongs to an agent if its environment or its ancestors say so ([`Lineage`]). Such a process cannot decide
//! for the person, under any name and with any option. For any other process, the person is asked on the terminal;
//! without a terminal, `--yes` is required.

use std::io::{BufRead, IsTerminal, Write};
use std::sync::LazyLock;

use clap::Args;
use switchboard_sys::lineage::{Evidence, Lineage};

use crate::context::Context;
use crate::failure::{Exit, Failure};

/// The lineage of this process, which does not change.
static LINEAGE: LazyLock<Lineage> = LazyLock::new(Lineage::of_this_process);

/// Evidence that this process belongs to an agent.
static EVIDENCE: LazyLock<Option<Evidence>> = LazyLock::new(|| lineage().evidence());

/// Failure code: the person declined.
pub(crate) const NOT_AGREED: &str = "not_agreed";

/// The flag by which a person agrees without being asked.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct Consent {
    /// Agree without being asked; needed where there is no terminal
    #[arg(short, long)]
    pub(crate) yes: bool,
}

/// Returns the lineage of this process.
pub(crate) fn lineage() -> &'static Lineage {
    &LINEAGE
}

/// Returns the evidence that this process belongs to an agent; `None` for a person's process.
pub(crate) fn agent_evidence() -> Option<&'static Evidence> {
    EVIDENCE.as_ref()
}

/// Checks that a person made the decision: rejects agents, and asks on the terminal or requires `yes`.
///
/// `action` completes the sentence "only a person may …", for example `approve dave`. The question is formed from it
/// too.
pub(crate) fn require_person(context: &Context, action: &str, yes: bool) -> Result<(), Failure> {
    refuse_agent(context, action)?;
    if yes {
        return Ok(());
    }
    if !can_ask(context) {
        let message = format!("cannot ask a person whether to {action}: there is no terminal");
        return Err(Failure::new("consent_needed", Exit::NotAllowed, message).hint("agree with --yes"));
    }
    if ask(&question(action)) {
        return Ok(());
    }
    let message = format!("you did not agree to {action}; nothing was changed");
    Err(Failure::new(NOT_AGREED, Exit::NotAllowed, message).hint("answer y, or agree with --yes"))
}

/// Rejects the action in an agent's process or under an agent's name, without asking a person.
pub(crate) fn refuse_agent(context: &Context, action: &str) -> Result<(), Failure> {
    if let Some(evidence) = agent_evidence() {
        return Err(refusal(action, evidence));
    }
    match context.named()? {
        Some(agent) if !agent.is_human() => {
            let message = format!("only a person may {action}, and you are {agent}");
            Err(Failure::new("not_allowed", Exit::NotAllowed, message)
                .hint("ask the person to run this without --from"))
        }
        _ => Ok(()),
    }
}

/// Builds the failure for a decision that an agent's process may not make.
pub(crate) fn refusal(action: &str, evidence: &Evidence) -> Failure {
    let message = format!("only a person may {action}, and this process is an agent's: {evidence}");
    Failure::new("not_allowed", Exit::NotAllowed, message)
        .hint("ask the person to run this in a terminal that no agent's program has started")
}

/// Returns true if a person can be asked on the terminal.
pub(crate) fn can_ask(context: &Context) -> bool {
    !context.printer.is_json() && std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// Asks a question on the terminal. Any answer other than yes declines.
pub(crate) fn ask(question: &str) -> bool {
    let mut err = anstream::stderr().lock();
    if write!(err, "{question} [y/N] ").and_then(|()| err.flush()).is_err() {
        return false;
    }
    let mut answer = String::new();
    let read = std::io::stdin().lock().read_line(&mut answer);
    read.is_ok() && matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}

/// Formats an action as a question.
fn question(action: &str) -> String {
    let mut letters = action.chars();
    let first = letters.next().map(|character| character.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}?", letters.as_str())
}
