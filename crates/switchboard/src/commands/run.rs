//! The verb `switchboard run`.
//!
//! It puts the person's terminal into raw mode and passes all bytes unchanged, in both directions, through a pty in
//! which the agent's program runs. `outer` is the person's terminal, `keyboard` writes the person's keys and the texts
//! of messages into the pty, `mail` selects what to type, and `session` connects them.

mod keyboard;
mod mail;
mod outer;
mod session;

use std::cell::Cell;
use std::ffi::OsString;
use std::path::Path;

use clap::Args;
use switchboard_core::{AgentId, Name, OFFLINE};
use switchboard_hub::Registration;
use switchboard_sys::lineage::{Launch, LaunchKind, NO_SHARED_DAEMON};

use self::session::{Session, SessionEnd};
use crate::cli::help::examples;
use crate::commands::reap::guard;
use crate::context::Context;
use crate::failure::{Exit, Failure};
use crate::log;

/// Run an agent's program in this terminal so that messages can be typed into it.
///
/// You use the program as usual. Messages of kind `execute` to the agent are typed into its empty input field as if you
/// had typed them, and never while it shows a question.
#[derive(Debug, Args)]
#[command(after_long_help = examples![
    "switchboard run --name codex -- codex",
    "switchboard run --name reviewer --role reviewer --notify-mail -- claude --continue",
])]
pub(crate) struct Run {
    /// The agent of this terminal; registered if it is unknown
    #[arg(long)]
    name: String,

    /// Set its role: lead, coder 1, coder 2, reviewer, tester, researcher, execution …
    #[arg(long)]
    role: Option<String>,

    /// Also type a one-line notice of new messages when the terminal is quiet
    #[arg(long)]
    notify_mail: bool,

    /// The program and its arguments, after `--`
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

pub(crate) async fn run(args: Run, context: Context) -> Result<(), Failure> {
    let name = Name::parse(&args.name)?;
    let folder = context.workspace_folder()?.canonicalize().map_err(anyhow::Error::from)?;
    let open = context.open_running().await?;
    let workspace = open.workspace.clone();
    let known =
        workspace.register(Registration { role: args.role.clone(), ..Registration::mailbox(name) }).await?;
    let agent: AgentId = known.id;
    let post = workspace.acquire_terminal(&agent.name).await?;
    let [name, launcher] = Launch::by_this_process(LaunchKind::Run, agent.name.as_str()).variables();
    let environment = [
        (name.0, OsString::from(name.1)),
        (launcher.0, OsString::from(launcher.1)),
        ("SWITCHBOARD_WORKSPACE_ROOT", folder.into_os_string()),
    ];
    let reapers = guard().ok_or_else(|| anyhow::anyhow!("this program's own file cannot be found"))?;
    let started = Session::start(&command_line(&args.command), &environment, reapers).await;
    let session = started.map_err(|error| {
        let program = args.command.first().map(|program| program.display().to_string()).unwrap_or_default();
        Failure::new("not_started", Exit::Failed, format!("cannot run `{program}`: {error}"))
            .hint("check the command after `--`, and that it is in PATH")
    })?;
    let held = log::Hold::start();
    let (turns, wanted) = tokio::sync::mpsc::channel(1);
    let config = &workspace.config().terminals;
    let notices = args.notify_mail || config.notify_mail;
    let is_typing = Cell::new(false);
    let mail = mail::type_mail(post, session.pid(), notices, turns, &is_typing);
    let ended = session.run(wanted, config.idle, mail, &is_typing).await;
    drop(held);
    let how = match &ended {
        Ok(SessionEnd { code }) => format!("its program ended with code {code}"),
        Err(error) => format!("its terminal failed: {error}"),
    };
    if let Err(error) = workspace.set_status(&agent, OFFLINE, Some(&how)).await {
        tracing::warn!(error = %error, "the end of the terminal could not be noted");
    }
    open.close().await;
    let ended = ended.map_err(anyhow::Error::from)?;
    // Pass on the program's exit code as is, not as one of ours.
    std::process::exit(ended.code);
}

/// Builds the command line of the program. Codex gets an option that stops another session's daemon from serving this
/// session.
fn command_line(command: &[OsString]) -> Vec<OsString> {
    let mut words = command.to_vec();
    let is_codex = |program: &OsString| Path::new(program).file_stem().is_some_and(|stem| stem == "codex");
    if words.first().is_some_and(is_codex) {
        words.splice(1..1, NO_SHARED_DAEMON.map(OsString::from));
    }
    words
}
