//! The `switchboard` binary: the command line and its output.
//!
//! Start at [`cli`], then read `commands/<verb>.rs`. Data goes to stdout through [`printer`], everything else to
//! stderr. Errors are reported through [`failure`], with a hint and an exit code.

mod cli;
mod commands;
mod config;
mod context;
mod failure;
mod front;
mod holdings;
mod log;
mod notify;
mod ownership;
mod person;
mod printer;
mod program;
mod show;
mod telemetry;
mod threads;

use std::process::ExitCode;

use switchboard_sys::blocking;

use crate::cli::{Cli, Command};
use crate::context::Context;
use crate::failure::{Exit, Failure};
use crate::printer::Printer;

/// Maximum number of threads for blocking work on files and the database.
///
/// No blocking task waits for another, so the number affects only speed and memory: each thread that ever ran keeps its
/// own heap, and the hub has only four read connections. Tokio's default is 512.
const WAITING_THREADS: usize = 4;

/// Maximum number of threads for blocking work in `serve`. It is higher, because a few clients that wait for a lock
/// must not delay the others.
const WAITING_THREADS_OF_MANY: usize = 64;

/// Number of open files that is enough for any command; `send` needs about 25.
const ENOUGH_FILES: u64 = 64;

/// Number of open files below which the runtime cannot start.
const FEWEST_FILES: u64 = 12;

fn main() -> ExitCode {
    let cli = match Cli::try_parse_grouped() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    telemetry::install_log(cli.global.verbose);
    let printer = Printer::new(cli.global.json);
    if switchboard_sys::platform::open_file_limit().is_some_and(|limit| limit < FEWEST_FILES) {
        let failure = Failure::new("too_few_files", Exit::Failed, "the program cannot start");
        return printer.failure(&name_file_limit(failure));
    }
    if cli.command.is_brief() {
        blocking::run_inline();
    }
    let threads = match cli.command {
        Command::Serve(_) | Command::Router(_) => WAITING_THREADS_OF_MANY,
        _ => WAITING_THREADS,
    };
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(threads).build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return printer.failure(&Failure::from(anyhow::Error::from(error))),
    };
    let run = || runtime.block_on(commands::run(cli.command, Context::new(cli.global, printer)));
    let result = config::check_home().and_then(|()| run());
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => Printer::new(printer.is_json()).failure(&name_file_limit(failure)),
    }
}

/// Adds a hint to a failure if the limit of open files is too low. SQLite only reports that it cannot open a file.
fn name_file_limit(failure: Failure) -> Failure {
    let is_of_system = matches!(failure.exit, Exit::Failed | Exit::Temporary);
    match switchboard_sys::platform::open_file_limit().filter(|limit| is_of_system && *limit < ENOUGH_FILES) {
        Some(limit) => {
            let raise = format!("only {limit} files may be open here; raise the limit (`ulimit -n`)");
            let hint = failure.hint.as_ref().map_or(raise.clone(), |hint| format!("{hint}; {raise}"));
            failure.hint(hint)
        }
        None => failure,
    }
}

/// Reports a usage error, as JSON if requested. `--help` and `--version` are not errors.
fn usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        error.exit();
    }
    let is_json = std::env::args_os().any(|argument| argument == "--json");
    let failed = if is_json {
        let failure = Failure::usage(error.kind().to_string(), &error.to_string());
        Printer::new(true).failure(&Failure { code: usage_code(error), ..failure })
    } else {
        let _ = error.print();
        ExitCode::from(Exit::Usage as u8)
    };
    // Exit code 2 of a hook would block the client's current action.
    if is_hook() { ExitCode::FAILURE } else { failed }
}

/// Returns the failure code of a usage error. Scripts can tell an invalid duration from other mistakes.
fn usage_code(error: &clap::Error) -> &'static str {
    use clap::error::{ContextKind, ContextValue, ErrorKind};
    let Some(ContextValue::String(argument)) = error.get(ContextKind::InvalidArg) else { return "usage" };
    if error.kind() != ErrorKind::ValueValidation {
        return "usage";
    }
    match argument.split(' ').next() {
        Some("--timeout") => "bad_timeout",
        Some("--ttl" | "--for") => "bad_ttl",
        Some("--expires") => "bad_time",
        _ => "usage",
    }
}

/// Returns true if the verb is `hook`, even if the other arguments are invalid.
fn is_hook() -> bool {
    let mut before = std::ffi::OsString::new();
    for argument in std::env::args_os().skip(1) {
        let is_value = before == "--from" || before == "--workspace";
        if !is_value && !argument.to_string_lossy().starts_with('-') {
            return argument == "hook";
        }
        before = argument;
    }
    false
}
