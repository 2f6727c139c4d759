//! The verb `switchboard suite add`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use door_suites::{
    AddOutcome, CommandLine, McpFile, SuiteError, TransportKind, TrustStore, add_child, child_name,
    is_reserved,
};
use serde_json::json;

use super::{Workspace, typed};
use crate::cli::help::examples;
use crate::context::Context;
use crate::failure::{Exit, Failure};
use crate::person::refuse_agent;

/// Add a server: a command after `--`, or an address with --url.
///
/// A server that a person adds is trusted at once.
#[derive(Debug, Args)]
#[command(after_long_help = examples![
    "switchboard suite add memory -- npx -y @modelcontextprotocol/server-memory",
    "switchboard suite add linear --url https://mcp.linear.app/mcp --header 'Authorization=Bearer ${LINEAR_TOKEN}'",
])]
pub(super) struct Add {
    /// The server's name here; `@scope/pkg` becomes `scope-pkg`
    name: String,
    /// Set a variable of the server; `${VAR}` in the value is expanded at start (repeatable)
    #[arg(long, value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// Start the program in this folder [default: the current folder]
    #[arg(long, value_name = "FOLDER", conflicts_with = "url")]
    cwd: Option<PathBuf>,
    /// Describe the server to models
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// Connect to a running server at this address
    #[arg(long, conflicts_with_all = ["command", "env"])]
    url: Option<String>,
    /// Set the transport of the address: http, sse or ws [default: http]
    #[arg(long = "type", value_name = "TYPE", requires = "url")]
    transport: Option<String>,
    /// Send this header with every request (repeatable)
    #[arg(long, value_name = "NAME=VALUE", requires = "url")]
    header: Vec<String>,
    /// The program and its arguments, after `--`
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

pub(super) fn run(args: Add, workspace: &Workspace, context: &Context) -> Result<(), Failure> {
    let name = child_name(&args.name)?;
    refuse_agent(context, &format!("add {name} and so trust it"))?;
    if is_reserved(&name) || is_reserved(&workspace.settings.suites.suite_name(&name)) {
        let message = format!("'{name}' is what a tool of Switchboard itself is called");
        return Err(Failure::new("name_taken", Exit::Failed, message).hint("choose another name"));
    }
    let file = file_of(args, &name, &workspace.places.workspace)?;
    if let Some(other) = workspace.discover().child(&name) {
        return Err(SuiteError::NameTaken { name, file: other.file.clone() }.into());
    }
    match add_child(&workspace.places, &name, &file, true)? {
        AddOutcome::Added | AddOutcome::Same => {}
        AddOutcome::Differs { file } => return Err(SuiteError::NameTaken { name, file }.into()),
    }
    TrustStore::load(&workspace.places).grant_file(&name, &file)?;
    let found = workspace.discover();
    let path = workspace.places.workspace.join(".switchboard/mcps").join(&name).join(".mcp.json");
    let tool = workspace.settings.suites.suite_name(&name);
    let problem = found.issues.iter().find(|problem| problem.file == path).map(|problem| &problem.message);
    let problem = problem.or_else(|| found.child(&name)?.unready.as_ref());
    if context.printer.is_json() {
        context.printer.object(&json!({
            "name": name, "tool": tool, "file": workspace.shown(&path), "state": "trusted", "problem": problem,
        }));
        return Ok(());
    }
    context.printer.line(format_args!("Added {name} as the tool {tool}, in {}.", workspace.shown(&path)));
    match problem {
        Some(problem) => context.printer.line(format_args!("It cannot start yet: {problem}.")),
        None => context.printer.note(format_args!(
            "`switchboard suite list` shows it; `switchboard suite remove {}` takes it out again.",
            typed(&name)
        )),
    }
    Ok(())
}

/// Builds the server's file from the arguments.
fn file_of(args: Add, name: &str, workspace: &Path) -> Result<McpFile, Failure> {
    let mut file = McpFile {
        name: Some(name.to_owned()),
        switchboard_description: args.description,
        ..McpFile::default()
    };
    if let Some(url) = args.url {
        file.transport = Some(match args.transport.as_deref() {
            None | Some("http") => TransportKind::Http,
            Some("sse") => TransportKind::Sse,
            Some("ws") => TransportKind::Ws,
            Some(other) => {
                let message = format!("--type is '{}', but must be http, sse or ws", other.escape_debug());
                return Err(Failure::new("bad_field", Exit::Usage, message));
            }
        });
        (file.url, file.headers) = (Some(url), pairs("header", &args.header)?);
        return Ok(file);
    }
    let mut words = args.command.into_iter();
    let Some(cmd) = words.next() else {
        return Err(Failure::new("usage", Exit::Usage, "neither a command nor --url was given")
            .hint(format!("switchboard suite add {} -- npx -y PACKAGE", typed(name))));
    };
    file.command = Some(CommandLine { cmd, args: words.collect(), env: pairs("env", &args.env)? });
    file.cwd = Some(folder(args.cwd, workspace)?);
    Ok(file)
}

fn pairs(option: &str, values: &[String]) -> Result<BTreeMap<String, String>, Failure> {
    let pair = |text: &String| match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        // The value may be the secret itself, so the error does not quote it.
        _ => Err(Failure::new(
            "bad_field",
            Exit::Usage,
            format!("a value of --{option} has no '='; write NAME=VALUE"),
        )),
    };
    values.iter().map(pair).collect()
}

/// Returns the folder in which the program starts. A folder inside the workspace is written relative to the file, so
/// that a copy of the repository works elsewhere.
fn folder(chosen: Option<PathBuf>, workspace: &Path) -> Result<String, Failure> {
    let current_folder = std::env::current_dir().map_err(anyhow::Error::from)?;
    let folder = chosen.map_or_else(|| current_folder.clone(), |chosen| current_folder.join(chosen));
    let folder = folder.canonicalize().map_err(|error| {
        let message = format!("--cwd: the folder {} cannot be used: {error}", folder.display());
        Failure::new("bad_field", Exit::Usage, message)
    })?;
    Ok(match folder.strip_prefix(workspace) {
        Ok(below) if below.as_os_str().is_empty() => "../../..".to_owned(),
        Ok(below) => format!("../../../{}", below.display()),
        Err(_) => folder.display().to_string(),
    })
}
