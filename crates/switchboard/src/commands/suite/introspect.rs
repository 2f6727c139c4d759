//! The verb `switchboard suite introspect`.

use clap::Args;
use door_suites::{Caller, Suites};
use serde_json::{Value, json};

use super::call::{Answer, ask};
use crate::cli::help::examples;
use crate::cli::values::number;
use crate::context::Context;
use crate::failure::Failure;

/// Show a server's tools, one line each, as a model sees them.
#[derive(Debug, Args)]
#[command(after_long_help = examples![
    "switchboard suite introspect git",
    "switchboard suite introspect git --subtool git_log",
    "switchboard suite introspect --query 'commit history'",
])]
pub(crate) struct Introspect {
    /// The server [default: all servers]
    name: Option<String>,
    /// Show one tool with its full description and schema
    #[arg(long, value_name = "TOOL", requires = "name")]
    subtool: Option<String>,
    /// Show the tools that match these words best
    #[arg(long, value_name = "WORDS")]
    query: Option<String>,
    /// Include the schemas of the arguments
    #[arg(long)]
    full: bool,
    /// Show at most this many entries
    #[arg(short = 'n', long, value_name = "N", value_parser = number::<usize>)]
    limit: Option<usize>,
    /// Continue a list where the previous answer ended
    #[arg(long, requires = "name")]
    cursor: Option<String>,
}

pub(crate) async fn run(args: Introspect, context: Context) -> Result<(), Failure> {
    let suites = super::open(&context).await?;
    let shown = show(&args, &suites, &context).await;
    suites.close().await;
    shown
}

async fn show(args: &Introspect, suites: &Suites, context: &Context) -> Result<(), Failure> {
    let question = json!({
        "action": "introspect",
        "subtool": args.subtool,
        "query": args.query,
        "mode": args.full.then_some("full"),
        "limit": args.limit,
        "cursor": args.cursor,
    });
    if let Some(name) = &args.name {
        let answer = ask(suites, name, &question, &Caller::default()).await?.succeeded()?;
        print(context, name, &answer);
        return Ok(());
    }
    let names = suites.children();
    if names.is_empty() {
        context.printer.note("No MCP servers yet; `switchboard suite add NAME -- COMMAND` adds one.");
    }
    for name in &names {
        // A server that cannot be queried must not hide the results of the others.
        let answer = ask(suites, name, &question, &Caller::default()).await?;
        print(context, name, &answer);
    }
    Ok(())
}

fn print(context: &Context, name: &str, answer: &Answer) {
    let text = answer.text();
    if !context.printer.is_json() {
        context.printer.line(format_args!("# {name}\n{text}"));
        return;
    }
    // The full form is JSON; the other forms are plain lines for people and models.
    match serde_json::from_str::<Value>(&text) {
        Ok(Value::Object(mut tools)) => {
            tools.insert("suite".to_owned(), json!(name));
            context.printer.object(&tools);
        }
        _ => context.printer.object(&json!({ "suite": name, "text": text, "failed": answer.is_error() })),
    }
}
