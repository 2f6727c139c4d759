//! Translation of the router's rejections into terms of the command line.

use crate::failure::{Exit, Failure};

const JOBS: &str = "`switchboard worker list` shows the jobs and their states";

/// Fields of router commands, and the command-line options that set them.
const OPTIONS: [(&str, &str); 17] = [
    ("payload.agent", "--agent"),
    ("payload.nodes", "--nodes"),
    ("payload.prompt", "--prompt"),
    ("payload.instructions", "--instructions"),
    ("payload.name", "--name"),
    ("payload.cwd", "--cwd"),
    ("payload.folders", "--folders"),
    ("payload.model", "--model"),
    ("payload.sandbox", "--sandbox"),
    ("payload.approval_policy", "--ask"),
    ("payload.input", "--input"),
    ("payload.env", "--env"),
    ("payload.limits.turn_seconds", "--timeout"),
    ("payload.limits.total_tokens", "--budget"),
    ("payload.program", "PROGRAM"),
    ("payload.content", "TEXT"),
    ("payload.from_seq", "--since"),
];

/// Converts a `command_rejected` event into a failure.
pub(crate) fn refusal(code: &str, field: Option<&str>, reason: &str) -> Failure {
    let is_program = field == Some("payload.program");
    let (code, exit, hint) = match code {
        "unknown_job" => ("unknown_job", Exit::NotFound, JOBS),
        "unknown_node" => ("unknown_node", Exit::NotFound, JOBS),
        "unknown_approval" => (
            "unknown_approval",
            Exit::NotFound,
            "`switchboard worker approve` lists what waits for an answer",
        ),
        "not_allowed" => ("not_allowed", Exit::NotAllowed, JOBS),
        "queue_full" => ("queue_full", Exit::Temporary, "`switchboard worker queue` shows what waits"),
        "not_accepted" => ("not_accepted", Exit::Temporary, "`switchboard doctor` looks at the journal"),
        "not_now" => ("not_now", Exit::Temporary, JOBS),
        "job_over" => ("job_over", Exit::Failed, "`switchboard worker launch` starts another"),
        "over_budget" => {
            ("over_budget", Exit::Failed, "`switchboard worker launch --budget N` starts another with more")
        }
        "cursor_expired" => ("cursor_expired", Exit::Failed, "`--since 0` shows what is kept"),
        "cannot_start" if is_program => ("cannot_start", Exit::Failed, "name the program after `--`"),
        "cannot_start" => ("cannot_start", Exit::Failed, JOBS),
        "bad_field" => {
            ("bad_field", Exit::Usage, "correct it; `switchboard worker --help` lists the options")
        }
        _ => ("rejected", Exit::Failed, JOBS),
    };
    Failure::new(code, exit, name_option(field, reason)).hint(hint)
}

/// Replaces the protocol name of a field in a reason by the option's name.
fn name_option(field: Option<&str>, reason: &str) -> String {
    let named = field.and_then(|field| Some((field, reason.strip_prefix(field)?.strip_prefix(": ")?)));
    let Some((field, problem)) = named else { return reason.to_owned() };
    match OPTIONS.iter().find(|(known, _)| *known == field) {
        Some((_, word)) => format!("{word}: {problem}"),
        // The text of the problem already names the job, node or approval.
        None => problem.to_owned(),
    }
}

#[cfg(test)]
#[path = "refusal_tests.rs"]
mod tests;
